"""Types of the values in a profile: text with a unit in YAML, a number in Python."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    PlainSerializer,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
)  # fmt: skip
from pydantic_core import PydanticCustomError, core_schema

from pytest_loadtest.message import payloads
from pytest_loadtest.schedule.pacing import LEAST_RATE, MOST_RATE
from pytest_loadtest.values.quantities import (
    DAY,
    HOUR,
    MICROSECOND,
    MILLISECOND,
    MINUTE,
    SECOND,
    ByteRate,
    exact_rate,
    parse_duration,
    parse_rate,
    parse_size,
)  # fmt: skip
from pytest_loadtest.verdict.objectives import Slo

_CAPITALS = {"gb": "GB", "mb": "MB"}
_UNITS = (
    ("d", DAY),
    ("h", HOUR),
    ("min", MINUTE),
    ("s", SECOND),
    ("ms", MILLISECOND),
    ("us", MICROSECOND),
    ("ns", 1),
)
MOST_DURATION = 3650 * DAY
"""The longest duration, ns: times are counted in 63 bits."""
DURATION_PATTERN = r"^\s*\d[\d_]*(\.\d+)?\s*(ns|us|µs|ms|s|m|min|h|d)\s*$"
DURATION_SCHEMA = {
    "anyOf": [{"type": "string", "pattern": DURATION_PATTERN}, {"const": 0}],
    "description": "a number and a unit: 100ms, 30s, 5min, 24h",
}
_SIZE_SCHEMA = {
    "anyOf": [
        {"type": "integer", "minimum": 1},
        {"type": "string", "pattern": r"^\s*\d[\d_]*(\.\d+)?\s*([KMGkmg]?[Bb]|[KMG]iB)?\s*$"},
    ],
    "description": "bytes, or a number and a unit: 1KB is 1024 bytes",
}
_RATE_SCHEMA = {
    "anyOf": [
        {"type": "number", "minimum": 0},
        {"type": "string", "pattern": r"^\s*\d[\d_]*(\.\d+)?\s*(msg|B|[Kk]B|[MG]B|[KMG]iB)?/s\s*$"},
    ],
    "description": "messages per second, or bytes: 200MB/s",
}
PERCENT_PATTERN = r"^\s*\d+(\.\d+)?\s*%\s*$"
_PERCENT_SCHEMA = {"type": "string", "pattern": PERCENT_PATTERN, "description": "a percentage: 2%"}


def spelling(name: str) -> str:
    """Return the YAML key of a field: ``producer_rate`` → ``producerRate``.

    OMB's capitals are kept: ``consumerBacklogSizeGB``.
    """
    first, *rest = name.split("_")
    return first + "".join(_CAPITALS.get(part, part.capitalize()) for part in rest)


class Section(BaseModel):
    """A mapping of the profile: frozen, strict, camelCase in YAML and snake_case in Python."""

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="forbid",
        alias_generator=spelling,
        validate_by_name=True,
        validate_by_alias=True,
        allow_inf_nan=False,
        # A section within a section is built with it, and not twice.
        defer_build=True,
        # A ValidationError in a traceback would show the value, which may be a secret.
        hide_input_in_errors=True,
    )


def invalid_field(message: str, suggestion: str = "") -> PydanticCustomError:
    """Make the error of a pydantic field.

    :func:`~pytest_loadtest.profile.explain.explain_error` makes a problem of it.
    """
    context = {"message": message, "suggestion": suggestion}
    return PydanticCustomError("invalid_field", "{message}", context)


class ParsedSection:
    """Annotation of a field whose mapping is parsed once, when the profile is read.

    The result keeps it as ``written``.

    :param read: mapping → what the profile holds. It never raises: the problems of a section are
        reported with those of the profile's other keys.
    """

    def __init__(self, read: Callable[[Mapping[str, object]], object]) -> None:
        self._read = read

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        written = core_schema.plain_serializer_function_ser_schema(
            lambda section: dict(section.written)
        )
        return core_schema.no_info_after_validator_function(
            self._read, handler.generate_schema(dict[str, Any]), serialization=written
        )


def exact_duration(ns: int) -> str:
    """Write a duration in the largest unit that is exact: ``30_000_000_000`` → ``30s``."""
    if not ns:
        return "0s"
    unit, scale = next((unit, scale) for unit, scale in _UNITS if ns % scale == 0)
    return f"{ns // scale}{unit}"


def _duration(value: object, info: ValidationInfo) -> object:
    if isinstance(value, str):
        return _read_duration(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    if value == 0:
        return 0
    if info.context is None:  # a number from Python code is in ns; only YAML must have a unit
        return value
    remedy = f"write {value}s, or another of ns, us, ms, s, min, h, d"
    raise invalid_field(f"{value} has no unit", remedy)


def _read_duration(text: str) -> int:
    try:
        duration = parse_duration(text)
    except ValueError as error:
        if "too large" not in str(error):
            raise invalid_field(f"{text!r} is not a duration", _duration_hint(text)) from None
        duration = MOST_DURATION + 1
    if duration > MOST_DURATION:
        remedy = f"write {exact_duration(MOST_DURATION)} or less"
        raise invalid_field(f"{text!r} is longer than ten years", remedy)
    return duration


_MEANT_UNITS = {
    "sec": "s",
    "secs": "s",
    "second": "s",
    "seconds": "s",
    "minute": "min",
    "minutes": "min",
    "mins": "min",
    "msec": "ms",
    "millis": "ms",
    "hour": "h",
    "hours": "h",
    "hr": "h",
    "day": "d",
    "days": "d",
    "M": "m",
    "S": "s",
    "MS": "ms",
    "H": "h",
}
"""Units as users write them → ours."""


def _duration_hint(text: str) -> str:
    number = re.match(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)", text)
    if number and number[2] in _MEANT_UNITS:
        return f"did you mean {number[1]}{_MEANT_UNITS[number[2]]}?"
    return "write a number and a unit: ns, us, ms, s, min, h, d"


def _size(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return parse_size(value)
    except ValueError:
        remedy = "write bytes, or a number and B, KB, MB or GB (1KB is 1024 bytes)"
        raise invalid_field(f"{value!r} is not a size", remedy) from None


def _positive(value: int) -> int:
    if not value:
        raise invalid_field("must be above 0", "write 30s")
    return value


def _rate(value: object, number: ValidatorFunctionWrapHandler) -> float:
    """Read a rate: a number, or text with a unit. A rate in bytes becomes a :class:`ByteRate`."""
    if isinstance(value, ByteRate):
        return value
    if not isinstance(value, str) or re.fullmatch(r"\s*[-+]?[\d_., eE+-]*\s*", value):
        rate = float(number(value))
    else:
        try:
            rate = parse_rate(value)
        except ValueError as error:
            message, _, remedy = str(error).partition(": ")
            raise invalid_field(message, remedy) from None
    if 0 < rate < LEAST_RATE:
        raise invalid_field(f"{value!r} is slower than can be paced", f"write {LEAST_RATE} or more")
    if rate >= MOST_RATE:
        most = f"{MOST_RATE >> 20}MB/s" if isinstance(rate, ByteRate) else f"{MOST_RATE}/s"
        raise invalid_field(f"{value!r} is more than can be timed", f"write less than {most}")
    return rate


def _percent(value: object) -> object:
    if isinstance(value, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*%\s*", value)
        if match is None:
            raise invalid_field(f"{value!r} is not a percentage", "write a number and %, as in 2%")
        return float(Decimal(match[1]) / 100)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    raise invalid_field(f"{value} has no unit", f"write {value}%")


def exact_percent(ratio: float) -> str:
    """Write a ratio as a percentage: ``0.02`` → ``"2%"``."""
    return f"{(Decimal(repr(ratio)) * 100).normalize():f}%"


def _range(text: str) -> str:
    try:
        payloads.parse_range(text)
    except ValueError as error:
        message, _, remedy = str(error).partition(": ")
        raise invalid_field(message, remedy) from None
    return text


def _verbatim(value: object) -> object:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else value


Duration = Annotated[
    int,
    BeforeValidator(_duration),
    Field(ge=0),
    PlainSerializer(exact_duration, return_type=str, when_used="json"),
    WithJsonSchema(DURATION_SCHEMA, mode="validation"),
]
"""ns; in YAML ``30s``."""

PositiveDuration = Annotated[Duration, AfterValidator(_positive)]
"""ns, above 0."""

Rate = Annotated[
    float,
    Field(ge=0),
    WrapValidator(_rate),
    PlainSerializer(exact_rate, return_type=float | str, when_used="json"),
    WithJsonSchema(_RATE_SCHEMA, mode="validation"),
]
"""Messages per second, or a :class:`~pytest_loadtest.values.quantities.ByteRate`.

