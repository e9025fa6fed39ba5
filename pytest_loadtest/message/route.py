"""A route: the path of messages through a service under test, from the topics that producers send
to, to those that consumers read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pytest_loadtest.message.token import parse_pointer

if TYPE_CHECKING:
    from pytest_loadtest.message.token import Pointer

TOPIC: Final = "{topic}"
"""Stands for the number of the topic in the names of a route."""
BODY: Final = "body"
_JSON: Final = "json:"


def parse_place(text: str) -> Pointer | None:
    """Read where a message has its envelope: ``body``, at its beginning in binary form, which is
    None; or ``json:/meta/ref``, as a token in this field.

    :raises ValueError: anything else.
    """
    if text == BODY:
        return None
    if not text.startswith(_JSON):
        raise ValueError(f"{text!r} is no place of an envelope: write json:/meta/ref, or {BODY}")
    return parse_pointer(text.removeprefix(_JSON))


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """The topics of a route, and where its messages have their envelopes.

    :param input: the name of the topics that producers send to, with ``{topic}`` for the number of
        each.
    :param output: likewise the names of the topics that consumers read; an output may come on any
        of them.
    :param sent, received: the field that has the token in messages to the service and in those of
        the service; None: the binary envelope begins the body.
    """

    input: str
    output: tuple[str, ...]
    sent: Pointer | None = None
    received: Pointer | None = None

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
