"""Pulsar's binary protocol without a socket and without a clock: bytes in, events out, in the manner of h11.

:mod:`~pytest_loadtest.wire.pulsar.framing` cuts a stream of bytes into frames, :mod:`~pytest_loadtest.wire.pulsar.connection` is one
connection from its handshake to its end, :mod:`~pytest_loadtest.wire.pulsar.entries` makes and opens what a topic stores,
:mod:`~pytest_loadtest.wire.pulsar.batches` is the messages inside of an entry, as columns,
:mod:`~pytest_loadtest.wire.pulsar.chunks` a message that takes several entries. The commands are protobuf (``api.proto``);
what protobuf does not know is skipped, what is malformed is a :class:`~pytest_loadtest.wire.pulsar.framing.ProtocolError`.

The protocol: https://pulsar.apache.org/docs/developing-binary-protocol/.
"""
