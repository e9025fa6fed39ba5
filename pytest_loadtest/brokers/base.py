"""The contract between a run and its broker.

It has the request, the facts, the running broker, and the error for an unavailable mode.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from pytest_loadtest.errors import TargetError, UsageError
from pytest_loadtest.values.records import record
from pytest_loadtest.values.wording import with_version

if TYPE_CHECKING:
    from pytest_loadtest.profile.sections import SecuritySection

SERVING: Final = "broker"
"""The role of a cluster's processes that clients connect to."""
MODES = ("auto", "url", "container", "process", "embedded")
ROLE: Final = "loadtest"
"""The role of the run's clients at a broker with security."""


@record
class BrokerRequest:
    """A request for a broker.

    :param kind: the broker's name among the ``brokers`` of its
        :class:`~pytest_loadtest.kinds.DriverKind`; the driver's own name for its default one.
    :param mode: one of :data:`MODES`.
    :param url: explicit address (option, marker or profile); used under ``auto`` if given, required
        under ``url``.
    :param subscriber_url: address for consumers; None: they use ``url`` too.
    :param version: broker version, e.g. ``4.0.0``; None: the default one.
    :param image: container image, instead of the broker's own.
    :param settings: lines for the broker's own configuration, unchanged, from the profile's
        ``broker.settings``.
    :param security: TLS and authentication, from the profile's ``target.security``; only in mode
        ``process``.
    :param tls: the kind's TLS settings for a broker with ``security``
        (:attr:`~pytest_loadtest.profile.client.ClientSettings.broker_tls`).
    :param folder: folder for data and logs; the broker makes it.
    :param nodes: role → number of its processes, for a cluster: ``{"broker": 2, "bookie": 3}``;
        empty: a single process.
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
    nodes: Mapping[str, int] = field(default_factory=dict)


@record
class BrokerFacts:
    """A target's description for the report.

    It has ``Pulsar 4.2.4, process`` and the settings that affect results.

    :param settings: possible secrets in them are replaced.
    :param client: fields of the driver's settings that clients need to connect if the run made the
        keys; not in the report.
    :param nodes: name of each process of a cluster (``bookie 2``) → process id, None while it is
        down; empty: a single process.
    """

    name: str
    version: str
    mode: str
    url: str
    subscriber_url: str | None = None
    admin_url: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    local: bool = True
    evidence: bool = (
        True  # False: a substitute (pulsar-lite), so the run is no evidence about the real broker
    )
    pid: int | None = None
    client: Mapping[str, Any] = field(default_factory=dict)
    nodes: Mapping[str, int | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        from pytest_loadtest.profile.secrets import (
            shown_settings,
        )  # on use: sessions without load import no profile

        object.__setattr__(self, "settings", shown_settings(self.settings))

    @property
    def started(self) -> bool:
        """True if the run started the target; False if it was running before."""
        return self.mode != "url"

    @property
    def pids(self) -> tuple[int, ...]:
        """The process ids of the target on this machine; empty: unknown, or all of it is down."""
        return tuple(pid for pid in (self.pid, *self.nodes.values()) if pid is not None)

    def pids_of(self, node: str) -> tuple[int, ...]:
        """Return the process id of one process of a cluster; empty while it is down."""
        pid = self.nodes[node]
        return () if pid is None else (pid,)

    @property
    def serving(self) -> tuple[int, ...]:
        """Those of :attr:`pids` that clients connect to."""
        return (
            tuple(
                pid
                for name, pid in self.nodes.items()
                if pid is not None and name.startswith(f"{SERVING} ")
            )
            or self.pids
        )

    def describe(self) -> str:
        subscribers = f", {self.subscriber_url} for subscribers" if self.subscriber_url else ""
        return f"{with_version(self.name, self.version)} ({self.mode}, {self.url}{subscribers})"


@record
class Restart:
    """A restart, or an end, of the target or of one process of a cluster, by the test's body."""

    down: int
    """ns after the start of the measured phase, when it was stopped"""
    ready: int | None
    """ns after the start of the measured phase, when clients could work again; null: never"""
    node: str = ""
    """the process of a cluster, ``bookie 2``; empty: the whole broker"""


