"""One connection, from handshake to end: received bytes to events, and the bytes to send.

Events are the received commands of ``api.proto``, except for the two that exist for every entry
(:class:`Receipt`, :class:`Entry`). The connection itself answers pings and authentication
challenges.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError

from pytest_loadtest.wire.buffers import Outbox
from pytest_loadtest.wire.pulsar import api_pb2 as api
from pytest_loadtest.wire.pulsar.framing import (
    MAX_MESSAGE,
    OVERHEAD,
    FrameDecoder,
    ProtocolError,
    encode_command,
    split_frame,
)

if TYPE_CHECKING:
    from collections.abc import Callable

PROTOCOL_VERSION: Final = 21
# Most answers to pings and challenges that wait to be written. A broker that reads gets one in 30
# s.
_MOST_OWED: Final = 1000
_PONG: Final = encode_command(api.Command(type=api.Command.PONG, pong=api.Pong()))
_PING: Final = encode_command(api.Command(type=api.Command.PING, ping=api.Ping()))
# With these flags the broker may challenge a connection again before its token expires, and it does
# not create a topic when it is asked for its partitions.
_FEATURES: Final = api.FeatureFlags(
    supports_auth_refresh=True,
    supports_broker_entry_metadata=True,
    supports_partial_producer=False,
    supports_get_partitioned_metadata_without_auto_creation=True,
)
_KINDS: Final[dict[int, str]] = {value: name.lower() for name, value in api.Command.Type.items()}


class Receipt(NamedTuple):
    """A receipt: the broker has stored an entry.

    :param producer: its number. :param sequence: sequence id of the entry's first message.
    """

    producer: int
    sequence: int


class Entry(NamedTuple):
    """An entry for a consumer.

    :param ack_set: which messages of a batch are not acknowledged yet, as 64-bit words; empty: all.

    :param epoch: the consumer's epoch when the broker read the entry (PIP-84); -1: not given.
    :param body: for :func:`~pytest_loadtest.wire.pulsar.entries.open_entry`; a view of the received
        bytes.
    """

    consumer: int
    ledger: int
    entry: int
    partition: int
    redeliveries: int
    ack_set: tuple[int, ...]
    body: memoryview
    epoch: int = -1


# Other commands are the message itself: ``api.Connected``, ``api.LookupResponse``, ``api.Error``, …
Event = Receipt | Entry | Any


class PulsarConnection:
    """:param client: name of the client for the broker.

    :param method: of authentication; "none": none.
    :param credentials: returns the data for the method, at the start and for each challenge of the
        broker.
    :param proxy_to: ``host:port`` of the broker to which a proxy connects this connection. :ivar
        ready: the broker has accepted the handshake. :ivar max_message: bytes of the largest
        message that it takes. :ivar frames: number of complete frames received.
    """

    def __init__(
        self,
        client: str,
        method: str,
        credentials: Callable[[], bytes],
        proxy_to: str | None = None,
    ) -> None:
        self._client = client
        self._method = method
        self._credentials = credentials
        self._proxy_to = proxy_to
        self._decoder = FrameDecoder()
        self._outbox = Outbox()
        self._out = self._outbox.buffers
        self.ready = False
        self.max_message = MAX_MESSAGE
        self.frames = self._owed = 0
        # Bound methods of both parts instead of wrappers around them: they are called for every
        # entry. ``add`` appends whole frames, of which no buffer is empty or changes later.
        self.space = self._decoder.space
        self.add = self._out.extend
        self.next = self._outbox.next
        self.sent = self._outbox.sent

    # --- sending

    def open(self) -> None:
        """Send CONNECT; call it once, first."""
        hello = api.Connect(
            client_version=self._client, protocol_version=PROTOCOL_VERSION, feature_flags=_FEATURES
        )
        if self._method != "none":
            hello.auth_method_name = self._method
            hello.auth_data = self._credentials()
        if self._proxy_to is not None:
            hello.proxy_to_broker_url = self._proxy_to
        self.send(api.Command(type=api.Command.CONNECT, connect=hello))

    def send(self, command: api.Command) -> None:
        """Append a command."""
        self._out.append(encode_command(command))

    def ping(self) -> None:
        """Append a PING."""
        self._out.append(_PING)

    @property
    def waiting(self) -> bool:
        """True if there are bytes to send."""
        return bool(self._out)

    # --- receiving

    def filled(self, count: int) -> list[Event]:
        """Return the events of ``count`` more bytes in :meth:`space`.

        :raises ProtocolError: they are not Pulsar's protocol; valid events in the same bytes are
            lost too.
        """
        events: list[Event] = []
        if not self._out:
            self._owed = 0
        # CONNECTED has the limit for the frames after it, which may be in the same bytes.
        while not self.ready and (frames := self._decoder.filled(count, single=True)):
            self._read_frames(frames, events)
            count = 0
        if self.ready:
            self._read_frames(self._decoder.filled(count), events)
        return events

    def _read_frames(self, frames: list[memoryview], events: list[Event]) -> None:
        self.frames += len(frames)
        for frame in frames:
            command, rest = split_frame(frame)
            try:
                self._read(api.Command.FromString(bytes(command)), rest, events)
            except DecodeError as error:
                raise ProtocolError(f"a command of {len(command)} bytes: {error}") from error

    def _read(self, command: api.Command, rest: memoryview, events: list[Event]) -> None:
        kind = command.type
        if kind == api.Command.SEND_RECEIPT:
            receipt = command.send_receipt
            # Fast path, as there is one receipt for every entry: values other than 0 are present,
            # so only others need the check.
            if not (
                receipt.sequence_id and (receipt.producer_id or receipt.HasField("producer_id"))
            ):
                _check(command)
            events.append(Receipt(receipt.producer_id, receipt.sequence_id))
        elif kind == api.Command.MESSAGE:
            _check(command)
            message = command.message
            where = message.message_id
            ack_set = tuple(message.ack_set) if message.ack_set else ()
            epoch = message.consumer_epoch if message.HasField("consumer_epoch") else -1
            events.append(
                Entry(
                    message.consumer_id,
                    where.ledger_id,
                    where.entry_id,
                    where.partition,
                    message.redelivery_count,
                    ack_set,
                    rest,
                    epoch,
                )
            )
        elif kind == api.Command.PING:
            self._owe()
            self._out.append(_PONG)
        elif kind == api.Command.AUTH_CHALLENGE:
            self._owe()
            self._answer(command.auth_challenge)
        # Commands of later versions have numbers that are not in api.proto: they are skipped.
        elif kind in _KINDS:
            _check(command)
            event = getattr(command, _KINDS[kind])
            if not _is_text(event):
                raise ProtocolError(f"a command {_KINDS[kind]} with a text that is not UTF-8")
            if kind == api.Command.CONNECTED:
                self._accept(event)
            events.append(event)

    def _owe(self) -> None:
        self._owed += 1
        if self._owed > _MOST_OWED:
            raise ProtocolError(
                f"more than {_MOST_OWED} pings and challenges, whose answers the broker does not"
                " read"
            )

    def _accept(self, connected: api.Connected) -> None:
        if self.ready:
            raise ProtocolError("a second CONNECTED")
        if connected.HasField("max_message_size"):
            self.max_message = connected.max_message_size
        if self.max_message < 1:
            raise ProtocolError(f"a largest message of {self.max_message} bytes in CONNECTED")
        self.ready = True
        self._decoder.most = self.max_message + OVERHEAD

    def _answer(self, challenge: api.AuthChallenge) -> None:
        answer = api.AuthData(auth_method_name=self._method, auth_data=self._credentials())
        response = api.AuthResponse(
            client_version=self._client, protocol_version=PROTOCOL_VERSION, response=answer
        )
        self.send(api.Command(type=api.Command.AUTH_RESPONSE, auth_response=response))


def _is_text(message: Any) -> bool:
    """Return whether all texts of a message are UTF-8.

    protobuf's parser returns the others as bytes.
    """
    for field, value in message.ListFields():
        if field.type not in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_MESSAGE):
            continue
        values = value if field.is_repeated else (value,)
        if any(
            isinstance(each, bytes) or (not isinstance(each, str) and not _is_text(each))
            for each in values
        ):
            return False
    return True


def _check(command: api.Command) -> None:
    """Check that a command is complete, which protobuf's parser does not do.

    :raises ProtocolError: the part for the command's type or a required field is missing.
    """
    name = _KINDS[command.type]
    if not command.HasField(name):
        raise ProtocolError(f"a command {name} without its part")
    if not command.IsInitialized():
        raise ProtocolError(f"a command {name} without a required field")
