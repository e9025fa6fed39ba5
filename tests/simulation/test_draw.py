"""Worlds that seeds draw: the same in every process, and valid."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from pytest_loadtest.profile import loads
from simulation.asked import span_of
from simulation.coverage import (
    ENOUGH,
    Coverage,
    at_fault,
    classes,
    expected,
    objectives,
    workloads,
)
from simulation.draw import EXCLUDED_BY, FAULTS, FEATURES, SERVICE_FAULTS, SURVIVED, draw
from simulation.draw_load import FEWEST
from simulation.world import KINDS, SECOND, TARGET, World, world_from

SEEDS = range(1, 401)
PARSED = 120
"""Worlds whose profiles are parsed here: to parse one takes 15 ms, and test_worlds.py plays others."""
THOUSAND = range(1, 1 + ENOUGH)
OWN_KEYS = ("acknowledged", "connects", "connectRate")
"""Keys of the simulated driver that the relay's does not have."""
CONNECTING = ("connectLatency", "connectRate")


def on_loopback(keys: Any) -> Any:
    """Return a profile with the relay's driver, which every process can parse."""
    if isinstance(keys, list):
        return [on_loopback(item) for item in keys]
    if not isinstance(keys, dict):
        return keys
    plain = {key: on_loopback(value) for key, value in keys.items() if key not in CONNECTING}
    if "route" in plain:
        plain["route"].pop("envelope", None)
        if isinstance(plain["route"]["output"], list):
            plain["route"]["output"] = plain["route"]["output"][0]
    if "driver" in plain:
        own = {key: value for key, value in plain["driver"].items() if key not in OWN_KEYS}
        plain["driver"] = {**own, "name": "loopback"}
    return plain


@pytest.fixture(scope="module")
def thousand() -> list[World]:
    return [draw(seed) for seed in THOUSAND]


@pytest.fixture(scope="module")
def worlds(thousand: list[World]) -> list[World]:
    return thousand[: len(SEEDS)]


def test_the_parser_accepts_every_profile(worlds: list[World]) -> None:
    for world in worlds[:PARSED]:
        text = yaml.safe_dump(on_loopback(world.profile), sort_keys=False)
        loads(text, f"seed {world.seed}")


def test_a_seed_draws_the_same_world_in_every_process() -> None:
    """No draw depends on the hash of a string or the order of a set."""
    program = "from simulation.draw import draw; print(''.join(draw(seed).dump() for seed in range(1, 40)))"
    outputs = []
    for hash_seed in ("1", "2"):
        environment = {
            **os.environ,
            "PYTHONHASHSEED": hash_seed,
            "PYTHONPATH": str(Path(__file__).parents[1]),
        }
        outputs.append(
            subprocess.run(
                [sys.executable, "-c", program],
                env=environment,
                capture_output=True,
                text=True,
                check=True,
            ).stdout
        )
    assert outputs[0] == outputs[1] != ""


def test_a_document_is_read_back_as_the_same_world(worlds: list[World]) -> None:
    for world in worlds[:60]:
        read = world_from(yaml.safe_load(world.dump()))
        assert read.dump() == world.dump()
        assert read.faults == world.faults


def test_half_of_the_worlds_are_calm_or_stormy(worlds: list[World]) -> None:
    quiet = sum(world.tag in ("calm", "stormy") for world in worlds)
    assert 0.4 < quiet / len(worlds) < 0.6


def test_at_most_a_third_of_the_worlds_have_two_at_fault(worlds: list[World]) -> None:
    """Where target and generator are at fault, two outcomes are right, so that such a world proves less."""
    both = sum(at_fault(world) == "both" for world in worlds)
    assert 0 < both / len(worlds) < 1 / 3


def test_a_calm_world_has_no_fault_and_a_stormy_one_none_that_ends_a_run(
    worlds: list[World],
) -> None:
    for world in worlds:
        kinds = {fault.kind for fault in world.faults}
        assert world.tag != "calm" or not kinds
        assert world.tag != "stormy" or kinds <= set(SURVIVED)
        assert world.tag == "unrestricted" or not any(host.steps for host in world.hosts)


def test_faults_name_workers_topics_and_subscriptions_that_exist(worlds: list[World]) -> None:
    for world in worlds:
        first = workloads(world)[0]
        for fault in world.faults:
            assert set(fault.values) <= set(KINDS[fault.kind].values)
            assert fault.at >= 0
            assert fault.values.get("worker", 0) < len(world.workers)
            assert fault.values.get("subscription", -1) < first.get("subscriptionsPerTopic", 1)
            assert max(fault.values.get("topics", [0])) < first.get("topics", 1)


def test_only_a_route_has_a_service_with_faults(thousand: list[World]) -> None:
    kinds = set()
    for world in thousand:
        of_service = {fault.kind for fault in world.faults if fault.kind in SERVICE_FAULTS}
        assert not of_service or "route" in workloads(world)[0]
        kinds |= of_service
    assert kinds == set(SERVICE_FAULTS)


