"""The loop of one worker: send due messages, let the driver move bytes, take answers and arrivals,
report progress.

A phase gets its start from the controller and its messages from the plan. The loop sends due
messages until all are handed over or dropped. Then it drains: it goes on taking answers and
arrivals until the controller ends the phase, which alone knows what all workers sent and received.
Several workloads are several engines, which one loop drives together.
"""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol

from pytest_loadtest.engine.generator import GeneratorWatch
from pytest_loadtest.engine.pauses import PauseLog
from pytest_loadtest.engine.progress import Progress, TimelyCounts
from pytest_loadtest.engine.receive import Consumers, Inbox
from pytest_loadtest.engine.send import Sender
from pytest_loadtest.message.route import IN_BODY
from pytest_loadtest.schedule.pacing import NEVER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_loadtest.drivers.base import Clock, Driver
    from pytest_loadtest.engine.blocks import Block
    from pytest_loadtest.engine.recorder import Recorder
    from pytest_loadtest.engine.send import Setup
    from pytest_loadtest.plan.phases import Phase
    from pytest_loadtest.schedule.changes import Change

# ns between two ticks: about the precision with which a scheduler wakes up a sleeping process. All
# messages that became due since the last tick leave in one burst, so the cost of a tick is shared
# by them (docs/decisions/011).
TICK = 1_000_000
# ns between two collections of answers and arrivals. The driver stamps both when they come, so a
# rare collection costs no precision.
COLLECT = 25_000_000
# ns between two looks at connections; in a longer time the kernel may merge the packets that wait
# (docs/decisions/037). A pause is noticed by a look that comes later than planned, so a worker with
# consumers waits no longer. Idle, it uses 1 % of a core more than with COLLECT.
PAUSE = 2_000_000
PROGRESS = 500_000_000  # ns between two reports to the controller


class Control(Protocol):
    """The engine's connection to the controller."""

    def ended(self) -> bool:
        """True if the phase has ended. Must be cheap: it is called at every tick.

        :raises BrokenRun: the run was given up.
        """

    def changes(self) -> Sequence[Change]:
        """Return the changes announced since the last call."""

    def report(self, progress: Progress) -> None:
        """Send a progress report."""


