"""Pulsar by its wire protocol: columns from the engine to the socket, one epoll loop a worker, no threads.

From the socket up: :mod:`~pytest_loadtest.drivers.pulsar.native.link` is one connection,
:mod:`~pytest_loadtest.drivers.pulsar.native.cluster` all of them with their requests and timers,
:mod:`~pytest_loadtest.drivers.pulsar.native.cluster` which broker has a topic,
:mod:`~pytest_loadtest.drivers.pulsar.native.attachment` a producer or consumer at one partition, from its first lookup to its last
reconnect. On these stand the hot paths: ``producers`` (with ``batching`` and ``packing``) and ``consumers`` (with ``arrivals``).
"""
