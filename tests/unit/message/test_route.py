"""The topics of a route, and the places of envelopes."""

from __future__ import annotations

import pytest

from pytest_loadtest.message.route import IN_BODY, Carrier, EnvelopePlace, Route, parse_place


def test_the_number_of_the_topic_takes_its_place_in_the_names() -> None:
    route = Route(input="shop/{topic}/in", output=("done/{topic}",))
    assert route.input_name(3) == "shop/3/in"
    assert route.output_names(3) == ("done/3",)


def test_names_without_a_place_for_the_number_stay() -> None:
    route = Route(input="in", output=("{other}",))
    assert route.input_name(0) == "in"
    assert route.output_names(0) == ("{other}",)


def test_each_of_several_outputs_has_the_number_of_the_topic() -> None:
    route = Route(input="in/{topic}", output=("yes/{topic}", "no/{topic}"))
    assert route.output_names(2) == ("yes/2", "no/2")
    assert route.text == "in/{topic} to yes/{topic}, no/{topic}"


def test_places_of_envelopes_are_the_body_or_a_field_of_json() -> None:
    assert parse_place("body") == IN_BODY
    field = EnvelopePlace(carrier=Carrier.JSON, pointer=("meta", "ref"))
    assert parse_place("json:/meta/ref") == field


@pytest.mark.parametrize("text", ["body", "json:/meta/ref", "json:/a~1b/c~0d"])
def test_a_place_is_written_as_it_is_read(text: str) -> None:
    assert str(parse_place(text)) == text


@pytest.mark.parametrize("text", ["", "json", "/meta/ref", "json:meta"])
def test_any_other_place_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="write json:/meta/ref|write /meta/ref"):
        parse_place(text)
