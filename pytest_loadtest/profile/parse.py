"""Text → :class:`Profile`, or all its problems.

The rule: a profile has at most two rounds of problems, and each is complete. First come those of
its keys: YAML, unknown keys, wrong values, missing keys, sections with a grammar of their own. Once
every key is valid, the checks between keys run, all of them.

Profiles are read when tests are collected, in every process, and by commands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from pytest_loadtest.errors import Path, Problem, ProfileError, UsageError, sorted_problems
from pytest_loadtest.profile.checks import check_profile
from pytest_loadtest.profile.explain import IN_RESULTS_ONLY, explain_error, locate
from pytest_loadtest.profile.merge import (
    Combination,
    combinations,
    copied,
    entry,
    remove_key,
    with_combination,
)
from pytest_loadtest.profile.model import Profile
from pytest_loadtest.profile.omb_workload import read_profile
from pytest_loadtest.profile.presence import presence
from pytest_loadtest.values.records import immutable
from pytest_loadtest.verdict.abort import Abort
from pytest_loadtest.verdict.objectives import Slo

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pydantic_core import ErrorDetails

    from pytest_loadtest.profile.omb_driver import OmbDriver
    from pytest_loadtest.profile.text import Document

# In text a number without unit is no duration.
_YAML = {"units": "named"}

Interpreted = tuple[Profile | None, list[Problem]]


@immutable
class Readers:
    """Functions that read what a profile only names; each raises ``UsageError``.

    :param sizes: reference → size distribution. :param driver: path → OMB driver file.
    """

    sizes: Callable[[str], dict[str, int]] | None = None
    driver: Callable[[str], OmbDriver] | None = None


def loads(
    text: str,
    source: str,
    sizes: Callable[[str], dict[str, int]] | None = None,
    driver: Callable[[str], OmbDriver] | None = None,
) -> Profile:
    """Read a profile; if it has a matrix, its first combination.

    :param text: YAML.
    :param source: the file as the user named it, for the messages.
    :param sizes: reads a ``messageSizeDistribution`` that names a file or an address.
    :param driver: reads a ``driver`` that names a file.
    :raises ProfileError: with all problems, in the order of the text.
    """
    profile, problems = interpret(read_profile(text, source), Readers(sizes, driver))
    if profile is None or problems:
        raise ProfileError(source, sorted_problems(problems))
    return profile


def from_document(document: Mapping[str, Any]) -> Profile:
    """Read back the :meth:`~Profile.document` of a profile, which has no secrets.

    It is not checked again.

    :raises ValueError: it is not such a document.
    """
    profile = Profile.model_validate(document, context=_YAML, by_alias=True, by_name=False)
    return profile.model_copy(update={"search": None}) if profile.workloads else profile


def interpret(document: Document, readers: Readers) -> Interpreted:
    """Return the profile in a document, or None and the problems of the first round with some."""
    if document.value is None:
        return None, document.problems
    choices = combinations(document)
    problems = list(document.problems)
    if "matrix" in document.value:
        document = with_combination(document, choices[0] if choices else Combination())
        problems += document.problems
    if "workloads" in document.value:
        profile, parts = _several(document, readers, problems)
    else:
        parts = [_part(document, readers)]
        profile = parts[0].profile
    for part in parts:
        problems += part.problems
    if problems:
        return None, problems
    if len(parts) > 1:
        problems += _searching(document, parts)
    for part in parts:
        problems += part.contradictions()
    return (None if problems else profile), problems


@immutable
class _Part:
    """A profile without workloads, or one workload with the keys that it shares.

    :param profile: None if it has no valid keys. :param problems: those of its keys.
    """

    document: Document
    profile: Profile | None
    problems: list[Problem]

    def contradictions(self) -> Iterator[Problem]:
        """Yield the problems between its keys, which are all valid."""
        assert self.profile is not None
        for problem in check_profile(self.profile):
            yield self.document.located(problem)


def _part(document: Document, readers: Readers) -> _Part:
    document = copied(document)
    resolve(document, readers)
    profile, errors = _attempt(document.value)
    problems = document.problems + _explained(errors, document)
    for problem in presence(document.value, omb=document.omb):
        problems.append(document.located(problem))
    for problem in section_problems(document.value):
        path = problem.path
        # Neither it nor a section that contains it has a problem already.
        if not any(path[:end] in document.broken for end in range(1, len(path) + 1)):
            problems.append(document.located(problem.named()))
    return _Part(document, profile, problems)


def _several(
    document: Document, readers: Readers, problems: list[Problem]
) -> tuple[Profile | None, list[_Part]]:
    """Return a profile with workloads, and these, each of which is a profile of its own.

    :param problems: those of the list and of the shared keys are added to it.
    """
    problems += _entries(document)
    top = copied(document)
    remove_key(top, ("workloads",))
    resolve(top, readers)
    whole, errors = _attempt(top.value)
    problems += top.problems
    problems += _explained(errors, top)
    parts = []
    listed = document.value["workloads"]
    for index, keys in enumerate(listed if isinstance(listed, list) else ()):
        if isinstance(keys, dict):
            parts.append(_part(entry(document, index), readers))
    if whole is None:
        return None, parts
    workloads = tuple(part.profile for part in parts if part.profile is not None)
    return whole.model_copy(update={"workloads": workloads, "search": None}), parts


def _searching(document: Document, workloads: Sequence[_Part]) -> Iterator[Problem]:
    """Yield each search next to other workloads.

    They would end before it, and its steps would not be comparable.
    """
    for index, workload in enumerate(workloads):
        profile = workload.profile
        if profile is not None and profile.peak_search:
            search = f"workloads.{index} {profile.name!r} searches its peak (producerRate 0)"
            yield document.problem(
                ("workloads", index),
                f"{search}, and the other workloads end before it",
                "write a producerRate, or search in a profile of its own",
            )


def _entries(document: Document) -> list[Problem]:
    """Return the problems of the list of workloads itself."""
    listed = document.value["workloads"]
    if not isinstance(listed, list) or not listed:
        message = "workloads is not a list of workloads"
        remedy = "write workloads: [{name: a, producerRate: 100}, …]"
        return [document.problem(("workloads",), message, remedy)]
    problems: list[Problem] = []
    names: set[str] = set()
    for index, keys in enumerate(listed):
        path: Path = ("workloads", index)
        if not isinstance(keys, dict):
            message = f"workloads.{index} is not a mapping"
            remedy = "write {name: a, producerRate: 100}"
            problems.append(document.problem(path, message, remedy))
            continue
        if "name" not in keys:
            message = f"workloads.{index}.name is missing"
            problems.append(document.problem(path, message, "write name: and its name in reports"))
        elif str(keys["name"]) in names:
            message = f"there are two workloads {keys['name']!r}"
            problems.append(document.problem((*path, "name"), message, "give each its own name"))
        names.add(str(keys.get("name")))
        for key in ("workloads", "matrix"):
            if key in keys:
                message = f"a workload cannot have {key}"
                remedy = "move it to the top level"
                problems.append(document.problem((*path, key), message, remedy, at_key=True))
    return problems


def resolve(document: Document, readers: Readers) -> None:
    """Read the size distribution and the driver file that the document only names.

    Failures become problems of the document.
    """
    for key in IN_RESULTS_ONLY:
        if (key,) in document.keys:
            message = f"{key} is written in results only"
            document.problems.append(document.problem((key,), message, "remove it", at_key=True))
            remove_key(document, (key,))
    resolve_driver(document, readers)
    reference = document.value.get("messageSizeDistribution")
    if not isinstance(reference, str):
        return
    path = ("messageSizeDistribution",)
    if readers.sizes is None:
        message = f"{reference!r} cannot be read from here"
        document.refuse(path, message, 'write the ranges: {"0-256": 3}')
        return
    try:
        document.value["messageSizeDistribution"] = readers.sizes(reference)
        document.value["sizeSource"] = reference
    except UsageError as error:
        document.refuse(path, str(error), "")


def resolve_driver(document: Document, readers: Readers) -> None:
    """Read the driver file that ``driver`` names. Its target applies unless the document has one.

    :raises ProfileError: the driver file is not valid.
    """
    named = document.value.get("driver")
    if not isinstance(named, str) or readers.driver is None:
        return
    try:
        file = readers.driver(named)
    except ProfileError:
        raise
    except UsageError as error:
        document.refuse(("driver",), str(error), "for a driver write driver: {name: …}")
        return
    document.value |= {"driver": file.driver, "notApplied": file.not_applied}
    if file.target and "target" not in document.value:
        document.value["target"] = file.target
        document.keys["target",] = document.values["target",] = document.values["driver",]


def _attempt(value: dict[str, Any]) -> tuple[Profile | None, list[ErrorDetails]]:
    """Return the profile, or None and pydantic's errors."""
    try:
        return Profile.model_validate(value, context=_YAML, by_alias=True, by_name=False), []
    except ValidationError as error:
        # A default that follows from another, invalid key is left out: that key has the error.
        return None, [
            details
            for details in error.errors(include_url=False)
            if details["type"] != "default_factory_not_called"
        ]


