"""Small sections of a profile: target, delays."""

from __future__ import annotations

import pytest

from pytest_loadtest import profile
from pytest_loadtest import profile as profiles
from pytest_loadtest.errors import ProfileError
from pytest_loadtest.message.due import Delays
from pytest_loadtest.values.quantities import SECOND

HEAD = "name: a\nproducerRate: 1\ntestDuration: 1s\n"


LEAST = HEAD + "messageSize: 100\n"


def problems(text: str) -> str:
    with pytest.raises(ProfileError) as caught:
        profile.loads(text, "p.yaml")
    return str(caught.value)


@pytest.mark.parametrize(
    ("key", "address"),
    [
        ("url", "mqtt://user:secret@host"),
        ("url", "mqttx://user:secret@host"),
        ("url", "secret@host"),
        ("adminUrl", "http://user:secret@host"),
        ("subscriberUrl", "mqtts://user:secret@host"),
    ],
)
def test_users_and_passwords_of_a_target_are_not_shown(key: str, address: str) -> None:
    """They belong in the section driver, whose secrets are not in results."""
    url = "" if key == "url" else "url: mqtt://host, "
    (line,) = [
        line
        for line in problems(
            f"{LEAST}driver: {{name: mqtt}}\ntarget: {{{url}{key}: '{address}'}}\n"
        ).splitlines()
        if "***@host" in line
    ]
    assert line.startswith("p.yaml:6:")
    assert (
        "an address must not have a user or a password (write driver.username and driver.password"
        in line
    )
    assert "secret" not in line


BASE = "name: p\nproducerRate: 100\nmessageSize: 100\ntestDuration: 1s\n"


SHARED = "driver: {name: pulsar, subscriptionType: Shared}\n"


AFTER = "deliverAfter: 10s\n"


def read(*lines: str) -> profiles.Profile:
    return profiles.loads(BASE + "".join(lines), "p.yaml")


@pytest.mark.parametrize(("line", "delays"), [
    (AFTER, Delays(seed=0, least=10_000, most=10_000, tick=SECOND)),
    ("deliverAfter: {min: 1s, max: 1min}\n", Delays(seed=0, least=1000, most=60_000, tick=SECOND)),
    ("deliverAt: 30s\n", Delays(seed=0, at=30 * SECOND, tick=SECOND)),
])  # fmt: skip
def test_delays_read_back_from_results(line: str, delays: Delays) -> None:
    profile = read(line, SHARED)
    assert profile.delays == delays
    assert profiles.from_document(profile.document()).delays == delays
    assert not profile.ordered
