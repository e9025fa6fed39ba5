"""How a target comes to be: what is asked, what one gets, and how it ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

MODES = ("auto", "url", "container", "process", "embedded")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRequest:
    """What a run needs of a broker.

    :param kind: ``pulsar``, ``mqtt`` or ``loopback``: the driver's name.
    :param mode: one of :data:`MODES`.
    :param url: explicit address (option, marker or profile); wins under ``auto`` and is required under ``url``.
    :param version: wanted broker version, e.g. ``4.0.0``; None is the default one.
    :param settings: verbatim lines for the broker's own configuration, from the profile's ``broker.settings``.
    :param folder: where data and logs go; made by the broker.
    """

    kind: str
    mode: str
    folder: Path
    url: str | None = None
    admin_url: str | None = None
    version: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFacts:
    """What the report says of a target: ``Pulsar 4.2.4, process`` and the settings that decide results."""

    name: str
    version: str
    mode: str
    url: str
    admin_url: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    local: bool = True
    evidence: bool = True  # False: a stand-in (pulsar-lite), never evidence about the real broker
    pid: int | None = None

    def describe(self) -> str:
        return f"{self.name} {self.version} ({self.mode}, {self.url})"


class Broker(Protocol):
    """A running target."""

    @property
    def facts(self) -> BrokerFacts:
        """Name, version, address, settings."""

    def failure(self) -> str | None:
        """Why it is not running any more ("exited with status -9, log …"), or None while it runs. Cheap: asked every second."""

    def stop(self) -> None:
        """Stop it and wait; safe to call twice. Keeps the logs when it failed."""
