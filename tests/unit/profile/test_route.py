"""The section ``route``, and keys that it cannot be combined with."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
import yaml

from pytest_loadtest import profile
from pytest_loadtest.commands.starter import schema_text
from pytest_loadtest.errors import ProfileError, UsageError
from pytest_loadtest.kinds.registry import kinds
from pytest_loadtest.message.route import IN_BODY, Carrier, EnvelopePlace, Route

SCHEMA = jsonschema.Draft202012Validator(json.loads(schema_text("profile")))
TEXT = """
name: Orders are confirmed
topics: 4
route:
  input: shop/orders/{topic}
  output: shop/confirmed/{topic}
  envelope: {in: "json:/meta/ref", out: "json:/order/ref"}
messageSize: 300
producerRate: 500
testDuration: 5s
driver: {name: mqtt}
"""


def wrong(*changes: tuple[str, str], more: str = "") -> str:
    text = TEXT
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    with pytest.raises(ProfileError) as error:
        profile.loads(text + more, "p.yaml")
    return str(error.value)


def test_a_route_has_topics_and_places_of_envelopes() -> None:
    loaded = profile.loads(TEXT, "p.yaml")
    assert loaded.route is not None
    assert loaded.route.route() == Route(
        input="shop/orders/{topic}",
        output=("shop/confirmed/{topic}",),
        sent=EnvelopePlace(carrier=Carrier.JSON, pointer=("meta", "ref")),
        received=EnvelopePlace(carrier=Carrier.JSON, pointer=("order", "ref")),
    )
    assert SCHEMA.is_valid(yaml.safe_load(TEXT))


def test_one_place_is_that_of_both_directions() -> None:
    text = TEXT.replace('{in: "json:/meta/ref", out: "json:/order/ref"}', "json:/ref")
    route = profile.loads(text, "p.yaml").route
    assert route is not None
    assert str(route.route().sent) == str(route.route().received) == "json:/ref"
    assert SCHEMA.is_valid(yaml.safe_load(text))


def test_without_a_place_the_envelope_begins_the_body() -> None:
    lines = [line for line in TEXT.splitlines() if "envelope" not in line]
    loaded = profile.loads("\n".join(lines), "p.yaml")
    assert loaded.route is not None
    assert loaded.route.route().received == loaded.sent_place == IN_BODY


def placed(place: str, *changes: tuple[str, str]) -> str:
    text = TEXT.replace('{in: "json:/meta/ref", out: "json:/order/ref"}', place)
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


def test_an_envelope_may_be_outside_of_the_body() -> None:
    text = placed("{in: properties, out: correlationData}", ("300", "1"))
    loaded = profile.loads(text, "p.yaml")
    assert loaded.route is not None
    assert loaded.route.route().places == {
        "in": EnvelopePlace(carrier=Carrier.PROPERTIES),
        "out": EnvelopePlace(carrier=Carrier.CORRELATION_DATA),
    }
    assert SCHEMA.is_valid(yaml.safe_load(text))


def test_places_that_messages_of_the_broker_do_not_have_are_rejected() -> None:
    """The error has the line, the places that the broker has, and the brokers that have this one."""
    names = [("shop/orders/", "orders-"), ("shop/confirmed/", "done-"), ("mqtt", "pulsar")]
    with pytest.raises(ProfileError) as error:
        profile.loads(placed('{in: "json:/a", out: correlationData}', *names), "p.yaml")
    assert str(error.value) == (
        "p.yaml:7:34: route.envelope.out: messages of Pulsar have no correlationData"
        " (write body or json or properties, or driver: {name: mqtt} or driver: {name: loopback})"
    )


@pytest.mark.parametrize("place", ["properties", "correlationData"])
def test_mqtt_3_1_1_has_bodies_alone(place: str) -> None:
    old = ("{name: mqtt}", '{name: mqtt, protocolVersion: "3.1.1"}')
    with pytest.raises(ProfileError) as error:
        profile.loads(placed(place, old), "p.yaml")
    for key in ("in", "out"):
        message = f"p.yaml:7:13: route.envelope.{key}: MQTT 3.1.1 has no {place}"
        assert f'{message} (write json:/meta/ref, or protocolVersion: "5")' in str(error.value)


def test_a_list_names_several_outputs_of_a_topic() -> None:
    text = TEXT.replace("shop/confirmed/{topic}", "['yes/{topic}', 'no/{topic}']")
    route = profile.loads(text, "p.yaml").route
    assert route is not None
    assert route.output == ("yes/{topic}", "no/{topic}")
    assert SCHEMA.is_valid(yaml.safe_load(text))


def test_a_route_is_kept_in_the_document_of_the_profile() -> None:
    loaded = profile.loads(TEXT, "p.yaml")
    document = json.loads(json.dumps(loaded.document()))
    assert document["route"]["envelope"] == {"in": "json:/meta/ref", "out": "json:/order/ref"}
    assert profile.from_document(document) == loaded


def test_messages_of_others_on_the_topics_are_not_judged() -> None:
    names = {objective.name for objective in profile.loads(TEXT, "p.yaml").objectives}
    assert "foreign" not in names


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ([("orders/{topic}", "orders")], "'shop/orders' is one topic, but topics is 4"),
        ([("confirmed/{topic}", "confirmed")], "'shop/confirmed' is one topic, but topics is 4"),
        (
            [("orders/{topic}", "orders"), ("topics: 4", "scalable: [topics]")],
            "route.input: 'shop/orders' is one topic, but scalable allows more (write {topic} for the number of the topic, or remove topics from scalable)",
        ),
        ([("confirmed", "orders")], "is the input, so the run would receive its own messages"),
        ([("shop/confirmed/{topic}", "[]")], "route.output is empty"),
        ([("shop/confirmed/{topic}", "['a/{topic}', b]")], "'b' is one topic, but topics is 4"),
        ([("shop/confirmed/{topic}", "['a/{topic}', 'a/{topic}']")], "'a/0' is there twice"),
        ([("shop/confirmed/{topic}", "[a, a]"), ("topics: 4", "topics: 1")], "'a' is there twice"),
        ([("shop/confirmed/{topic}", "['a/{topic}', 'shop/orders/{topic}']")], "is the input, so"),
        (
            [("shop/confirmed/{topic}", "['a{topic}1', 'a{topic}']"), ("s: 4", "s: 30")],
            "'a11' is there",
        ),
        ([("shop/confirmed/{topic}", "shop/+/{topic}")], "'shop/+/{topic}' has a wildcard"),
        ([("shop/orders/{topic}", "shop/#{topic}")], "route.input: 'shop/#{topic}' has a wildcard"),
        ([("json:/meta/ref", "/meta/ref")], "'/meta/ref' is no place of an envelope"),
        ([("300", "79")], "79 B is below the 80 B that JSON with a token needs"),
        (
            [("json:/meta/ref", "body"), ("300", "31")],
            "31 B is below the 32 B that a body with an envelope needs",
        ),
    ],
)
def test_a_route_that_cannot_work_is_rejected(changes: list[tuple[str, str]], message: str) -> None:
    assert message in wrong(*changes)


@pytest.mark.parametrize(
    "key",
    [
        "checksum: true",
        "deliverAfter: 5s",
        "deliverAt: 5s",
        "consumerBacklogSizeGB: 1",
        "partitionsPerTopic: 2",
        "messages: 0",
        "producersPerTopic: 0",
        "subscriptionsPerTopic: 0",
        "subscriptionsPerTopic: 64",
        "consumerPerSubscription: 0",
    ],
)
def test_a_key_that_a_service_makes_meaningless_is_rejected(key: str) -> None:
    name = key.partition(":")[0]
    assert f"{name}: cannot be combined with route" in wrong(more=key + "\n")


def test_a_rate_in_bytes_is_rejected() -> None:
    """The bytes offered are those of inputs, the bytes delivered those of outputs."""
    assert "producerRate: cannot be combined with route" in wrong(("500", "1MB/s"))


def test_an_existing_topic_excludes_a_route() -> None:
    assert "topic: cannot be combined with route" in wrong(("topics: 4", "topic: a/b"))


def test_a_file_of_payloads_excludes_json() -> None:
    assert "the body is JSON with a token" in wrong(more="payloadFile: a.bin\n")


def test_a_size_range_needs_room_for_the_token() -> None:
    distribution = 'messageSizeDistribution: {"64-90": 1}'
    text = wrong(("messageSize: 300", distribution))
    assert "size range '64-90' has payloads of 77 B, below the 80 B that JSON" in text


def test_a_compact_envelope_reaches_a_service_of_the_target_only() -> None:
    """It is that of bodies below 32 bytes; the loopback's service sends each body on unchanged."""
    document = "name: p\nproducerRate: 10\nmessageSize: 20\ntestDuration: 1s\nroute: {input: a, output: b}\n"
    assert (
        profile.loads(document + "driver: {name: loopback, service: {}}\n", "p.yaml").message_size
        == 20
    )
    with pytest.raises(ProfileError, match="messageSize: 20 B is below the 32 B"):
        profile.loads(document + "driver: {name: mqtt}\n", "p.yaml")


