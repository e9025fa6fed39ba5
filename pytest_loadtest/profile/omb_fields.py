"""Values of OMB's driver files as its parser sets them in fields of Java classes.

OMB reads YAML with Jackson 2.13: an absent field keeps its initial value, null sets a number to 0
and a flag to false, and text, numbers and flags are converted into each other. A value that Jackson
cannot convert is returned as it is, so that the profile's own check of the key reports it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

Reader = Callable[[Any, str], Any]
"""Converts a value as Jackson does. The second argument is the text of the value in the file; '' if
that may be a secret."""

_FLAGS: Final = {
    "true": True,
    "True": True,
    "TRUE": True,
    "false": False,
    "False": False,
    "FALSE": False,
    "": False,
}


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
    if isinstance(value, str):
        return _FLAGS.get(value, value)
    return value


def string(value: Any, written: str) -> Any:
    """Read a ``String``, which may be null: a number or a flag is the text that the file has."""
    return written if isinstance(value, int | float) and written else value


def constant(*names: str, spelled: Mapping[str, str] | None = None) -> Reader:
    """Return the reader of an enum, which may be null.

    A constant is written by its Java name, or by its ordinal.

    :param names: the constants in their order.
    :param spelled: Java name → our spelling, where it differs.
    """
    ours = spelled or {}

    def read(value: Any, written: str) -> Any:
        name = value.strip() if isinstance(value, str) else value
        ordinal = int(name) if isinstance(name, str) and name.isdecimal() else name
        if isinstance(ordinal, int) and not isinstance(ordinal, bool) and 0 <= ordinal < len(names):
            name = names[ordinal]
        return ours.get(name, name) if isinstance(name, str) else name

    return read
