"""The kinds of value of ``deliverAfter``, and what a profile's delays mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import AfterValidator, BeforeValidator, WithJsonSchema

from pytest_loadtest.kinds.registry import able
from pytest_loadtest.message.due import Delays
from pytest_loadtest.metrics.catalogue import Need, needing
from pytest_loadtest.profile.fields import DURATION_SCHEMA, Duration, PositiveDuration, Section, fault
from pytest_loadtest.profile.judging import bounding
from pytest_loadtest.profile.presence import Misfit
from pytest_loadtest.values.quantities import MILLISECOND

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_loadtest.profile.model import Profile


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


# What must hold between delays (``deliverAfter``, ``deliverAt``) and the rest of a profile.


def _key(profile: Profile) -> str:
    return "deliverAt" if profile.deliver_after is None else "deliverAfter"


def _heeded(profile: Profile) -> Iterator[Misfit]:
    """Brokers that delay messages."""
    if profile.delays is None:
        return
    key, kind = _key(profile), profile.driver.kind
    if not kind.delays:
        remedy = f"remove it, or write driver: {{name: {able('delays')[0].name}}}"
        yield Misfit((key,), f"{key}: {kind.label} has no delayed delivery", remedy, at_key=True)


def _apart(profile: Profile) -> Iterator[Misfit]:
    """What no delay goes with."""
    if profile.delays is None:
        if profile.allow_undelayed:
            yield Misfit(("allowUndelayed",), "allowUndelayed: no message is delayed", EXAMPLE, at_key=True)
        return
    key = _key(profile)
    others = {
        "producersPerTopic: 0": profile.consumer_only,
        "messages: 0": profile.connects_only,
        "a search for the highest rate": profile.peak_search,
        "consumerBacklogSizeGB": bool(profile.consumer_backlog_size_gb),
        "64 subscriptions of a topic or more": profile.broadcasts,
    }
    for other, there in others.items():
        if there:
            yield Misfit((key,), f"{key}: cannot be combined with {other}", "remove one of them", at_key=True)


def _judged(profile: Profile) -> Iterator[Misfit]:
    """Objectives on delays want delays."""
    for path, slo in bounding(profile):
        for metric in needing(Need.DELAYS):
            if metric in slo and profile.delays is None:
                yield Misfit((*path, metric), f"{'.'.join(map(str, (*path, metric)))}: no message is delayed", EXAMPLE, at_key=True)


_HEEDED = ("allowUndelayed", "deliverAfter.*", "deliverAt")
CHECKS = (
    # each check with the keys whose default would mislead it
    (_heeded, ("driver.name", "deliverAfter.*", "deliverAt")),
    (_apart, (*_HEEDED, "producersPerTopic", "messages", "producerRate", "search.*", "subscriptionsPerTopic", "consumerPerSubscription")),
    (_judged, ("deliverAfter.*", "deliverAt")),
)
