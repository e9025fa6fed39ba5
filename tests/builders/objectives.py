"""Objectives from an ``slo`` section that belongs to no profile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_loadtest.verdict.objectives import IMPLICIT, Slo

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_loadtest.errors import Problem
    from pytest_loadtest.verdict.objectives import Objective


class InvalidSlo(ValueError):
    """A section has problems."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("\n".join(problem.named().text for problem in problems))
        self.problems = problems


def parse_slo(
    section: Mapping[str, object], implicit: Iterable[Objective] = IMPLICIT
) -> tuple[Objective, ...]:
    """Return the objectives of a section, then the implicit ones that it does not override.

    :raises InvalidSlo: with all problems.
    """
    slo = Slo.read(section)
    if slo.problems:
        raise InvalidSlo(slo.problems)
    return slo.completed(implicit)
