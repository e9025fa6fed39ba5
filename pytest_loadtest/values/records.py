"""The form of most of the package's dataclasses: immutable, small, made by keywords alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

_Class = TypeVar("_Class")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def record(kind: type[_Class]) -> type[_Class]:
    """Make a class a dataclass that is frozen, has slots, and takes keywords alone."""
    return dataclass(frozen=True, slots=True, kw_only=True)(kind)
