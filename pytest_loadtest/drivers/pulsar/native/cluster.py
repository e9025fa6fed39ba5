"""All connections of a worker to one cluster, and the loop that serves them.

Requests, lookups and timers belong to it.
"""

from __future__ import annotations

import heapq
import select
from collections import defaultdict, deque
from functools import partial
from itertools import count, cycle
from typing import TYPE_CHECKING, Any, Final

from pytest_loadtest.drivers.pulsar.native.link import (
    Address,
    BrokerLink,
    Came,
    LinkUser,
    Refused,
    join_failures,
)
from pytest_loadtest.errors import TargetError
from pytest_loadtest.values.quantities import MILLISECOND, SECOND
from pytest_loadtest.wire.pulsar import api_pb2 as api
from pytest_loadtest.wire.pulsar.connection import Entry, PulsarConnection, Receipt
from pytest_loadtest.wire.pulsar.framing import MAX_MESSAGE

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Sequence

    from pytest_loadtest.drivers.arrival_clock import ArrivalClock

    Done = Callable[[Any], None]
    "Called with the answer: a message of ``api.proto``, or :class:`Refused`."


# Requests and their answers; the answer to all others is Success.
_ANSWERS: Final[dict[int, str]] = {
    api.Command.LOOKUP: "LookupResponse",
    api.Command.PARTITIONED_METADATA: "PartitionedMetadataResponse",
    api.Command.PRODUCER: "ProducerSuccess",
}
# Violations of the protocol after which the run ends. One of them may be damage in transfer, for
# which a new connection is enough.
_MOST_VIOLATIONS: Final = 10
_KEEP_ALIVE: Final = 5 * SECOND  # between two checks for silent connections
# Default for the producers and consumers that are being established at a time.
ON_THEIR_WAY: Final = 200
_READ: Final = select.EPOLLIN
_WRITE: Final = select.EPOLLOUT
_BROKEN: Final = select.EPOLLERR | select.EPOLLHUP


def _unasked(event: object, came: object) -> str:
    return "the broker sent a receipt, an entry or an error that was not requested"