class Engine:
    """Drives one worker's producers and consumers of one workload through the phases of a run."""

    def __init__(self, setup: Setup) -> None:
        self._clock = setup.clock
        self._pool = setup.pool
        self.driver = setup.driver
        self.drivers = [setup.driver]
        self._tap = setup.tap
        if setup.tap is not None:
            self.drivers.append(setup.tap.driver)
        self.watch = GeneratorWatch(setup.clock)
        self.pauses = PauseLog()
        self.inbox = Inbox(
            setup.driver,
            setup.pool if setup.received is None else None,
            nonce=setup.nonce,
            ordered=setup.ordered,
            bounds=setup.bounds,
            place=setup.received or IN_BODY,
            topology=None if setup.received is None else setup.topology,
        )
        self.inbox.timely = TimelyCounts(setup.timely_bounds, setup.timely_seconds)
        self.consumers = Consumers(
            setup.driver, self.inbox, setup.opened, setup.later, max(setup.topology.consumers, 1)
        )
        self.sender = Sender(setup, self._retire)
        self._delays = setup.delays
        self._recorder: Recorder | None = None
        self._watching = self._watched = False

    def _retire(self, block: Block) -> None:
        if self._recorder is not None:
            self._recorder.sent(block)

    def begin(
        self, phase: Phase, start: int, control: Control, recorder: Recorder | None, wall: int = 0
    ) -> None:
        """Begin a phase, whose messages are due from ``start`` (ns of the clock) on.

        :param recorder: None if no samples are kept.
        :param wall: wall clock minus the engine's clock, ns, for delayed messages.
        """
        delays = None if self._delays is None else replace(self._delays, start=start, wall=wall)
        self._phase = phase
        self._start = start
        if self._pool.filler is not None:
            self._pool.filler.wall = wall
        self._control = control
        self._recorder = recorder
        self.pauses.clear()
        self._changes: list[Change] = sorted(phase.changes, key=attrgetter("at"))
        self.sender.begin(phase, start, delays)
        self.inbox.begin(phase, start, delays)
        if self._tap is not None:
            self._tap.begin(phase)
        # planned changes of rate and payloads go into the schedule now; changes of consumers are
        # made at their instant, in step()
        for change in phase.changes:
            self._reschedule(change)
        self.consumers.pause(paused=phase.paused)
        self._watching = self._watched = False
        self._postponed = False
        self._end = start + phase.duration
        self._send_at = self._collect_at = self._report_at = start

    @property
    def start(self) -> int:
        """The start of the phase, ns of the clock."""
        return self._start

    @property
    def boundary(self) -> int:
        """The next planned instant at which a stage or the phase ends, ns of the clock."""
        if not self._changes:
            return self._end
        return min(self._start + self._changes[0].at, self._end)

    def step(self, planned: int, now: int) -> int | None:
        """Do everything that is due.

        :param planned: the planned time of this call.
        :returns: the time of the next, None after the phase.

        :raises BrokenRun: raised by the control or the driver; samples gathered so far stay with
            the recorder.
        """
        # first, because nothing may be sent in a phase that has ended
        if self._control.ended():
            self._finish()
            return None
        self._watch_generator(planned, now)
        if self.note_pause(planned, now) and self._collect_at <= now and not self._postponed:
            # The driver may not have read all that came in the pause, and copies with one stamp
            # have to be collected together.
            self._collect_at = now + TICK
            self._postponed = True
        self._take_changes(now)  # before messages are sent, which a change would come too late for
        if now >= self._send_at:
            self.sender.tick(now)
            self._send_at = self.sender.next_at()
        if now >= self._collect_at:
            self._collect(now)
            self._collect_at = self._next(now, COLLECT)
            self._postponed = False
        # after a collection, so that its counts are of this instant
        if now >= self._report_at and not self._postponed:
            self._control.report(self._progress(now - self._start))
            # All workers wait for the report that ends the phase or its drain: report at the end at
            # once, and often in the drain.
            self._report_at = self._next(now, COLLECT)
            if now < self._end:
                self._report_at = min(self._next(now, PROGRESS), self._end)
        change_at = self._start + self._changes[0].at if self._changes else NEVER
        return min(self._send_at, self._collect_at, change_at)

    def _next(self, now: int, interval: int) -> int:
        """Return the next of the instants that lie an interval apart from the start on.

        All workers collect and report at the same ones, whatever held one up before, because the
        controller adds their counts.
        """
        return self._start + ((now - self._start) // interval + 1) * interval

    # --- changes

    def _take_changes(self, now: int) -> None:
        for change in self._control.changes():
            self._reschedule(change)
            self._changes = sorted([*self._changes, change], key=attrgetter("at"))
            # the next message may be due earlier than under the old rate
            self._send_at = self._start
        while self._changes and self._changes[0].at <= now - self._start:
            change = self._changes.pop(0)
            if change.paused is not None:
                self.consumers.pause(paused=change.paused)
            if change.consumers is not None:
                self.consumers.limit(change.consumers)

    def _reschedule(self, change: Change) -> None:
        """Apply a change to messages that are not due yet: as soon as it is known, because blocks
        are made in advance.
        """
        pacer = table = None
        if change.rate is not None:
            pacer = self.inbox.pacer.changed(change.at, change.rate)
            self.inbox.repace(pacer, self._start)
        if change.distribution is not None:
            table = self._pool.table(change.distribution)
        if change.end:
            self._end = min(self._end, self._start + change.at)
            self.inbox.arrivals.duration = self._end - self._start
        self.sender.change(change, pacer, table)

    # --- evidence, collecting, reporting

    def note_pause(self, begin: int, end: int) -> bool:
        """Note the time in which the worker did not look at connections, if it is long; return
        whether it is.
        """
        if end - begin > PAUSE:
            # The driver reads after the pause, and until then the kernel may still merge packets.
            self.inbox.note_pause(begin, end + 2 * TICK)
            self.pauses.add(begin, end)
            return True
        return False

    def _watch_generator(self, planned: int, now: int) -> None:
        """Gather evidence about the generator in the phase itself, without the wait for its start
        and without its drain.
        """
        if not self._watched and now >= self._start:
            self.watch.start(self._start)
            self._watching = self._watched = True
            # The process may have stood still over the phase's start, or over all of it.
            planned = max(planned, self._start)
        if self._watching:
            self.watch.woke(planned, now, self._end)
            if now >= self._end:
                self.watch.stop()
                self._watching = False

    def _collect(self, now: int) -> None:
        self.sender.collect()
        self.consumers.welcome()
        columns = self.inbox.collect()
        self.pauses.took(self.inbox.took_at)
        tapped = None if self._tap is None else self._tap.collect()
        if self._recorder is not None:
            if columns is not None:
                self._recorder.received(columns)
            if tapped is not None:
                self._recorder.tapped(tapped)
            self._recorder.flush_if_due(now)

    def _progress(self, elapsed: int) -> Progress:
        # Until the phase's duration is over, even if its rate is 0 at the end, and all of its
        # messages are handed over or dropped.
        sending = self._clock() < self._end or not self.sender.finished
        sent = self.sender.counts
        received = self.inbox.counts
        return Progress(
            phase=self._phase.name,
            elapsed=elapsed,
            sending=sending,
            offered=self.sender.offered(elapsed),
            sent=sent.sent,
            acked=sent.acked,
            failed=sent.failed,
            dropped=sent.dropped,
            received=received.received,
            repeats=self.inbox.repeats,
            in_flight=sent.in_flight,
            send_delay_p99=self.sender.own_delay_p99(),
            blocked=self.sender.blocked,
            beyond_bounds=tuple(received.beyond_bounds),
            timely=self.inbox.timely.report(elapsed),
            redelivered=received.redelivered,
            resent=sent.resent,
            taken=self.inbox.taken,
            connected=sending or self.driver.disconnected() is None,
            receive_lag_p99=self.inbox.lag_p99(),
        )

    def _finish(self) -> None:
        self.watch.stop()
        # what came since the last collection still belongs to this phase
        self._collect(self._clock())
        self.sender.end()


def drive(engines: Sequence[Engine], clock: Clock, idle: Sequence[Driver] = ()) -> None:
    """Drive engines that have begun a phase to its end, all in one loop.

    :param idle: drivers of workloads without a phase now. Their connections are served, as are
        those of engines that are done earlier: a broker disconnects a client that is silent for
        longer than its keep-alive.
    :raises BrokenRun: raised by a control or a driver.
    """
    try:
        _drive(engines, clock, idle)
    finally:
        # A phase that breaks off must not leave a callback of garbage collections in the process.
        for engine in engines:
            engine.watch.stop()


def _drive(engines: Sequence[Engine], clock: Clock, idle: Sequence[Driver]) -> None:
    active = list(engines)
    others = list(idle)
    serve_at = 0
    # A loop that begins late has looked at nothing since the start of its phase.
    planned = min([clock(), *(engine.start for engine in active)])
    receives = any(len(engine.consumers) for engine in engines)
    while active:
        now = clock()
        steps = [(engine, engine.step(planned, now)) for engine in active]
        active = [engine for engine, due in steps if due is not None]
        for engine, next_due in steps:
            if next_due is None:
                others += engine.drivers
        if now >= serve_at:
            serve_at = now + COLLECT
            for driver in others:
                driver.poll(0)
        if not active:
            return
        stepped = clock()
        for engine in active:
            engine.note_pause(now, stepped)
        due = _next_tick(active, min(due for _, due in steps if due is not None), stepped)
        planned = min(due, stepped + PAUSE) if receives else due
        # Waiting is left to the drivers, which move bytes in this time; several drivers share the
        # time, as each waits on its own sockets. Shares are rounded up: with less than the time
        # together, the loop would turn just before the instant at which something is due.
        left = planned - stepped
        drivers = [driver for engine in active for driver in engine.drivers]
        share = -(-left // len(drivers))
        for driver in drivers:
            driver.poll(share)


def _next_tick(engines: Sequence[Engine], due: int, now: int) -> int:
    """Return when to tick next. :param due: when something is due."""
    # At least a tick after this one, even if a message is due earlier: all that become due until
    # then share the cost of one tick.
    tick = now + TICK
    if due >= tick:
        return due
    # In the last tick of a stage or a phase the message would be sent after the end, and count as
    # too late.
    if any(now < due < engine.boundary <= tick for engine in engines):
        return due
    return tick
