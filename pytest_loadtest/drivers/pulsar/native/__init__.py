"""The driver on Pulsar's wire protocol.

Columns from the engine to the socket, one epoll loop per worker, no threads.

Bottom up: :mod:`~pytest_loadtest.drivers.pulsar.native.link` is one connection,
:mod:`~pytest_loadtest.drivers.pulsar.native.cluster` has all
    connections, requests, timers, and lookups of topics,
:mod:`~pytest_loadtest.drivers.pulsar.native.attachment` is a producer or consumer at one partition,
    from its first lookup to its last reconnect. The hot paths are above them: ``producers`` (with
    ``batching``) and ``consumers`` (with ``arrivals``).
"""
