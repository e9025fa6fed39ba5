"""MQTT without a client library: many connections, one loop, and columns from the engine to the sockets.

:mod:`~pytest_loadtest.drivers.mqtt.native.connection` speaks for one client,
:mod:`~pytest_loadtest.drivers.mqtt.native.inbound` reads what all of them got, together,
:mod:`~pytest_loadtest.drivers.mqtt.native.producers` and :mod:`~pytest_loadtest.drivers.mqtt.native.inbound` are its two sides.
"""
