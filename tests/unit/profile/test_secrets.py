"""Secrets of a profile are never shown, whatever is wrong with it."""

from __future__ import annotations

import json
import traceback
from typing import Any

import pytest
from builders.plans import HERE, made
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest import profile
from pytest_loadtest.brokers.base import BrokerFacts
from pytest_loadtest.drivers import planned_facts
from pytest_loadtest.errors import UsageError
from pytest_loadtest.metrics.catalogue import OBJECTIVES
from pytest_loadtest.profile.omb_driver import read_driver
from pytest_loadtest.profile.overrides import overridden, varied
from pytest_loadtest.profile.parse import Readers
from pytest_loadtest.profile.secrets import may_hold_secret, secret
from pytest_loadtest.report.plan import plan_table

HEAD = "name: a\nproducerRate: 1\ntestDuration: 1s\nmessageSize: 100\n"
MQTT = HEAD + "driver: {name: mqtt}\n"
S = "hunter2hunter2"


def planned(found: profile.Profile) -> list[str]:
    """What --load-plan says; nothing where the profile is not one that runs."""
    try:
        return plan_table(made(found), planned_facts(found), HERE)
    except UsageError as error:
        return traceback.format_exception(error)


def said_of(text: str) -> str:
    """All that a profile's text brings to light: its problems with their traceback, or its document, repr and plan."""
    try:
        found = profile.loads(text, "p.yaml")
    except UsageError as error:
        return "".join(traceback.format_exception(error)) + repr(error)
    return json.dumps(found.document()) + repr(found) + "\n".join(planned(found))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "driver: {name: mqtt, password: 90210731}",
            "p.yaml:5:32: driver.password: a number is not text (put it in quotes)",
        ),
        (
            "driver: {name: mqtt, password: 0123}",
            "p.yaml:5:32: driver.password: YAML reads it as a number (put it in quotes)",
        ),
        (
            "driver: {name: mqtt, password: yes}",
            "p.yaml:5:32: driver.password: YAML reads it as true or false (put it in quotes)",
        ),
        ("driver: {name: mqtt, password: [a]}", "p.yaml:5:32: driver.password: a list is not text"),
        (
            "driver: {name: mqtt, password: !x a}",
            "p.yaml:5:32: driver.password: a tag is not allowed (remove it)",
        ),
        (
            "driver: {name: mqtt, password: !!int x}",
            "p.yaml:5:32: driver.password: the value is not what its tag says (remove the tag)",
        ),
        (
            "driver: {name: pulsar, authentication: 'token:x'}",
            "p.yaml:5:40: driver.authentication: text is not a mapping",
        ),
        (
            "driver: {name: mqtt, pasword: x}",
            "p.yaml:5:22: unknown key 'pasword' (did you mean password?)",
        ),
        (
            "driver: {name: pulsar, authentication: {plugin: tokn, token: x}}",
            "p.yaml:5:49: driver.authentication.plugin: 'tokn' is not a valid value (did you mean token?)",
        ),
        (
            "driver: {name: pulsar, authentication: {plugin: 'token:x'}}",
            "p.yaml:5:49: driver.authentication.plugin: the value is not a valid value (known: token, basic, oauth2, tls)",
        ),
        (
            "driver: {name: pulsar, authentication: {tokenFile: 7}}",
            "p.yaml:5:52: driver.authentication.tokenFile: 7 is not text",
        ),
        (
            "driver: {name: mqtt, username: 7}",
            'p.yaml:5:32: driver.username: 7 is not text (quote it: "7")',
        ),
    ],
)
def test_an_error_has_the_type_instead_of_a_secret(text: str, problem: str) -> None:
    """Other values are shown."""
    assert problem in said_of(HEAD + text)