def restarts_of(broker: Mapping[str, Any]) -> tuple[Restart, ...]:
    """Return the restarts among a target's facts in ``run.json`` or ``results.json``."""
    return tuple(
        Restart(down=entry["down"], ready=entry["ready"], node=entry.get("node", ""))
        for entry in broker.get("restarts") or ()
    )


class Broker(Protocol):
    """A running target."""

    @property
    def facts(self) -> BrokerFacts:
        """Name, version, address, settings."""

    def failure(self) -> str | None:
        """Return the reason for its end, or None while it runs or restarts.

        An example is "exited with status -9, log …".

        Must be cheap: it is called every second.
        """

    def restart(self, *, kill: bool = False) -> None:
        """Restart it with the same ports, settings and stored data. Returns when clients can work.

        :param kill: end it with SIGKILL, as a crash would; otherwise it has half a minute to stop.
        :raises UsageError: the run did not start it, or a restart would bring nothing back.
        :raises TargetError: it did not start again; with the end of its log.
        """

    def node(self, role: str, number: int) -> Node:
        """Return one process of a cluster.

        :param number: from 1. :raises UsageError: there is none.
        """

    def stop(self) -> None:
        """Stop it and wait; safe to call twice. Keeps the logs if it failed."""


class Node(Protocol):
    """One process of a cluster that the run started: a broker, a bookie."""

    @property
    def name(self) -> str:
        """``bookie 2``."""

    def restart(self, *, kill: bool) -> None:
        """Restart this process alone, see :meth:`Broker.restart`.

        :raises UsageError: it is down.
        """

    def kill(self) -> None:
        """End it with SIGKILL and leave it down. :raises UsageError: it is down already."""

    def start(self) -> None:
        """Start it again with its data; return when it is ready.

        :raises UsageError: it is not down. :raises TargetError: it failed.
        """


def refuse_node(name: str) -> UsageError:
    """Return the error for a request for one process of a target without a cluster of this run."""
    return UsageError(
        f"{name} is not a cluster that this run started: write e.g. broker: {{brokers: 2,"
        f" bookies: 3}} in the profile"
    )


class UnavailableError(TargetError):
    """A mode is unavailable on this machine, as nothing is installed or no engine runs.

    ``auto`` tries the next mode.

    :param reason: the missing thing. :param remedy: one line.
    """

    def __init__(self, reason: str, remedy: str = "") -> None:
        super().__init__(reason, remedy)
        self.reason = reason
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.reason}; {self.remedy}" if self.remedy else self.reason


def unapplied_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the fact, for the report, that the broker does not have the profile's settings.

    Empty without settings.
    """
    return {"broker.settings not applied": ", ".join(sorted(settings))} if settings else {}


def refuse_managed(broker: str, settings: Mapping[str, str], managed: frozenset[str]) -> None:
    """Reject settings that the run chooses itself (ports, folders).

    They would be overwritten silently, or break the start.

    :raises UsageError: with the keys; also for a key or value that is not one line.
    """
    if taken := sorted(managed & settings.keys()):
        raise UsageError(
            f"broker.settings: {', '.join(taken)} of {broker} is chosen per run;"
            " remove it from the profile"
        )
    for key, value in settings.items():
        if not key.strip() or "\n" in key + value:
            from pytest_loadtest.profile.secrets import may_hold_secret
            from pytest_loadtest.values.addresses import HIDDEN

            shown = HIDDEN if may_hold_secret(key) else repr(value)
            raise UsageError(
                f"broker.settings: {key!r}: {shown} is not one line of {broker}'s configuration"
            )


def described(security: SecuritySection) -> str:
    """Return e.g. ``TLS, token authentication``.

    Both cost the broker time, so results name them.
    """
    tls = {True: ["TLS"], False: [], "subscribers": ["TLS for subscribers"]}[security.tls]
    return ", ".join(tls + ([f"{security.auth} authentication"] if security.auth else []))