TEMPLATE = """
payload:
  pool: 3
  template: |
    {"meta": {"ref": "{{ envelope }}"}, "amount": {{ integer(1, 9) }}}
"""


def templated(more: str = TEMPLATE) -> str:
    return TEXT.replace("messageSize: 300\n", "") + more


def test_a_template_stands_in_the_profile_or_in_a_file() -> None:
    in_place = profile.loads(templated(), "p.yaml").payload
    assert in_place is not None
    assert in_place.in_place
    named = profile.loads(templated("payload: {template: order.json}\n"), "p.yaml").payload
    assert named is not None
    assert (named.in_place, named.weights, named.pool) == (False, {"order.json": 1}, 100)
    assert SCHEMA.is_valid(yaml.safe_load(templated()))


def test_files_of_templates_are_read_next_to_the_profile(tmp_path: Path) -> None:
    weights = "payload: {templates: {order.json: 3, cancel.json: 1}}\n"
    loaded = profile.loads(templated(weights), "p.yaml")
    path = tmp_path / "p.yaml"
    path.write_text(templated(weights))
    (tmp_path / "order.json").write_text("order")
    with pytest.raises(UsageError, match=r"payload\.templates cancel\.json does not exist"):
        profile.payload_files(loaded, path, tmp_path)
    (tmp_path / "cancel.json").write_text("cancel")
    assert profile.payload_files(loaded, path, tmp_path) == {
        "order.json": b"order",
        "cancel.json": b"cancel",
    }


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("payload: {pool: 3}\n", "payload: has no template"),
        ("payload: {templates: {a.json: 0}}\n", "no weight is above 0"),
        (TEMPLATE + "messageSize: 300\n", "messageSize: has no effect, because payload makes"),
        (TEMPLATE + "randomBytesRatio: 0.5\n", "randomBytesRatio: has no effect"),
        ("payload: {template: a, templates: {a: 1}}\n", "exclude each other"),
    ],
)
def test_a_payload_that_cannot_work_is_rejected(more: str, message: str) -> None:
    with pytest.raises(ProfileError, match=message):
        profile.loads(templated(more), "p.yaml")


