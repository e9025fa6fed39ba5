"""Text → :class:`Profile`, or all its problems at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from pytest_loadtest.errors import Path, Problem, ProfileError, UsageError
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
from pytest_loadtest.profile.presence import all_stages_rated, presence

if TYPE_CHECKING:
    from pytest_loadtest.profile.omb_driver import OmbDriver
    from pytest_loadtest.profile.text import Document

_YAML = {"units": "named"}  # in text a number without unit is not a duration

Interpreted = tuple[Profile | None, list[Problem]]


@dataclass(frozen=True, slots=True)
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

    :param text: YAML. :param source: the file as the user named it, for the messages.
    :param sizes: reads a ``messageSizeDistribution`` that names a file or an address. :param driver: reads a ``driver`` that names a file.
    :raises ProfileError: with all problems, in the order of the text.
    """
    profile, problems = interpret(read_profile(text, source), Readers(sizes, driver))
    if profile is None or problems:
        raise ProfileError(source, sorted_problems(problems))
    return profile


def from_document(document: Mapping[str, Any]) -> Profile:
    """Read back the :meth:`~Profile.document` of a profile, which has no secrets. It is not checked again.

    :raises ValueError: it is not such a document.
    """
    profile = Profile.model_validate(document, context=_YAML, by_alias=True, by_name=False)
    return profile.model_copy(update={"search": None}) if profile.workloads else profile


def sorted_problems(problems: list[Problem]) -> tuple[Problem, ...]:
    """Return each problem once, in the order of the text."""
    return tuple(
        sorted(dict.fromkeys(problems), key=lambda problem: (problem.line, problem.column))
    )


def interpret(document: Document, readers: Readers) -> Interpreted:
    """Return the profile in a document, or None, and all problems."""
    if document.value is None:
        return None, document.problems
    choices = combinations(document)
    problems = list(document.problems)
    if "matrix" in document.value:
        document = with_combination(document, choices[0] if choices else Combination())
        problems += document.problems
    profile, more = (
        _several(document, readers) if "workloads" in document.value else _single(document, readers)
    )
    return profile, problems + more


def _single(document: Document, readers: Readers) -> Interpreted:
    document = copied(document)
    resolve(document, readers)
    profile, problems = _validate(document)
    return profile, document.problems + problems


def _several(document: Document, readers: Readers) -> Interpreted:
    """Return a profile with workloads, each of which is a profile of its own."""
    problems = _entries(document)
    top = copied(document)
    remove_key(top, ("workloads",))
    resolve(top, readers)
    whole, errors = _attempt(top.value)
    problems += top.problems + [
        explain_error(error, top) for error in errors if locate(error, top) not in top.broken
    ]
    if problems:
        whole = None
    workloads = []
    for index, keys in enumerate(
        document.value["workloads"] if isinstance(document.value["workloads"], list) else ()
    ):
        if isinstance(keys, dict):
            profile, more = _single(entry(document, index), readers)
            workloads.append(profile)
            problems += more
            problems += _searching(document, index, profile)
    valid = tuple(profile for profile in workloads if profile is not None)
    return whole and whole.model_copy(update={"workloads": valid, "search": None}), problems


def _searching(document: Document, index: int, profile: Profile | None) -> list[Problem]:
    """Reject a search next to other workloads: they would end before it, and its steps would not be comparable."""
    if profile is None or not profile.peak_search or len(document.value["workloads"]) == 1:
        return []
    message = f"workloads.{index} {profile.name!r} searches its peak (producerRate 0), and the other workloads end before it"
    return [
        document.problem(
            ("workloads", index), message, "write a producerRate, or search in a profile of its own"
        )
    ]


