"""The contract between a run and its broker: facts, the error for an unavailable mode, settings that the run chooses itself."""

from __future__ import annotations

import pickle

import pytest

from pytest_loadtest.brokers.base import (
    BrokerFacts,
    UnavailableError,
    described,
    refuse_managed,
    unapplied_settings,
)
from pytest_loadtest.errors import UsageError
from pytest_loadtest.profile.sections import SecuritySection


def test_unavailable_survives_pickling() -> None:
    """Errors cross from workers to the controller."""
    error = pickle.loads(pickle.dumps(UnavailableError("no x", "get x")))
    assert (error.reason, error.remedy, str(error)) == ("no x", "get x", "no x; get x")


def test_facts_show_no_secret() -> None:
    """A setting that may hold a secret is replaced before anything can show it."""
    facts = BrokerFacts(
        name="x",
        version="1",
        mode="process",
        url="x://h",
        settings={"brokerClientPassword": "abc", "frames": "2"},
    )
    assert "abc" not in str(facts)
    assert facts.settings["frames"] == "2"


def test_facts_name_the_address_of_subscribers() -> None:
    """The description for terminal and report has both addresses."""
    facts = BrokerFacts(
        name="Mosquitto", version="2.0", mode="url", url="mqtt://a", subscriber_url="mqtt://b"
    )
    assert facts.describe() == "Mosquitto 2.0 (url, mqtt://a, mqtt://b for subscribers)"
    assert not facts.started


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"port": "1", "frames": "2"}, "port of x is chosen per run; remove it from the profile"),
        ({"frames": "1\n2"}, r"'1\\n2' is not one line"),
        ({" ": "1"}, "is not one line"),
    ],
)
def test_settings_that_would_break_the_start_are_rejected(
    settings: dict[str, str], text: str
) -> None:
    """Ports and folders are the run's own; a line break would add a line to the broker's configuration."""
    with pytest.raises(UsageError, match=text):
        refuse_managed("x", settings, frozenset({"port"}))


def test_a_rejected_setting_shows_no_secret() -> None:
    """The error quotes the value, unless it may be a secret."""
    with pytest.raises(UsageError) as error:
        refuse_managed("x", {"password": "abc\ndef"}, frozenset())
    assert "abc" not in str(error.value)


def test_security_is_described_as_text() -> None:
    """Encryption and authentication are named in the results."""
    assert (
        described(SecuritySection.model_validate({"tls": True, "auth": "token"}))
        == "TLS, token authentication"
    )


def test_settings_that_are_not_applied_are_named() -> None:
    assert unapplied_settings({"b": "1", "a": "2"}) == {"broker.settings not applied": "a, b"}
    assert unapplied_settings({}) == {}
