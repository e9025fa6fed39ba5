"""pytest-loadtest."""
