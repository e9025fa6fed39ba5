"""The simulated kind of broker: a driver that fulfils the contract of ``pytest_loadtest.drivers.base`` against the model of a target."""

from __future__ import annotations

import heapq
import itertools
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
from pydantic import Field

from pytest_loadtest.brokers.base import BrokerFacts, refuse_node
from pytest_loadtest.drivers.base import Acks, DriverFacts, Joined, Received, Undelivered
from pytest_loadtest.errors import UsageError
from pytest_loadtest.kinds import BrokerStart, Client, Cost, CostRow, DriverKind, Scheme
from pytest_loadtest.message import envelope
from pytest_loadtest.message.carried import carried_heads, carried_values
from pytest_loadtest.message.route import Carrier
from pytest_loadtest.message.samples import Flag, Status
from pytest_loadtest.message.token import encode_tokens
from pytest_loadtest.profile.client import ClientSettings
from pytest_loadtest.profile.fields import Count
from simulation.target import Route, SimulatedTarget
from simulation.truth import Connection, Sent
from simulation.virtual import EPOCH, running
from simulation.world import FOREVER, MS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from pytest_loadtest.drivers.base import Burst, DrainingRun, DriverContext
    from simulation.truth import Copy

MERGED_AFTER: Final = MS
"""ns: packets that wait longer than this in a connection may be merged by the kernel, which stamps all with the time of the last."""


JOINS_AFTER: Final = 3 * MS
"""From the request of a consumer until it is connected, ns."""


class SimulatedSettings(ClientSettings):
    """The ``driver`` section of the simulated kind."""

    name: Literal["simulated"] = "simulated"

    max_pending_messages: Count = 1000
    """Maximum number of messages of one producer in flight."""
    block_if_queue_full: bool = True
    """Wait when maxPendingMessages are in flight; false: further messages fail."""
    acknowledged: bool = True
    """The target acknowledges messages."""
    connects: bool = False
    """Connecting takes time, and the client reports how long."""
    connect_rate: float | None = Field(default=None, gt=0)
    """Connections begun per second, over all workers."""

    @property
    def connection_rate(self) -> float | None:
        return self.connect_rate

    def window(self, partitions: int) -> int:
        return self.max_pending_messages

    def receive_window(self, partitions: int) -> int:
        return 0

    def connections(self, producers: int, consumers: int, workers: int) -> int:
        return min(producers + consumers, workers)

    def unordered(self, *, consumers: int, keyed: bool) -> tuple[str, str] | None:
        return None

    @property
    def unacknowledged(self) -> tuple[str, str] | None:
        if self.acknowledged:
            return None
        return ("without acknowledgements", "write driver.acknowledged: true")


_ENVELOPES: Final = {"body": 0, "json": 0, "properties": 61, "correlationData": 35}
"""Places of envelopes; a property and correlation data cost as much as with MQTT (docs/howto/test-a-service.md)."""
KIND: Final = DriverKind(
    name="simulated",
    label="simulated",
    target="target",
    settings="simulation.driver:SimulatedSettings",
    clients={"library": Client(driver="simulation.driver:SimulatedDriver", envelopes=_ENVELOPES)},
    costs={"simulated": CostRow(cost=Cost(produce=1, consume=1, broker=1, per_byte=0.0))},
    schemes={"simulated": Scheme(port=1)},
    brokers={"simulated": BrokerStart(ways={"process": "simulation.driver:start_target"})},
    own_broker=True,
    delays=True,
    opening_times=True,
    undelivered="simulation.driver:undelivered",
)


def target() -> SimulatedTarget:
    """Return the target of the world that is played."""
    model: SimulatedTarget = running().target
    return model


class SimulatedBroker:
    """The target as the run sees it: a process that it started and that never ends by itself."""

    facts = BrokerFacts(name="simulated", version="1", mode="process", url="simulated://target:1")

    def failure(self) -> str | None:
        return None

    def restart(self, *, kill: bool = False) -> None:
        raise UsageError("the simulated target is restarted by its world only")

    def node(self, role: str, number: int) -> Any:
        raise refuse_node("simulated")

    def stop(self) -> None:
        """Nothing runs."""


def start_target(_request: object, _progress: object) -> SimulatedBroker:
    """Start the target of the world."""
    return SimulatedBroker()


