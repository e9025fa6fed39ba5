"""How a target comes to be: what is asked, what one gets, how it ends, and why a way to it may be missing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from pytest_loadtest.errors import TargetError, UsageError
from pytest_loadtest.values.wording import with_version

if TYPE_CHECKING:
    from pytest_loadtest.profile.sections import SecuritySection

MODES = ("auto", "url", "container", "process", "embedded")
ROLE: Final = "loadtest"
"""Who the run's clients are to a broker with security."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRequest:
    """What a run needs of a broker.

    :param kind: the broker's name among the ``brokers`` of its :class:`~pytest_loadtest.kinds.DriverKind`; the driver's own name for its
        default one.
    :param mode: one of :data:`MODES`.
    :param url: explicit address (option, marker or profile); wins under ``auto`` and is required under ``url``.
    :param subscriber_url: where consumers connect, beside ``url``; None: there too.
    :param version: wanted broker version, e.g. ``4.0.0``; None is the default one.
    :param image: to run as a container, in place of the broker's own.
    :param settings: verbatim lines for the broker's own configuration, from the profile's ``broker.settings``.
    :param security: TLS and authentication, from the profile's ``target.security``; only in mode ``process``.
    :param tls: what the kind's settings say of the TLS of a broker with ``security``
        (:attr:`~pytest_loadtest.profile.client.ClientSettings.broker_tls`).
    :param folder: where data and logs go; made by the broker.
    """

    kind: str
    mode: str
    folder: Path
    url: str | None = None
    subscriber_url: str | None = None
    admin_url: str | None = None
    version: str | None = None
    image: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    security: SecuritySection | None = None
    tls: Any | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFacts:
    """What the report says of a target: ``Pulsar 4.2.4, process`` and the settings that decide results.

    :param settings: what may be a secret in them is replaced.
    :param client: not for the report: fields of the driver's settings without which no client gets in, where the run made the keys.
    """

    name: str
    version: str
    mode: str
    url: str
    subscriber_url: str | None = None
    admin_url: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    local: bool = True
    evidence: bool = True  # False: a stand-in (pulsar-lite), never evidence about the real broker
    pid: int | None = None
    client: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        from pytest_loadtest.profile.secrets import shown_settings  # on use: sessions without load import no profile

        object.__setattr__(self, "settings", shown_settings(self.settings))

    @property
    def started(self) -> bool:
        """The run started it, for itself; otherwise it was there before."""
        return self.mode != "url"

    def describe(self) -> str:
        beside = f", {self.subscriber_url} for subscribers" if self.subscriber_url else ""
        return f"{with_version(self.name, self.version)} ({self.mode}, {self.url}{beside})"


class Broker(Protocol):
    """A running target."""

    @property
    def facts(self) -> BrokerFacts:
        """Name, version, address, settings."""

    def failure(self) -> str | None:
        """Why it is not running any more ("exited with status -9, log …"), or None while it runs or is restarted.

        Cheap: asked every second.
        """

    def restart(self, *, kill: bool = False) -> None:
        """Stop it and start it again: same ports, same settings, its data kept as far as it keeps any. Returns when clients can work.

        :param kill: end it with SIGKILL, as a crash would; otherwise it has half a minute to end in order.
        :raises UsageError: it is not ours, or nothing would come back. :raises TargetError: it did not come up again; with its own words.
        """

    def stop(self) -> None:
        """Stop it and wait; safe to call twice. Keeps the logs when it failed."""


class UnavailableError(TargetError):
    """One way to a broker does not exist on this machine: nothing installed, no engine. ``auto`` goes on to the next way.

    :param reason: what is missing.
    :param remedy: what to do about it, one line.
    """

    def __init__(self, reason: str, remedy: str = "") -> None:
        super().__init__(reason, remedy)
        self.reason = reason
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.reason}; {self.remedy}" if self.remedy else self.reason


def refuse_managed(broker: str, settings: Mapping[str, str], managed: frozenset[str]) -> None:
    """Ports and folders are chosen per run; a profile that sets them would be quietly overruled or break the start.

    :raises UsageError: naming the keys; also for a key or value that is not one line.
    """
    taken = sorted(managed & settings.keys())
    if taken:
        raise UsageError(f"broker.settings: {', '.join(taken)} of {broker} is chosen per run; remove it from the profile")
    for key, value in settings.items():
        if not key.strip() or "\n" in key + value:
            from pytest_loadtest.profile.secrets import HIDDEN, may_hold_secret

            shown = HIDDEN if may_hold_secret(key) else repr(value)
            raise UsageError(f"broker.settings: {key!r}: {shown} is not one line of {broker}'s configuration")


def described(asked: SecuritySection) -> str:
    """``TLS, token authentication``: encryption and authentication cost a broker time, so results name them."""
    tls = {True: ["TLS"], False: [], "subscribers": ["TLS for subscribers"]}[asked.tls]
    return ", ".join(tls + ([f"{asked.auth} authentication"] if asked.auth else []))
