"""Checks of the keys for a service under test: ``route`` and ``payload``.

The rule: what a run does at a broker of its own, and cannot do through a service, is an error
together with ``route``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from pytest_loadtest.errors import Problem
from pytest_loadtest.kinds.registry import kinds
from pytest_loadtest.message.envelope import HEAD
from pytest_loadtest.message.route import TOPIC, Carrier
from pytest_loadtest.message.samples import WIDTH
from pytest_loadtest.message.template import JsonShape
from pytest_loadtest.profile.fields import spelling
from pytest_loadtest.profile.judging import bounding
from pytest_loadtest.profile.model import choose_client
from pytest_loadtest.profile.traffic import small_sizes
from pytest_loadtest.verdict.abort import LATENCY
from pytest_loadtest.verdict.grammar import OUTPUT_SHARE
from pytest_loadtest.verdict.objectives import UNKNOWN_OF_CHOICE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_loadtest.errors import Path
    from pytest_loadtest.profile.model import Profile
    from pytest_loadtest.profile.sections import RouteSection


def named_topics(route: RouteSection) -> list[tuple[Path, str]]:
    """Return the names of a route's topics, each with its path in the profile."""
    names: list[tuple[Path, str]] = [(("route", "input"), route.input)]
    for place, name in enumerate(route.output):
        path: Path = ("route", "output", place) if len(route.output) > 1 else ("route", "output")
        names.append((path, name))
    return names


def _names(profile: Profile) -> Iterator[Problem]:
    route = profile.route
    if route is None:
        return
    single = [(path, name) for path, name in named_topics(route) if TOPIC not in name]
    number = f"topics is {profile.topics}"
    other = "topics: 1"
    if profile.topics == 1:
        number = "scalable allows more"
        other = "remove topics from scalable"
    if single and (profile.topics > 1 or "topics" in profile.scalable):
        for path, name in single:
            message = f"route.{path[1]}: {name!r} is one topic, but {number}"
            remedy = f"write {TOPIC} for the number of the topic, or {other}"
            yield Problem(path, message, remedy)
        return
    yield from repeated_topics(route, profile.topics, str)


def repeated_topics(
    route: RouteSection, topics: int, full_name: Callable[[str], str]
) -> Iterator[Problem]:
    """Yield a problem if an output is one of the inputs, or the same topic as another output.

    Different names can be one topic: ``a{topic}1`` of topic 2, and ``a{topic}`` of topic 21.

    :param full_name: completes a name as the broker does.
    """
    named = route.route()
    paths = [path for path, _ in named_topics(route)[1:]]
    inputs = {full_name(named.input_name(topic)) for topic in range(topics)}
    outputs = set()
    for topic in range(topics):
        for path, output in zip(paths, named.output_names(topic), strict=True):
            name = full_name(output)
            if name in inputs:
                message = "route.output: is the input, so the run would receive its own messages"
                yield Problem(path, message, "write the topics that the service sends to")
                return
            if name in outputs:
                message = f"route.output: {output!r} is there twice"
                yield Problem(path, message, "write each topic once")
                return
            outputs.add(name)


def _choice(profile: Profile) -> Iterator[Problem]:
    """Reject what asks for outputs that a service may or may not have chosen to send."""
    chosen = profile.route is not None and profile.route.choice is not None
    for path, slo in bounding(profile):
        if OUTPUT_SHARE in slo:
            remedy = "write route: {outputs: {share: 20%, within: 1%}}"
            problem = Problem(
                (*path, OUTPUT_SHARE), "follows from route.outputs", remedy, at_key=True
            )
            yield problem.named()
        if chosen:
            yield from _of_unknown_due(path, slo)
    if not chosen:
        return
    if profile.peak_search:
        message = "producerRate: a search needs to know which outputs are due, and the service"
        remedy = "write a rate, or a number as route.outputs"
        yield Problem(("producerRate",), f"{message} chooses", remedy)
    for key in profile.abort.written if profile.abort is not None else ():
        if key.startswith(LATENCY):
            message = f"abort.{key}: counts outputs that are due, and the service chooses"
            remedy = "remove it, or write a number as route.outputs"
            yield Problem(("abort", key), message, remedy, at_key=True)


