"""Bodies of templates: rendered ahead, with fields that are filled in for each message."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.errors import UsageError
from pytest_loadtest.message.envelope import HEAD
from pytest_loadtest.message.route import Carrier, EnvelopePlace, parse_place
from pytest_loadtest.message.template import (
    WIDTHS,
    Filler,
    JsonShape,
    Pattern,
    check_pattern,
    render_template,
    with_head,
)
from pytest_loadtest.message.token import TOKEN, encode_tokens

ORDER = """\
{"meta": {"ref": "{{ envelope }}", "n": {{ seq }}, "at": "{{ intended }}"},
 "share": "{{ integer(1, 9) }}%", "of": "{{ pick("tea", "rice") }}", "note": "{{ text(20) }}"}
"""


def rendered(text: str, count: int = 1, seed: int = 7) -> tuple[Pattern, ...]:
    return render_template(text, "order.json", seed=seed, count=count)


def heads_of(seqs: list[int], intended: int = 0) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
    """Envelopes with these sequences; all else is zero."""
    heads = np.zeros((len(seqs), HEAD), np.uint8)
    heads.view("<i8")[:, 2] = seqs
    heads.view("<i8")[:, 3] = intended
    return heads


def filled(
    patterns: tuple[Pattern, ...], seqs: list[int], payload: list[int], wall: int = 0
) -> list[bytes]:
    filler = Filler(patterns)
    filler.wall = wall
    return filler.messages(heads_of(seqs), np.array(payload, np.uint16), None)


def test_a_message_has_its_fields_in_place_and_stays_json() -> None:
    wall = 1_764_194_246_531_729_000
    (message,) = filled(rendered(ORDER), [41], [0], wall)
    document = json.loads(message)
    assert document["meta"] == {
        "ref": encode_tokens(heads_of([41]))[0].decode(),
        "n": 41,
        "at": "2025-11-26T21:57:26.531729Z",
    }
    assert re.fullmatch("[1-9]%", document["share"])
    assert document["of"] in ("tea", "rice")
    assert re.fullmatch("[a-z]{20}", document["note"])


def test_all_messages_of_a_payload_have_one_size() -> None:
    patterns = rendered(ORDER)
    messages = filled(patterns, [0, 10**12], [0, 0])
    assert {len(message) for message in messages} == {patterns[0].size}


def test_milliseconds_and_keys_are_numbers() -> None:
    (pattern,) = rendered("[{{ intended_ms }}, {{ key }}]")
    filler = Filler([pattern])
    (message,) = filler.messages(
        heads_of([0], intended=1_764_194_246_531_729_000),
        np.zeros(1, np.uint16),
        np.array([12], np.int32),
    )
    assert json.loads(message) == [1_764_194_246_531, 12]


def test_payloads_differ_by_their_draws_and_follow_from_the_seed() -> None:
    patterns = rendered(ORDER, count=20)
    assert len(set(patterns)) > 15
    assert rendered(ORDER, count=20) == patterns
    assert rendered(ORDER, count=20, seed=8) != patterns
    # More payloads do not change the first ones.
    assert rendered(ORDER, count=30)[:20] == patterns


def test_templates_with_other_orders_of_fields_are_filled_each_in_its_own() -> None:
    patterns = (*rendered("{{ seq }}|{{ envelope }}"), *rendered("{{ envelope }}|{{ seq }}"))
    first, second, third = filled(patterns, [1, 2, 3], [0, 1, 0])
    assert first.split(b"|")[0].strip() == b"1"
    assert second.split(b"|")[1].strip() == b"2"
    assert third.split(b"|")[0].strip() == b"3"


def test_a_template_without_fields_is_sent_as_it_is() -> None:
    assert filled(rendered("100 % plain"), [1], [0]) == [b"100 % plain"]


def test_the_binary_envelope_begins_a_body_without_a_token() -> None:
    (pattern,) = rendered('{"n": {{ seq }}}')
    (message,) = filled((with_head(pattern),), [5], [0])
    assert message[:HEAD] == heads_of([5]).tobytes()
    assert json.loads(message[HEAD:]) == {"n": 5}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\n{{ unknown }}", r"order\.json:2: 'unknown' is undefined"),
        ("a\n\n{% if %}", r"order\.json:3: Expected an expression"),
        ("{{ seq + 1 }}", r"order\.json:1: .* are filled in for each message: write them alone"),
        ("a\n{{ integer(9, 1) }}", r"order\.json:2: nothing to draw from"),
        ("{{ pick() }}", r"order\.json:1: nothing to draw from"),
        ("{{ ''.__class__.__mro__ }}", r"order\.json:1: .*unsafe"),
    ],
)
def test_a_wrong_template_is_named_with_its_line(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        rendered(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"ref": {{ envelope }}', "renders no JSON"),
        ('{"other": "{{ envelope }}"}', r"/ref is not \{\{ envelope \}\}"),
        ('{"ref": "x{{ envelope }}"}', r"/ref is not \{\{ envelope \}\}"),
        ('{"ref": 5}', r"/ref is not \{\{ envelope \}\}"),
    ],
)
def test_a_template_must_have_the_token_in_its_field(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_pattern(rendered(text)[0], text, "order.json", parse_place("json:/ref"))


@pytest.mark.parametrize("place", ["body", "properties", "correlationData"])
def test_a_token_needs_a_field_of_the_route(place: str) -> None:
    text = "{\n  {{ seq }}, {{ envelope }}\n}"
    message = rf"order.json:2: has {{{{ envelope }}}}, and the envelope is in {place}: remove it"
    with pytest.raises(UsageError, match=message):
        check_pattern(rendered(text)[0], text, "order.json", parse_place(place))
    check_pattern(rendered("no token")[0], "no token", "order.json", parse_place(place))


def test_numbers_are_numbers_of_the_example() -> None:
    check_pattern(rendered(ORDER)[0], ORDER, "order.json", parse_place("json:/meta/ref"))


def test_a_token_may_stand_in_a_list() -> None:
    text = '[1, "{{ envelope }}"]'
    check_pattern(rendered(text)[0], text, "order.json", parse_place("json:/1"))


@given(
    pointer=st.lists(st.text(max_size=8), min_size=1, max_size=4).map(tuple),
    size=st.integers(0, 400),
    padding=st.integers(0, 400),
)
def test_a_message_without_a_template_is_json_of_its_size_with_the_token_at_the_pointer(
    pointer: tuple[str, ...], size: int, padding: int
) -> None:
    shape = JsonShape(pointer)
    pattern = shape.pattern(size, b"x" * padding)
    check_pattern(pattern, "", "a", EnvelopePlace(carrier=Carrier.JSON, pointer=pointer))
    message = pattern.filled({"envelope": b"~" * TOKEN})
    assert len(message) == pattern.size == max(size, shape.smallest)


def test_each_field_has_its_width() -> None:
    text = "|".join(f"{{{{ {name} }}}}" for name in WIDTHS if name != "head")
    (message,) = filled(rendered(text), [3], [0], 10**18)
    widths = [len(part) for part in message.split(b"|")]
    assert widths == [width for name, width in WIDTHS.items() if name != "head"]