In YAML ``1000``, ``1000/s``, ``200MB/s``.
"""

Percent = Annotated[
    float,
    BeforeValidator(_percent),
    PlainSerializer(exact_percent, return_type=str, when_used="json"),
    WithJsonSchema(_PERCENT_SCHEMA, mode="validation"),
]
"""A ratio; in YAML ``2%``."""

Size = Annotated[
    int, BeforeValidator(_size), Field(ge=1), WithJsonSchema(_SIZE_SCHEMA, mode="validation")
]
"""Bytes; in YAML ``1024`` or ``1KB``."""

Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, le=1)]

Distribution = Annotated[
    dict[Annotated[str, AfterValidator(_range)], Count],
    Field(min_length=1),
    WithJsonSchema(
        {
            "type": "object",
            "minProperties": 1,
            "propertyNames": {
                "pattern": r"^\s*\d+\s*([KMGkmg]?[Bb])?\s*-\s*\d+\s*([KMGkmg]?[Bb])?\s*$"
            },
            "additionalProperties": {"type": "integer", "minimum": 1},
        },
        mode="validation",
    ),
]
"""Size range ``"low-high"`` (half open) → relative weight."""

Verbatim = Annotated[
    str,
    BeforeValidator(_verbatim),
    WithJsonSchema({"type": ["string", "integer", "boolean"]}, mode="validation"),
]
"""A value in the configuration file of another program."""

SloSection = Annotated[Slo, ParsedSection(Slo.read)]
