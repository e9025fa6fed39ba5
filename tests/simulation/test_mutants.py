"""Each mutant still applies: its function exists, and worlds call it."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import pytest

from simulation.draw import draw
from simulation.hunt import seeds_of
from simulation.judge_world import judge
from simulation.mutants import MUTANTS, Mutant, applied, named
from simulation.player import play
from simulation.world import SECOND, Fault, World

if TYPE_CHECKING:
    from pathlib import Path


def test_names_of_mutants_differ() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


def test_a_function_is_replaced_wherever_it_was_imported() -> None:
    from pytest_loadtest.metrics import silent, stats

    original = silent.silence
    with applied(named("silent topics pass")) as calls:
        assert stats.silence is silent.silence is not original
    assert stats.silence is silent.silence is original
    assert calls == [0]


def test_a_property_is_replaced_and_comes_back() -> None:
    from pytest_loadtest.metrics.measurements import Measurements

    original = vars(Measurements)["own_drops"]
    with applied(named("drops before full windows are ours")):
        assert vars(Measurements)["own_drops"] is not original
    assert vars(Measurements)["own_drops"] is original


GIVEN_UP: dict[str, Any] = {
    "name": "Given up",
    "producerRate": 100,
    "testDuration": "2s",
    "messageSize": "1kB",
    "consumerBacklogSizeGB": 0.0001,
    "backlogDrainTimeout": "5s",
    "driver": {"name": "simulated"},
}
SEARCH: dict[str, Any] = {
    "name": "Search",
    "producerRate": 0,
    "search": {
        "start": 200,
        "max": 400,
        "hold": "8s",
        "confirm": "8s",
        "warmup": "100ms",
        "precision": "50%",
    },
    "messageSize": "100B",
    "driver": {"name": "simulated"},
    "slo": {"endToEndLatency": {"p50": "20ms"}},
}
ABORT: dict[str, Any] = {
    "name": "Abort",
    "producerRate": 100,
    "testDuration": "8s",
    "messageSize": "100B",
    "driver": {"name": "simulated"},
    "abort": {"endToEndLatency.p50": "20ms", "for": "2s"},
}
LIMIT = Fault(kind="throttle", at=0, duration=None, values={"rate": 150})
HELD_BACK = Fault(kind="slow-delivery", at=0, duration=None, values={"by": 60 * SECOND})
SLOW: dict[str, Any] = {
    "name": "Slow",
    "producerRate": 100,
    "testDuration": "4s",
    "messageSize": "100B",
    "driver": {"name": "simulated"},
    "slo": {"throughput": "95%"},
}
HALF = Fault(kind="throttle", at=0, duration=None, values={"rate": 50})
READ_LATE = Fault(kind="pause", at=SECOND, duration=80_000_000, values={"worker": 0})
EXAMPLES: dict[str, World] = {
    "a late read excuses what the target was late with": World(
        seed=1, tag="stormy", profile=SLOW, faults=(HALF, READ_LATE)
    ),
    "an abort without a reason": World(seed=1, profile=ABORT, faults=()),
    "a drain that never ends has an end": World(seed=1, profile=GIVEN_UP, faults=(HELD_BACK,)),
    "one late message ends a step": World(seed=1, profile=SEARCH, faults=(LIMIT,)),
}
"""Worlds for functions that are rarely called in drawn worlds."""


@pytest.mark.slow
def test_every_function_is_called_in_some_world(tmp_path: Path) -> None:
    """The functions are only counted here, and do as ever, so that all can be counted in the same worlds."""
    waiting = {mutant.name: replace(mutant, make=lambda original: original) for mutant in MUTANTS}
    never = []
    while waiting:
        mutant = next(iter(waiting.values()))
        called = _called(mutant, waiting, tmp_path)
        if mutant.name not in called:
            never.append(mutant.name)
        waiting = {
            name: other for name, other in waiting.items() if name not in {*called, mutant.name}
        }
    assert never == []


def _called(mutant: Mutant, waiting: dict[str, Mutant], folder: Path) -> set[str]:
    """Play some worlds that are likely for a mutant; return the names of the mutants whose functions were called."""
    called: set[str] = set()
    worlds = (draw(seed) for seed in seeds_of(mutant, 1))
    if mutant.name in EXAMPLES:
        worlds = iter([EXAMPLES[mutant.name]])
    for world in islice(worlds, 12):
        with ExitStack() as stack:
            calls = {name: stack.enter_context(applied(other)) for name, other in waiting.items()}
            play(world, folder / f"{mutant.name}-{world.seed}")
        called |= {name for name, count in calls.items() if count[0]}
        if mutant.name in called:
            break
    return called


def test_a_late_read_that_excuses_everything_is_found(tmp_path: Path) -> None:
    """Drawn worlds rarely miss a throughput by their target alone while a worker reads late."""
    name = "a late read excuses what the target was late with"
    world = EXAMPLES[name]
    assert judge(world, tmp_path / "as it is", lawful=False).violations == ()
    with applied(named(name)):
        mutated = judge(world, tmp_path / "mutated", lawful=False)
    assert {violation.rule for violation in mutated.violations} == {"blame.excused"}


def test_a_mutant_without_a_name_is_an_error() -> None:
    with pytest.raises(KeyError):
        named("no such defect")