def _of_unknown_due(path: Path, slo: Mapping[str, object]) -> Iterator[Problem]:
    parts: list[tuple[Path, object]] = [(path, slo), ((*path, "drift"), slo.get("drift"))]
    buckets = slo.get("buckets")
    if isinstance(buckets, dict):
        parts += [((*path, "buckets", name), bucket) for name, bucket in buckets.items()]
    for place, part in parts:
        for metric in UNKNOWN_OF_CHOICE:
            if isinstance(part, Mapping) and metric in part:
                message = "a lost output cannot be told from one that was not chosen"
                remedy = "remove it: route.outputs.within bounds the share"
                yield Problem((*place, metric), message, remedy, at_key=True).named()


_BESIDE_TEMPLATES: Final = (
    "message_size",
    "message_size_distribution",
    "payload_file",
    "payloads_per_bucket",
    "use_randomized_payloads",
    "random_bytes_ratio",
    "randomized_payload_pool_size",
    "checksum",
)
"""Keys of sizes and bodies, which templates decide."""
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
    "producerRate": (
        "a rate in bytes says nothing about messages of the service: write messages per second",
        lambda profile: profile.in_bytes,
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
    able = []
    for other in kinds().values():
        if any(client.envelopes for client in other.clients.values()):
            able.append(other.name)
    kind = profile.driver.kind
    if kind.name in able:
        return
    remedy = f"write driver: {{name: {' or '.join(able)}}}"
    if profile.route is not None:
        message = f"route: the driver {kind.name} cannot send through a service"
        yield Problem(("route",), message, remedy, at_key=True)
    if profile.payload is not None:
        message = f"payload: the driver {kind.name} cannot send messages of a template"
        yield Problem(("payload",), message, remedy, at_key=True)


def _places(profile: Profile) -> Iterator[Problem]:
    """Reject places of the envelope that messages of the driver do not have."""
    if profile.route is None:
        return
    kind = profile.driver.kind
    known = kind.clients[choose_client(profile).client].envelopes
    if not known:
        return
    for key, place in profile.route.route().places.items():
        if place.carrier in known:
            continue
        able = []
        for other in kinds().values():
            if any(place.carrier in client.envelopes for client in other.clients.values()):
                able.append(f"driver: {{name: {other.name}}}")
        message = f"route.envelope.{key}: messages of {kind.label} have no {place}"
        remedy = f"write {' or '.join(known)}, or {' or '.join(able)}"
        yield Problem(("route", "envelope", key), message, remedy)


def _templates(profile: Profile) -> Iterator[Problem]:
    payload = profile.payload
    if payload is None:
        return
    if payload.template is None and not payload.templates:
        message = "payload: has no template"
        yield Problem(("payload",), message, "write template: order.json", at_key=True)
    if payload.templates and not any(payload.templates.values()):
        message = "payload.templates: no weight is above 0"
        yield Problem(("payload", "templates"), message, "write weights, as in {order.json: 3}")
    for index, stage in enumerate(profile.stages):
        if stage.message_size_distribution is not None:
            key = "messageSizeDistribution"
            message = f"{key}: has no effect, because payload makes the messages"
            yield Problem(("stages", index, key), message, "remove it", at_key=True)
    for key in _BESIDE_TEMPLATES:
        if key in profile.model_fields_set:
            message = f"{spelling(key)}: has no effect, because payload makes the messages"
            yield Problem((spelling(key),), message, "remove it, or payload", at_key=True)


def _sizes(profile: Profile) -> Iterator[Problem]:
    """Reject sizes without room for what carries the token, or for the full form of the envelope:
    in the compact one a service's own body cannot be told from the rest of a full one.
    """
    place = profile.sent_place
    if profile.payload is not None:
        return
    if place.carrier is Carrier.JSON:
        least = JsonShape(place.pointer).smallest
        reason = "JSON with a token needs"
    elif place.carrier is Carrier.BODY and profile.has_service:
        least = HEAD
        reason = "a body with an envelope needs"
    else:
        return
    yield from small_sizes(profile, least, reason)
    if profile.payload_file is not None and place.carrier is Carrier.JSON:
        message = "payloadFile: the body is JSON with a token (route.envelope)"
        yield Problem(("payloadFile",), message, "write messageSize alone", at_key=True)


CHECKS: tuple[Callable[[Profile], Iterator[Problem]], ...] = (
    _names,
    _choice,
    _excluded,
    _client,
    _places,
    _templates,
    _sizes,
)
