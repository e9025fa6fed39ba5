"""``python -m pytest_loadtest``: aggregate, doctor, calibrate, learn."""