@pytest.mark.parametrize(
    "text",
    [
        f"driver: {{name: pulsar, authentication: {{token:{S}}}}}",
        f"driver: {{name: pulsar, authentication: {{{S}: 1}}}}",
        f"driver: {{name: mqtt, password:{S}}}",
        f"driver:\n  name: mqtt\n  password={S}",
        f"driver:\n  name: mqtt password={S}",
        f"driver: {{name: mqtt, password: @{S}}}",
        f"driver: {{name: mqtt, password: *{S}}}",
        f"driver: {{name: mqtt, password: &{S} {S}}}",
        f"driver: {{name: mqtt, password: !{S} x}}",
        f"driver:\n  name: mqtt\n  password: >{S}",
        f"driver:\n  name: mqtt\n  password:\n    %{S}",
        f"driver:\n  name: mqtt\n  password: |\n    {S}\n @{S}",
        f"driver: {{name: mqtt, password: {S}, password: {S}}}",
        f"driver: {{name: mqtt, passwort: [{S}]}}",
        f"driver: {{name: mqtt, brokerPasword: {S}}}",
        f"driver: {{name: pulsar, authParams: 'token:{S}'}}",
        f"password: {S}",
        f"producerRate: password={S}",
        f"producerRate: rate=1 password = {S} {S}",
        f"broker: {{settings: {{brokerClientAuthenticationParameters: 'token:{S}'}}}}",
        f"driver: {{name: mqtt}}\nmatrix: {{driver.password: [{S}, 2]}}",
        f"driver: {{name: mqtt}}\nmatrix: {{driver.password: {S}}}",
        f"driver: {{name: mqtt}}\nmatrix: {{driver: {{one: {{driver.password: 7{S}, driver.pasword: {S}}}}}}}",
        f"driver: {S}\nauthentication: {S}",
    ],
)
def test_a_secret_in_an_invalid_profile_is_never_shown(text: str) -> None:
    """Broken YAML, wrong types, misspelt keys, the wrong section; also in a valid one."""
    given = text.replace(f"driver: {S}\n", "") if text.startswith("driver: h") else text
    assert S not in said_of(HEAD + given)


def test_a_text_that_is_only_a_secret_is_not_shown() -> None:
    """A line without a colon is text, not a mapping."""
    assert S not in said_of(f"password {S}")


WORDS = [
    "password",
    "token",
    "secret",
    "key",
    "credentials",
    "authentication",
    "authParams",
    "oauth2",
    "apiKey",
    "clientSecret",
    "passphrase",
]


@st.composite
def secret_keys(draw: st.DrawFn) -> str:
    """A word for a secret, perhaps with a letter too few or twice, perhaps behind another word."""
    word = draw(st.sampled_from(WORDS))
    if len(word) > 4:
        at = draw(st.integers(1, len(word) - 1))
        word = draw(
            st.sampled_from(
                [
                    word,
                    word[:at] + word[at + 1 :],
                    word[:at] + word[at] + word[at:],
                    word.upper(),
                    f"mqtt_{word}",
                ]
            )
        )
    return word


SECRETS = st.one_of(
    st.integers(7_301_554_208, 10**15).map(str),
    st.from_regex(
        r"[A-Za-z0-9+/=_.:@%&*!|>'\"#{}\[\], -]{0,6}[a-z0-9]{12}[A-Za-z0-9+/=_.:@%&*!|>'\"#{}\[\], -]{0,6}",
        fullmatch=True,
    ),
)


def core(secret: str) -> str:
    """The part of a secret that no quoting changes."""
    return max("".join(c if c.isalnum() and c.isascii() else " " for c in secret).split(), key=len)


@given(secret_keys(), SECRETS, st.sampled_from(["{key}: {s}", "driver: {{name: mqtt, {key}: {s}}}", "driver: {{name: pulsar, {key}: {s}}}",
    "driver:\n  name: mqtt\n  {key}: {s}", "driver: {{name: pulsar, authentication: {{plugin: token, {key}: {s}}}}}",
    "driver: {{name: pulsar, authentication: {s}}}", "matrix: {{driver.{key}: [{s}, {s}x]}}", "broker: {{settings: {{{key}: {s}}}}}",
    "target: {{{key}: {s}}}", "driver: {{name: mqtt, {key}: [{s}]}}", "driver: {{name: mqtt, {key}: {{a: {s}}}}}"]))  # fmt: skip
def test_a_secret_below_any_key_that_may_hold_one_is_never_shown(
    key: str, secret: str, frame: str
) -> None:
    """Not in problems, tracebacks, documents or plans."""
    for written in (secret, json.dumps(secret)):
        assert core(secret) not in said_of(HEAD + frame.format(key=key, s=written))


