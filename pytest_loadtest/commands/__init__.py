"""``python -m pytest_loadtest``: aggregate, report, doctor, calibrate, learn."""
