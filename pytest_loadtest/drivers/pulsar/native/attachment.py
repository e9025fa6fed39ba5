"""A producer or consumer at one partition.

It looks up its broker, is created there, and reconnects after a loss, with back-off.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Final

from pytest_loadtest.drivers.pulsar.connect_errors import NOT_AUTHORIZED
from pytest_loadtest.drivers.pulsar.native.link import Address, BrokerLink, Refused
from pytest_loadtest.values.quantities import MILLISECOND, SECOND
from pytest_loadtest.wire.pulsar import api_pb2 as api

if TYPE_CHECKING:
    from pytest_loadtest.drivers.pulsar.native.cluster import Cluster

# Time before the first retry; it doubles with each attempt, as in Pulsar's own clients.
_FIRST: Final = 100 * MILLISECOND
# Pulsar's own clients wait up to 60 s: too long for a test that waits for a restarted broker.
_LONGEST: Final = 10 * SECOND
# The same for one that is established again and again, and lost each time before a message came
# through (docs/decisions/041).
_LONGEST_FRUITLESS: Final = 2 * SECOND
# Errors for which a retry does not help: the run fails with the first one.
_FINAL: Final = frozenset(
    {
        api.AuthenticationError,
        api.AuthorizationError,
        api.UnsupportedVersionError,
        api.TopicTerminatedError,
        api.InvalidTopicName,
        api.IncompatibleSchema,
        api.NotAllowedError,
        api.ProducerFenced,
    }
)


class _State(enum.Enum):
    WAITING = enum.auto()
    OPENING = enum.auto()
    OPEN = enum.auto()
    GONE = enum.auto()


class Attachment(ABC):
    """:param topic: full name, with the partition.
    :param number: unique among producers, or among consumers.
    :param name: for error messages, "producer of stream 3".
    :ivar link: the connection on which it is established; None while it is not.
    :ivar progress: a message came through since it was last
        established; also True after the first time.
    """

    __slots__ = (
        "_assigned",
        "_cluster",
        "_delay",
        "_give_up",
        "_proxied",
        "_state",
        "_trying",
        "established",
        "link",
        "name",
        "number",
        "progress",
        "reason",
        "topic",
    )
    kind: ClassVar[str]

    def __init__(self, cluster: Cluster, topic: str, number: int, name: str) -> None:
        self._cluster = cluster
        self.topic = topic
        self.number = number
        self.name = name
        self.link: BrokerLink | None = None
        self._trying: BrokerLink | None = None
        self._assigned: Address | None = None
        self._state = _State.WAITING
        self._delay = 0
        self._give_up = 0
        self.established = self.progress = self._proxied = False
        self.reason = ""

    @abstractmethod
    def command(self, request: int) -> api.Command:
        """Return the command that creates it at its broker."""

    @abstractmethod
    def attached(self, answer: Any) -> None:
        """Handle the success: it is established on ``link``."""

    @property
    def with_reason(self) -> str:
        """The name, and the reason of the last lost connection or failed attempt."""
        return f"{self.name} ({self.reason})" if self.reason else self.name

    # --- connecting

    def open(self) -> None:
        """Begin to connect; call it once."""
        self._give_up = self._cluster.clock() + self._cluster.timeout
        self._cluster.admit(self)

    def begin(self) -> bool:
        """See :class:`~pytest_loadtest.drivers.pulsar.native.link.LinkUser`."""
        if self._state is _State.GONE:
            return False
        self._state = _State.OPENING
        if not self.established and not self._delay:
            self._give_up = self._cluster.clock() + self._cluster.timeout
        address = self._assigned
        self._assigned = None
        if address is not None:
            self._found((address, None))
        else:
            self._cluster.look_up(self.topic, self._found)
        return True

    def _found(self, found: Any) -> None:
        if isinstance(found, Refused):
            return self._answered(found)
        if self._state is not _State.OPENING:
            return None
        address, proxy_to = found
        self._proxied = proxy_to is not None
        # It is registered before the request: the broker may close it before its answer is read.
        link = self._trying = self._cluster.link(address, proxy_to, self.number)
        link.users[self.kind, self.number] = self
        return self._cluster.ask(link, self.command, self._answered)

    def _answered(self, answer: Any) -> None:
        if self._state is not _State.OPENING:
            return None
        link = self._trying
        self._trying = None
        self._cluster.arrived()
        if isinstance(answer, Refused):
            if link is not None:
                link.users.pop((self.kind, self.number), None)
            return self._again(answer)
        if link is not None:
            # Registered again: a CLOSE for its predecessor with this number may have removed it.
            link.users[self.kind, self.number] = self
        self.progress = not self.established
        self._state = _State.OPEN
        self.link = link
        self.established = True
        return self.attached(answer)

    def _again(self, refused: Refused) -> None:
        """Retry later, or fail if a retry does not help."""
        self._state = _State.WAITING
        self.reason = refused.message
        # One that was never established fails after operationTimeout. One that was
        # established retries until the run ends, except that a topic that stays
        # missing for operationTimeout no longer exists.
        late = self._cluster.clock() > self._give_up
        unreachable = refused.error is None and self._cluster.unreachable
        if (
            refused.error in _FINAL
            or unreachable
            or (late and (not self.established or refused.error == api.TopicNotFound))
        ):
            return self.fail(self._failure(refused))
        self._delay = min(max(2 * self._delay, _FIRST), _LONGEST)
        return self._cluster.after(self._delay, self._retry)

    def _retry(self) -> None:
        if self._state is _State.WAITING:
            self._cluster.admit(self)

    def fail(self, why: str) -> None:
        """Report that it cannot connect or go on; the cluster's next turn raises the error."""
        self._cluster.failures.append(why)

    def _failure(self, refused: Refused) -> str:
        if refused.error == api.TopicNotFound and self.established:
            return f"{self.name}: {self.topic} does not exist any more: {refused.message}"
        remedy = f": {NOT_AUTHORIZED}" if refused.error == api.AuthorizationError else ""
        failed = "go on" if self.established else f"connect to {self._cluster.url}"
        return f"{self.name} cannot {failed}: {refused.message}{remedy}"

    # --- losing and leaving

    def lost(self, reason: str, address: Address | None) -> None:
        """Reconnect after its connection was lost or the broker closed it.

        :param address: the topic's new broker; None: unknown.
        """
        if self._state is not _State.OPEN:
            return
        self.link = None
        self.reason = reason
        self._state = _State.WAITING
        self._give_up = self._cluster.clock() + self._cluster.timeout
        if self._proxied:
            address = None
            # Behind a proxy the brokers' own addresses may be
            # unreachable: only a lookup names the proxy.
        # Without progress the delay of the last time doubles: each time all unanswered entries are
        # sent again, which a cluster that cannot store them does not need. If the broker named the
        # topic's next broker, no lookup and at first no delay is needed.
        at_once = address is not None and self.progress
        self._assigned = address
        self._delay = (
            _FIRST if self.progress else min(max(2 * self._delay, _FIRST), _LONGEST_FRUITLESS)
        )
        self._cluster.after(0 if at_once else self._delay, self._retry)

    def leave(self) -> BrokerLink | None:
        """Stop for ever.

        :returns: the connection on which it is, or is being, established: the caller closes it
            there.
        """
        before = self._state
        self._state = _State.GONE
        link = self.link or self._trying
        self.link = self._trying = None
        if link is not None:
            link.users.pop((self.kind, self.number), None)
        if before is _State.OPENING:
            self._cluster.arrived()
        return link