@given(
    secret_keys(),
    SECRETS,
    st.sampled_from(["driver.{}", "{}", "driver", "driver.authentication.{}", "workloads.a.{}"]),
)
def test_a_secret_of_an_option_or_a_mark_is_never_shown(key: str, secret: str, place: str) -> None:
    """``--load-set`` and ``@pytest.mark.load`` are shown without it."""
    name = place.format(key)
    text = f"{{name: mqtt, {key}: {secret}}}" if place == "driver" else secret
    value: Any = {"name": "mqtt", key: secret} if place == "driver" else secret
    assert core(secret) not in profile.setting(name, text)
    for changes, options in (
        ({name: value}, {}),
        ({name: [value]}, {}),
        ({}, {name: text}),
        ({"topics": "x", name: value}, {}),
    ):
        try:
            found = overridden(MQTT, "p.yaml", changes, Readers(), options)
            said = json.dumps(found.document()) + repr(found)
        except UsageError as error:
            said = "".join(traceback.format_exception(error))
        assert core(secret) not in said


def test_secrets_of_a_matrix_are_numbered_in_test_ids() -> None:
    """Two values are two tests, so the ids must differ."""
    text = MQTT + f"matrix: {{driver.password: [{S}, {S}2], topics: [1, 2]}}\n"
    variants = varied(text, "p.yaml", Readers(), {})
    assert [one.id for one in variants][:3] == [
        "driver.password=#1-topics=1",
        "driver.password=#1-topics=2",
        "driver.password=#2-topics=1",
    ]
    assert variants[0].changes["driver.password"] == S
    with pytest.raises(UsageError) as caught:
        varied(text, "p.yaml", Readers(), {"driver.password": f"{S}3"})
    assert S not in str(caught.value)


@pytest.mark.parametrize(
    "plugin",
    ["AuthenticationToken", "AuthenticationBasic", "AuthenticationOAuth2", f"token:{S}", "Basic"],
)
@pytest.mark.parametrize(
    "data",
    [f"'token:{S}'", f"'me:{S},{S}:x'", f"'{{\"{S}\": 1}}'", f"'{{{S}'", "90210731", f"[{S}]"],
)
def test_a_secret_of_a_driver_file_is_never_shown(plugin: str, data: str) -> None:
    """Neither in problems nor in the list of keys that are not applied."""
    text = f"driverClass: a.PulsarBenchmarkDriver\nclient:\n  serviceUrl: pulsar://h:1\n  authentication: {{plugin: '{plugin}', data: {data}}}\n"
    try:
        said = repr(read_driver(text, "d.yaml").not_applied)
    except UsageError as error:
        said = "".join(traceback.format_exception(error))
    assert S not in said
    assert "90210731" not in said


def test_settings_of_a_broker_are_shown_without_secrets() -> None:
    """In reports and in the profile's document; the broker itself gets them."""
    settings = {
        "brokerClientAuthenticationParameters": S,
        "authenticationEnabled": "true",
        "password_file": "/etc/p",
    }
    facts = BrokerFacts(
        name="Pulsar", version="4", mode="process", url="pulsar://127.0.0.1:1", settings=settings
    )
    shown = {**settings, "brokerClientAuthenticationParameters": "***"}
    assert facts.settings == shown
    found = profile.loads(HEAD + f"broker: {{settings: {json.dumps(settings)}}}", "p.yaml")
    assert found.document()["broker"]["settings"] == shown
    assert found.broker.settings == settings


@pytest.mark.parametrize(
    "key",
    [
        "password",
        "Passwort",
        "pasword",
        "tokn",
        "accessKey",
        "clientSecret",
        "authParams",
        "auth",
        "API_KEY",
        "brokerpasswd",
    ],
)
def test_a_key_like_a_secret_counts_as_one(key: str) -> None:
    """Also misspelt, and in any spelling of several words."""
    assert may_hold_secret(key)


@pytest.mark.parametrize(
    "key",
    [
        "topic",
        "payloadFile",
        "keyDistributor",
        "tokenFile",
        "keyFile",
        "passwordFile",
        "topics",
        "name",
        "userId",
        "Pfad",
    ],
)
def test_known_keys_and_names_of_files_are_no_secrets(key: str) -> None:
    assert not may_hold_secret(key)


@pytest.mark.parametrize("metric", OBJECTIVES)
def test_bounds_of_objectives_are_shown(metric: str) -> None:
    """``--load-set slo.endToEndLatency.p99=2s`` is repeated in the header of the session."""
    assert not secret(("slo", metric, "p99"))
    assert not secret((f"slo.{metric}.p99",))
