"""A world played with its counterfactuals, and judged."""

from __future__ import annotations

import shutil
import time
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from simulation import laws
from simulation.blame import check_blame, needs_counterfactual
from simulation.oracle import check_truth
from simulation.player import play
from simulation.violation import Violation

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

    :param played: None if the product or the player failed with an exception. :param calm: the world with a perfect generator; None if
        blame does not depend on it. :param margins: those that explain something. :param tried: the laws that were applied.
        :param seconds: CPU time of everything.
    """

    world: World
    played: Played | None
    calm: Played | None
    violations: tuple[Violation, ...]
    seconds: float
    margins: tuple[str, ...] = ()
    tried: tuple[str, ...] = ()

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
    tried: list[str] = []
    try:
        played = play(world, _empty(folder / "world"))
        violations += _plain_rules(played)
        violations += check_truth(played)
        is_enough = hurried and bool(violations)
        if needs_counterfactual(played) and not is_enough:
            calm = play(world.without_generator_faults(), _empty(folder / "calm"))
        violations += check_blame(played, calm)
        if again:
            tried.append("determinism")
            violations += _differences(played, play(world, _empty(folder / "again")))
        if lawful:
            for law, changed in laws.applicable(played):
                tried.append(law.name)
                violations += law.check(played, play(changed, _empty(folder / "law")))
    except Exception as error:
        violations.append(Violation(rule="crash", text=_crash(error)))
    return Judged(
        world=world,
        played=played,
        calm=calm,
        violations=tuple(violation for violation in violations if not violation.margin),
        margins=tuple(sorted({violation.margin for violation in violations if violation.margin})),
        tried=tuple(tried),
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


def _crash(error: Exception) -> str:
    """Return the last lines of an error, from the innermost place on."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({place.name} in {place.filename}:{place.lineno})"
