"""How connections are reported: where they are all that there is, and beside messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from builders.documents import document
from builders.measurements import MS, spread
from builders.plans import made
from builders.progress import made_progress

from pytest_loadtest import profile as profiles
from pytest_loadtest.metrics.opening import Opening
from pytest_loadtest.report.junit import junit_properties
from pytest_loadtest.report.live import describe
from pytest_loadtest.report.terminal import summary_lines
from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from pytest_loadtest.report.document import Document

OPENING: dict[str, Any] = {"connections": 1000, "took": 9_993 * MS, "busiest": "gw1", "cpu": 0.25, "begun_late": MS, "in_time": 1000}
NOTHING = dict.fromkeys(("offered", "sent", "sent_in_time", "acked", "received", "received_in_time"), 0)
DRIVER = {"client": "native", "version": "1", "applied": {}, "not_applied": {}}


def reported(losses: int | None = 0, rate: float | None = 100.0, *, alone: bool = True, **more: Any) -> Document:
    silent = {"rate": 0.0, "subscriptions": 0, "counts": NOTHING, "end_to_end": None, "publish": None, "send_delay": None} if alone else {}
    return document(
        {"connectLatency": {"mean": "500ms"}}, facts={"driver": DRIVER | {"losses": losses}},
        **{**silent, "connect": spread(1, 20, 1000), "opening": Opening(alone=alone, rate=rate, **OPENING), **more},
    )  # fmt: skip


def connected(found: Document) -> str:
    return next(line for line in summary_lines(found) if line.startswith("  connected"))


def test_connections_alone_are_all_that_is_shown() -> None:
    """No rate, no message and no latency that could only be 0 or absent."""
    found = summary_lines(reported())
    said = "1 000, 100 connections/s asked, 100 connections/s in 9.99 s (gw1 0.25 cores meanwhile), held for 10.0 s, none lost after that"
    assert connected(reported()) == f"  connected  {said}"
    text = "\n".join(found)
    assert "connect  10.5 ms" in text
    assert not any(word in text for word in ("msg/s", "offered", "end-to-end", "publish", "received/s"))


def test_what_was_lost_and_what_nobody_tells() -> None:
    """A number; and nothing of a client that does not count."""
    assert connected(reported(losses=3)).endswith(", held for 10.0 s, 3 lost after that")
    assert connected(reported(losses=None)).endswith("held for 10.0 s")
    assert "1 000, as fast as they came, 100.1 connections/s in" in connected(reported(rate=None))


def test_connections_beside_messages() -> None:
    """A line more among those of messages; none where connections were not paced."""
    text = "\n".join(summary_lines(reported(alone=False)))
    assert "  connected  1 000, 100 connections/s asked, 100 connections/s in 9.99 s (gw1 0.25 cores meanwhile), none lost" in text
    assert "rate       offered 10.0 k msg/s" in text
    assert "connected" not in "\n".join(summary_lines(document()))


def test_junit() -> None:
    """Connections, what was asked and what came, and no counts of messages that there are none of."""
    found = dict(junit_properties(reported(losses=2)))
    assert (found["load.connections"], found["load.connections.lost"]) == ("1000", "2")
    assert (found["load.connections.asked.per_s"], found["load.connections.achieved.per_s"]) == ("100.0", "100.0")
    assert float(found["load.connect.mean.ms"]) > 1
    assert not {"load.offered", "load.lost", "load.rate.msg_per_s"} & found.keys()
    assert "load.connections.asked.per_s" not in dict(junit_properties(reported(losses=None, rate=None)))
    beside = dict(junit_properties(reported(alone=False)))
    assert (beside["load.connections"], beside["load.offered"]) == ("1000", "100000")


def test_the_line_while_they_are_held() -> None:
    """How long yet: there are no rates."""
    text = "name: p\nmessages: 0\ntestDuration: 30s\ndriver: {name: mqtt}\nslo: {connectLatency: {mean: 1s}}\n"
    phase = made(profiles.loads(text, "p.yaml")).measure
    line = describe("p", [made_progress(elapsed=2 * SECOND, sending=True)], (phase, 1.0, 0, 0, 0), (phase, 2.0, 0, 0, 0))
    assert line == "measure 2/30 s  connections are held  load p"
