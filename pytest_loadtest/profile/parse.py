"""Text → :class:`Profile`, or every problem in it at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from pytest_loadtest.errors import Path, Problem, ProfileError, UsageError
from pytest_loadtest.profile.checks import check_profile
from pytest_loadtest.profile.explain import IN_RESULTS_ONLY, explain_error, locate
from pytest_loadtest.profile.merge import Combination, combinations, copied, entry, remove_key, with_combination
from pytest_loadtest.profile.model import Profile
from pytest_loadtest.profile.presence import presence
from pytest_loadtest.profile.text import Document, read_yaml

if TYPE_CHECKING:
    from pytest_loadtest.profile.omb_driver import OmbDriver

_YAML = {"units": "named"}  # tells the fields that bare numbers are no durations here

Found = tuple[Profile | None, list[Problem]]


@dataclass(frozen=True, slots=True)
class Readers:
    """What turns a name of something outside into what it holds; each raises ``UsageError``.

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
    """Read a profile; of one with a matrix, its first combination.

    :param text: YAML. :param source: the file as the user named it, for the messages.
    :param sizes: what reads a ``messageSizeDistribution`` that names a file or an address. :param driver: the same for ``driver``.
    :raises ProfileError: with all problems, in the order of the text.
    """
    profile, problems = interpret(read_yaml(text), Readers(sizes, driver))
    if profile is None or problems:
        raise ProfileError(source, sorted_problems(problems))
    return profile


def from_document(document: Mapping[str, Any]) -> Profile:
    """The profile whose :meth:`~Profile.document` this is, less its secrets. It was checked when it was read.

    :raises ValueError: no such document.
    """
    profile = Profile.model_validate(document, context=_YAML, by_alias=True, by_name=False)
    return profile.model_copy(update={"search": None}) if profile.workloads else profile


def sorted_problems(problems: list[Problem]) -> tuple[Problem, ...]:
    """Each once, as they stand in the text."""
    return tuple(sorted(dict.fromkeys(problems), key=lambda problem: (problem.line, problem.column)))


def interpret(document: Document, readers: Readers) -> Found:
    """The profile that a document holds, and every problem."""
    if document.value is None:
        return None, document.problems
    choices = combinations(document)
    problems = list(document.problems)
    if "matrix" in document.value:
        document = with_combination(document, choices[0] if choices else Combination())
        problems += document.problems
    found, more = _several(document, readers) if "workloads" in document.value else _single(document, readers)
    return found, problems + more


def _single(document: Document, readers: Readers) -> Found:
    document = copied(document)
    resolve(document, readers)
    profile, problems = _validate(document)
    return profile, document.problems + problems


def _several(document: Document, readers: Readers) -> Found:
    """A profile whose entries of ``workloads`` are profiles."""
    problems = _entries(document)
    top = copied(document)
    remove_key(top, ("workloads",))
    resolve(top, readers)
    whole, errors = _attempt(top.value)
    problems += top.problems + [explain_error(error, top) for error in errors if locate(error, top) not in top.broken]
    if problems:
        whole = None
    workloads = []
    for index, keys in enumerate(document.value["workloads"] if isinstance(document.value["workloads"], list) else ()):
        if isinstance(keys, dict):
            profile, more = _single(entry(document, index), readers)
            workloads.append(profile)
            problems += more
            problems += _searching(document, index, profile)
    made = [profile for profile in workloads if profile is not None]
    return whole and whole.model_copy(update={"workloads": tuple(made), "search": None}), problems


def _searching(document: Document, index: int, profile: Profile | None) -> list[Problem]:
    """Nobody knows how long a search takes, so the other workloads would end during it and its steps could not be compared."""
    if profile is None or not profile.peak_search or len(document.value["workloads"]) == 1:
        return []
    message = f"workloads.{index} {profile.name!r} searches its peak (producerRate 0) beside workloads that end before it"
    return [document.problem(("workloads", index), message, "write a producerRate, or search in a profile of its own")]


