"""How many worlds does it take until the oracle finds a mutant?

``scripts/simulate --mutants [--only NAME] --worlds N`` plays for each mutant the worlds of the classes in which it can matter, and says
which world violated which rule. A world counts only if it violates nothing without the mutant.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Final

from simulation.campaign import HASH_SEED
from simulation.coverage import classes
from simulation.draw import draw
from simulation.judge_world import judge
from simulation.mutants import MUTANTS, Mutant, applied, named

SEEDS: Final = 2_000
"""Worlds of an ordinary run, of which those of a mutant's classes are played."""


MOST_NAMED: Final = 2
"""Rules that are named in a row of the table."""

HEAD: Final = """| mutant | list | rules that are violated | worlds of its classes played | world of an ordinary run |
|---|---|---|---|---|"""


@dataclass(kw_only=True)
class Hunt:
    """The result for one mutant.

    :param worlds: that were played with it. :param seed: of the world that found it; None: not found. :param rules: that were violated.
    :param calls: of the replaced function. :param unclean: seeds whose worlds violate a rule without the mutant.
    """

    name: str
    source: str
    worlds: int = 0
    seed: int | None = None
    rules: tuple[str, ...] = ()
    calls: int = 0
    unclean: list[int] = field(default_factory=list)
    seconds: float = 0.0

    def row(self, first: int) -> str:
        """Return the result as a row of the table in docs/decisions/057. :param first: seed of the ordinary run."""
        found = "not found"
        place = ""
        if self.seed is not None:
            found = ", ".join(self.rules[:MOST_NAMED])
            place = str(self.seed - first + 1)
        return f"| {self.name} | {self.source} | {found} | {self.worlds} | {place} |"

    def line(self) -> str:
        """Return the result as text."""
        found = f"after {self.worlds} worlds: {', '.join(self.rules)} (world {self.seed})"
        if self.seed is None:
            found = f"NOT in {self.worlds} worlds, {self.calls} calls"
        unclean = f"; violate without it: {self.unclean}" if self.unclean else ""
        return f"{self.name:45}  {self.source:12}  {found}{unclean}  [{self.seconds:.0f} s]"


@cache
def _classes(seed: int) -> frozenset[str]:
    return frozenset(classes(draw(seed)))


def seeds_of(mutant: Mutant, first: int) -> Iterator[int]:
    """Yield the seeds of worlds in which a mutant can matter, one of each list of classes by turns.

    :param first: the seed to begin with.
    """
    by_list: list[list[int]] = [[] for _ in mutant.likely]
    seen: set[int] = set()
    for seed in range(first, first + SEEDS):
        belongs_to = _classes(seed)
        for number, names in enumerate(mutant.likely):
            if belongs_to.issuperset(names):
                by_list[number].append(seed)
        while all(by_list):
            for waiting in by_list:
                if waiting and waiting[0] not in seen:
                    seen.add(waiting[0])
                    yield waiting[0]
                if waiting:
                    waiting.pop(0)
    for waiting in by_list:
        yield from (seed for seed in waiting if seed not in seen)


def hunt(name: str, worlds: int, first: int, folder: Path) -> Hunt:
    """Play worlds with a mutant until one violates a rule. :param worlds: at most. :param first: seed."""
    mutant = named(name)
    result = Hunt(name=name, source=mutant.source)
    started = time.monotonic()
    for seed in islice(seeds_of(mutant, first), worlds):
        world = draw(seed)
        result.worlds += 1
        with applied(mutant) as calls:
            judged = judge(world, folder, lawful=False, twice=False, hurried=True)
        result.calls += calls[0]
        if not calls[0] or not judged.violations:
            continue
        if judge(world, folder, lawful=False, twice=False).violations:
            result.unclean.append(seed)
            continue
        result.seed = seed
        result.rules = tuple(dict.fromkeys(violation.rule for violation in judged.violations))
        break
    result.seconds = time.monotonic() - started
    return result


def _hunt(arguments: tuple[str, int, int]) -> Hunt:
    with tempfile.TemporaryDirectory(prefix="loadtest-mutants-") as folder:
        return hunt(*arguments, Path(folder))


def hunt_all(only: str, worlds: int, first: int, jobs: int) -> int:
    """Hunt the mutants, print a line for each and a table, and return the exit status. :param only: part of their names."""
    os.environ["PYTHONHASHSEED"] = HASH_SEED
    chosen = [mutant.name for mutant in MUTANTS if only in mutant.name]
    results: dict[str, Hunt] = {}
    with multiprocessing.get_context("spawn").Pool(jobs, maxtasksperchild=10) as pool:
        for result in pool.imap_unordered(_hunt, [(name, worlds, first) for name in chosen]):
            results[result.name] = result
            print(result.line(), flush=True)
    found = sum(result.seed is not None for result in results.values())
    print("\n".join([HEAD, *(results[name].row(first) for name in chosen)]))
    print(f"{found} of {len(chosen)} mutants found")
    return 0 if found == len(chosen) else 1
