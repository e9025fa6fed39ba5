"""The player: whole runs on a virtual clock are exact, and the same every time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from simulation.player import play
from simulation.world import CONTROLLER, MS, SECOND, Fault, Host, World

if TYPE_CHECKING:
    from pathlib import Path

    from simulation.truth import Played

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


def counts_of(played: Played) -> dict[str, Any]:
    assert played.results is not None
    counts: dict[str, Any] = played.results["measurements"]["counts"]
    return counts


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


def test_a_foreign_message_is_counted_and_missed(tmp_path: Path) -> None:
    foreign = Fault(kind="foreign", at=0, duration=SECOND, values={"every": 100 * MS})
    played = play(replace(WORLD, faults=(foreign,)), tmp_path)
    assert counts_of(played)["foreign"] == 10
    assert played.outcome == "missed"


def test_a_misrouted_copy_is_lost_and_foreign(tmp_path: Path) -> None:
    misrouted = Fault(kind="misrouted", at=0, duration=None, values={"share": 0.1})
    played = play(replace(WORLD, faults=(misrouted,)), tmp_path)
    counts = counts_of(played)
    assert (
        counts["foreign"] == counts["lost"] == sum(copy.foreign for copy in played.truth.copies) > 0
    )


def test_a_forgotten_session_loses_what_was_not_delivered(tmp_path: Path) -> None:
    """Messages wait at the target while nothing is delivered, and are gone with the session."""
    held = Fault(kind="no-delivery", at=SECOND // 2, duration=SECOND, values={})
    forget = Fault(kind="forget", at=SECOND, duration=10 * MS)
    played = play(replace(WORLD, faults=(held, forget)), tmp_path)
    assert counts_of(played)["lost"] >= 50
    assert played.outcome == "missed"


def test_a_delayed_message_that_comes_early_is_missed(tmp_path: Path) -> None:
    early = Fault(kind="early-delivery", at=0, duration=None, values={"by": 300 * MS, "share": 0.5})
    profile = {**PROFILE, "deliverAfter": "500ms", "slo": {"earliness": {"max": "100ms"}}}
    played = play(replace(WORLD, profile=profile, faults=(early,)), tmp_path)
    assert played.outcome == "missed"


def test_counters_that_show_a_backlog_prolong_the_drain(tmp_path: Path) -> None:
    """Of the messages that were lost only the target's answer tells that they cannot come any more."""
    lost = Fault(kind="lose-acknowledged", at=0, duration=None, values={"share": 0.05})
    wrong = Fault(kind="counters", at=0, duration=None, values={"by": 5})
    profile = {**PROFILE, "drainTimeout": "8s"}
    right = play(replace(WORLD, profile=profile, faults=(lost,)), tmp_path / "right")
    played = play(replace(WORLD, profile=profile, faults=(lost, wrong)), tmp_path / "wrong")
    assert played.ended > right.ended + SECOND
    assert counts_of(played)["lost"] == counts_of(right)["lost"]


def test_a_slow_disk_delays_the_end_alone(tmp_path: Path) -> None:
    slow = Fault(kind="slow-disk", at=0, duration=None, values={"worker": 0, "by": SECOND})
    quick = play(WORLD, tmp_path / "quick")
    played = play(replace(WORLD, faults=(slow,)), tmp_path / "slow")
    assert played.outcome == "met"
    assert played.ended > quick.ended + SECOND


def test_consumers_join_and_leave_without_a_loss(tmp_path: Path) -> None:
    stages = [
        {"name": "one", "duration": "1s", "consumerPerSubscription": 1},
        {"name": "three", "duration": "1s", "consumerPerSubscription": 3},
        {"name": "two", "duration": "1s", "consumerPerSubscription": 2},
    ]
    shared = {key: value for key, value in PROFILE.items() if key != "testDuration"}
    profile = {**shared, "producersPerTopic": 3, "consumerPerSubscription": 3, "stages": stages}
    played = play(replace(WORLD, profile=profile), tmp_path)
    assert (played.outcome, played.error) == ("met", None)
    assert len({copy.consumer for copy in played.truth.copies}) == 6
    assert counts_of(played)["received"] == 300
