"""The load generator: paces bursts into producers, takes arrivals from consumers, and records both.

One thread runs one loop (:class:`~pytest_loadtest.engine.run.Engine`); threads of a driver stay
inside the driver.
"""
