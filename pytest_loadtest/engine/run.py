"""One worker's loop: tick the streams that are due, let the driver move bytes, take what came back, say how it goes.

A phase has its start from the controller and its messages from the plan. The loop sends what is due until all is handed over or
dropped, then drains: it goes on taking answers and arrivals until the controller, which alone knows what all workers sent and got, says
that the phase has ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from pytest_loadtest.engine.consume import CompactIntended, Inbox
from pytest_loadtest.engine.produce import Stream
from pytest_loadtest.engine.progress import Progress
from pytest_loadtest.observe.generator import GeneratorWatch
from pytest_loadtest.payloads import Chooser

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_loadtest.drivers._base import Clock, Consumer, Driver, Producer
    from pytest_loadtest.engine.blocks import Block
    from pytest_loadtest.engine.recorder import Recorder
    from pytest_loadtest.payloads import PayloadPool
    from pytest_loadtest.plan import Phase
    from pytest_loadtest.topology import ConsumerSpec, ProducerSpec

TICK = 1_000_000  # ns between two looks at what is due: what a sleeping process gets from a scheduler, more or less
COLLECT = 25_000_000  # ns between two looks at what came back; drivers stamp it, so this costs no precision
PROGRESS = 500_000_000


class Control(Protocol):
    """The engine's line to whoever conducts the run."""

    def ended(self) -> bool:
        """Whether the phase has ended. Cheap: asked every tick.

        :raises BrokenRun: the run was given up.
        """

    def report(self, progress: Progress) -> None:
        """Say how it goes."""


class Engine:
    """Drives one worker's producers and consumers through the phases of a run."""

    def __init__(
        self, driver: Driver, producers: Sequence[tuple[ProducerSpec, Producer]], consumers: Sequence[tuple[ConsumerSpec, Consumer]], *,
        pool: PayloadPool, clock: Clock, recorder: Recorder, nonce: int, seed: int, key_distributor: str, max_send_delay: int,
        ordered: bool,
    ) -> None:  # fmt: skip
        self.watch = GeneratorWatch(clock)
        self.inbox = Inbox([spec for spec, _ in consumers], [consumer for _, consumer in consumers], nonce=nonce, ordered=ordered)
        self._driver, self._clock, self._recorder = driver, clock, recorder
        self._recorded = self._watching = False
        self._streams = [
            Stream(spec, producer, Chooser(pool, seed, spec.stream), clock, key_distributor=key_distributor, seed=seed,
                   max_send_delay=max_send_delay, retire=self._retire)
            for spec, producer in producers
        ]  # fmt: skip

    def _retire(self, stream: Stream, block: Block) -> None:
        if self._recorded:
            self._recorder.sent(stream.spec, block)

    def run(self, phase: Phase, start: int, control: Control) -> None:
        """Drive one phase from ``start`` (ns of the clock) until the control says that it has ended.

        :raises BrokenRun: what the control or the driver raised; samples gathered so far stay with the recorder.
        """
        self._begin(phase, start)
        wanted = collect_at = report_at = start
        next_due = np.array([start + stream.next_offset() for stream in self._streams], np.int64)
        while not control.ended():
            now = self._clock()
            self._watch_over(phase, start, wanted, now)
            for i in np.flatnonzero(next_due <= now):
                stream = self._streams[i]
                stream.tick(now, now - start)
                next_due[i] = _NEVER if stream.finished else start + stream.next_offset()
            if now >= collect_at:
                self._collect(now)
                collect_at = now + COLLECT
            if now >= report_at:
                control.report(self._progress(phase, now - start))
                # what ends a drain is waited for by all: say it soon
                report_at = now + (PROGRESS if self._sending() else COLLECT)
            now = self._clock()
            wanted = max(min(int(next_due.min(initial=_NEVER)), collect_at), now + TICK)
            self._driver.poll(wanted - now)
        self._finish()

    def _begin(self, phase: Phase, start: int) -> None:
        self._recorded = phase.recorded
        rate = phase.pacer.numerator / phase.pacer.denominator / phase.pacer.streams
        for stream in self._streams:
            number = stream.spec.stream
            stream.begin(phase.pacer, start, phase.first[number], phase.count[number], _block_size(rate))
        first, count = np.array(phase.first, np.int64), np.array(phase.count, np.int64)
        compact = CompactIntended(start, phase.pacer.numerator, phase.pacer.denominator, phase.pacer.streams, first)
        self.inbox.begin(first, first + count, compact)
        self._watching = False

    def _watch_over(self, phase: Phase, start: int, wanted: int, now: int) -> None:
        """The evidence is about the phase itself: neither the wait for its start nor its drain belongs to it."""
        if self._watching:
            self.watch.woke(wanted, now)
            if now >= start + phase.duration:
                self.watch.stop()
                self._watching = False
        elif start <= now < start + phase.duration:
            self.watch.start()
            self._watching = True

    def _collect(self, now: int) -> None:
        for stream in self._streams:
            stream.collect()
        rows = self.inbox.collect()
        if self._recorded:
            for columns in rows:
                self._recorder.received(columns)
            self._recorder.flush_if_due(now)

    def _sending(self) -> bool:
        return any(not stream.finished for stream in self._streams)

    def _progress(self, phase: Phase, elapsed: int) -> Progress:
        due = phase.pacer.due(min(elapsed, phase.duration - 1))
        counts = [stream.counts for stream in self._streams]
        return Progress(
            phase=phase.name, elapsed=elapsed, sending=self._sending(),
            offered=sum(phase.pacer.share(due, stream.spec.stream) for stream in self._streams),
            sent=sum(c.sent for c in counts), acked=sum(c.acked for c in counts), failed=sum(c.failed for c in counts),
            dropped=sum(c.dropped for c in counts), received=self.inbox.counts.received, repeats=self.inbox.repeats,
            in_flight=sum(stream.producer.in_flight for stream in self._streams), send_delay_p99=self._send_delay(),
            blocked=any(stream.blocked for stream in self._streams),
        )  # fmt: skip

    def _send_delay(self) -> int | None:
        delays = [sent - intended - blocked for stream in self._streams for sent, intended, blocked in stream.delays]
        for stream in self._streams:
            stream.delays.clear()
        if not delays:
            return None
        together = np.concatenate(delays)
        rank = min(len(together) - 1, len(together) * 99 // 100)
        return int(np.partition(together, rank)[rank])

    def _finish(self) -> None:
        self.watch.stop()
        self._collect(self._clock())
        for stream in self._streams:
            stream.end()


_NEVER = np.iinfo(np.int64).max


def _block_size(rate: float) -> int:
    """Messages a block: about half a second of one stream, so that many slow streams stay small and few fast ones efficient."""
    return 1 << min(max(int(rate / 2).bit_length(), 6), 13)
