"""A route: the path of messages through a service under test, from the topics that producers send
to, to those that consumers read.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from pytest_loadtest.message.token import Pointer, format_pointer, parse_pointer
from pytest_loadtest.values.records import record

TOPIC: Final = "{topic}"
"""Stands for the number of the topic in the names of a route."""
PROPERTY: Final = "loadtest"
"""The name of the property that has a token."""
_JSON: Final = "json:"


class Carrier(StrEnum):
    """The part of a message that has its envelope."""

    BODY = "body"
    """The beginning of the body, in binary form."""
    JSON = "json"
    """A field of the body, which is JSON, as a token."""
    PROPERTIES = "properties"
    """A message property of Pulsar, or a user property of MQTT 5: :data:`PROPERTY`, as a token."""
    CORRELATION_DATA = "correlationData"
    """The correlation data of MQTT 5, in binary form."""


@record
class EnvelopePlace:
    """The place of the envelope in a message.

    :param pointer: of ``Carrier.JSON``: the field that has the token.
    """

    carrier: Carrier
    pointer: Pointer = ()

    @property
    def outside(self) -> bool:
        """True if the envelope is not in the body."""
        return self.carrier in _OUTSIDE

    def __str__(self) -> str:
        if self.carrier is Carrier.JSON:
            return _JSON + format_pointer(self.pointer)
        return self.carrier


_OUTSIDE: Final = (Carrier.PROPERTIES, Carrier.CORRELATION_DATA)
_WITHOUT_POINTER: Final = (Carrier.BODY, *_OUTSIDE)
IN_BODY: Final = EnvelopePlace(carrier=Carrier.BODY)
"""The place without a route."""


def parse_place(text: str) -> EnvelopePlace:
    """Read a place as in a profile: a field of JSON, as in ``json:/meta/ref``, or a carrier.

    :raises ValueError: anything else.
    """
    if text.startswith(_JSON):
        return EnvelopePlace(carrier=Carrier.JSON, pointer=parse_pointer(text.removeprefix(_JSON)))
    if text in _WITHOUT_POINTER:
        return EnvelopePlace(carrier=Carrier(text))
    others = ", ".join(_WITHOUT_POINTER)
    raise ValueError(f"{text!r} is no place of an envelope: write json:/meta/ref, or {others}")


@record
class Route:
    """The topics of a route, and where its messages have their envelopes.

    :param input: the name of the topics that producers send to, with ``{topic}`` for the number of
        each.
    :param output: likewise the names of the topics that consumers read; an output may come on any
        of them.
    :param sent, received: the place in messages to the service, and in those of the service.
    """

    input: str
    output: tuple[str, ...]
    sent: EnvelopePlace = IN_BODY
    received: EnvelopePlace = IN_BODY

    @property
    def places(self) -> dict[str, EnvelopePlace]:
        """The places of both directions, by their keys in the profile."""
        return {"in": self.sent, "out": self.received}

    def input_name(self, topic: int) -> str:
        """Return the name of the topic that producers of this topic send to."""
        return self.input.replace(TOPIC, str(topic))

    def output_names(self, topic: int) -> tuple[str, ...]:
        """Return the names of the topics that consumers of this topic read."""
        return tuple(name.replace(TOPIC, str(topic)) for name in self.output)

    @property
    def text(self) -> str:
        """The names of the topics, for reports."""
        return f"{self.input} to {', '.join(self.output)}"
