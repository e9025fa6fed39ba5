"""The ``route`` section of a profile and its checks.

The rule: what a run does at a broker of its own, and cannot do through a service, is an error
together with ``route``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, Field

from pytest_loadtest.errors import Problem
from pytest_loadtest.kinds.registry import kinds
from pytest_loadtest.message.route import BODY, TOPIC, Route, parse_place
from pytest_loadtest.message.samples import WIDTH
from pytest_loadtest.profile import traffic
from pytest_loadtest.profile.fields import Section, invalid_field

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_loadtest.profile.model import Profile


def _place(value: str) -> str:
    try:
        parse_place(value)
    except ValueError as error:
        raise invalid_field(*str(error).split(": ", 1)) from None
    return value


def _both(value: object) -> object:
    """Return the section that one place for both directions means."""
    return {"in": value, "out": value} if isinstance(value, str) else value


Place = Annotated[str, AfterValidator(_place)]


class EnvelopeSection(Section):
    """Where messages have their envelopes, which the service copies from its input to its output."""

    in_: Place = Field(default=BODY, alias="in")
    """In messages to the service: json:/meta/ref, a token in this field of JSON; or body, the
    binary envelope at the beginning (default)."""
    out: Place = BODY
    """In messages of the service: likewise."""


class RouteSection(Section):
    """The path of messages through a service under test."""

    input: str = Field(min_length=1)
    """Topics that producers send to, and the service reads; {topic} is the number of each."""
    output: str = Field(min_length=1)
    """Topics that the service sends to, and the run's consumers read: one message for each message
    of the input topic with the same number."""
    envelope: Annotated[
        EnvelopeSection, BeforeValidator(_both, json_schema_input_type=Place | EnvelopeSection)
    ] = EnvelopeSection()
    """Where messages have their envelopes; one place for both directions, or {in: …, out: …}."""

    def route(self) -> Route:
        """Return the route for planning and drivers."""
        return Route(
            input=self.input,
            output=self.output,
            sent=parse_place(self.envelope.in_),
            received=parse_place(self.envelope.out),
        )


def _names(profile: Profile) -> Iterator[Problem]:
    route = profile.route
    if route is None:
        return
    names: dict[str, str] = {"input": route.input, "output": route.output}
    for key, name in names.items():
        if profile.topics > 1 and TOPIC not in name:
            message = f"route.{key}: {name!r} is one topic, but topics is {profile.topics}"
            remedy = f"write {TOPIC} for the number of the topic, or topics: 1"
            yield Problem(("route", key), message, remedy)
    if route.input == route.output:
        message = "route.output: is the input, so the run would receive its own messages"
        yield Problem(("route", "output"), message, "write the topics that the service sends to")


_EXCLUDED: Final[dict[str, tuple[str, Callable[[Profile], Any]]]] = {
    "topic": ("names a topic of its own", lambda profile: profile.topic),
    "deliverAfter": ("a service decides when it sends", lambda profile: profile.deliver_after),
    "deliverAt": ("a service decides when it sends", lambda profile: profile.deliver_at),
    "consumerBacklogSizeGB": (
        "the service would take the backlog",
        lambda profile: profile.consumer_backlog_size_gb,
    ),
    "checksum": ("the service changes the body", lambda profile: profile.checksum),
    "partitionsPerTopic": (
        "the topics have the partitions that they have",
        lambda profile: profile.partitions_per_topic > 1,
    ),
    "messages": ("messages: 0 sends none", lambda profile: profile.messages == 0),
    "producersPerTopic": (
        "without producers nothing comes through the service",
        lambda profile: profile.consumer_only,
    ),
    "subscriptionsPerTopic": (
        f"0, and {WIDTH} or more (a broadcast), are for a broker alone",
        lambda profile: profile.subscriptions_per_topic == 0 or profile.broadcasts,
    ),
    "consumerPerSubscription": (
        "without consumers nothing is known of the service",
        lambda profile: profile.consumer_per_subscription == 0,
    ),
}
"""Key → why it cannot be combined with a route, and whether the profile has it."""


def _excluded(profile: Profile) -> Iterator[Problem]:
    if profile.route is None:
        return
    for key, (why, has) in _EXCLUDED.items():
        if has(profile):
            message = f"{key}: cannot be combined with route: {why}"
            yield Problem((key,), message, f"remove {key}, or route", at_key=True)


def _client(profile: Profile) -> Iterator[Problem]:
    kind = profile.driver.kind
    if profile.route is None or any(client.routes for client in kind.clients.values()):
        return
    able = [
        other.name
        for other in kinds().values()
        if any(client.routes for client in other.clients.values())
    ]
    message = f"route: the driver {kind.name} cannot send through a service"
    remedy = f"write driver: {{name: {' or '.join(able)}}}"
    yield Problem(("route",), message, remedy, at_key=True)


def _sizes(profile: Profile) -> Iterator[Problem]:
    """Reject sizes without room for the JSON that carries the token."""
    shape = profile.json_shape
    if shape is None:
        return
    least = shape.smallest
    reason = "JSON with a token needs"
    if profile.message_size is not None and profile.message_size < least:
        message = f"messageSize: {profile.message_size} B is below the {least} B that {reason}"
        yield Problem(("messageSize",), message, f"write {least} or more")
    for sizes in traffic.distributions(profile):
        for bucket in sizes.buckets:
            if bucket.low < least:
                message = f"size range {bucket.name!r} has sizes below the {least} B that {reason}"
                yield Problem((*sizes.path, bucket.name), message, f"begin it at {least}")
    if profile.payload_file is not None:
        message = "payloadFile: the body is JSON with a token (route.envelope)"
        yield Problem(("payloadFile",), message, "write messageSize alone", at_key=True)


CHECKS: tuple[Callable[[Profile], Iterator[Problem]], ...] = (_names, _excluded, _client, _sizes)
