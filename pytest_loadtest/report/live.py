"""The progress line while load runs: rewritten in place on a terminal, a plain line every ten seconds elsewhere."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from pytest_loadtest.values.quantities import SECOND, format_count, format_duration, format_rate
from pytest_loadtest.values.wording import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from pytest_loadtest.engine.progress import Progress
    from pytest_loadtest.plan.phases import Phase

_TERMINAL_EVERY, _PLAIN_EVERY = 0.5, 10.0


class LiveLine:
    """The progress line of one run at a time; any thread may call it.

    Under xdist only the controller's main loop may write to the terminal, so lines go through its queue if there is one.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._last: dict[str, tuple[Phase, float, int, int, int]] = {}  # by profile

    def announce(self, text: str, *, quiet: bool = False) -> None:
        """Write a separate line, for steps that take a while. :param quiet: write it with ``-q``, too, which suppresses all others."""
        if self._verbosity >= (-1 if quiet else 0):
            self._hand_over(visible(f"load: {text}"), stays=True)

    def show(
        self, profile: str, phase: Phase, progress: Sequence[Progress], drain: str | None = None
    ) -> None:
        """Show the latest progress of every worker in a phase of a profile's load; nothing with ``-q``.

        :param drain: what the drain waits for; None if it is complete or has not begun.
        """
        if self._verbosity < 0:
            return
        now, interval = time.monotonic(), _TERMINAL_EVERY if self._terminal else _PLAIN_EVERY
        totals = (
            phase,
            now,
            sum(p.offered for p in progress),
            sum(p.sent for p in progress),
            sum(p.received for p in progress),
        )
        last = self._last.get(profile)
        if last is None or last[0] is not phase:
            self._last[profile] = totals
            return
        if now - last[1] < interval:
            return
        self._last[profile] = totals
        self._hand_over(
            visible(describe(profile, progress, last, totals, drain)), stays=not self._terminal
        )

    @property
    def _verbosity(self) -> int:
        verbosity: int = self._config.getoption(
            "verbose", 0
        )  # an option of the terminal, which -p no:terminal leaves out
        return verbosity

    @property
    def _terminal(self) -> bool:
        reporter = self._config.pluginmanager.getplugin("terminalreporter")
        return reporter is not None and bool(reporter.isatty)

    def _hand_over(self, text: str, *, stays: bool) -> None:
        session: Any = self._config.pluginmanager.getplugin("dsession")
        if session is None or not hasattr(session, "queue"):
            self._write(text, stays)
            return
        session.worker_loadtest_line = self._write
        session.queue.put(("loadtest_line", {"text": text, "stays": stays}))

    def _write(self, text: str, stays: bool) -> None:
        reporter: Any = self._config.pluginmanager.getplugin("terminalreporter")
        if reporter is None:
            return
        capture: Any = self._config.pluginmanager.getplugin("capturemanager")
        if capture is None:
            self._put(reporter, text, stays)
            return
        with capture.global_and_fixture_disabled():
            self._put(reporter, text, stays)

    def _put(self, reporter: Any, text: str, stays: bool) -> None:
        if self._terminal:
            reporter.rewrite(text[: reporter._tw.fullwidth - 1], erase=True)
            if stays:
                reporter.write_line("")
        else:
            reporter.ensure_newline()
            if (
                reporter._tw.width_of_current_line
            ):  # pytest ends the line only after its own dots, not after those of xdist
                reporter.write_line("")
            reporter.write_line(text)


def describe(
    profile: str, progress: Sequence[Progress], before: tuple[Phase, float, int, int, int], now: tuple[Phase, float, int, int, int],
    drain: str | None = None,
) -> str:  # fmt: skip
    """Return one line: phase, elapsed time, offered, sent and received per second, send delay, receive lag where it is known, in flight.

    :param before: ``(phase, monotonic s, offered, sent, received)`` at the last line. :param now: the current ones.
    :param drain: what the drain waits for, instead of the rates.
    """
    phase, seconds = now[0], now[1] - before[1]
    offered, sent, received = ((b - a) / seconds for a, b in zip(before[2:], now[2:], strict=True))
    elapsed = max(p.elapsed for p in progress)
    name = (
        phase.name
        if any(p.sending for p in progress) or elapsed < phase.duration
        else f"{phase.name}: drain"
    )
    delays = [p.send_delay_p99 for p in progress if p.send_delay_p99 is not None]
    lags = [p.receive_lag_p99 for p in progress if p.receive_lag_p99 is not None]
    # the most important numbers come first, because a narrow terminal cuts the line
    rates = " ".join(
        f"{word} {format_rate(rate).removesuffix(' msg/s')}"
        for word, rate in (("offered", offered), ("sent", sent), ("received", received))
    )
    if phase.idle and phase.streams:
        return f"{name} {elapsed / SECOND:.0f}/{phase.duration / SECOND:.0f} s  connections are held  load {profile}"
    parts = [
        f"{name} {elapsed / SECOND:.0f}/{phase.duration / SECOND:.0f} s", f"{rates} msg/s",
        f"delay p99 {format_duration(max(delays)) if delays else '–'}", *([f"lag p99 {format_duration(max(lags))}"] if lags else []),
        f"in flight {format_count(sum(p.in_flight for p in progress))}", f"load {profile}",
    ]  # fmt: skip
    if any(p.blocked for p in progress):
        parts.insert(-1, "window full")
    if drain is not None and name != phase.name:
        # Nothing is offered or sent any more, so these take the place of the rates.
        parts[1:2] = [drain]
    return "  ".join(parts)
