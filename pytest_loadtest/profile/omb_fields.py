"""Fields of the classes into which OMB reads its driver files, and the values that its parser sets.

OMB reads YAML with Jackson 2.13: an absent field keeps its initial value, null sets a number to 0 and a flag to false, and text, numbers
and flags are converted into each other. A value that Jackson cannot convert is returned as it is, so that the profile's own check of the
key reports it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pytest_loadtest.errors import Path
    from pytest_loadtest.profile.omb_driver import OmbFile

Reader = Callable[[Any, str], Any]
"""Converts a value as Jackson does. The second argument is the text of the value in the file; '' if that may be a secret."""

Rule = Callable[["OmbFile", Any, "Path"], None]
"""Converts the value of one field, with its path in the driver file, to keys of the profile."""

_FLAGS: Final = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False, "": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class OmbField:
    """A field of one of OMB's classes.

    :param read: the conversion to the field's Java type. :param initial: the value if the file does not have the key; None is null.
    :param into: the key of ``driver`` that has the same meaning, or a function; None if the class's ``convert`` reads the field.
    :param required: OMB stops at null.
    """

    read: Reader
    initial: Any = None
    into: str | Rule | None = None
    required: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OmbClass:
    """One of OMB's classes: a section of its driver files.

    :param fields: key → field, or the class of a section inside. :param convert: converts all fields together; null ones are left out.
    :param ignored: keys that OMB does not read, although its users' files have them → reason.
    :param hints: keys of other drivers and versions → suggestion.
    """

    fields: Mapping[str, OmbField | OmbClass]
    convert: Callable[[OmbFile, Mapping[str, Any], Path], None] | None = None
    ignored: Mapping[str, str] = field(default_factory=dict)
    hints: Mapping[str, str] = field(default_factory=dict)


def integer(value: Any, written: str) -> Any:
    """Read an ``int`` or ``long``: null is 0, and a fraction is cut off."""
    return 0 if value is None else boxed_integer(value, written)


def boxed_integer(value: Any, written: str) -> Any:
    """Read an ``Integer``, which may be null."""
    if isinstance(value, float) and math.isfinite(value):
        return int(value)
    if isinstance(value, str):
        try:
            return int(value or "0")
        except ValueError:
            return value
    return value


def flag(value: Any, written: str) -> Any:
    """Read a ``boolean``: null is false, and so is 0."""
    return False if value is None else boxed_flag(value, written)


def boxed_flag(value: Any, written: str) -> Any:
    """Read a ``Boolean``, which may be null."""
    if isinstance(value, int):
        return bool(value)
    return _FLAGS.get(value, value) if isinstance(value, str) else value


def text(value: Any, written: str) -> Any:
    """Read a ``String``, which may be null: a number or a flag is the text that the file has."""
    return written if isinstance(value, int | float) and written else value


def constant(*names: str, spelled: Mapping[str, str] | None = None) -> Reader:
    """Return the reader of an enum, which may be null: a constant is written by its Java name, or by its ordinal.

    :param names: the constants in their order. :param spelled: Java name → our spelling, where it differs.
    """
    ours = spelled or {}

    def read(value: Any, written: str) -> Any:
        name = value.strip() if isinstance(value, str) else value
        ordinal = int(name) if isinstance(name, str) and name.isdecimal() else name
        if isinstance(ordinal, int) and not isinstance(ordinal, bool) and 0 <= ordinal < len(names):
            name = names[ordinal]
        return ours.get(name, name) if isinstance(name, str) else name

    return read
