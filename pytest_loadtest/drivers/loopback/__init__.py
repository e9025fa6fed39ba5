"""The loopback relay."""
