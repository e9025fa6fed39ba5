"""YAML text → plain values, each with its place in the text, and the traps of YAML 1.1 as problems.

The rule: what a reader of the text would take for one thing, and YAML 1.1 for another, is a
problem. For PyYAML the last of two equal keys wins, ``no`` is false, ``1:30`` is 90 and ``010`` is
8.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import yaml

from pytest_loadtest.errors import Path, Problem
from pytest_loadtest.profile.secrets import (
    names_secret,
    secret,
    shown_key,
    shown_path,
    shown_scalar,
    shown_text,
)
from pytest_loadtest.values.records import immutable

_TAG = "tag:yaml.org,2002:"
_PLAIN_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9_]*)")
_HALF = re.compile("[\ud800-\udfff]")
"""Half of a surrogate pair: an escape can write one, and no file can hold it."""
_TEXT_TAGS = ("str", "timestamp", "value", "merge")
"""Tags of values that are text: a date is only text in a profile."""


@immutable
class Place:
    """The place of a key or a value, 1-based, and the text of a scalar without secrets."""

    line: int
    column: int
    written: str = ""


@dataclass(slots=True)
class Document:
    """A text that was read.

    :param value: mappings, lists, text, numbers, booleans, None; keys are text as written.
    :param values: place of each value by its path.
    :param keys: place of each key by the path of its value.
    :param broken: paths of values that already have a problem.
    :param empty: a key without a value is None instead of a problem.
    :param words: yes, no, on and off are true and false instead of a problem.
    :param nullable: keys of the top level that may have no value.
    :param omb: the text has keys of OMB's ``Workload`` alone.
    """

    value: Any = None
    values: dict[Path, Place] = field(default_factory=dict)
    keys: dict[Path, Place] = field(default_factory=dict)
    broken: set[Path] = field(default_factory=set)
    problems: list[Problem] = field(default_factory=list)
    empty: bool = False
    words: bool = False
    nullable: Collection[str] = ()
    omb: bool = False

    def known(self, path: Path) -> Path:
        """Return the longest part of ``path`` that the text has."""
        while path not in self.values:
            path = path[:-1]
        return path

    def problem(
        self, path: Path, message: str, suggestion: str = "", *, at_key: bool = False
    ) -> Problem:
        """Make a problem with the value (or the key) at ``path``.

        Its place is that of the longest part of the path that the text has.
        """
        return self.located(Problem(path, message, suggestion, at_key))

    def located(self, problem: Problem) -> Problem:
        """Return the problem with its line and column in this text.

        It loses its path, which may have a secret in it.
        """
        path = self.known(problem.path)
        place = self.values[path]
        if problem.at_key:
            place = self.keys.get(path, place)
        return replace(problem, path=(), line=place.line, column=place.column)

    def refuse(self, path: Path, message: str, suggestion: str) -> None:
        """Add a problem with the value at ``path``, which is not checked further."""
        if path:
            message = f"{shown_path(path)}: {message}"
        self.problems.append(self.problem(path, message, suggestion))
        self.broken.add(path)


def read_yaml(
    text: str,
    *,
    empty: bool = False,
    sequence: bool = False,
    words: bool = False,
    nullable: Collection[str] = (),
) -> Document:
    """Read one YAML document.

    Never raises: problems are in :attr:`Document.problems`, and then ``value`` may be None.

    :param empty: a key may have no value; it is None then.
    :param sequence: the document is a list, not a profile's mapping.
    :param words: yes, no, on and off are true and false, as Jackson reads them.
    :param nullable: keys of the top level that may have none.
    """
    document = Document(values={(): Place(1, 1)}, empty=empty, words=words, nullable=nullable)
    try:
        root = _composed(text)
    except yaml.MarkedYAMLError as error:
        document.problems.append(_syntax(error, text))
    except yaml.reader.ReaderError as error:
        lines = text[: error.position].split("\n")
        message = f"character {_character(error.character)} is not allowed in YAML"
        document.problems.append(Problem((), message, line=len(lines), column=len(lines[-1]) + 1))
    except RecursionError:
        document.refuse((), "nested too deeply", "")
    else:
        if sequence:
            _read_sequence(root, document)
        elif root is None:
            remedy = "start with name:, producerRate:, messageSize:, testDuration:"
            document.refuse((), "the profile is empty", remedy)
        elif not isinstance(root, yaml.MappingNode):
            message = f"a profile is a mapping, not {_kind(root)}"
            document.refuse((), message, "write key: value lines, name: first")
        else:
            document.value = _build(root, (), document, set())
    return document


# A profile with a matrix is read once for each combination, from the same text. Composing took 31
# of the 53 CPU ms of each of the 1 764 combinations of profiles/mqtt/tput-fanin.yaml.
@lru_cache(maxsize=8)
def _composed(text: str) -> yaml.Node | None:
    """Return the tree of a YAML text, which callers do not change."""
    root: yaml.Node | None = yaml.compose(text, Loader=yaml.SafeLoader)
    return root


def _read_sequence(root: yaml.Node | None, document: Document) -> None:
    if isinstance(root, yaml.SequenceNode):
        document.value = _build(root, (), document, set())
    else:
        kind = "empty" if root is None else _kind(root)
        message = f"the file is a list of entries, not {kind}"
        document.refuse((), message, "start each entry with a dash: - {name: …}")


def _build(node: yaml.Node, path: Path, document: Document, seen: set[int]) -> Any:
    """Return the node's value, and add places and problems to the document.

    Each node is visited once, so that aliases cannot explode.
    """
    place = Place(node.start_mark.line + 1, node.start_mark.column + 1, _written(node, path))
    document.values[path] = place
    if id(node) in seen:
        # The node has only the place of its anchor.
        document.values[path] = document.keys.get(path, place)
        document.refuse(path, "aliases (*name) are not read", "write the value out")
        return None
    seen.add(id(node))
    if isinstance(node, yaml.MappingNode) and node.tag == _TAG + "map":
        return _mapping(node, path, document, seen)
    if isinstance(node, yaml.SequenceNode) and node.tag == _TAG + "seq":
        return [_build(item, (*path, i), document, seen) for i, item in enumerate(node.value)]
    if isinstance(node, yaml.ScalarNode):
        return _scalar(node, path, document)
    return _tagged(node, path, document)


def _written(node: yaml.Node, path: Path) -> str:
    if not isinstance(node, yaml.ScalarNode) or secret(path):
        return ""
    return shown_text(node.value)


def _tagged(node: yaml.Node, path: Path, document: Document) -> None:
    tag = "a tag" if secret(path) else f"tag {node.tag.replace(_TAG, '!!')}"
    document.refuse(path, f"{tag} is not allowed", "remove it")


def _mapping(
    node: yaml.MappingNode, path: Path, document: Document, seen: set[int]
) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for key, item in node.value:
        wrong = _wrong_key(key, path, value, document)
        line = key.start_mark.line + 1
        column = key.start_mark.column + 1
        if wrong is not None:
            document.problems.append(replace(wrong, at_key=True, line=line, column=column))
        else:
            document.keys[*path, key.value] = Place(line, column)
            value[key.value] = _build(item, (*path, key.value), document, seen)
    return value


def _wrong_key(
    key: yaml.Node, path: Path, value: Mapping[str, Any], document: Document
) -> Problem | None:
    """Return why a key cannot be read, or None. :param value: the keys before it."""
    if not isinstance(key, yaml.ScalarNode):
        return Problem((), f"a key must be text, not {_kind(key)}")
    if key.tag == _TAG + "merge":
        return Problem((), "merge keys (<<) are not read", "write the keys out")
    if _HALF.search(key.value):
        message = "half of a surrogate pair is not a character"
        return Problem((), message, "write the whole character")
    if key.value in value:
        first = document.keys[*path, key.value]
        message = f"duplicate key {_key_name(path, key)!r}, first in line {first.line}"
        return Problem((), message, "remove one")
    return None


def _scalar(node: yaml.ScalarNode, path: Path, document: Document) -> Any:
    tag = node.tag.removeprefix(_TAG)
    text = node.value
    if tag in _TEXT_TAGS:
        if _HALF.search(text):
            message = "half of a surrogate pair is not a character"
            document.refuse(path, message, 'write the whole character, "\\U0001F600"')
        return text
    if tag == "null":
        nullable = len(path) == 1 and path[0] in document.nullable
        if not document.empty and not nullable:
            document.refuse(path, "no value", "give it one, or remove the key")
        return None
    if tag not in ("bool", "int", "float"):
        return _tagged(node, path, document)
    try:
        value = yaml.SafeLoader("").construct_object(node)
    except (ValueError, KeyError):
        shown = "the value" if secret(path) else repr(text)
        document.refuse(path, f"{shown} is not what its tag says", "remove the tag")
        return None
    if _is_ambiguous(tag, text, words=document.words):
        document.refuse(path, *_as_read(tag, text, value, hidden=secret(path)))
    return value


def _is_ambiguous(tag: str, text: str, *, words: bool) -> bool:
    """Return whether YAML 1.1 reads a scalar as something that the text does not say."""
    if tag == "bool":
        return not words and text.lower() not in ("true", "false")
    if ":" in text:
        return True
    return tag == "int" and not _PLAIN_INTEGER.fullmatch(text)


def _as_read(tag: str, text: str, value: Any, *, hidden: bool) -> tuple[str, str]:
    """Return as what YAML reads a scalar, and what to write. :param hidden: it may be a secret."""
    if hidden:
        kind = "true or false" if tag == "bool" else "a number"
        return f"YAML reads it as {kind}", "put it in quotes"
    if tag == "bool":
        word = str(value).lower()
        return f"YAML reads {text} as {word}", f'write {word}, or "{text}" for the text'
    return f"YAML reads {text} as {value}", _number_hint(text, value)


def _number_hint(text: str, value: float) -> str:
    if ":" in text:
        return f"for minutes and seconds write {value}s; for text quote it"
    decimal = text.lstrip("+-0_") or "0"
    if decimal.isdecimal():
        return f"write {decimal}, or {value} if that is meant"
    return f"write {value}"


def _syntax(error: yaml.MarkedYAMLError, text: str) -> Problem:
    mark = error.problem_mark or error.context_mark
    row, column = (mark.line, mark.column) if mark else (0, 0)
    lines = text.splitlines()
    line = lines[row] if row < len(lines) else ""
    message = ", ".join(part for part in (error.context, error.problem) if part)
    hidden = names_secret(_enclosing(lines, row))
    if hidden:
        named = r"(alias|anchor|tag handle) (['\"]).*\2"
        message = re.sub(named, r"\1", message, flags=re.DOTALL)
    hint = _syntax_hint(line, hidden=hidden)
    message = f"not valid YAML: {message}"
    return Problem((), message, hint, line=row + 1, column=column + 1)


def _enclosing(lines: list[str], row: int) -> str:
    """Return a line with those before it, back to the last one that begins a top-level key."""
    before = lines[: row + 1]
    first = len(before) - 1
    while first > 0 and not re.match(r"[^\s#]", before[first]):
        first -= 1
    return "\n".join(before[max(first, 0) :])


def _syntax_hint(line: str, *, hidden: bool) -> str:
    """Return what to change in a line that is no YAML. :param hidden: it may contain a secret."""
    if "\t" in line[: len(line) - len(line.lstrip())]:
        return "indent with spaces, not with tabs"
    if hidden:
        return "put values with special characters in quotes"
    bound = re.search(r":\s*[<>]=?\s*(\S+)", line)
    if bound:
        return f"write the bound alone, {bound[1]}: each metric has a fixed direction"
    value = re.search(r":\s+([%@`*&!|][^#]*)", line)
    return f'quote the value: "{value[1].strip()}"' if value else ""


def _character(character: int | str | bytes) -> str:
    return f"U+{character:04X}" if isinstance(character, int) else repr(character)


def _key_name(path: Path, key: yaml.ScalarNode) -> str:
    if not path:
        return shown_key(key.value)
    return shown_path((*path, key.value)).removeprefix(f"{shown_path(path)}.")


def _kind(node: yaml.Node) -> str:
    if isinstance(node, yaml.ScalarNode):
        return shown_scalar(node.value)
    return "a list" if isinstance(node, yaml.SequenceNode) else "a mapping"