def _explained(errors: Iterable[ErrorDetails], document: Document) -> list[Problem]:
    """Return pydantic's errors as problems, one for each path that has none yet."""
    problems = []
    broken = set(document.broken)
    for error in errors:
        path = locate(error, document)
        if error["type"] == "missing":
            path = (*path, str(error["loc"][-1]))
        if path not in broken:
            broken.add(path)
            problems.append(explain_error(error, document))
    return problems


def section_problems(value: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield the problems of the sections ``slo`` and ``abort``, which have a grammar of their own.

    They are read from the text, so that an invalid key elsewhere does not hide them.
    """
    slo = _section(value, "slo")
    yield from _problems_below(("slo",), Slo.read(slo))
    scaled = _section(_section(value, "scaled"), "slo")
    yield from _problems_below(("scaled", "slo"), Slo.read(scaled, slo))
    stages = value.get("stages")
    for index, stage in enumerate(stages if isinstance(stages, list) else ()):
        if isinstance(stage, dict):
            slo_of_stage = Slo.read(_section(stage, "slo"))
            yield from _problems_below(("stages", index, "slo"), slo_of_stage)
    if isinstance(value.get("abort"), dict):
        yield from _problems_below(("abort",), Abort.read(value["abort"]))


def _section(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return a section; empty if it is none."""
    section = value.get(key)
    return section if isinstance(section, dict) else {}


def _problems_below(path: Path, section: Slo | Abort) -> Iterator[Problem]:
    for problem in section.problems:
        yield problem.below(*path)
