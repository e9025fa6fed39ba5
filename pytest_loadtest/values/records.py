"""The forms of dataclasses: immutable and small, made by keywords alone or by place."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

_Class = TypeVar("_Class")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def record(kind: type[_Class]) -> type[_Class]:
    """Make a class a dataclass that is frozen, has slots, and takes keywords alone."""
    return dataclass(frozen=True, slots=True, kw_only=True)(kind)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def immutable(kind: type[_Class]) -> type[_Class]:
    """Make a class a dataclass that is frozen and has slots, for a few fields in a known order."""
    return dataclass(frozen=True, slots=True)(kind)
