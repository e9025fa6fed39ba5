"""The model of a target, and the truth about it.

All faults of a world are known beforehand. So when a message is sent, everything that will happen to it is known too: when it is stored and
answered, and when each of its copies arrives. :meth:`SimulatedTarget.accept` computes it, and the drivers of the workers (driver.py) show
it to the engine when its time has come.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from simulation.draws import lognormal, uniform
from simulation.truth import Copy, Sent, Truth
from simulation.world import MS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from simulation.world import Fault, World

FOREVER: Final = 1 << 61
"""An instant that never comes, ns."""
REORDERED_BY: Final = 20 * MS
"""A reordered message arrives so much later, ns; a message of its stream that comes in between overtakes it."""
RECONNECT: Final = 5 * MS
"""From the end of a cut until clients are connected again, ns."""

HEAD: Final = 1
BODY: Final = 2


@dataclass(slots=True)
class Route:
    """How a workload's messages travel.

    :param subscriptions: for each topic. :param consumers: in each subscription.
    :param inboxes: by consumer: the driver that it belongs to.
    """

    topics: int
    subscriptions: int
    consumers: int
    inboxes: dict[int, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Fate:
    """What happens to the messages of one burst, in columns. An instant is :data:`FOREVER` if it never comes."""

    answered: NDArray[np.int64]
    failed: NDArray[np.bool_]
    resends: NDArray[np.uint8]


class SimulatedTarget:
    """The target of one world."""

    def __init__(self, world: World, origin: int) -> None:
        """:param origin: true time from which the world's faults count, until the first phase of load has begun."""
        self._world = world
        self.origin = origin
        self.truth = Truth()
        self.routes: dict[str, Route] = {}
        self._free_at = 0  # when a throttled target can store the next message
        self._stored: dict[str, list[NDArray[np.int64]]] = {}
        self._last: dict[tuple[str, Any], NDArray[np.int64]] = {}
        self._copies: dict[str, list[NDArray[np.int64]]] = {}

    # --- faults

    def faults(self, kind: str) -> list[tuple[Fault, int, int]]:
        """Return the faults of a kind with begin and end in true time."""
        found = []
        for fault in self._world.faults:
            if fault.kind == kind:
                begin = self.origin + fault.at
                end = FOREVER if fault.duration is None else begin + fault.duration
                found.append((fault, begin, end))
        return found

    def cuts(self) -> list[tuple[str, int, int]]:
        """Return the times without connections, by begin: kind, begin, end."""
        found = []
        for kind in ("cut-resend", "cut-lose", "restart"):
            found += [(kind, begin, end) for _, begin, end in self.faults(kind)]
        return sorted(found, key=lambda cut: cut[1])

    def is_cut(self, now: int) -> bool:
        """Return whether connections are down."""
        return any(begin <= now < end + RECONNECT for _, begin, end in self.cuts())

    def _struck(
        self, kind: str, at: NDArray[np.int64], stream: NDArray[np.int32], seq: NDArray[np.int64], topics: int
    ) -> list[tuple[Fault, NDArray[np.bool_]]]:  # fmt: skip
        """Return the faults of a kind, each with the messages that it strikes. :param at: when they are at the target."""
        found = []
        for number, (fault, begin, end) in enumerate(self.faults(kind)):
            struck = (at >= begin) & (at < end)
            if "topics" in fault.values:
                struck &= np.isin(stream % topics, fault.values["topics"])
            if "share" in fault.values:
                struck &= uniform(self._world.seed, f"{kind} {number}", stream, seq) < fault.values["share"]
            found.append((fault, struck))
        return found

    def _stalled(self, at: NDArray[np.int64], topic: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return when something that would happen at an instant happens with stalls and hangs."""
        stalls = [(begin, end, fault) for kind in ("stall", "hang", "restart") for fault, begin, end in self.faults(kind)]
        for begin, end, fault in sorted(stalls, key=lambda stall: stall[0]):
            struck = (at >= begin) & (at < end)
            if "topics" in fault.values:
                struck &= np.isin(topic, fault.values["topics"])
            at = np.where(struck, end, at)
        return at

    # --- messages

    def accept(
        self, run: str, worker: int, stream: NDArray[np.int32], seq: NDArray[np.int64], size: NDArray[np.int32],
        intended: NDArray[np.int64], heads: NDArray[np.uint8], due: NDArray[np.int64] | None, now: int, waited: NDArray[np.bool_],
    ) -> Fate:  # fmt: skip
        """Take the messages of a burst, and return what their sender will see.

        :param run: the name of the workload's run. :param due: true time before which no copy arrives; None: at once.
        :param waited: the message waited for room in its window.
        """
        world, route = self._world, self.routes[run]
        seed, target = world.seed, world.target
        topic = stream % route.topics
        count = len(stream)

        def took(median: int, purpose: str) -> NDArray[np.int64]:
            first = uniform(seed, purpose, stream, seq)
            return lognormal(median, target.spread, first, uniform(seed, f"{purpose}'", stream, seq))

        up, down = took(target.up, "up"), took(target.down, "down")
        store = took(target.store, "store")
        sent = np.full(count, now, np.int64)
        sends = np.ones(count, np.int64)
        lost_on_the_way = np.zeros(count, np.bool_)
        failed = np.zeros(count, np.bool_)
        for _, begin, end in self.cuts():
            # What is sent without a connection waits for the next one.
            sent = np.where((sent >= begin) & (sent < end + RECONNECT), end + RECONNECT, sent)
        at = self._in_order(("up", run), stream, sent + up)
        for fault, struck in self._struck("latency", at, stream, seq, route.topics):
            store = store + struck * int(fault.values["by"])
        at = self._throttled(at)
        unanswered = np.zeros(count, np.bool_)
        for kind in ("lose-unanswered",):
            for _, struck in self._struck(kind, at, stream, seq, route.topics):
                unanswered |= struck
        for _, struck in self._struck("reject", at, stream, seq, route.topics):
            failed |= struck & ~unanswered
        stored = self._in_order(("store", run), stream, self._stalled(at + store, topic))
        answered = self._in_order(("down", run), stream, self._stalled(stored, topic) + down)
        doubled = np.zeros(count, np.bool_)
        for kind, begin, end in self.cuts():
            under_way = (sent < begin) & (answered >= begin)
            again = end + RECONNECT
            if kind == "cut-lose":
                failed |= under_way
                answered = np.where(under_way, again, answered)
                continue
            on_the_wire = under_way & (at >= begin)
            doubled |= under_way & ~on_the_wire & (stored < begin)
            sends += under_way
            stored = np.where(on_the_wire | (under_way & (stored >= begin)), np.maximum(stored, again + store), stored)
            answered = np.where(under_way, np.maximum(answered, again + up + store + down), answered)
        never = unanswered | (stored >= FOREVER)
        answered = np.where(never, FOREVER, np.minimum(answered, FOREVER))
        stored = np.where(unanswered | failed | lost_on_the_way, FOREVER, stored)
        self._note_sent(run, worker, stream, seq, size, intended, sent, now, sends, stored, answered, failed, waited)
        self._deliver(run, route, stream, seq, size, heads, stored, due, doubled)
        return Fate(answered, failed & ~never, (sends - 1).astype(np.uint8))

    def _note_sent(
        self, run: str, worker: int, stream: Any, seq: Any, size: Any, intended: Any, sent: Any, now: int, sends: Any, stored: Any,
        answered: Any, failed: Any, waited: Any,
    ) -> None:  # fmt: skip
        self._stored.setdefault(run, []).append(stored)
        columns = (stream, seq, size, intended, sends, stored, answered, failed, waited)
        for row in zip(*(column.tolist() for column in columns), strict=True):
            of_stream, number, length, due, times, kept, came, rejected, late = row
            self.truth.sent.append(
                Sent(
                    worker=worker, stream=of_stream, seq=number, size=length, at=now, intended=due, sends=times,
                    stored=kept if kept < FOREVER else None, answered=came if came < FOREVER else None, failed=rejected,
                    waited=now if late else None,
                )
            )  # fmt: skip

    def _throttled(self, at: NDArray[np.int64]) -> NDArray[np.int64]:
        throttles = self.faults("throttle")
        if not throttles:
            return at
        out = at.copy()
        for position in np.argsort(at, kind="stable"):
            when = int(at[position])
            for fault, begin, end in throttles:
                if begin <= when < end:
                    when = max(when, self._free_at)
                    self._free_at = when + round(1e9 / fault.values["rate"])
            out[position] = when
        return out

    def _in_order(self, way: tuple[str, Any], key: NDArray[Any], at: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the instants so that none of a key is before an earlier one of it."""
        top = int(key.max(initial=-1)) + 1
        last = self._last.get(way, np.zeros(0, np.int64))
        if len(last) < top:
            last = np.concatenate([last, np.zeros(top - len(last), np.int64)])
        order = np.argsort(key, kind="stable")
        sorted_key, sorted_at = key[order], np.maximum(at[order], last[key[order]])
        # A running maximum within each key: instants are below 2**62, so the key is added in a first pass over groups.
        starts = np.flatnonzero(np.diff(sorted_key, prepend=-1))
        for begin, end in zip(starts, [*starts[1:], len(order)], strict=True):
            np.maximum.accumulate(sorted_at[begin:end], out=sorted_at[begin:end])
            last[sorted_key[begin]] = sorted_at[end - 1]
        self._last[way] = last
        out = np.empty_like(at)
        out[order] = sorted_at
        return out

    # --- copies

    def _deliver(
        self, run: str, route: Route, stream: Any, seq: Any, size: Any, heads: Any, stored: Any, due: Any, doubled: Any
    ) -> None:  # fmt: skip
        seed, target = self._world.seed, self._world.target
        live = stored < FOREVER
        for _, struck in self._struck("lose-acknowledged", stored, stream, seq, route.topics):
            live &= ~struck
        damage = np.zeros(len(stream), np.int8)
        for kind, mark in (("corrupt-body", BODY), ("corrupt-head", HEAD)):
            for _, struck in self._struck(kind, stored, stream, seq, route.topics):
                damage[struck] = mark
        late = np.zeros(len(stream), np.int64)
        for fault, struck in self._struck("slow-delivery", stored, stream, seq, route.topics):
            late += struck * int(fault.values["by"])
        reordered = np.zeros(len(stream), np.bool_)
        for _, struck in self._struck("reorder", stored, stream, seq, route.topics):
            reordered |= struck
        topic = stream % route.topics
        ready = stored + late if due is None else np.maximum(stored + late, due)
        for subscription in range(route.subscriptions):
            kept = live.copy()
            for fault, struck in self._struck("lose-copy", stored, stream, seq, route.topics):
                if fault.values.get("subscription", 0) % route.subscriptions == subscription:
                    kept &= ~struck
            first = uniform(seed, f"copy {subscription}", stream, seq)
            down = lognormal(target.down, target.spread, first, uniform(seed, f"copy' {subscription}", stream, seq))
            at = self._stalled(ready, topic) + down
            if due is None:
                ordered = self._in_order((run, subscription), stream, np.where(reordered, 0, at))
                at = np.where(reordered, at + REORDERED_BY, ordered)
            at = self._connected(at)
            consumer = (topic * route.subscriptions + subscription) * route.consumers + stream % route.consumers
            self._hand_over(run, route, kept, consumer, subscription, topic, stream, seq, size, heads, at, damage, again=False)
            for kind in ("redeliver", "double"):
                for fault, struck in self._struck(kind, stored, stream, seq, route.topics):
                    second = self._connected(self._stalled(at + int(fault.values.get("after", MS)), topic))
                    self._hand_over(
                        run, route, kept & struck, consumer, subscription, topic, stream, seq, size, heads, second, damage,
                        again=kind == "redeliver",
                    )  # fmt: skip
            if doubled.any():
                second = self._connected(at + MS)
                self._hand_over(
                    run, route, kept & doubled, consumer, subscription, topic, stream, seq, size, heads, second, damage, again=False
                )  # fmt: skip

    def _connected(self, at: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return when copies arrive if consumers are not connected all the time."""
        for _, begin, end in self.cuts():
            at = np.where((at >= begin) & (at < end + RECONNECT), end + RECONNECT, at)
        return at

    def _hand_over(
        self, run: str, route: Route, kept: Any, consumer: Any, subscription: int, topic: Any, stream: Any, seq: Any, size: Any,
        heads: Any, at: Any, damage: Any, *, again: bool,
    ) -> None:  # fmt: skip
        arriving = np.flatnonzero(kept & (at < FOREVER))
        held = np.flatnonzero(kept & (at >= FOREVER))
        self._copies.setdefault(run, []).append(np.concatenate([at[arriving], np.full(len(held), FOREVER)]))
        for position in arriving.tolist():
            owner = route.inboxes.get(int(consumer[position]))
            if owner is None:
                continue
            wrong = int(damage[position])
            copy = Copy(
                worker=owner.worker, consumer=int(consumer[position]), subscription=subscription, topic=int(topic[position]),
                stream=int(stream[position]), seq=int(seq[position]), size=int(size[position]), arrived=int(at[position]),
                redelivered=again, damage={0: None, HEAD: "head", BODY: "body"}[wrong],
            )  # fmt: skip
            head = heads[position]
            if wrong == HEAD:
                head = head.copy()
                head[8:16] ^= 0x5A
            self.truth.copies.append(copy)
            owner.arrive(copy, head)

    def undelivered(self, run: str, now: int) -> tuple[int, int]:
        """Return the copies that are still to be handed over, and those that were."""
        at = np.concatenate([np.empty(0, np.int64), *self._copies.get(run, ())])
        return int(np.count_nonzero(at > now)), int(np.count_nonzero(at <= now))