def test_sizes_of_a_stage_are_rejected_beside_templates() -> None:
    stages = 'stages: [{duration: 5s, messageSizeDistribution: {"100-200": 1}}]\n'
    text = templated(TEMPLATE + stages).replace("testDuration: 5s\n", "")
    with pytest.raises(ProfileError, match="messageSizeDistribution: has no effect, because"):
        profile.loads(text, "p.yaml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TEXT, "the driver mqtt cannot send through a service (write driver: {name: pulsar or "),
        (
            "name: a\nproducerRate: 5\ntestDuration: 5s\ndriver: {name: mqtt}\n" + TEMPLATE,
            "the driver mqtt cannot send messages of a template",
        ),
    ],
)
def test_a_driver_without_the_capability_rejects_services(
    monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    known = kinds()
    clients = {
        name: replace(client, envelopes={}) for name, client in known["mqtt"].clients.items()
    }
    monkeypatch.setitem(known, "mqtt", replace(known["mqtt"], clients=clients))
    with pytest.raises(ProfileError) as error:
        profile.loads(text, "p.yaml")
    assert message in str(error.value)


def test_aliases_of_topics_exclude_several_outputs() -> None:
    """A consumer would not know on which topic a message came."""
    aliased = ("{name: mqtt}", "{name: mqtt, topicAliasMaximum: 5}")
    text = wrong(("shop/confirmed/{topic}", "['yes/{topic}', 'no/{topic}']"), aliased)
    assert "topicAliasMaximum: order is judged for each topic of route.output" in text
    profile.loads(TEXT.replace(*aliased), "p.yaml")


def test_several_outputs_are_due_for_each_input() -> None:
    loaded = profile.loads(TEXT.replace("  envelope", "  outputs: 3\n  envelope"), "p.yaml")
    assert loaded.route is not None
    assert loaded.route.outputs == 3


@pytest.mark.parametrize("number", ["0", "17", "1.5"])
def test_a_number_of_outputs_that_cannot_be_counted_is_rejected(number: str) -> None:
    assert "route.outputs" in wrong(("  envelope", f"  outputs: {number}\n  envelope"))


CHOSEN = ("  envelope", "  outputs: {share: 20%, within: 1%}\n  envelope")


def test_a_service_may_choose_which_inputs_have_an_output() -> None:
    text = TEXT.replace(*CHOSEN)
    loaded = profile.loads(text, "p.yaml")
    assert loaded.route is not None
    assert loaded.route.choice is not None
    assert (loaded.route.choice.share, loaded.route.choice.within, loaded.route.due) == (
        0.2,
        0.01,
        1,
    )
    assert SCHEMA.is_valid(yaml.safe_load(text))
    assert profile.from_document(json.loads(json.dumps(loaded.document()))) == loaded


def test_the_share_replaces_objectives_on_what_was_due() -> None:
    objectives = {
        one.name: one for one in profile.loads(TEXT.replace(*CHOSEN), "p.yaml").objectives
    }
    share = objectives["outputShare"]
    assert share.minimum == pytest.approx(0.19)
    assert share.maximum == pytest.approx(0.21)
    assert not {"loss", "throughput"} & objectives.keys()
    assert {"corrupt", "silent", "sent"} <= objectives.keys()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("slo: {loss: 1%}", "slo.loss: a lost output cannot be told from one that was not chosen"),
        ("slo: {throughput: 10%}", "slo.throughput: a lost output cannot be told from"),
        ("scaled: {slo: {loss: 1}}", "scaled.slo.loss: a lost output cannot"),
        ("slo: {drift: {throughput: 5%}}", "throughput: a lost output cannot be told from"),
        ("slo: {outputShare: 20%}", "outputShare: follows from route.outputs"),
        ("abort: {endToEndLatency.p99: 5s, for: 5s}", "abort.endToEndLatency.p99: counts outputs"),
    ],
)
def test_what_needs_the_outputs_due_excludes_a_service_that_chooses(
    more: str, message: str
) -> None:
    assert message in wrong(CHOSEN, more=more + "\n")


def test_a_search_excludes_a_service_that_chooses() -> None:
    text = wrong(CHOSEN, ("producerRate: 500", "producerRate: 0"), ("testDuration: 5s\n", ""))
    assert "a search needs to know which outputs are due" in text


def test_a_share_without_a_service_that_chooses_is_no_objective() -> None:
    assert "outputShare: follows from route.outputs" in wrong(more="slo: {outputShare: 20%}\n")


@pytest.mark.parametrize("share", ["0%", "100%", "20"])
def test_a_share_is_above_none_and_below_all(share: str) -> None:
    chosen = f"  outputs: {{share: {share}, within: 1%}}\n  envelope"
    assert "route.outputs" in wrong(("  envelope", chosen))
