"""Who talks to the broker where the profile leaves it open: the broker's client library, or a client of ours for its wire protocol.

Decided by the profile as it is written and by nothing else, so that plan, costs, every worker and the report agree, and a scaled-down run
uses the client of the full one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pytest_loadtest.profile.model import Profile


class ClientChoice(NamedTuple):
    """``library`` or ``native``. ``why``: for people; empty where there never is a choice."""

    client: str
    why: str


def choose_client(profile: Profile) -> ClientChoice:
    """What the profile asks for; else native, where the driver has such a client."""
    driver = profile.driver
    if len(driver.kind.clients) == 1:
        return ClientChoice(next(iter(driver.kind.clients)), "")
    if driver.client is not None:
        return ClientChoice(driver.client, "the profile asks for it")
    return ClientChoice("native", "the default: it costs less CPU for a message")
