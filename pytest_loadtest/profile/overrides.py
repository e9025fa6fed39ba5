"""A profile with some keys replaced, as a test's mark asks for it, and the combinations of its matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_loadtest.errors import ProfileError, UsageError
from pytest_loadtest.profile.matrix import applied, combinations
from pytest_loadtest.profile.merge import OVERRIDE, Unreachable, copied, dotted, merged, spoken
from pytest_loadtest.profile.parse import Readers, in_order, interpret, resolve_driver
from pytest_loadtest.profile.text import read

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_loadtest.errors import Problem
    from pytest_loadtest.profile.model import Profile
    from pytest_loadtest.profile.text import Document


def overridden(text: str, source: str, changes: Mapping[str, object], readers: Readers) -> Profile:
    """The profile of a text with other values for some keys.

    :param changes: key, dotted where it reaches into a section (``driver.qos``, ``workloads.telemetry.producerRate``) → value as YAML
        would have it.
    :raises UsageError: an override is wrong; names it. :raises ProfileError: the text itself is.
    """
    document = _base(read(text), source, changes, readers)
    try:
        said = spoken(changes)
        document = merged(document, {dotted(key): (said, (key,)) for key in changes})
    except TypeError as error:
        raise UsageError(f"{_mark(changes, str(error))}: not a value that a profile can have; write it as in YAML") from None
    except Unreachable as error:
        key = next(key for key in changes if dotted(key) == error.path)
        raise UsageError(f"{_mark(changes, key)}: {error.message} ({error.suggestion})") from None
    profile, problems = interpret(document, readers)
    if profile is None or problems:
        raise UsageError("\n".join(_lines(problems, source, changes)))
    return profile


def varied(text: str, source: str, readers: Readers) -> tuple[dict[str, object], ...]:
    """The combinations of a text's matrix as overrides, the last key's values changing fastest; none without a matrix.

    :raises ProfileError: the matrix is wrong, or the profile with one of its combinations.
    """
    document = read(text)
    choices = combinations(document) if document.value is not None else ()
    problems = list(document.problems)
    for choice in choices:
        one = applied(document, choice)
        problems += one.problems or interpret(one, readers)[1]
    if problems:
        raise ProfileError(source, in_order(problems))
    return tuple({key: document.value["matrix"][key][at[-1]] for key, at in choice.items()} for choice in choices)


def _base(document: Document, source: str, changes: Mapping[str, object], readers: Readers) -> Document:
    """What is changed: of a profile with a matrix its first combination; with the driver file's keys where some are replaced."""
    choices = combinations(document) if document.value is not None else ()
    if document.problems:
        raise ProfileError(source, in_order(document.problems))
    document = applied(document, choices[0]) if choices else copied(document)
    if any(key.startswith("driver.") for key in changes):
        resolve_driver(document, readers)
    if document.problems:
        raise ProfileError(source, in_order(document.problems))
    return document


def _lines(problems: list[Problem], source: str, changes: Mapping[str, object]) -> list[str]:
    """A problem of an override names it; one of the file has its place, and then the overrides are named below."""
    keys, lines, elsewhere = list(changes), [], False
    for problem in in_order(problems):
        if problem.line == OVERRIDE:
            hint = f" ({problem.suggestion})" if problem.suggestion else ""
            lines.append(f"{_mark(changes, keys[problem.column])}: {problem.message}{hint}")
        else:
            elsewhere = True
            lines.append(problem.render(source))
    if elsewhere and changes:
        lines.append(f"{source} is read here with {', '.join(_mark(changes, key) for key in keys)}")
    return lines


def _mark(changes: Mapping[str, object], key: str) -> str:
    return f"@pytest.mark.load({key}={changes[key]!r})" if key.isidentifier() else f"@pytest.mark.load(**{{{key!r}: {changes[key]!r}}})"