class Cluster:
    """:param url: ``pulsar://host:6650[,host2:6650]``.
    :param method: of authentication.
    :param credentials: data for it.
    :param connections: number per broker.
    :param timeout: ns that a request may take.
    :param arrivals: the clock of arrivals.
    :param most: most producers and consumers that are being established at a time.
    :param sources: source addresses that connections come from in turn; empty: the system chooses.
    :ivar on_receipt: called for each entry that a broker has stored.
    :ivar on_entry: called for each received entry.
    :ivar on_error: called for each entry that a broker rejected.
    :ivar credentials_remedy: what to check if a broker rejects the client's.
    """

    def __init__(
        self,
        url: str,
        *,
        client: str,
        method: str,
        credentials: Callable[[], bytes],
        tls: ssl.SSLContext | None,
        connections: int,
        timeout: int,
        arrivals: ArrivalClock,
        most: int = ON_THEIR_WAY,
        sources: Sequence[str] = (),
    ) -> None:
        self.url = url
        scheme, _, hosts = url.partition("://")
        self._services = [Address.of(f"{scheme}://{host}") for host in hosts.split(",")]
        self._tls = tls
        self._client = client
        self._method = method
        self._credentials = credentials
        self._connections = connections
        self.timeout = timeout
        self.clock = arrivals.now
        self._arrivals = arrivals
        self._sources = cycle(sources or [None])
        self._epoll: select.epoll | None = None
        self._by_key: dict[tuple[Address, str | None, int], BrokerLink] = {}
        self._by_descriptor: dict[int, BrokerLink] = {}
        self._requests = count(1)
        self._order = count()
        self._timers: list[tuple[int, int, Callable[[], None]]] = []
        self.look_up = Lookups(self.service, self.link, self.ask).begin
        self._failed_services = 0
        self._keep_alive_at = self.clock() + _KEEP_ALIVE
        self.max_message = MAX_MESSAGE
        # Version of the last broker that accepted a connection; empty while none has.
        self.server = ""
        self.failures: list[str] = []
        self.credentials_remedy: Callable[[], str] = lambda: (
            "are the credentials of driver.authentication right?"
        )
        self._violations = 0
        self._queue: deque[LinkUser] = deque()
        self._opening = self._arrived = 0
        self._most = most
        self.on_receipt: Callable[[Receipt, int], str | None] = _unasked
        self.on_entry: Callable[[Entry, Came], str | None] = _unasked
        self.on_error: Callable[[api.SendError, int], str | None] = _unasked

    # --- connections

    def link(self, address: Address, proxy_to: str | None = None, number: int = 0) -> BrokerLink:
        """Return a connection to this broker, a new one if there is none.

        :param number: callers with the same number share it.
        """
        key = (address, proxy_to, number % self._connections)
        link = self._by_key.get(key)
        if link is None or link.failure:
            connection = PulsarConnection(self._client, self._method, self._credentials, proxy_to)
            # A failed connection is replaced by the next request for it.
            link = self._by_key[key] = BrokerLink(
                address, connection, self._tls, self._arrivals, next(self._sources)
            )
            self._watch(link)
        return link

    def _watch(self, link: BrokerLink) -> None:
        if self._epoll is None:
            self._epoll = select.epoll()
        self._epoll.register(link.descriptor, _READ | _WRITE)
        self._by_descriptor[link.descriptor] = link
        if link.failure:
            self.after(0, partial(self.lose, link))

    def _unwatch(self, link: BrokerLink) -> None:
        del self._by_descriptor[link.descriptor]
        # close() does not unregister a descriptor of which a forked process has a duplicate.
        if self._epoll is not None:
            self._epoll.unregister(link.descriptor)

    def service(self) -> BrokerLink:
        """Return a connection for requests.

        To the first given address, or to the next one after a failure.
        """
        return self.link(self._services[self._failed_services % len(self._services)])

    def ask_service(self, make: Callable[[int], api.Command], done: Done) -> None:
        """Send a request to the first of the given addresses that accepts the client.

        The last rejection counts.
        """

        def answer(reply: Any) -> None:
            if (
                isinstance(reply, Refused)
                and reply.error is None
                and not (self.server or self.unreachable)
            ):
                self.ask(self.service(), make, answer)
            else:
                done(reply)

        self.ask(self.service(), make, answer)

    @property
    def unreachable(self) -> bool:
        """True if no broker ever accepted the client, and all given addresses have failed."""
        return not self.server and self._failed_services >= len(self._services)

    def flush(self, link: BrokerLink) -> None:
        """Write the waiting bytes of a connection, unless it already waits to become writable."""
        if link.ready and not link.writes:
            self._wait_to_write(link, link.write())

    def _wait_to_write(self, link: BrokerLink, wanted: bool) -> None:
        if wanted != link.writes and not link.failure:
            assert self._epoll is not None
            self._epoll.modify(link.descriptor, _READ | _WRITE if wanted else _READ)
        link.writes = wanted

    # --- the loop

    def turn(self, timeout: int) -> None:
        """Wait up to ``timeout`` ns for an event, and serve all connections with events.

        Then run the timers that are due.

        :raises TargetError: a producer or consumer cannot go on.
        """
        now = self.clock()
        if self._timers:
            timeout = min(timeout, max(self._timers[0][0] - now, 0))
        if self._epoll is None:
            select.select((), (), (), timeout / SECOND)
        else:
            for descriptor, what in self._arrivals.wait(self._epoll, timeout / SECOND):
                # An earlier event of this turn may have closed the connection.
                if (link := self._by_descriptor.get(descriptor)) is not None:
                    self._serve(link, what)
        self._run_timers()
        if self.failures:
            raise TargetError(join_failures(self.failures))

    def _serve(self, link: BrokerLink, what: int) -> None:
        if what & (_WRITE | _BROKEN) or not link.shaken:
            self._wait_to_write(link, link.step())
        if what & (_READ | _BROKEN) and link.shaken and not link.failure:
            for came in link.read():
                for event in came.events:
                    # After a violation nothing else from this connection counts.
                    if not link.violated:
                        self._dispatch(link, event, came)
            if not link.failure:
                self._wait_to_write(link, link.write())
        if link.failure:
            self.lose(link)

    def _dispatch(self, link: BrokerLink, event: Any, came: Came) -> None:
        # Receipts and entries come first: there is one for every batch.
        kind = type(event).__name__
        problem = None
        if kind == "Receipt":
            problem = self.on_receipt(event, came.time)
        elif kind == "Entry":
            problem = self.on_entry(event, came)
        elif kind == "SendError":
            # A rejected entry is sent again on a new connection, which is no violation.
            if (why := self.on_error(event, came.time)) is not None:
                link.fail(why)
        elif kind in ("CloseProducer", "CloseConsumer"):
            self._closed(link, event)
        elif kind == "Connected":
            self.max_message = link.connection.max_message
            self.server = event.server_version
            link.accepted()
        elif kind == "Error" and not link.ready:
            remedy = (
                f": {self.credentials_remedy()}" if event.error == api.AuthenticationError else ""
            )
            link.fail(f"the broker rejects the client: {event.message}{remedy}")
            link.refused = event.error
        elif kind == "TopicMigrated":
            link.fail("its topics have moved to another cluster")
        elif (done := link.answers.pop(getattr(event, "request_id", 0), None)) is not None:
            done(Refused(event.message, event.error) if kind == "Error" else event)
        if problem is not None:
            link.reject(problem)

    def _closed(self, link: BrokerLink, event: api.CloseProducer | api.CloseConsumer) -> None:
        """Handle a producer or consumer that the broker closed, e.g. because its topic moves.

        Newer brokers name the next one.
        """
        key = (
            ("producer", event.producer_id)
            if isinstance(event, api.CloseProducer)
            else ("consumer", event.consumer_id)
        )
        user = link.users.pop(key, None)
        if user is not None:
            url = (
                event.assigned_broker_service_url_tls
                if link.address.tls
                else event.assigned_broker_service_url
            )
            user.lost(
                f"closed by the broker at {link.address}", Address.parse(url, tls=link.address.tls)
            )

    def lose(self, link: BrokerLink) -> None:
        """Handle a lost connection: fail its pending requests and notify its users.

        Not if its name has another address to try.
        """
        if self._by_descriptor.get(link.descriptor) is not link:
            # It was lost before, and another connection may have its descriptor now.
            return
        self._unwatch(link)
        if link.has_next:
            link.connect_next()
            self._watch(link)
            return
        link.close()
        # Only the current address counts: an earlier one may still have connections that fail.
        if link.address == self._services[self._failed_services % len(self._services)]:
            self._failed_services += 1
        reason = f"{link.address}: {link.failure}"
        if link.violated:
            self._violations += 1
            if self._violations >= _MOST_VIOLATIONS:
                remedy = (
                    "is a Pulsar broker there, and is it the binary port, not the one of its web"
                    " service?"
                )
                self.failures.append(
                    f"{reason}: {_MOST_VIOLATIONS} violations of the protocol in this run: {remedy}"
                )
        answers = list(link.answers.values())
        users = list(link.users.values())
        link.answers.clear()
        link.users.clear()
        for done in answers:
            done(Refused(reason, link.refused))
        for user in users:
            user.lost(reason, None)

    # --- producers and consumers that are being established

    def admit(self, attachment: LinkUser) -> None:
        """Start it as soon as fewer than ``most`` are being established."""
        self._queue.append(attachment)
        self._admit()

    def arrived(self) -> None:
        """Count one that is no longer being established: it succeeded, failed, or left."""
        self._arrived += 1
        self._opening -= 1
        self._admit()

    def _admit(self) -> None:
        while self._queue and self._opening < self._most:
            if self._queue.popleft().begin():
                self._opening += 1

    # --- timers

    def after(self, delay: int, work: Callable[[], None]) -> None:
        """Run ``work`` in ``delay`` ns."""
        # The running number decides between timers with equal times,
        # because functions cannot be compared.
        heapq.heappush(self._timers, (self.clock() + delay, next(self._order), work))

    def _run_timers(self) -> None:
        now = self.clock()
        while self._timers and self._timers[0][0] <= now:
            heapq.heappop(self._timers)[2]()
        if now >= self._keep_alive_at:
            self._keep_alive_at = now + _KEEP_ALIVE
            for link in list(self._by_descriptor.values()):
                link.keep_alive(now)
                self.flush(link)
                if link.failure:
                    self.lose(link)

    # --- questions

    def ask(self, link: BrokerLink, make: Callable[[int], api.Command], done: Done) -> None:
        """Send a request as soon as the connection is ready.

        :param make: number of the request → its command.
        """
        number = next(self._requests)
        command = make(number)
        expected = _ANSWERS.get(command.type, "Success")

        def answer(reply: Any) -> None:
            name = type(reply).__name__
            if name not in (expected, "Refused"):
                link.reject(f"the broker answered {name}, where {expected} is the answer")
                reply = Refused(f"{link.address}: {link.failure}")
            done(reply)

        link.answers[number] = answer

        def expire() -> None:
            if link.answers.pop(number, None) is not None:
                done(Refused(f"{link.address} gives no answer for {self.timeout / SECOND:.0f} s"))

        # A timer is not removed by an answer: it then finds no pending request.
        self.after(self.timeout, expire)
        link.send(command)
        self.flush(link)

    def wait(self, what: str, until: Callable[[], bool]) -> None:
        """Serve until the condition holds.

        :raises TargetError: no producer or consumer was established
            for twice the time-out of a request.
        """
        seen = self._arrived
        end = self.clock() + 2 * self.timeout
        while not until():
            if seen != self._arrived:
                seen = self._arrived
                end = self.clock() + 2 * self.timeout
            if self.clock() > end:
                raise TargetError(f"{what}: no progress for {2 * self.timeout / SECOND:.0f} s")
            self.turn(100 * MILLISECOND)

    def close(self) -> None:
        """Close all connections, after writing what the sockets take."""
        for link in list(self._by_descriptor.values()):
            if link.ready:
                link.write()
            link.users.clear()
            link.answers.clear()
            link.close()
        self._by_descriptor.clear()
        self._by_key.clear()
        self._timers.clear()
        if self._epoll is not None:
            self._epoll.close()
            self._epoll = None


