"""The player: whole runs on a virtual clock are exact, and the same every time."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from simulation.player import play
from simulation.virtual import virtual
from simulation.world import CONTROLLER, MS, SECOND, Fault, Host, Target, World

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


ROUTE: dict[str, Any] = {"input": "in/{topic}", "output": "out/{topic}"}


def through_service(folder: Path, *faults: Fault, **keys: Any) -> Played:
    """Play the world with a service between its topics."""
    route = {**ROUTE, **keys}
    profile = {**PROFILE, "route": route, "drainTimeout": "3s", "subscriptionsPerTopic": 2}
    return play(replace(WORLD, profile=profile, faults=faults), folder)


@pytest.mark.parametrize(
    "envelope", ["body", "properties", {"in": "properties", "out": "correlationData"}, "json:/ref"]
)
def test_a_service_sends_one_output_for_each_input(tmp_path: Path, envelope: Any) -> None:
    played = through_service(tmp_path, envelope=envelope)
    assert (played.outcome, played.error) == ("met", None)
    counts = counts_of(played)
    assert counts["received"] == 2 * counts["acked"] == len(played.truth.copies) == 400


def test_a_service_that_loses_some_of_its_inputs_is_missed(tmp_path: Path) -> None:
    lose = Fault(kind="service-lose", at=0, duration=None, values={"nth": 10})
    played = through_service(tmp_path, lose)
    assert counts_of(played)["lost"] == 2 * 20
    assert played.outcome == "missed"


def test_outputs_that_a_service_sends_twice_are_duplicates(tmp_path: Path) -> None:
    double = Fault(kind="service-double", at=0, duration=None, values={"nth": 10, "topics": [1]})
    played = through_service(tmp_path, double)
    assert counts_of(played)["duplicates"] == 2 * 10
    assert counts_of(played)["lost"] == 0


def test_inputs_behind_a_slow_one_wait(tmp_path: Path) -> None:
    """The service takes 15 ms for each input, and gets one every 20 ms; every 25th takes 100 ms."""
    slow = Fault(kind="service-slow", at=0, duration=None, values={"by": 15 * MS})
    slower = Fault(kind="service-slow", at=0, duration=None, values={"by": 100 * MS, "nth": 25})
    even = through_service(tmp_path / "even", slow)
    played = through_service(tmp_path / "slow", slow, slower)
    late = [
        sum(
            copy.arrived - sent_at(run, copy.stream, copy.seq) > 50 * MS
            for copy in run.truth.copies
        )
        for run in (even, played)
    ]
    assert late[0] == 0
    assert late[1] > 3 * 2 * 2 * 4
    assert played.outcome == "missed"


def test_all_outputs_of_an_input_are_due(tmp_path: Path) -> None:
    """They come on several topics, each with an order of its own."""
    topics = ["out/{topic}", "other/{topic}"]
    played = through_service(tmp_path, outputs=3, output=topics)
    assert (played.outcome, played.error) == ("met", None)
    assert len(played.truth.copies) == counts_of(played)["received"] == 2 * 3 * 200
    assert {copy.output for copy in played.truth.copies} == {0, 1}


def test_an_output_that_is_missing_and_one_too_many_are_counted_for_each_input(
    tmp_path: Path,
) -> None:
    lost = Fault(kind="lose-copy", at=0, duration=None, values={"share": 0.02, "subscription": 0})
    double = Fault(kind="service-double", at=0, duration=None, values={"nth": 50})
    counts = counts_of(through_service(tmp_path, lost, double, outputs=2))
    assert counts["duplicates"] > 0
    assert counts["lost"] > 0
    assert counts["received"] == 2 * 2 * 200 - counts["lost"]


def sent_at(played: Played, stream: int, seq: int) -> int:
    return next(sent.at for sent in played.truth.sent if (sent.stream, sent.seq) == (stream, seq))


def test_a_service_that_stands_still_works_off_its_inputs(tmp_path: Path) -> None:
    stall = Fault(kind="service-stall", at=SECOND, duration=500 * MS)
    counts = counts_of(through_service(tmp_path, stall))
    assert (counts["received"], counts["lost"], counts["outOfOrder"]) == (400, 0, 0)


def test_inputs_of_a_service_that_has_ended_are_lost(tmp_path: Path) -> None:
    death = Fault(kind="service-death", at=SECOND, duration=SECOND // 2)
    played = through_service(tmp_path, death)
    assert 2 * 48 <= counts_of(played)["lost"] <= 2 * 52
    assert played.outcome == "missed"


def test_an_input_that_is_sent_twice_has_two_outputs(tmp_path: Path) -> None:
    """The broker has stored messages whose answers a cut has taken."""
    cut = Fault(kind="cut-resend", at=SECOND, duration=300 * MS)
    profile = {**PROFILE, "route": ROUTE}
    world = replace(WORLD, profile=profile, target=Target(down=50 * MS), faults=(cut,))
    counts = counts_of(play(world, tmp_path))
    assert counts["duplicates"] == counts["duplicatesOfResent"] >= 2
    assert counts["lost"] == 0


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


def test_a_thread_of_others_sleeps_in_real_time() -> None:
    """A session of Spark has threads, which are no part of the world."""
    begin = threading.Event()
    slept: list[bool] = []

    def sleep() -> None:
        begin.wait()
        time.sleep(0.001)
        slept.append(True)

    thread = threading.Thread(target=sleep)
    thread.start()
    with virtual(1) as simulation:
        before = simulation.now
        begin.set()
        thread.join()
        assert simulation.now == before
    assert slept == [True]