def _entries(document: Document) -> list[Problem]:
    """Return the problems of the list of workloads itself."""
    listed = document.value["workloads"]
    if not isinstance(listed, list) or not listed:
        return [
            document.problem(
                ("workloads",),
                "workloads is not a list of workloads",
                "write workloads: [{name: a, producerRate: 100}, …]",
            )
        ]
    problems, names = [], set()
    for index, keys in enumerate(listed):
        path: Path = ("workloads", index)
        if not isinstance(keys, dict):
            problems.append(
                document.problem(
                    path,
                    f"workloads.{index} is not a mapping",
                    "write {name: a, producerRate: 100}",
                )
            )
            continue
        if "name" not in keys:
            problems.append(
                document.problem(
                    path,
                    f"workloads.{index}.name is missing",
                    "write name: and its name in reports",
                )
            )
        elif str(keys["name"]) in names:
            problems.append(
                document.problem(
                    (*path, "name"),
                    f"there are two workloads {keys['name']!r}",
                    "give each its own name",
                )
            )
        names.add(str(keys.get("name")))
        misplaced = [(*path, key) for key in ("workloads", "matrix") if key in keys]
        problems += [
            document.problem(
                at, f"a workload cannot have {at[-1]}", "move it to the top level", at_key=True
            )
            for at in misplaced
        ]
    return problems


def resolve(document: Document, readers: Readers) -> None:
    """Read the size distribution and the driver file that the document only names; failures become problems of it."""
    for key in IN_RESULTS_ONLY:
        if (key,) in document.keys:
            document.problems.append(
                document.problem(
                    (key,), f"{key} is written in results only", "remove it", at_key=True
                )
            )
            remove_key(document, (key,))
    resolve_driver(document, readers)
    reference = document.value.get("messageSizeDistribution")
    if isinstance(reference, str) and readers.sizes is not None:
        try:
            document.value["messageSizeDistribution"] = readers.sizes(reference)
            document.value["sizeSource"] = reference
        except UsageError as error:
            document.refuse(("messageSizeDistribution",), str(error), "")
    elif isinstance(reference, str):
        document.refuse(
            ("messageSizeDistribution",),
            f"{reference!r} cannot be read from here",
            'write the ranges: {"0-256": 3}',
        )


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
        document.refuse(("driver",), str(error), "")
        return
    document.value |= {"driver": file.driver, "notApplied": file.not_applied}
    if file.target and "target" not in document.value:
        document.value["target"] = file.target
        document.keys["target",] = document.values["target",] = document.values["driver",]


def _validate(document: Document) -> Interpreted:
    """Return the profile, or None, and all problems except those of the text itself."""
    problems: list[Problem] = []
    broken = set(document.broken)
    profile, errors = _attempt(document.value)
    for error in errors:
        path = locate(error, document)
        if error["type"] == "missing":
            path = (*path, str(error["loc"][-1]))
        if path not in document.broken:
            problems.append(explain_error(error, document))
            broken.add(path)
    unlocated = list(presence(document.value, omb=document.omb))
    whole = profile if profile and not broken else _remains(document, broken)
    if whole is not None:
        unlocated += check_profile(whole, broken)
    return profile, problems + [document.located(problem) for problem in unlocated]


def _attempt(value: dict[str, Any]) -> tuple[Profile | None, list[Any]]:
    try:
        return Profile.model_validate(value, context=_YAML, by_alias=True, by_name=False), []
    except ValidationError as error:
        # leave out defaults that follow from another, invalid key: that key has the error
        return None, [
            details
            for details in error.errors(include_url=False)
            if details["type"] != "default_factory_not_called"
        ]


def _remains(document: Document, broken: set[Path]) -> Profile | None:
    """Return the profile without the broken values, for the checks between keys; None if too little is left."""
    value: dict[str, Any] = _without(document.value, (), broken)
    value.setdefault("name", "unnamed")
    # A rate of 0 would ask for a search, unless nothing is sent, or stages have their own.
    if value.get("messages") != 0 and not all_stages_rated(value):
        value.setdefault("producerRate", 1)
    profile, errors = _attempt(value)
    if errors:  # a section without a key that it needs, or without keys
        tops: set[Path] = {tuple(error["loc"][:1]) for error in errors}
        broken |= tops
        profile, _ = _attempt(_without(value, (), tops))
    return profile


def _without(value: Any, path: Path, broken: set[Path]) -> Any:
    if isinstance(value, dict):
        if path[:-1] == ("stages",) and any(at[:2] == path for at in broken):
            return {
                "name": f"{path[-1]}",
                "duration": "1s",
            }  # replaces a broken stage, so that the others keep their numbers
        return {
            key: _without(item, (*path, key), broken)
            for key, item in value.items()
            if (*path, key) not in broken
        }
    if isinstance(value, list):
        return [
            _without(item, (*path, i), broken)
            for i, item in enumerate(value)
            if (*path, i) not in broken
        ]
    return value
