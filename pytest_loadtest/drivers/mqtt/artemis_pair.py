"""Two Artemis brokers with one store on this machine.

The primary serves, and the backup takes over when it ends.

Both have a lock of the store in view (``shared-store``), so one of them is active at any time.
There is no cluster connection, which MQTT clients cannot use: therefore a primary that returns
waits until the active backup ends ("no fail-back"), and clients need both addresses.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Final

from pytest_loadtest.brokers import java
from pytest_loadtest.brokers.base import SERVING, Broker, BrokerFacts, BrokerRequest
from pytest_loadtest.brokers.cluster import ClusterNode, StartedCluster
from pytest_loadtest.brokers.process import Child
from pytest_loadtest.brokers.starting import Progress, on_free_ports, serves, wait_ready
from pytest_loadtest.drivers.mqtt.artemis import (
    CONFIGURATION,
    JARS,
    START_SECONDS,
    artemis_command,
    broker_xml,
    decisive_artemis_settings,
    make_folders,
    start_artemis,
)
from pytest_loadtest.drivers.mqtt.secured import (
    TlsListener,
    artemis_listener,
    ports_of,
    with_listener,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pytest_loadtest.brokers.java import Java

HERE: Final = "127.0.0.1"
ROLES: Final = ("primary", "backup")
PERSISTENCE: Final = "persistence-enabled"
# Codes of the log lines with which a primary waits for the lock of the store, and a backup for the
# end of the primary. Both only with the logger of the server at INFO.
_WAITING: Final = ("AMQ221034", "AMQ221109")
_LOGGER: Final = "org.apache.activemq.artemis.core.server"
_SHARED: Final = """
    <ha-policy><shared-store><{role}/></shared-store></ha-policy>
    <bindings-directory>{store}/bindings</bindings-directory>
    <journal-directory>{store}/journal</journal-directory>
    <large-messages-directory>{store}/large</large-messages-directory>
    <paging-directory>{store}/paging</paging-directory>"""


def start_one_or_pair(request: BrokerRequest, progress: Progress) -> Broker:
    """Start a primary and its backup, or a single broker if the request has no nodes."""
    return start_pair(request, progress) if request.nodes else start_artemis(request, progress)


def start_pair(request: BrokerRequest, progress: Progress) -> StartedCluster:
    """Start the primary, and then its backup.

    :raises UnavailableError, UsageError, TargetError: as
        :func:`~pytest_loadtest.drivers.mqtt.artemis.start_artemis`.
    """
    version = request.version or JARS.version
    runtime = java.require("Artemis")
    jars = JARS.resolve(version, progress)
    return on_free_ports(
        len(ROLES) * ports_of(request.security),
        lambda ports: _launch(runtime, jars, ports, version, request, progress),
    )


def _launch(
    runtime: Java,
    jars: Path,
    ports: tuple[int, ...],
    version: str,
    request: BrokerRequest,
    progress: Progress,
) -> StartedCluster:
    folder = request.folder.resolve()
    name = f"Artemis {version} with a backup"
    settings = {**request.settings, PERSISTENCE: "true"}
    # The store and the keys are below the data of the first process, which ends last. Both
    # processes work in folders next to each other.
    first = folder / f"{SERVING}-1" / "data"
    each = ports_of(request.security)
    own = tuple(ports[start : start + each] for start in range(0, len(ports), each))
    secured: TlsListener | None = None
    progress(f"starting {name}")
    started = time.monotonic()
    nodes = list[ClusterNode]()
    try:
        for number, role in enumerate(ROLES, 1):
            data = make_folders(folder / f"{SERVING}-{number}")
            secured = secured or artemis_listener(first / "security", request, folder / "any")
            text = broker_xml(
                ports=own[number - 1],
                settings=settings,
                tls=secured.lines if secured else {},
                more=_SHARED.format(role=role, store=first / "store"),
            )
            (data.parent / CONFIGURATION).write_text(text, encoding="utf-8")
            child = Child(
                artemis_command(runtime, jars, data, **{_LOGGER: "info"}),
                folder=data.parent,
                ports=own[number - 1],
            )
            ready = _Ready(child, own[number - 1], own[-number])
            nodes.append(ClusterNode(f"{SERVING} {number}", child, ready, START_SECONDS, progress))
            cluster = StartedCluster(nodes, folder)
            wait_ready(cluster, cluster.ready, name, START_SECONDS, progress)
    except BaseException:
        StartedCluster(nodes, folder).abandon()
        raise
    progress(f"{name} ready in {time.monotonic() - started:.0f} s")
    facts = BrokerFacts(
        name="Artemis",
        version=version,
        mode="process",
        url="mqtt://" + ",".join(f"{HERE}:{one[0]}" for one in own),
        settings=decisive_artemis_settings(settings)
        | {"ha-policy": "shared-store", "brokers": str(len(ROLES))},
    )
    cluster.facts = with_listener(facts, request, secured, [one[-1] for one in own])
    return cluster


class _Ready:
    """Returns True if a broker serves clients.

    Or if it waits for the end of the other one, which serves them.
    """

    def __init__(self, child: Child, ports: Sequence[int], others: Sequence[int]) -> None:
        self._child = child
        self._serves = partial(serves, ports)
        self._other_serves = partial(serves, others)
        self._pid = child.pid
        self._from = 0

    def __call__(self) -> bool:
        # The log continues after a restart; what the earlier process wrote does not count. A JVM
        # needs longer to its first line than the start of the process to this call.
        if self._child.pid != self._pid:
            self._pid = self._child.pid
            self._from = self._child.log.stat().st_size
        with self._child.log.open("rb") as log:
            log.seek(self._from)
            text = log.read().decode(errors="replace")
        return self._serves() or (any(code in text for code in _WAITING) and self._other_serves())