def undelivered(run: DrainingRun) -> Undelivered | None:
    """Ask the target what it has yet to deliver; the answer takes as long as a message.

    Without acknowledgements it proves nothing: what was sent may not have reached the target (docs/decisions/032).
    """
    if not run.settings.acknowledged:
        return None
    running().sleep(2 * MS)
    held, handed_over = target().undelivered(run.run, running().now)
    return Undelivered(held=held, handed_over=handed_over)


class SimulatedDriver:
    """One worker's client.

    It reads its connections in :meth:`poll` alone, as a real one does: what arrives while it waits is read at once, what arrived before
    is read late.
    """

    def __init__(self, context: DriverContext) -> None:
        self._context = context
        self._settings: SimulatedSettings = context.settings
        self._simulation = running()
        self.worker = int(context.worker[1:]) if context.worker[1:].isdecimal() else 0
        self._target = target()
        self._tokens = context.token_reader()
        self._window = self._settings.max_pending_messages or FOREVER
        self._in_flight: dict[int, int] = {}  # stream → its messages without an answer
        self._emptied: dict[int, int] = {}  # stream → the time of its last answer
        self._number = itertools.count()
        # a heap of time, number, row, stream, failed, resends
        self._answers: list[tuple[int, int, int, int, bool, int]] = []
        self._read_answers: list[tuple[int, int, bool, int]] = []
        self._arrivals: list[tuple[int, int, Copy, NDArray[np.uint8]]] = []  # heap
        self._read: list[tuple[Copy, NDArray[np.uint8]]] = []
        self._held: list[tuple[Copy, NDArray[np.uint8]]] = []
        self._places: dict[int, int] = {}  # consumer → its place
        self._next_place = itertools.count()
        self._joining: list[tuple[int, tuple[int, ...]]] = []  # when, which consumers
        self._due: NDArray[np.int64] | None = None  # of the next connections
        self._idle: Callable[[], None] = lambda: None
        self._opened: dict[str, list[int]] = {}
        self._paused: set[int] = set()
        self._refused: set[int] = set()

    # --- opening

    def facts(self) -> DriverFacts:
        return DriverFacts(client="simulated", version="1", stamps="kernel", unstamped=0)

    def prepare(self) -> None:
        """Nothing is to be made."""

    def pace(self, due: NDArray[np.int64], idle: Callable[[], None]) -> None:
        self._due = due
        self._idle = idle

    def open_consumers(self, consumers: Sequence[int]) -> NDArray[np.int32]:
        self._connect("consumers", consumers)
        return self._add_consumers(consumers)

    def _add_consumers(self, consumers: Sequence[int]) -> NDArray[np.int32]:
        route = self._route()
        places = []
        for consumer in map(int, consumers):
            route.inboxes[consumer] = self
            self._places[consumer] = next(self._next_place)
            places.append(self._places[consumer])
        return np.array(places, np.int32)

    def open_producers(self, streams: Sequence[int]) -> None:
        self._connect("producers", streams)
        self._route()

    def _connect(self, side: str, numbers: Sequence[int]) -> None:
        """Begin each connection when it is due, and wait until the target has accepted all of them."""
        if not self._settings.connects:
            return
        clock = self._context.clock
        waiting = list(map(int, numbers))
        due = [clock()] * len(waiting) if self._due is None else self._due.tolist()
        self._due = None
        connecting: list[
            tuple[int, int]
        ] = []  # a heap of when it is accepted, since when it is due
        while waiting or connecting:
            now = clock()
            while waiting and due[0] <= now:
                begun, since = self._simulation.now, due.pop(0)
                accepted = self._target.connect(side, waiting.pop(0), begun)
                heapq.heappush(connecting, (accepted, since))
                self._note(dial=now - since)
                self._target.truth.connections.append(
                    Connection(self.worker, side, begun, accepted, self._context.run)
                )
            while connecting and connecting[0][0] <= self._simulation.now:
                _, since = heapq.heappop(connecting)
                self._note(up=now, connect=now - since)
            times = [at - self._simulation.now for at, _ in connecting[:1]]
            times += [at - now for at in due[:1]]
            if times:
                self._simulation.sleep(max(min(times), 1))
                self._idle()

    def _note(self, **times: int) -> None:
        for name, time in times.items():
            self._opened.setdefault(name, []).append(time)

    def opening_times(self) -> Mapping[str, NDArray[np.int64]]:
        paced = self._settings.connect_rate is not None
        names = ("connect", "dial", "up") if paced else ("connect",)
        return {
            name: np.array(self._opened[name], np.int64) for name in names if name in self._opened
        }

    def _route(self) -> Route:
        topology = self._context.topology
        route = Route(topology.topics, topology.subscriptions, topology.consumers)
        if self._context.route is not None:
            service = self._target.service_of(self._context.route.input)
            route.outputs, route.chosen, route.output_topics = service
        routes = self._target.taps if self._context.tap else self._target.routes
        return routes.setdefault(self._context.run, route)

    def attach(self, consumers: Sequence[int]) -> None:
        if len(consumers):
            self._joining.append((self._simulation.now + JOINS_AFTER, tuple(map(int, consumers))))

    def attached(self) -> Joined | None:
        ready = [who for at, who in self._joining if at <= self._simulation.now]
        if not ready:
            return None
        self._joining = [entry for entry in self._joining if entry[0] > self._simulation.now]
        consumers = list(itertools.chain.from_iterable(ready))
        return Joined(np.array(consumers, np.int32), self._add_consumers(consumers))

    def detach(self, places: Sequence[int]) -> None:
        """Close consumers: what has not arrived at them, or waits for their end of a pause, goes to others of their subscriptions."""
        route = self._route()
        leaving = {consumer for consumer, place in self._places.items() if place in set(places)}
        for consumer in leaving:
            route.inboxes.pop(consumer, None)
        self._paused.difference_update(places)
        held, self._held = self._held, []
        arrivals, self._arrivals = self._arrivals, []
        for copy, head in held:
            if copy.consumer in leaving:
                self._pass_on(route, copy, head)
            else:
                self._held.append((copy, head))
        for entry in arrivals:
            _, _, copy, head = entry
            if copy.consumer in leaving and copy.arrived > self._simulation.now:
                self._pass_on(route, copy, head)
            else:
                heapq.heappush(self._arrivals, entry)

    def _pass_on(self, route: Route, copy: Copy, head: NDArray[np.uint8]) -> None:
        """Let a copy of a consumer that leaves arrive at another one of its subscription; without another one it stays."""
        heir = route.consumer(copy.topic, copy.subscription, max(copy.stream, 0))
        if heir is None:
            self.arrive(copy, head)
            return
        copy.consumer = heir
        copy.worker = route.inboxes[heir].worker
        route.inboxes[heir].arrive(copy, head)

    def pause(self, places: Sequence[int]) -> None:
        self._paused.update(places)

    def resume(self, places: Sequence[int]) -> None:
        self._paused.difference_update(places)
        held, self._held = self._held, []
        for copy, head in held:
            if self._places[copy.consumer] in self._paused:
                self._held.append((copy, head))
                continue
            copy.stamped = copy.taken = self._simulation.now
            self._read.append((copy, head))

    # --- sending

    def send(self, burst: Burst) -> NDArray[np.int64] | None:
        self._be_slow("slow-send")
        now = self._simulation.now
        clock = self._context.clock()
        taken, refused = self._admit(burst)
        if taken:
            self._hand_over(burst, taken, now, clock)
        self._refused = set()
        if not refused:
            return None
        if not self._settings.block_if_queue_full:
            rows = burst.row[refused].tolist()
            burst.sent[refused] = clock
            self._target.truth.sent += [self._rejected(burst, position) for position in refused]
            self._read_answers += [(clock, row, True, 0) for row in rows]
            return None
        self._refused.update(burst.stream[refused].tolist())
        return np.array(refused, np.int64)

    def _rejected(self, burst: Burst, position: int) -> Sent:
        """Return a message that the client itself rejects, because too many are in flight."""
        now = self._simulation.now
        return Sent(
            worker=self.worker,
            stream=int(burst.stream[position]),
            seq=int(burst.seq[position]),
            size=int(self._context.pool.sizes[burst.payload[position]]),
            at=now,
            intended=int(burst.intended[position]),
            answered=now,
            failed=True,
            run=self._context.run,
        )

    def _be_slow(self, kind: str) -> bool:
        """Let a fault of this worker's client pass; return whether there was one."""
        delay = 0
        for slow in self._target.faults(kind):
            is_own = slow.values["worker"] == self.worker
            if is_own and slow.begin <= self._simulation.now < slow.end:
                delay = max(delay, int(slow.values["by"]))
        if delay:
            self._simulation.sleep(delay)
        return delay > 0

    def _admit(self, burst: Burst) -> tuple[list[int], list[int]]:
        """Occupy the windows of the streams; return the positions of messages that find room, and of those that find none."""
        taken: list[int] = []
        refused: list[int] = []
        for position, stream in enumerate(burst.stream.tolist()):
            in_flight = self._in_flight.get(stream, 0)
            if in_flight >= self._window:
                refused.append(position)
                continue
            if not in_flight:
                burst.idle[position] = self._emptied.get(stream, 0)
            self._in_flight[stream] = in_flight + 1
            taken.append(position)
        return taken, refused

    def _hand_over(self, burst: Burst, taken: list[int], now: int, clock: int) -> None:
        pool, context = self._context.pool, self._context
        chosen: Any = slice(None) if len(taken) == len(burst) else taken
        stream, seq = burst.stream[chosen], burst.seq[chosen]
        intended, payload = burst.intended[chosen], burst.payload[chosen]
        burst.sent[chosen] = clock
        heads = envelope.encode_heads(
            pool, nonce=context.nonce, stream=stream, seq=seq, intended=intended, payload=payload
        )
        rows = burst.row[chosen].tolist()
        due = [None] * len(taken)
        if burst.due is not None:
            due = (burst.due[chosen] * MS - EPOCH).tolist()
        sizes = pool.sizes.take(payload).tolist()
        columns = (rows, stream.tolist(), seq.tolist(), sizes, intended.tolist(), due)
        for position, (row, of_stream, number, size, instant, due_at) in enumerate(
            zip(*columns, strict=True)
        ):
            sent = Sent(self.worker, of_stream, number, size, now, instant)
            answered, failed, resends = self._target.accept(
                context.run, sent, heads[position], due_at
            )
            if not self._settings.acknowledged:
                answered, failed = now, False
            if answered < FOREVER:
                answer = (answered, next(self._number), row, of_stream, failed, min(resends, 255))
                heapq.heappush(self._answers, answer)

    def acks(self) -> Acks | None:
        if not self._read_answers:
            return None
        when, row, failed, resends = zip(*self._read_answers, strict=True)
        self._read_answers.clear()
        status = np.where(np.array(failed), Status.FAILED, Status.ACKED).astype(np.int8)
        return Acks(
            np.array(row, np.int64), np.array(when, np.int64), status, np.array(resends, np.uint8)
        )

    # --- receiving

    def arrive(self, copy: Copy, head: NDArray[np.uint8] | None) -> None:
        """Let a copy arrive at its time. :param head: None: of a message of another run."""
        if head is None:
            head = self._foreign_head(copy.arrived)
        heapq.heappush(self._arrivals, (copy.arrived, copy.number, copy, head))

    def _foreign_head(self, number: int) -> NDArray[np.uint8]:
        """Return the head of another run's message, or of no message of ours at all."""
        if number % 2:
            return np.zeros(envelope.HEAD, np.uint8)
        zero = np.zeros(1, np.int64)
        return envelope.encode_heads(
            self._context.pool, nonce=self._context.nonce ^ 1, stream=zero.astype(np.int32), seq=zero,
            intended=zero, payload=zero.astype(np.uint16),
        )[0]  # fmt: skip

    def take(self) -> Received | None:
        if not self._read:
            return None
        read, self._read = self._read, []
        read.sort(key=lambda pair: (pair[0].stamped or 0, pair[0].arrived))
        copies = [copy for copy, _ in read]
        local = self._simulation.process.clock
        stamps = np.array([self._run_time(local, copy.stamped or 0) for copy in copies], np.int64)
        taken = np.array([self._run_time(local, copy.taken or 0) for copy in copies], np.int64)
        flags = np.zeros(len(copies), np.int8)
        for position, copy in enumerate(copies):
            if copy.redelivered:
                flags[position] |= Flag.REDELIVERED
            if copy.damage == "body" and self._context.checksum:
                flags[position] |= Flag.CORRUPT
        return Received(
            consumer=np.array([self._places[copy.consumer] for copy in copies], np.int32),
            heads=self._carried(np.stack([head for _, head in read])),
            size=np.array([copy.size for copy in copies], np.int32),
            time=stamps,
            order=np.array([copy.output for copy in copies], np.int64),
            flags=flags,
            lag=np.maximum(taken - stamps, 0),
        )

    def _carried(self, heads: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return envelopes as they are read where a service has written them."""
        carrier = self._context.received_place.carrier
        if self._tokens is not None:
            bodies = [b'{"reference": "%b"}' % token for token in encode_tokens(heads)]
            digits = [self._tokens.digits(body, 0, len(body)) for body in bodies]
            return carried_heads(carrier, digits)
        if carrier is Carrier.BODY:
            return heads
        return carried_heads(carrier, carried_values(carrier, heads))

    def _run_time(self, local: Any, true: int) -> int:
        """Return the time of the run's clock, as this worker estimates it, at an instant of true time."""
        clock = self._context.clock
        line = getattr(clock, "line", None)
        return int(local(true) if line is None else line.to_controller(local(true)))

    # --- waiting

    def poll(self, timeout_ns: int) -> None:
        simulation = self._simulation
        begun = simulation.now
        wake = begun + max(timeout_ns, 0)
        if self._refused:
            answers = [answer[0] for answer in self._answers if answer[3] in self._refused]
            wake = min([wake, *answers])
        self._receive(begun, begun)  # what came before this call is read now
        if wake > begun:
            simulation.sleep(wake - begun)
        elif timeout_ns > 0:
            simulation.stand_still()
        # In the wait each packet was read when it came, unless the process was stopped meanwhile.
        prompt_until: int | None = wake
        if self._be_slow("slow-read"):
            begun, prompt_until = simulation.now, None
        self._receive(begun, simulation.now, prompt_until)

    def _receive(self, begun: int, now: int, prompt_until: int | None = None) -> None:
        """Read what has arrived until now. :param prompt_until: what came since ``begun`` and until this instant was read at once."""
        if self._answers and self._answers[0][0] <= now:
            self._receive_answers(now)
        if not self._arrivals or self._arrivals[0][0] > now:
            return
        process = self._simulation.process
        batch: list[tuple[Copy, NDArray[np.uint8]]] = []
        while self._arrivals and self._arrivals[0][0] <= now:
            arrived, _, copy, head = heapq.heappop(self._arrivals)
            if self._places[copy.consumer] in self._paused:
                self._held.append((copy, head))
                continue
            read_at = now
            if prompt_until is not None and begun <= arrived <= prompt_until:
                read_at = process.resumes(arrived)
            copy.taken = max(read_at, arrived)
            batch.append((copy, head))
        self._stamp(batch)
        self._read += batch

    def _receive_answers(self, now: int) -> None:
        local = self._simulation.process.clock
        while self._answers and self._answers[0][0] <= now:
            came, _, row, stream, failed, resends = heapq.heappop(self._answers)
            stamp = self._run_time(local, came)
            self._read_answers.append((stamp, row, failed, resends))
            self._in_flight[stream] -= 1
            self._emptied[stream] = stamp
            self._refused.discard(stream)

    def _stamp(self, batch: list[tuple[Copy, NDArray[np.uint8]]]) -> None:
        """Stamp what was read, as the kernel does: packets that waited together have the time of the last one."""
        waiting: dict[int, int] = {}  # read time → last arrival of what waited for it
        for copy, _ in batch:
            assert copy.taken is not None
            if copy.taken - copy.arrived > MERGED_AFTER:
                waiting[copy.taken] = max(waiting.get(copy.taken, 0), copy.arrived)
        for copy, _ in batch:
            assert copy.taken is not None
            copy.stamped = copy.arrived
            if copy.taken - copy.arrived > MERGED_AFTER:
                copy.stamped = waiting[copy.taken]

    # --- the end

    def disconnected(self) -> str | None:
        return "connection (closed)" if self._target.is_cut(self._simulation.now) else None

    def close(self) -> None:
        """Nothing is open."""

    def cleanup(self) -> None:
        """Nothing was made."""