# Lookups of a topic's broker, which may be redirected from broker to broker.

_REDIRECTS: Final = 20  # most redirects of one lookup, as in Pulsar's Java client
# Values of LookupResponse.response.
_REDIRECT = 0
_FAILED = 2


class Lookups:
    """Lookups of topics; simultaneous lookups of the same topic share one request.

    :param service: returns a connection to begin at.
    :param link: returns a connection to a broker.
    :param ask: sends a request.
    """

    def __init__(
        self,
        service: Callable[[], BrokerLink],
        link: Callable[[Address], BrokerLink],
        ask: Callable[[BrokerLink, Callable[[int], api.Command], Done], None],
    ) -> None:
        self._service = service
        self._link = link
        self._ask = ask
        self._waiting: defaultdict[str, list[Done]] = defaultdict(list)

    def begin(self, topic: str, done: Done) -> None:
        """:param done: called with ``(address, proxy_to)`` of the broker that has the topic, or
        with :class:`Refused`.
        """
        # At the start, all producers of a topic look it up at once:
        # only the first one sends a request.
        self._waiting[topic].append(done)
        if len(self._waiting[topic]) == 1:
            self._at(topic, self._service(), authoritative=False, left=_REDIRECTS)

    def _at(self, topic: str, link: BrokerLink, authoritative: bool, left: int) -> None:
        def answer(reply: Any) -> None:
            where = reply if isinstance(reply, Refused) else _where(reply, link.address)
            if isinstance(where, Refused) or reply.response != _REDIRECT:
                return self._found(topic, where)
            if not left:
                return self._found(topic, Refused("redirected without end", api.UnknownError))
            return self._at(topic, self._link(where[0]), reply.authoritative, left - 1)

        def question(number: int) -> api.Command:
            return api.Command(
                type=api.Command.LOOKUP,
                lookup=api.Lookup(topic=topic, request_id=number, authoritative=authoritative),
            )

        self._ask(link, question, answer)

    def _found(self, topic: str, result: Any) -> None:
        for done in self._waiting.pop(topic, ()):
            done(result)


def _where(reply: api.LookupResponse, asked: Address) -> tuple[Address, str | None] | Refused:
    """Return the broker that an answer names.

    Its address and None, or the proxy's address and the broker's ``host:port``.
    """
    if reply.response == _FAILED:
        return Refused(reply.message, reply.error)
    url = reply.broker_service_url_tls if asked.tls else reply.broker_service_url
    address = Address.parse(url, tls=asked.tls)
    if address is None:
        return Refused(
            f"the broker of the topic has no {'TLS' if asked.tls else 'plain'} address: {url!r}",
            api.UnknownError,
        )
    if reply.response != _REDIRECT and reply.proxy_through_service_url:
        return asked, url.partition("://")[2]
    return address, None
