"""Pulsar's binary protocol without socket and clock: bytes in, events out, like h11.

:mod:`~pytest_loadtest.wire.pulsar.framing` splits a stream of bytes into frames,
:mod:`~pytest_loadtest.wire.pulsar.connection` is one connection from handshake to end,
:mod:`~pytest_loadtest.wire.pulsar.entries` writes and reads the entries of a topic,
:mod:`~pytest_loadtest.wire.pulsar.batches` reads the messages in an entry as columns,
:mod:`~pytest_loadtest.wire.pulsar.chunks` handles messages of several entries. The commands are
protobuf (``api.proto``); unknown fields are skipped, malformed ones are a
:class:`~pytest_loadtest.wire.pulsar.framing.ProtocolError`.

The protocol: https://pulsar.apache.org/docs/developing-binary-protocol/.
"""
