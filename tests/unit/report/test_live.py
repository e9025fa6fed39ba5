"""The progress line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from builders.plans import loopback, made
from builders.plans import made as made_plan
from builders.progress import made_progress

from pytest_loadtest import profile as profiles
from pytest_loadtest.report import live
from pytest_loadtest.report.live import LiveLine, Totals, describe
from pytest_loadtest.values.quantities import MILLISECOND, SECOND

if TYPE_CHECKING:
    from pytest_loadtest.engine.progress import Progress
    from pytest_loadtest.plan.phases import Phase


def said(**counts: Any) -> Progress:
    known = {
        "elapsed": 2 * SECOND,
        "sending": True,
        "send_delay_p99": MILLISECOND,
        "in_flight": 3,
        "sent": 90,
        "received": 70,
    }
    return made_progress(**known | counts)


@pytest.fixture
def phase() -> Phase:
    return made(loopback()).measure


def test_the_line_has_phase_time_rates_delay_and_messages_in_flight(phase: Phase) -> None:
    """Rates are since the last line; the delay is the worst worker's."""
    line = describe(
        "p",
        [said(), said(send_delay_p99=7 * MILLISECOND, in_flight=4)],
        Totals(phase, 10.0, 100, 80, 60),
        Totals(phase, 12.0, 200, 180, 140),
    )
    assert (
        line
        == "measure 2/3 s  offered 50 sent 50 received 40 msg/s  delay p99 7.00 ms  in flight 7  load p"
    )


def test_the_line_has_the_receive_lag_of_the_worst_worker_that_knows_it(phase: Phase) -> None:
    """Where arrivals have the client's time it is unknown, and not shown as 0."""
    workers = [said(), said(receive_lag_p99=40_000), said(receive_lag_p99=7 * MILLISECOND)]
    line = describe("p", workers, Totals(phase, 10.0, 0, 0, 0), Totals(phase, 12.0, 0, 0, 0))
    assert "  delay p99 1.00 ms  lag p99 7.00 ms  in flight 9  " in line


def test_the_line_names_drain_and_full_windows(phase: Phase) -> None:
    """A delay that was not measured is not 0."""
    line = describe(
        "p",
        [said(elapsed=4 * SECOND, sending=False, send_delay_p99=None, blocked=True)],
        Totals(phase, 0.0, 0, 0, 0),
        Totals(phase, 1.0, 0, 0, 5),
    )
    assert line.startswith("measure: drain 4/3 s")
    assert "delay p99 –" in line
    assert "window full" in line


def test_a_drain_with_missing_messages_shows_them_instead_of_rates(phase: Phase) -> None:
    """Nothing is offered or sent any more; a line of the phase itself has the rates."""
    drain = "8 of 5 000 deliveries missing, ends in 24 s"
    late = said(elapsed=4 * SECOND, sending=False)
    line = describe("p", [late], Totals(phase, 0.0, 0, 0, 0), Totals(phase, 1.0, 0, 0, 5), drain)
    assert line == f"measure: drain 4/3 s  {drain}  delay p99 1.00 ms  in flight 3  load p"
    assert drain not in describe(
        "p", [said()], Totals(phase, 0.0, 0, 0, 0), Totals(phase, 1.0, 0, 0, 5), drain
    )


class Reporter:
    """The part of pytest's reporter that the line needs."""

    isatty = False

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._tw: Any = type("Writer", (), {"width_of_current_line": 0, "fullwidth": 80})()

    def ensure_newline(self) -> None: ...

    def write_line(self, text: str) -> None:
        self.lines.append(text)

    def rewrite(self, text: str, *, erase: bool) -> None:
        self.lines.append("\r" + text)


class Config:
    """A configuration that has only this reporter."""

    def __init__(self, reporter: Reporter) -> None:
        self.reporter, self.pluginmanager = reporter, self
        self.option: Any = type("Option", (), {"verbose": 0})()

    def getplugin(self, name: str) -> Any:
        return self.reporter if name == "terminalreporter" else None

    def getoption(self, name: str, default: int) -> int:
        return int(getattr(self.option, name, default))


@pytest.mark.parametrize(
    ("terminal", "times", "shown"),
    [(False, [0, 5, 9.9, 10, 19, 20], 2), (True, [0, 0.2, 0.5, 0.9, 1.0], 2)],
)
def test_a_line_is_written_every_ten_seconds(
    phase: Phase, monkeypatch: pytest.MonkeyPatch, terminal: bool, times: list[float], shown: int
) -> None:
    """On a terminal it is rewritten twice a second and never wider than the terminal."""
    reporter = Reporter()
    reporter.isatty = terminal
    line = LiveLine(Config(reporter))  # type: ignore[arg-type]
    for now in times:
        monkeypatch.setattr(live.time, "monotonic", lambda now=now: 100 + now)
        line.show("t", phase, [said()])
    assert len(reporter.lines) == shown
    assert all(
        text.startswith("\r") == terminal and len(text) <= 80 + 40 * (not terminal)
        for text in reporter.lines
    )


def test_each_workload_has_its_lines_in_a_log(
    phase: Phase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every ten seconds of each, whenever the other's line came."""
    reporter = Reporter()
    line = LiveLine(Config(reporter))  # type: ignore[arg-type]
    for now, profile in ((0, "a"), (6, "b"), (10, "a"), (12, "b"), (16, "b"), (20, "a")):
        monkeypatch.setattr(live.time, "monotonic", lambda now=now: 100 + now)
        line.show(profile, phase, [said()])
    assert [text[-1] for text in reporter.lines] == ["a", "b", "a"]


def test_counts_of_two_runs_are_not_mixed(monkeypatch: pytest.MonkeyPatch) -> None:
    reporter = Reporter()
    line = LiveLine(Config(reporter))  # type: ignore[arg-type]
    for now, phase in ((0, made(loopback()).measure), (100, made(loopback()).measure)):
        monkeypatch.setattr(live.time, "monotonic", lambda now=now: now)
        line.show("t", phase, [said()])
    assert reporter.lines == []


@pytest.mark.parametrize(
    ("verbose", "shown"),
    [
        (0, ["load: planning", "load: target: mqtt://host"]),
        (-1, ["load: target: mqtt://host"]),
        (-2, []),
    ],
)
def test_quiet_leaves_only_the_target(
    phase: Phase, monkeypatch: pytest.MonkeyPatch, verbose: int, shown: list[str]
) -> None:
    """With -q the target stays, because results cannot be read without it; -qq suppresses it, too."""
    config = Config(Reporter())
    config.option.verbose = verbose
    line = LiveLine(config)  # type: ignore[arg-type]
    line.announce("planning")
    line.announce("target: mqtt://host", quiet=True)
    for now in (0, 20):
        monkeypatch.setattr(live.time, "monotonic", lambda now=now: now)
        line.show("t", phase, [said()])
    assert [text for text in config.reporter.lines if text.startswith("load:")] == shown
    assert (len(config.reporter.lines) == 3) == (verbose == 0)


def test_held_connections_have_no_rates() -> None:
    text = "name: p\nmessages: 0\ntestDuration: 30s\ndriver: {name: mqtt}\nslo: {connectLatency: {mean: 1s}}\n"
    phase = made_plan(profiles.loads(text, "p.yaml")).measure
    line = describe(
        "p",
        [made_progress(elapsed=2 * SECOND, sending=True)],
        Totals(phase, 1.0, 0, 0, 0),
        Totals(phase, 2.0, 0, 0, 0),
    )
    assert line == "measure 2/30 s  connections are held  load p"
