"""The line that says how load goes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from builders.plans import loopback, made
from builders.plans import made as made_plan
from builders.progress import made_progress

from pytest_loadtest import profile as profiles
from pytest_loadtest.report import live
from pytest_loadtest.report.live import LiveLine, describe
from pytest_loadtest.values.quantities import MILLISECOND, SECOND

if TYPE_CHECKING:
    from pytest_loadtest.engine.progress import Progress
    from pytest_loadtest.plan.phases import Phase


def said(**counts: Any) -> Progress:
    known = {"elapsed": 2 * SECOND, "sending": True, "send_delay_p99": MILLISECOND, "in_flight": 3, "sent": 90, "received": 70}
    return made_progress(**known | counts)


@pytest.fixture
def phase() -> Phase:
    return made(loopback()).measure


def test_the_line(phase: Phase) -> None:
    """Phase, time, rates since the last line, the worst delay, and what is in flight, all workers together."""
    line = describe(
        "p", [said(), said(send_delay_p99=7 * MILLISECOND, in_flight=4)], (phase, 10.0, 100, 80, 60), (phase, 12.0, 200, 180, 140)
    )
    assert line == "measure 2/3 s  offered 50 sent 50 received 40 msg/s  delay p99 7.00 ms  in flight 7  load p"


def test_drain_full_window_and_nothing_sent(phase: Phase) -> None:
    """The drain is called so; a full window is told; a delay that nobody measured is not 0."""
    line = describe(
        "p", [said(elapsed=4 * SECOND, sending=False, send_delay_p99=None, blocked=True)], (phase, 0.0, 0, 0, 0), (phase, 1.0, 0, 0, 5)
    )
    assert line.startswith("measure: drain 4/3 s")
    assert "delay p99 –" in line
    assert "window full" in line


class Reporter:
    """What the line needs of pytest's reporter."""

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
    """A configuration with that reporter and nothing else."""

    def __init__(self, reporter: Reporter) -> None:
        self.reporter, self.pluginmanager = reporter, self
        self.option: Any = type("Option", (), {"verbose": 0})()

    def getplugin(self, name: str) -> Any:
        return self.reporter if name == "terminalreporter" else None


@pytest.mark.parametrize(("terminal", "times", "shown"), [(False, [0, 5, 9.9, 10, 19, 20], 2), (True, [0, 0.2, 0.5, 0.9, 1.0], 2)])
def test_how_often(phase: Phase, monkeypatch: pytest.MonkeyPatch, terminal: bool, times: list[float], shown: int) -> None:
    """A line every ten seconds, or two a second rewritten in place on a terminal, never wider than it."""
    reporter = Reporter()
    reporter.isatty = terminal
    line = LiveLine(Config(reporter))  # type: ignore[arg-type]
    for now in times:
        monkeypatch.setattr(live.time, "monotonic", lambda now=now: 100 + now)
        line.show("t", phase, [said()])
    assert len(reporter.lines) == shown
    assert all(text.startswith("\r") == terminal and len(text) <= 80 + 40 * (not terminal) for text in reporter.lines)


def test_a_new_run_starts_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """The counts of one run are never subtracted from those of another."""
    reporter = Reporter()
    line = LiveLine(Config(reporter))  # type: ignore[arg-type]
    for now, phase in ((0, made(loopback()).measure), (100, made(loopback()).measure)):
        monkeypatch.setattr(live.time, "monotonic", lambda now=now: now)
        line.show("t", phase, [said()])
    assert reporter.lines == []


@pytest.mark.parametrize(
    ("verbose", "shown"), [(0, ["load: planning", "load: target: mqtt://host"]), (-1, ["load: target: mqtt://host"]), (-2, [])]
)
def test_quiet(phase: Phase, monkeypatch: pytest.MonkeyPatch, verbose: int, shown: list[str]) -> None:
    """With -q what the load went to stays, for no result can be read without it; with -qq nothing does."""
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


def test_the_line_while_they_are_held() -> None:
    """How long yet: there are no rates."""
    text = "name: p\nmessages: 0\ntestDuration: 30s\ndriver: {name: mqtt}\nslo: {connectLatency: {mean: 1s}}\n"
    phase = made_plan(profiles.loads(text, "p.yaml")).measure
    line = describe("p", [made_progress(elapsed=2 * SECOND, sending=True)], (phase, 1.0, 0, 0, 0), (phase, 2.0, 0, 0, 0))
    assert line == "measure 2/30 s  connections are held  load p"
