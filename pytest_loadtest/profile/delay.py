"""The kinds of value of ``deliverAfter``, and what a profile's delays mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

from pydantic import AfterValidator, BeforeValidator, WithJsonSchema

from pytest_loadtest.message.due import Delays
from pytest_loadtest.profile.fields import DURATION_SCHEMA, Duration, PositiveDuration, Section, fault
from pytest_loadtest.values.quantities import MILLISECOND

EXAMPLE: Final = "write deliverAfter: 10s, or deliverAfter: {min: 1s, max: 60s}"


class DelayRange(Section):
    """From so long to so long after its intended time; every whole millisecond between is as likely."""

    min: Duration
    """The shortest delay."""
    max: PositiveDuration
    """The longest."""


def _range(value: object) -> object:
    """A delay by itself is a range of one."""
    return value if isinstance(value, Mapping | DelayRange) or value is None else {"min": value, "max": value}


def _whole(value: DelayRange) -> DelayRange:
    """Brokers are told whole milliseconds."""
    if value.min % MILLISECOND or value.max % MILLISECOND:
        raise fault("delays are whole milliseconds", EXAMPLE)
    if value.min > value.max:
        raise fault("min is above max", "swap them")
    return value


_SCHEMA = {
    "anyOf": [
        DURATION_SCHEMA,
        {
            "type": "object",
            "additionalProperties": False,
            "required": ["min", "max"],
            "properties": {"min": DURATION_SCHEMA, "max": DURATION_SCHEMA},
        },
    ],
}
Delay = Annotated[DelayRange, BeforeValidator(_range), AfterValidator(_whole), WithJsonSchema(_SCHEMA, mode="validation")]
"""``10s``, or ``{min: 1s, max: 60s}``."""


def delays(after: DelayRange | None, at: int | None, seed: int, early: int) -> Delays | None:
    """What either of the two keys asks for; None: nothing. :param at: ns. :param early: ns that a message may come before it is due."""
    if after is not None:
        return Delays(seed=seed, least=after.min // MILLISECOND, most=after.max // MILLISECOND, tick=early)
    return None if at is None else Delays(seed=seed, at=at, tick=early)
