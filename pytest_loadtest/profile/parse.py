"""Text → :class:`Profile`, or every problem in it at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from pytest_loadtest.errors import Problem, ProfileError
from pytest_loadtest.profile.checks import check, presence
from pytest_loadtest.profile.explain import explain, locate
from pytest_loadtest.profile.model import Profile
from pytest_loadtest.profile.text import Document, Path, read

if TYPE_CHECKING:
    from collections.abc import Mapping

_YAML = {"units": "named"}  # tells the fields that bare numbers are no durations here
_STAND_INS = {"name": "unnamed", "producerRate": 1}


def loads(text: str, source: str) -> Profile:
    """Read a profile.

    :param text: YAML. :param source: the file as the user named it, for the messages.
    :raises ProfileError: with all problems, in the order of the text.
    """
    document = read(text)
    profile = None
    problems = document.problems
    if document.value is not None:
        profile, found = _validate(document)
        problems = problems + found
    if profile is None or problems:
        raise ProfileError(source, tuple(sorted(problems, key=lambda problem: (problem.line, problem.column))))
    return profile


def from_document(document: Mapping[str, Any]) -> Profile:
    """The profile whose :meth:`~Profile.document` this is, less its secrets. It was checked when it was read.

    :raises ValueError: no such document.
    """
    return Profile.model_validate(document, context=_YAML, by_alias=True, by_name=False)


def _validate(document: Document) -> tuple[Profile | None, list[Problem]]:
    """The profile where there is one, and all problems beyond those of the text itself."""
    problems: list[Problem] = []
    broken = set(document.broken)
    profile, errors = _attempt(document.value)
    for error in errors:
        path = locate(error, document)
        if error["type"] == "missing":
            path = (*path, str(error["loc"][-1]))
        if path not in document.broken:
            problems.append(explain(error, document))
            broken.add(path)
    findings = list(presence(document.keys.keys()))
    whole = profile if profile and not broken else _remains(document, broken)
    if whole is not None:
        findings += check(whole, broken)
    return profile, problems + [document.problem(f.path, f.message, f.suggestion, at_key=f.at_key) for f in findings]


def _attempt(value: dict[str, Any]) -> tuple[Profile | None, list[Any]]:
    try:
        return Profile.model_validate(value, context=_YAML, by_alias=True, by_name=False), []
    except ValidationError as error:
        # a default that is taken from another key is not that default's own error
        return None, [details for details in error.errors(include_url=False) if details["type"] != "default_factory_not_called"]


def _remains(document: Document, broken: set[Path]) -> Profile | None:
    """What is left without the broken values, so that the checks between keys can still run; None when nothing useful is."""
    value: dict[str, Any] = _without(document.value, (), broken)
    for key, stand_in in _STAND_INS.items():
        value.setdefault(key, stand_in)
    profile, errors = _attempt(value)
    if errors:  # a section that lost a key it needs, or all of its keys
        tops: set[Path] = {tuple(error["loc"][:1]) for error in errors}
        broken |= tops
        profile, _ = _attempt(_without(value, (), tops))
    return profile


def _without(value: Any, path: Path, broken: set[Path]) -> Any:
    if isinstance(value, dict):
        return {key: _without(item, (*path, key), broken) for key, item in value.items() if (*path, key) not in broken}
    if isinstance(value, list):
        return [_without(item, (*path, i), broken) for i, item in enumerate(value) if (*path, i) not in broken]
    return value
