"""A world played with its counterfactuals, and judged."""

from __future__ import annotations

import shutil
import time
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from simulation import laws
from simulation.margins import within_margins
from simulation.oracle import check_blame, check_truth
from simulation.player import play
from simulation.violation import Violation
from simulation.world import GENERATOR

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from simulation.truth import Played
    from simulation.world import World

EVERY: Final = 100
"""One world in so many is played twice: both must be the same, event by event."""


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A world and what is wrong with its results.

    :param played: None if the product or the player failed with an exception. :param calm: the world with a perfect generator; None if it
        is one already. :param seconds: CPU time of everything.
    """

    world: World
    played: Played | None
    calm: Played | None
    violations: tuple[Violation, ...]
    seconds: float

    @property
    def outcome(self) -> str:
        return "crash" if self.played is None else self.played.outcome


def judge(
    world: World,
    folder: Path,
    *,
    lawful: bool = True,
    twice: bool | None = None,
    hurried: bool = False,
) -> Judged:
    """Play a world below ``folder``, and judge it.

    :param lawful: also try the laws that its seed selects. :param twice: compare two plays; None: if its seed selects it.
    :param hurried: a first violation is enough: the world is not played again then.
    """
    started = time.process_time()
    again = world.seed % EVERY == 0 if twice is None else twice
    played: Played | None = None
    calm: Played | None = None
    violations: list[Violation] = []
    try:
        played = play(world, _empty(folder / "world"))
        violations += _plain_rules(played)
        violations += check_truth(played)
        is_enough = hurried and bool(violations)
        if imperfect(world) and needs_counterfactual(played) and not is_enough:
            calm = play(world.without_generator_faults(), _empty(folder / "calm"))
        if calm is not None or not imperfect(world):
            violations += check_blame(played, calm)
        if again:
            violations += _differences(played, play(world, _empty(folder / "again")))
        if lawful:
            violations += _broken_laws(played, folder)
    except Exception as error:
        violations.append(Violation(rule="crash", text=_crash(error)))
    return Judged(
        world=world,
        played=played,
        calm=calm,
        violations=tuple(_certain(violations, played, calm)),
        seconds=time.process_time() - started,
    )


def _plain_rules(played: Played) -> Iterator[Violation]:
    """Yield what is wrong whatever happened: a profile that is rejected, a run without an end, a calm world that is not met."""
    if played.outcome == "wrong profile":
        yield Violation(rule="profile", text=str(played.error))
    elif played.error is not None and "did not end" in played.error:
        yield Violation(rule="end", text=played.error)
    elif played.world.tag == "calm" and played.outcome != "met":
        verdict = (played.results or {}).get("verdict", {})
        unmet = [
            finding["text"]
            for finding in verdict.get("findings", ())
            if finding["outcome"] != "met"
        ]
        text = "; ".join([played.outcome, played.error or "", *unmet])
        yield Violation(rule="calm", text=text)


def needs_counterfactual(played: Played) -> bool:
    """Return whether blame depends on the world with a perfect generator. A calm world has to be met whatever that one is."""
    is_calm = played.world.tag == "calm" and not played.world.faults
    return not is_calm and played.outcome != "no data"


def imperfect(world: World) -> bool:
    """Return whether the generator has a fault, or a host whose clock is not true."""
    perfect = world.without_generator_faults()
    return bool(world.of_side(GENERATOR)) or world.hosts != perfect.hosts


def _certain(
    violations: list[Violation], played: Played | None, calm: Played | None
) -> Iterator[Violation]:
    """Yield the violations without those of blame that the margins explain."""
    is_close = played is not None and calm is not None and within_margins(played, calm)
    for violation in violations:
        if not (is_close and violation.rule in ("blame.target", "blame.hidden")):
            yield violation


def _empty(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def _differences(played: Played, other: Played) -> Iterator[Violation]:
    compared = {
        "events": (played.events, other.events),
        "outcomes": (played.outcome, other.outcome),
    }
    for name, (first, second) in compared.items():
        if first != second:
            text = f"{name} {first} and {second} of the same world"
            yield Violation(rule="determinism", text=text)


def _broken_laws(played: Played, folder: Path) -> Iterator[Violation]:
    for law, changed in laws.applicable(played):
        other = play(changed, _empty(folder / "law"))
        reason = law.broken(played, other)
        if reason:
            yield Violation(rule=f"law: {law.name}", text=reason)


def _crash(error: Exception) -> str:
    """Return the last lines of an error, from the innermost place on."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({place.name} in {place.filename}:{place.lineno})"