def test_most_services_with_faults_are_alone_at_fault(thousand: list[World]) -> None:
    """Their worlds say whose fault a miss is."""
    alone = several = 0
    for world in thousand:
        of_target = {fault.kind for fault in world.of_side(TARGET)}
        if of_target & set(SERVICE_FAULTS):
            several += 1
            alone += of_target <= set(SERVICE_FAULTS)
    assert 0.4 < alone / several < 0.9


def test_every_worker_has_a_host(worlds: list[World]) -> None:
    for world in worlds:
        names = {host.name for host in world.hosts}
        assert set(world.workers) - {"controller"} == names


OUTCOMES_OF_RUNS = ("missed", "generator-limited", "no data")


def test_all_kinds_and_shapes_come_in_a_thousand_worlds(thousand: list[World]) -> None:
    """A run of a thousand worlds fails where a class never came, so each comes several times."""
    coverages = []
    following = [draw(seed) for seed in range(1 + ENOUGH, 1 + 2 * ENOUGH)]
    for drawn in (thousand, following):
        coverage = Coverage()
        for world in drawn:
            coverage.add(world, "met")
        assert coverage.missing(OUTCOMES_OF_RUNS) == []
        coverages.append(coverage)
    names = expected(OUTCOMES_OF_RUNS)
    rare = [name for name in names if sum(each.counts[name] for each in coverages) < 10]
    assert rare == []
    assert {*FAULTS, *SERVICE_FAULTS} == set(KINDS)


def test_late_deliveries_and_second_copies_reach_into_the_drain(thousand: list[World]) -> None:
    found = 0
    for world in thousand:
        names = set(classes(world))
        is_late = names.intersection({"fault: slow-delivery", "fault: no-delivery"})
        has_second = names.intersection({"fault: double", "fault: redeliver"})
        found += bool(is_late and has_second and "shape: fault into the drain" in names)
    assert found > 5


def test_an_allowed_loss_often_leaves_the_maximum_of_what_came(thousand: list[World]) -> None:
    found = 0
    for world in thousand:
        slo = workloads(world)[0].get("slo", {})
        allows = any(str(slo.get(metric, "")).endswith("%") for metric in ("loss", "failed"))
        found += allows and "max" in slo.get("endToEndLatency", {}) and at_fault(world) == "both"
    assert found > 10


def test_each_window_of_a_calm_world_has_messages(thousand: list[World]) -> None:
    """An objective in windows has no data where none is due, and a calm world must be met."""
    messages = []
    for world in thousand:
        for profile in workloads(world):
            window = profile.get("slo", {}).get("window")
            rate = profile.get("producerRate")
            if world.tag == "calm" and window is not None and not isinstance(rate, str):
                messages.append(rate * span_of(window) / SECOND)
    assert messages
    assert min(messages) >= FEWEST


def test_a_calm_world_has_enough_messages_for_a_throughput(thousand: list[World]) -> None:
    """Of two, one may come before the time that counts, and one after it."""
    calm = [profile for world in thousand if world.tag == "calm" for profile in workloads(world)]
    rates = [
        profile["producerRate"] * span_of(profile["testDuration"]) / SECOND
        for profile in calm
        if "testDuration" in profile and isinstance(profile["producerRate"], int | float)
        if "consumerBacklogSizeGB" not in profile
    ]
    assert min(rates) > FEWEST - 0.1


def test_a_feature_that_is_left_out_changes_nothing_else(worlds: list[World]) -> None:
    for world in worlds[:100]:
        assert (
            draw(world.seed, without=frozenset({"search"})).dump() == world.dump()
            or "search" in world.profile
        )


@pytest.mark.parametrize("kind", ["pause", "stall"])
def test_a_kind_that_is_left_out_never_comes(kind: str) -> None:
    for seed in SEEDS:
        assert kind not in {fault.kind for fault in draw(seed, without=frozenset({kind})).faults}


def test_exclusions_name_features() -> None:
    for name, others in EXCLUDED_BY.items():
        assert {name, *others} <= set(FEATURES)


def test_most_worlds_are_small(worlds: list[World]) -> None:
    """A world must cost well below a second: sizes are limited, and durations are those of short runs."""
    for world in worlds:
        for profile in workloads(world):
            seconds = profile.get("testDuration", "0s")
            assert seconds.endswith(("s", "ms"))
        for host in world.hosts:
            assert all(by < 3_600 * SECOND for _, by in host.steps)


def test_objectives_bound_every_part_of_a_section(worlds: list[World]) -> None:
    statistics = {statistic for world in worlds for _, statistic in objectives(world)}
    assert {"", "p50", "p99", "max", "mean", "min"} <= statistics
