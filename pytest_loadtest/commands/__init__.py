"""``python -m pytest_loadtest``: doctor, calibrate, aggregate, report, compare, trend, learn."""
