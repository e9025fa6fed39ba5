"""The player: whole runs on a virtual clock are exact, and the same every time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from simulation.player import play
from simulation.world import CONTROLLER, MS, SECOND, Fault, Host, World, world_from

if TYPE_CHECKING:
    from pathlib import Path

PROFILE: dict[str, Any] = {
    "name": "World",
    "topics": 2,
    "producersPerTopic": 1,
    "producerRate": 100,
    "testDuration": "2s",
    "messageSize": "100B",
    "driver": {"name": "simulated"},
    "slo": {"endToEndLatency": {"p50": "10ms"}, "loss": 0},
}
WORLD = World(seed=1, workers=(CONTROLLER, CONTROLLER), profile=PROFILE)


def test_a_calm_world_is_met_and_exact(tmp_path: Path) -> None:
    played = play(WORLD, tmp_path)
    assert (played.outcome, played.error) == ("met", None)
    assert played.results is not None
    counts = played.results["measurements"]["counts"]
    assert counts["acked"] == counts["received"] == len(played.truth.copies) == 200


def test_the_same_world_has_the_same_events(tmp_path: Path) -> None:
    first, second = (play(WORLD, tmp_path / name) for name in ("first", "second"))
    assert first.events == second.events
    assert first.truth == second.truth


def test_a_lost_message_is_missed(tmp_path: Path) -> None:
    lost = Fault(kind="lose-acknowledged", at=0, duration=2 * SECOND, values={"share": 0.05})
    played = play(replace(WORLD, faults=(lost,)), tmp_path)
    assert played.outcome == "missed"


def test_a_killed_worker_is_no_data(tmp_path: Path) -> None:
    kill = Fault(kind="kill", at=SECOND, values={"worker": 1})
    played = play(replace(WORLD, faults=(kill,)), tmp_path)
    assert played.outcome == "no data"


def test_the_death_of_the_only_worker_has_results(tmp_path: Path) -> None:
    """The run has not ended before the controller has noticed it."""
    kill = Fault(kind="kill", at=SECOND, values={"worker": 0})
    played = play(replace(WORLD, workers=(CONTROLLER,), faults=(kill,)), tmp_path)
    assert played.outcome == "no data"
    assert played.results is not None
    assert "worker w0" in str(played.results["verdict"]["reasons"])


def test_a_paused_worker_is_the_generators_fault(tmp_path: Path) -> None:
    pause = Fault(kind="pause", at=SECOND // 2, duration=800 * MS, values={"worker": 0})
    played = play(replace(WORLD, faults=(pause,)), tmp_path)
    assert played.outcome == "generator-limited"


def test_hosts_with_clocks_of_their_own_are_met(tmp_path: Path) -> None:
    hosts = (Host(name="away", offset=12 * SECOND, drift=20e-6, jitter=30_000),)
    played = play(replace(WORLD, workers=(CONTROLLER, "away"), hosts=hosts), tmp_path)
    assert played.outcome == "met"


def test_a_fault_that_cannot_be_played_is_rejected() -> None:
    """A world with it would count as proof about a fault that never happened."""
    silent = Fault(kind="slow-disk", at=0, duration=SECOND, values={"worker": 0, "by": MS})
    with pytest.raises(AssertionError, match="slow-disk cannot be played yet"):
        world_from(replace(WORLD, faults=(silent,)).document())