def _entries(document: Document) -> list[Problem]:
    """What is wrong with the list of workloads itself."""
    listed = document.value["workloads"]
    if not isinstance(listed, list) or not listed:
        return [document.problem(("workloads",), "workloads is no list of workloads", "write workloads: [{name: a, producerRate: 100}, …]")]
    problems, names = [], set()
    for index, keys in enumerate(listed):
        path: Path = ("workloads", index)
        if not isinstance(keys, dict):
            problems.append(document.problem(path, f"workloads.{index} is no mapping", "write {name: a, producerRate: 100}"))
            continue
        if "name" not in keys:
            problems.append(document.problem(path, f"workloads.{index}.name is missing", "write name: and what reports may call it"))
        elif str(keys["name"]) in names:
            problems.append(document.problem((*path, "name"), f"a second workload {keys['name']!r}", "give each its own name"))
        names.add(str(keys.get("name")))
        misplaced = [(*path, key) for key in ("workloads", "matrix") if key in keys]
        problems += [document.problem(at, f"{at[-1]} cannot stand in a workload", "move it up", at_key=True) for at in misplaced]
    return problems


def resolve(document: Document, readers: Readers) -> None:
    """Put in what the document only names; what cannot be read goes to its problems."""
    for key in IN_RESULTS_ONLY:
        if (key,) in document.keys:
            document.problems.append(document.problem((key,), f"{key} is written in results only", "remove it", at_key=True))
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
        document.refuse(("messageSizeDistribution",), f"{reference!r} cannot be read from here", 'write the ranges: {"0-256": 3}')


def resolve_driver(document: Document, readers: Readers) -> None:
    """The same for ``driver`` alone. Where it comes with a target, the document's own goes before.

    :raises ProfileError: the driver file is not valid.
    """
    named = document.value.get("driver")
    if not isinstance(named, str) or readers.driver is None:
        return
    try:
        found = readers.driver(named)
    except ProfileError:
        raise
    except UsageError as error:
        document.refuse(("driver",), str(error), "")
        return
    document.value |= {"driver": found.driver, "notApplied": found.not_applied}
    if found.target and "target" not in document.value:
        document.value["target"] = found.target
        document.keys["target",] = document.values["target",] = document.values["driver",]


def _validate(document: Document) -> Found:
    """The profile where there is one, and all problems beyond those of the text itself."""
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
    findings = list(presence(document.value))
    whole = profile if profile and not broken else _remains(document, broken)
    if whole is not None:
        findings += check_profile(whole, broken)
    return profile, problems + [document.located(problem) for problem in findings]


def _attempt(value: dict[str, Any]) -> tuple[Profile | None, list[Any]]:
    try:
        return Profile.model_validate(value, context=_YAML, by_alias=True, by_name=False), []
    except ValidationError as error:
        # a default worked out from another key that is wrong: the error is that key's
        return None, [details for details in error.errors(include_url=False) if details["type"] != "default_factory_not_called"]


def _remains(document: Document, broken: set[Path]) -> Profile | None:
    """What is left without the broken values, so that the checks between keys can still run; None when nothing useful is."""
    value: dict[str, Any] = _without(document.value, (), broken)
    value.setdefault("name", "unnamed")
    if value.get("messages") != 0:  # a rate of 0 would ask for a search, save where nothing is sent
        value.setdefault("producerRate", 1)
    profile, errors = _attempt(value)
    if errors:  # a section that lost a key it needs, or all of its keys
        tops: set[Path] = {tuple(error["loc"][:1]) for error in errors}
        broken |= tops
        profile, _ = _attempt(_without(value, (), tops))
    return profile


def _without(value: Any, path: Path, broken: set[Path]) -> Any:
    if isinstance(value, dict):
        if path[:-1] == ("stages",) and any(found[:2] == path for found in broken):
            return {"name": f"{path[-1]}", "duration": "1s"}  # in place of a broken stage, so that the others keep their numbers
        return {key: _without(item, (*path, key), broken) for key, item in value.items() if (*path, key) not in broken}
    if isinstance(value, list):
        return [_without(item, (*path, i), broken) for i, item in enumerate(value) if (*path, i) not in broken]
    return value
