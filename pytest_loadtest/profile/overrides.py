"""A profile with keys replaced by a test's mark or the command line, and its matrix as changes.

The rule: a mark replaces what the file has, and the command line what the mark has. A problem with
a replaced value names the mark or the option, every other one its place in the file.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pytest_loadtest.errors import Invalid, ProfileError, UsageError, sorted_problems
from pytest_loadtest.profile.merge import (
    OVERRIDE,
    Variant,
    combinations,
    copied,
    dotted,
    from_values,
    merged,
    value_at,
    with_combination,
)
from pytest_loadtest.profile.omb_workload import read_profile
from pytest_loadtest.profile.parse import Readers, interpret, resolve_driver
from pytest_loadtest.profile.secrets import names_secret, secret, shown_path, shown_value
from pytest_loadtest.profile.text import read_yaml
from pytest_loadtest.values.addresses import HIDDEN, masked

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_loadtest.errors import Problem
    from pytest_loadtest.profile.merge import Combination
    from pytest_loadtest.profile.model import Profile
    from pytest_loadtest.profile.text import Document


def overridden(
    text: str,
    source: str,
    changes: Mapping[str, object],
    readers: Readers,
    options: Mapping[str, str],
) -> Profile:
    """Read the profile of a text with other values for some keys.

    :param changes: key, with dots into sections (``driver.qos``,
        ``workloads.telemetry.producerRate``) → value as YAML would have it.
    :param options: the same from the command line, values as text; they win.
    :raises UsageError: an override is wrong; names it.
    :raises ProfileError: the text itself is wrong.
    """
    document = _base(read_profile(text, source), source, changes, options, readers)
    values = _option_values(options)
    written = [_mark(key, value) for key, value in changes.items()]
    document = _changed(document, changes, written)
    written += [_option(key, text) for key, text in options.items()]
    document = _changed(document, values, written)
    profile, problems = interpret(document, readers)
    if profile is None or problems:
        raise UsageError("\n".join(_lines(problems, source, written)))
    return profile


def _changed(document: Document, changes: Mapping[str, object], written: Sequence[str]) -> Document:
    """Return the document with other values for some keys.

    :param written: all changes so far as text, these last.
    """
    first = len(written) - len(changes)
    names = dict(zip(changes, written[first:], strict=True))
    try:
        values = from_values(changes, first)
        return merged(document, {dotted(key): (values, (key,)) for key in changes})
    except TypeError as error:
        value = f"{names[str(error)]}: a profile cannot have such a value"
        raise UsageError(f"{value}: write text, a number, a list or a dict") from None
    except Invalid as error:
        problem = error.problem
        key = next(key for key in changes if dotted(key) == problem.path)
        raise UsageError(f"{names[key]}: {problem.text}") from None


def _option_values(options: Mapping[str, str]) -> dict[str, object]:
    """Read the values of options, which are YAML; ``null`` removes the key.

    :raises UsageError: a value is not valid YAML.
    """
    values: dict[str, object] = {}
    for key, text in options.items():
        document = read_yaml(f"{json.dumps(key)}: {text}", empty=True)
        option = _option(key, text)
        if document.problems:
            raise UsageError(f"{option}: {document.problems[0].text}")
        if len(document.value) > 1:
            raise UsageError(f"{option}: more than one value")
        values |= document.value
    return values


def varied(
    text: str, source: str, readers: Readers, chosen: Mapping[str, object]
) -> tuple[Variant, ...]:
    """Return the combinations of a text's matrix as overrides, the last axis changing fastest.

    There is none without a matrix.

    :param chosen: axis → the value, or values, to keep.
    :raises ProfileError: the matrix is wrong, or the profile with one of its combinations.
    :raises UsageError: no combination is chosen.
    """
    document = read_profile(text, source)
    choices = combinations(document, chosen) if document.value is not None else ()
    problems = list(document.problems)
    for choice in choices:
        chosen_keys = with_combination(document, choice)
        problems += chosen_keys.problems or interpret(chosen_keys, readers)[1]
    if problems:
        raise ProfileError(source, sorted_problems(problems))
    variants = []
    for choice in choices:
        changes = {key: value_at(document.value, at) for key, at in choice.places.items()}
        variants.append(Variant(choice.id, changes))
    return tuple(variants)


def _base(
    document: Document,
    source: str,
    changes: Mapping[str, object],
    options: Mapping[str, str],
    readers: Readers,
) -> Document:
    """Return the document that the changes apply to.

    If it has a matrix, that is the combination that the changes name, or the first one. A driver
    file is read if a key of it is changed.
    """
    choices = combinations(document) if document.value is not None else ()
    if document.problems:
        raise ProfileError(source, sorted_problems(document.problems))
    if choices:
        document = with_combination(document, _named(document, choices, changes))
    else:
        document = copied(document)
    if any(key.startswith("driver.") for key in (*changes, *options)):
        resolve_driver(document, readers)
    if document.problems:
        raise ProfileError(source, sorted_problems(document.problems))
    return document


def _named(
    document: Document, choices: Sequence[Combination], changes: Mapping[str, object]
) -> Combination:
    """Return the combination whose keys all have the changed values, else the first.

    Of several it is the one with most keys.
    """

    def matches(choice: Combination) -> bool:
        return all(
            key in changes and changes[key] == value_at(document.value, at)
            for key, at in choice.places.items()
        )

    return max(filter(matches, choices), key=lambda choice: len(choice.places), default=choices[0])


def _lines(problems: list[Problem], source: str, written: Sequence[str]) -> list[str]:
    """Write problems: those of an override name it, those of the file have its place.

    The latter are followed by the list of overrides.
    """
    lines = []
    in_file = False
    for problem in sorted_problems(problems):
        if problem.line == OVERRIDE:
            lines.append(f"{written[problem.column]}: {problem.text}")
        else:
            in_file = True
            lines.append(problem.render(source))
    if in_file and written:
        lines.append(f"{source} is read here with {', '.join(written)}")
    return lines


def _mark(key: str, value: object) -> str:
    shown = shown_value((key,), value)
    if key.isidentifier():
        return f"@pytest.mark.load({key}={shown!r})"
    return f"@pytest.mark.load(**{{{key!r}: {shown!r}}})"


def _option(key: str, text: str) -> str:
    return f"--load-set {setting(key, text)}"


def setting(key: str, text: str) -> str:
    """Write an option as ``producerRate=500``, without the value if it may be a secret."""
    last = key.rpartition(".")[2]
    hidden = last in ("driver", "workloads") or secret((key,)) or names_secret(text)
    value = HIDDEN if hidden else masked(text)
    return f"{shown_path((key,))}={value}"
