"""The ``driver`` section: the settings model of one of the installed kinds, chosen by ``name``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, reduce
from operator import or_
from typing import Annotated, Any

from pydantic import ConfigDict, Field, GetCoreSchemaHandler, GetJsonSchemaHandler, TypeAdapter, ValidationInfo
from pydantic_core import core_schema

from pytest_loadtest.kinds.registry import DEFAULT, canonical, kinds, load
from pytest_loadtest.profile.client import ClientSettings  # noqa: TC001  # the adapter's type


@cache
def models() -> Mapping[str, type[ClientSettings]]:
    """Kind → its settings model.

    :raises UsageError: a kind cannot be loaded.
    """
    return {name: load(kind, kind.settings) for name, kind in kinds().items()}


def model_of(name: object) -> type[ClientSettings] | None:
    """The settings model of the kind with this name or alias; None: there is no such kind."""
    return models().get(canonical(str(name)))


def default_settings() -> ClientSettings:
    """``driver`` of a profile that has none."""
    return models()[DEFAULT].model_validate({})


@cache
def _adapter() -> TypeAdapter[ClientSettings]:
    union: Any = reduce(or_, models().values())
    return TypeAdapter(Annotated[union, Field(discriminator="name")], config=ConfigDict(strict=True))


def _validated(value: object, info: ValidationInfo) -> ClientSettings:
    if isinstance(value, Mapping) and isinstance(name := value.get("name"), str):
        value = {**value, "name": canonical(name)}
    if info.context:  # of text, which has keys; Python code may have names of fields
        return _adapter().validate_python(value, context=info.context, by_alias=True, by_name=False)
    return _adapter().validate_python(value)


class AnyKind:
    """Annotation of a field that holds the settings of any installed kind.

    The kinds are loaded when the first value is validated, not when the field is declared: so a driver's module may import what is below.
    """

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.with_info_plain_validator_function(_validated)

    def __get_pydantic_json_schema__(self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return handler(_adapter().core_schema)
