"""The progress line of each workload while load runs.

The lines are rewritten in place on a terminal; elsewhere there is a plain line every ten seconds.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_loadtest.values.quantities import SECOND, format_count, format_duration, format_rate
from pytest_loadtest.values.wording import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from pytest_loadtest.engine.progress import Progress
    from pytest_loadtest.plan.phases import Phase

_TERMINAL_EVERY = 0.5
_PLAIN_EVERY = 10.0


class Totals(NamedTuple):
    """The sums over all workers at one time. :param at: monotonic clock, s."""

    phase: Phase
    at: float
    offered: int
    sent: int
    received: int

    @classmethod
    def of(cls, phase: Phase, at: float, progress: Sequence[Progress]) -> Totals:
        """Add up the counts of all workers."""
        offered = sent = received = 0
        for worker in progress:
            offered += worker.offered
            sent += worker.sent
            received += worker.received
        return cls(phase, at, offered, sent, received)


class LiveLine:
    """The progress line of one run at a time; any thread may call it.

    Under xdist only the controller's main loop may write to the terminal, so lines go through its
    queue if there is one.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._last: dict[str, Totals] = {}
        """By profile."""
        self._rows: dict[str, str] = {}
        """The lines on the terminal that are rewritten, by profile."""

    def announce(self, text: str, *, quiet: bool = False) -> None:
        """Write a separate line, for steps that take a while.

        :param quiet: write it with ``-q``, too, which suppresses all others.
        """
        if self._verbosity >= (-1 if quiet else 0):
            self._hand_over(visible(f"load: {text}"), stays=True)

    def show(
        self, profile: str, phase: Phase, progress: Sequence[Progress], drain: str | None = None
    ) -> None:
        """Show the latest progress of every worker in a phase of a load; nothing with ``-q``.

        :param drain: what the drain waits for; None if it is complete or has not begun.
        """
        if self._verbosity < 0:
            return
        totals = Totals.of(phase, time.monotonic(), progress)
        last = self._last.get(profile)
        if last is None or last.phase is not phase:
            self._last[profile] = totals
            return
        if totals.at - last.at < (_TERMINAL_EVERY if self._terminal else _PLAIN_EVERY):
            return
        self._last[profile] = totals
        line = describe(profile, progress, last, totals, drain)
        self._hand_over(visible(line), stays=not self._terminal, profile=profile)

    @property
    def _verbosity(self) -> int:
        # The option is one of the terminal, which -p no:terminal leaves out.
        verbosity: int = self._config.getoption("verbose", 0)
        return verbosity

    @property
    def _terminal(self) -> bool:
        reporter = self._config.pluginmanager.getplugin("terminalreporter")
        return reporter is not None and bool(reporter.isatty)

    def _hand_over(self, text: str, *, stays: bool, profile: str = "") -> None:
        session = self._config.pluginmanager.getplugin("dsession")
        if session is None or not hasattr(session, "queue"):
            self._write(text, stays, profile)
            return
        session.worker_loadtest_line = self._write
        line = {"text": text, "stays": stays, "profile": profile}
        session.queue.put(("loadtest_line", line))

    def _write(self, text: str, stays: bool, profile: str) -> None:
        reporter = self._config.pluginmanager.getplugin("terminalreporter")
        if reporter is None:
            return
        capture = self._config.pluginmanager.getplugin("capturemanager")
        put = self._put_on_terminal if self._terminal else self._put_in_log
        if capture is None:
            put(reporter, text, stays, profile)
            return
        with capture.global_and_fixture_disabled():
            put(reporter, text, stays, profile)

    def _put_in_log(self, reporter: Any, text: str, *_: object) -> None:
        reporter.ensure_newline()
        if reporter._tw.width_of_current_line:
            # pytest ends the line only after its own dots, not after those of xdist.
            reporter.write_line("")
        reporter.write_line(text)

    def _put_on_terminal(self, reporter: Any, text: str, stays: bool, profile: str) -> None:
        """Draw the lines of all workloads again; a line that stays takes their place."""
        above = len(self._rows) - 1
        if above > 0:
            # Cursor to the first line; the screen from there on is cleared.
            reporter._tw.write_raw(f"\x1b[{above}A\r\x1b[J")
        if stays:
            self._rows.clear()
        else:
            self._rows[profile] = text
        rows = [text]
        if len(self._rows) > 1:
            # A narrow terminal cuts the name at the end of a line.
            rows = [f"{name}: {row}" for name, row in self._rows.items()]
        for number, row in enumerate(rows):
            if number:
                reporter.write_line("")
            reporter.rewrite(row[: reporter._tw.fullwidth - 1], erase=True)
        if stays:
            reporter.write_line("")


def describe(
    profile: str,
    progress: Sequence[Progress],
    before: Totals,
    now: Totals,
    drain: str | None = None,
) -> str:
    """Return one line for a phase.

    It has the elapsed time, offered, sent and received messages a second, the send delay, the
    receive lag where it is known, and the messages in flight.

    :param before: the totals at the last line. :param now: the current ones.
    :param drain: what the drain waits for, instead of the rates.
    """
    phase = now.phase
    elapsed = max(worker.elapsed for worker in progress)
    draining = elapsed >= phase.duration and not any(worker.sending for worker in progress)
    name = f"{phase.name}: drain" if draining else phase.name
    head = f"{name} {elapsed / SECOND:.0f}/{phase.duration / SECOND:.0f} s"
    if phase.idle and phase.streams:
        return f"{head}  connections are held  load {profile}"

    # While it drains, nothing is offered or sent any more, so rates say nothing.
    parts = [head, drain if draining and drain is not None else _rates(before, now)]
    delays = [delay for worker in progress if (delay := worker.send_delay_p99) is not None]
    parts.append(f"delay p99 {format_duration(max(delays)) if delays else '–'}")
    lags = [lag for worker in progress if (lag := worker.receive_lag_p99) is not None]
    if lags:
        parts.append(f"lag p99 {format_duration(max(lags))}")
    parts.append(f"in flight {format_count(sum(worker.in_flight for worker in progress))}")
    if any(worker.blocked for worker in progress):
        parts.append("window full")
    return "  ".join([*parts, f"load {profile}"])


def _rates(before: Totals, now: Totals) -> str:
    """Return the rates; the most important one comes first: a narrow terminal cuts the line."""
    seconds = now.at - before.at
    texts = []
    for count in ("offered", "sent", "received"):
        rate = (getattr(now, count) - getattr(before, count)) / seconds
        texts.append(f"{count} {format_rate(rate).removesuffix(' msg/s')}")
    return f"{' '.join(texts)} msg/s"
