"""What a kind of broker needs of a machine, for ``doctor``: looked for, judged, and fetched where that is possible."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pytest_loadtest.brokers.maven import Jars

FIX: Final = "python -m pytest_loadtest doctor --fix"


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineNeed:
    """One thing that brokers of a kind need.

    :param found: what there is of it, as text; None: nothing. :param well: it is what is needed.
    :param cost: what does not work without it. :param remedy: the line that helps.
    :param package: the Debian package that has it. :param fetch: gets it; called with a function that takes lines of progress.
    :param jars_of: what runs in Java from jars that Maven fetches, where this is such jars: ``Artemis``.
    """

    name: str
    found: str | None
    well: bool
    cost: str
    remedy: str
    package: str = ""
    fetch: Callable[[Callable[[str], None]], object] | None = None
    jars_of: str = ""


def needed_jars(jars: Jars, cached: Sequence[str], cost: str, what: str) -> MachineNeed:
    """Jars that Maven fetches. :param cached: versions. :param what: runs from them."""
    return MachineNeed(
        name=f"{jars.name} jars", found=", ".join(cached) or None, well=jars.version in cached, cost=cost, remedy=FIX,
        fetch=lambda tell: jars.resolve(jars.version, tell), jars_of=what,
    )  # fmt: skip
