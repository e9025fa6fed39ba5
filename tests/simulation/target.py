"""The model of a target, and the truth about it.

All faults of a world are known beforehand. So when a message is sent, everything that will happen to it is known too: when it is stored and
answered, and when each of its copies arrives. :meth:`SimulatedTarget.accept` computes it, and the drivers of the workers (driver.py) show
it to the engine when its time has come.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right, insort
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from simulation.asked import share_of
from simulation.coverage import workloads
from simulation.draws import lognormal, uniform
from simulation.truth import Copy, Sent, Truth
from simulation.world import FOREVER, MS

if TYPE_CHECKING:
    from simulation.world import Fault, World

FOREIGN_SIZE: Final = 100
MOST_FOREIGN: Final = 200
"""Foreign messages of one fault."""
REORDERED_BY: Final = 20 * MS
"""A reordered message arrives so much later, ns; messages of its stream that come in between overtake it."""
RECONNECT: Final = 5 * MS
"""From the end of a cut until clients are connected again, ns."""


@dataclass(frozen=True, slots=True)
class Struck:
    """A fault of the world, with its place among those of its kind and with begin and end in true time."""

    fault: Fault
    number: int
    begin: int
    end: int

    @property
    def values(self) -> dict[str, Any]:
        return self.fault.values


@dataclass(slots=True)
class Route:
    """How a workload's messages travel.

    :param subscriptions: for each topic. :param consumers: in each subscription.
    :param outputs: messages that a service sends for each that it gets; 0: there is none, and consumers get the messages themselves.
    :param chosen: the share of the inputs for which it sends any.
    :param output_topics: of each topic: an output comes on one of them.
    :param inboxes: by consumer that is connected: the driver that it belongs to.
    """

    topics: int
    subscriptions: int
    consumers: int
    outputs: int = 0
    chosen: float = 1.0
    output_topics: int = 1
    inboxes: dict[int, Any] = field(default_factory=dict)

    def consumer(self, topic: int, subscription: int, stream: int) -> int | None:
        """Return the connected consumer that gets the messages of a stream; None if there is none."""
        first = (topic * self.subscriptions + subscription) * self.consumers
        connected = [one for one in range(first, first + self.consumers) if one in self.inboxes]
        if not connected:
            return None
        return connected[stream // self.topics % len(connected)]


class SimulatedTarget:
    """The target of one world."""

    def __init__(self, world: World, origin: int) -> None:
        """:param origin: true time from which the world's faults count; known once the first phase of load has begun."""
        self._world = world
        self._seed = world.seed
        self.truth = Truth()
        self.routes: dict[str, Route] = {}
        self.taps: dict[str, Route] = {}
        self._numbers = itertools.count()
        self._free_at = 0  # when a throttled target can store the next message
        self._last: dict[Any, int] = {}
        self._copies: dict[str, list[int]] = {}  # when each copy is handed over, ascending
        self._stored: dict[str, list[int]] = {}  # when its message was stored, ascending
        self.begin(origin)

    def begin(self, origin: int) -> None:
        """Set the instant from which faults count."""
        self.origin = origin
        self._faults: dict[str, list[Struck]] = {}
        for fault in self._world.faults:
            begin = origin + fault.at
            end = FOREVER if fault.duration is None else begin + fault.duration
            of_kind = self._faults.setdefault(fault.kind, [])
            of_kind.append(Struck(fault, len(of_kind), begin, end))
        self._cuts = sorted(
            (struck.begin, struck.end, kind) for kind in ("cut-resend", "cut-lose", "restart", "forget") for struck in self.faults(kind)
        )  # fmt: skip
        self._stalls = sorted(
            (struck for kind in ("stall", "hang", "restart") for struck in self.faults(kind)),
            key=lambda struck: struck.begin,
        )
        self._holds = sorted(self.faults("no-delivery"), key=lambda struck: struck.begin)
        self._service_stalls = sorted(self.faults("service-stall"), key=lambda struck: struck.begin)
        for struck in self.faults("foreign"):
            self._send_foreign(struck)

    # --- faults

    def faults(self, kind: str) -> list[Struck]:
        """Return the faults of a kind."""
        return self._faults.get(kind, [])

    def is_cut(self, now: int) -> bool:
        """Return whether connections are down."""
        return any(begin <= now < end + RECONNECT for begin, end, _ in self._cuts)

    def _striking(self, kind: str, at: int, topic: int, sent: Sent, part: str = "") -> list[Struck]:
        """Return the faults of a kind that strike a message.

        :param at: when it is at the target. :param part: of several outputs, the name of one; the first has none.
        """
        found: list[Struck] = []
        for struck in self._faults.get(kind, ()):
            if not struck.begin <= at < struck.end:
                continue
            if topic not in struck.values.get("topics", (topic,)):
                continue
            nth = struck.values.get("nth", 1)
            share = struck.values.get("share", 1.0)
            key = f"{kind} {struck.number}{part}"
            is_chosen = uniform(self._seed, key, sent.stream, sent.seq) < share
            if is_chosen and (sent.seq + 1) % nth == 0:
                found.append(struck)
        sent.struck.update((kind, struck.number) for struck in found)
        return found

    def _stalled(self, at: int, topic: int, sent: Sent | None = None) -> int:
        """Return when something that would happen at an instant happens with stalls and hangs."""
        return self._after(self._stalls, at, topic, sent)

    @staticmethod
    def _after(faults: list[Struck], at: int, topic: int, sent: Sent | None) -> int:
        """Return the first instant from ``at`` on at which none of the faults holds a topic up."""
        for struck in faults:
            if struck.begin <= at < struck.end and topic in struck.values.get("topics", (topic,)):
                at = struck.end
                if sent is not None:
                    sent.struck.add((struck.fault.kind, struck.number))
        return at

    def _connected(self, at: int, sent: Sent | None = None) -> int:
        """Return when something arrives if connections are down at times."""
        for number, (begin, end, kind) in enumerate(self._cuts):
            if begin <= at < end + RECONNECT:
                at = end + RECONNECT
                if sent is not None:
                    sent.struck.add((kind, number))
        return at

    def _throttled(self, at: int, sent: Sent) -> int:
        for struck in self._faults.get("throttle", ()):
            if struck.begin <= at < struck.end:
                sent.struck.add(("throttle", struck.number))
                at = max(at, self._free_at)
                self._free_at = at + round(1e9 / struck.values["rate"])
        return at

    def _in_order(self, way: Any, at: int) -> int:
        """Return the instant, not before the last one of the same way."""
        at = max(at, self._last.get(way, 0))
        self._last[way] = at
        return at

    def _took(self, median: int, purpose: str, stream: int, seq: int) -> int:
        return lognormal(median, self._world.target.spread, self._seed, purpose, stream, seq)

    # --- connections

    def connect(self, side: str, number: int, at: int) -> int:
        """Return when the answer to the first packet of a connection reaches its client.

        :param number: of the producer or consumer. Stalls of some topics, and those that never end, do not hold connections up.
        """
        stalls = [one for one in self._stalls if "topics" not in one.values and one.end < FOREVER]
        up = self._took(self._world.target.up, f"{side} up", number, 0)
        store = self._took(self._world.target.store, f"{side} store", number, 0)
        down = self._took(self._world.target.down, f"{side} down", number, 0)
        return self._after(stalls, self._connected(at) + up + store, 0, None) + down

    # --- messages

    def accept(self, run: str, sent: Sent, head: Any, due: int | None) -> tuple[int, bool, int]:
        """Take a message; return when its sender gets the answer, whether it has failed, and how often it was sent again.

        :param run: the name of the workload's run. :param due: true time before which no copy arrives; None: at once.
        """
        route, target = self.routes[run], self._world.target
        stream, seq = sent.stream, sent.seq
        sent.run = run
        if due is not None and due > sent.intended:  # otherwise it is not delayed
            sent.due = due
        topic = stream % route.topics
        up = self._took(target.up, "up", stream, seq)
        down = self._took(target.down, "down", stream, seq)
        store = self._took(target.store, "store", stream, seq)
        left = self._connected(
            sent.at, sent
        )  # what is sent without a connection waits for the next one
        at = self._throttled(self._in_order(("up", run, stream), left + up), sent)
        for struck in self._striking("latency", at, topic, sent):
            store += int(struck.values["by"])
        is_unanswered = bool(self._striking("lose-unanswered", at, topic, sent))
        sent.failed = not is_unanswered and bool(self._striking("reject", at, topic, sent))
        stored = self._in_order(("store", run, stream), self._stalled(at + store, topic, sent))
        answered = self._in_order(("down", run, stream), self._stalled(stored, topic, sent) + down)
        is_doubled = False
        for begin, end, kind in self._cuts:
            if not (left < begin <= answered):
                continue
            again = end + RECONNECT
            if kind == "cut-lose":
                sent.failed = not is_unanswered
                answered = again
                continue
            sent.sends += 1
            if stored < begin:
                is_doubled = True
            else:
                stored = max(stored, again + store)
            answered = max(answered, again + up + store + down)
        if is_unanswered or answered >= FOREVER:
            answered = FOREVER
            sent.failed = False
        if is_unanswered or sent.failed:
            stored = FOREVER
        if stored < FOREVER:
            sent.stored = stored
        if answered < FOREVER:
            sent.answered = answered
        self.truth.sent.append(sent)
        if stored < FOREVER and not self._striking("lose-acknowledged", stored, topic, sent):
            self._pass_on(run, route, sent, stored, head, due, is_doubled=is_doubled)
        return answered, sent.failed, sent.sends - 1

    # --- a service under test

    def service_of(self, name: str) -> tuple[int, float, int]:
        """Return how many outputs a service sends, for which share of its inputs, and to how many topics.

        :param name: of its input topics.
        """
        profiles = workloads(self._world)
        route = next(one["route"] for one in profiles if one.get("route", {}).get("input") == name)
        output = route["output"]
        topics = len(output) if isinstance(output, list) else 1
        outputs = route.get("outputs", 1)
        if isinstance(outputs, dict):
            return 1, share_of(outputs["share"]), topics
        return outputs, 1.0, topics

    def _pass_on(
        self, run: str, route: Route, sent: Sent, stored: int, head: Any, due: int | None, *, is_doubled: bool
    ) -> None:  # fmt: skip
        """Deliver a stored message to its consumers, or to the service."""
        if route.outputs:
            self._serve(run, route, sent, stored, head, is_doubled=is_doubled)
        else:
            self._deliver(run, route, sent, stored, head, due, is_doubled=is_doubled)

    def _serve(
        self, run: str, route: Route, sent: Sent, stored: int, head: Any, *, is_doubled: bool
    ) -> None:
        """Let the service take an input, or both copies of one that was sent twice, and deliver its outputs."""
        target, stream, seq = self._world.target, sent.stream, sent.seq
        topic = stream % route.topics
        number = 0
        for came in (stored, stored + MS)[: 1 + is_doubled]:
            self._tap(run, sent, topic, came, head)
            done = self._handled(run, sent, topic, came)
            outputs = route.outputs
            if uniform(self._seed, "chosen", stream, seq) >= route.chosen:
                outputs = 0
            if done is None or self._striking("service-lose", came, topic, sent):
                outputs = 0
            if self._striking("service-double", came, topic, sent):
                outputs *= 2
            for _ in range(outputs):
                part = f" output {number}" if number else ""
                assert done is not None
                done += self._took(target.up, f"output up{part}", stream, seq)
                at = done + self._took(target.store, f"output store{part}", stream, seq)
                at = self._in_order(("output", run, stream), self._stalled(at, topic, sent))
                topics = uniform(self._seed, f"output topic{part}", stream, seq)
                self._deliver(
                    run, route, sent, at, head, None,
                    is_doubled=False, part=part, output=int(topics * route.output_topics),
                )  # fmt: skip
                number += 1

    def _tap(self, run: str, sent: Sent, topic: int, stored: int, head: Any) -> None:
        """Deliver an input to the tap too, if there is one."""
        name = f"{run}-tap"
        tap = self.taps.get(name)
        if tap is None or topic not in tap.inboxes:
            return
        stream, seq = sent.stream, sent.seq
        at = stored + self._took(self._world.target.down, "tap down", stream, seq)
        at = self._connected(self._in_order(("tap", run, stream), at))
        inbox = tap.inboxes[topic]
        copy = Copy(
            worker=inbox.worker, consumer=topic, subscription=0, topic=topic, stream=stream, seq=seq,
            size=sent.size, arrived=at, run=name, number=next(self._numbers),
        )  # fmt: skip
        self.truth.tapped.append(copy)
        inbox.arrive(copy, head)

    def _handled(self, run: str, sent: Sent, topic: int, stored: int) -> int | None:
        """Return when the service is done with an input; None if it ends before."""
        target, stream, seq = self._world.target, sent.stream, sent.seq
        came = stored + self._took(target.down, "service down", stream, seq)
        took = self._took(target.service, "service", stream, seq)
        for struck in self._striking("service-slow", came, topic, sent):
            took += int(struck.values["by"])
        busy = ("service", run, stream)
        begin = max(came, self._last.get(busy, 0))
        begin = self._after(self._service_stalls, begin, topic, sent)
        done = self._after(self._service_stalls, begin + took, topic, sent)
        for death in self.faults("service-death"):
            if came < death.end and done >= death.begin:
                sent.struck.add(("service-death", death.number))
                return None
        self._last[busy] = done
        return done

    # --- copies

    def _deliver(
        self, run: str, route: Route, sent: Sent, stored: int, head: Any, due: int | None, *,
        is_doubled: bool, part: str = "", output: int = 0,
    ) -> None:  # fmt: skip
        """Deliver a message, or an output of a service.

        :param part: the name of a further output. :param output: the output topic that it comes on.
        """
        stream, seq = sent.stream, sent.seq
        topic = stream % route.topics
        damage = None
        if self._striking("corrupt-head", stored, topic, sent, part):
            damage = "head"
        elif self._striking("corrupt-body", stored, topic, sent, part):
            damage = "body"
        ready = self._ready(sent, topic, stored, due, part)
        is_reordered = bool(self._striking("reorder", stored, topic, sent, part))
        skipped = {
            struck.values.get("subscription", 0) % route.subscriptions
            for struck in self._striking("lose-copy", stored, topic, sent, part)
        }
        again = [
            (struck, True) for struck in self._striking("redeliver", stored, topic, sent, part)
        ]
        again += [(struck, False) for struck in self._striking("double", stored, topic, sent, part)]
        is_misrouted = bool(self._striking("misrouted", stored, topic, sent, part))
        for subscription in range(route.subscriptions):
            if subscription in skipped:
                continue
            down = self._took(self._world.target.down, f"copy {subscription}{part}", stream, seq)
            at = self._stalled(ready, topic, sent) + down
            if is_reordered:
                at += REORDERED_BY
            elif due is None:
                at = self._in_order((run, subscription, stream, output), at)
            if self._is_forgotten(stored, at):
                continue
            copy = Copy(
                worker=-1, consumer=-1, subscription=subscription, topic=topic, stream=stream, seq=seq, size=sent.size,
                arrived=self._connected(at, sent), damage=damage, run=run, output=output,
            )  # fmt: skip
            if is_misrouted:
                copy = replace(copy, topic=(topic + 1) % route.topics, foreign=route.topics > 1)
            self._hand_over(run, route, copy, stored, head)
            for struck, is_marked in again:
                second = at + int(struck.values.get("after", MS))
                second = self._connected(self._stalled(second, topic, sent))
                if not self._is_forgotten(stored, second):
                    second_copy = replace(copy, arrived=second, redelivered=is_marked)
                    self._hand_over(run, route, second_copy, stored, head)
            if is_doubled:
                self._hand_over(
                    run, route, replace(copy, arrived=self._connected(at + MS)), stored, head
                )

    def _ready(self, sent: Sent, topic: int, stored: int, due: int | None, part: str) -> int:
        """Return when copies of a message may leave the target."""
        ready = stored
        for struck in self._striking("slow-delivery", stored, topic, sent, part):
            ready += int(struck.values["by"])
        if due is not None:
            for struck in self._striking("early-delivery", stored, topic, sent):
                due -= int(struck.values["by"])
            ready = max(ready, due)
        return self._after(self._holds, ready, topic, sent)

    def _is_forgotten(self, stored: int, at: int) -> bool:
        """Return whether a copy was not delivered when its consumer's session was forgotten."""
        return any(
            stored < forget.end + RECONNECT and at >= forget.begin
            for forget in self._faults.get("forget", ())
        )

    def _send_foreign(self, struck: Struck) -> None:
        """Let messages of another run arrive at consumers of the first workload."""
        for run, route in list(self.routes.items())[:1]:
            consumers = sorted(route.inboxes)
            if not consumers:
                return
            every = int(struck.values["every"])
            for number in range(min(MOST_FOREIGN, -(-(struck.end - struck.begin) // every))):
                place = uniform(self._seed, f"foreign {struck.number}", 0, number)
                consumer = consumers[int(place * len(consumers))]
                topic, subscription = divmod(consumer // route.consumers, route.subscriptions)
                at = struck.begin + number * every
                copy = Copy(
                    worker=-1, consumer=consumer, subscription=subscription, topic=topic, stream=-1, seq=-1, size=FOREIGN_SIZE,
                    arrived=self._connected(self._stalled(at, topic)), foreign=True, run=run,
                )  # fmt: skip
                self._hand_over(run, route, copy, at, None)

    def _hand_over(self, run: str, route: Route, copy: Copy, stored: int, head: Any) -> None:
        """Let a copy arrive at a consumer that is connected now. :param head: None: of another run."""
        insort(self._copies.setdefault(run, []), min(copy.arrived, FOREVER))
        insort(self._stored.setdefault(run, []), stored)
        consumer = route.consumer(copy.topic, copy.subscription, max(copy.stream, 0))
        if copy.arrived >= FOREVER or consumer is None:
            return
        if copy.damage == "head":
            head = head.copy()
            head[8:16] ^= 0x5A
        copy.consumer = consumer
        copy.worker = route.inboxes[consumer].worker
        copy.number = next(self._numbers)
        self.truth.copies.append(copy)
        route.inboxes[consumer].arrive(copy, head)

    def undelivered(self, run: str, now: int) -> tuple[int, int]:
        """Return the number of copies that are still to be handed over, and of those that were, as the broker reports them."""
        surplus = 0
        for struck in self.faults("counters"):
            if struck.begin <= now < struck.end:
                surplus = int(struck.values.get("by", 0))
                now -= int(struck.values.get("late", 0))
        handed_over = bisect_right(self._copies.get(run, []), now)
        held = bisect_right(self._stored.get(run, []), now) - handed_over
        return max(held + surplus, 0), handed_over
