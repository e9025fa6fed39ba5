"""Drives load and nothing else: paces bursts into producers, takes what consumers got, records both.

One thread, one loop (:class:`~pytest_loadtest.engine.run.Engine`); the drivers' own threads stay inside the drivers.
"""
