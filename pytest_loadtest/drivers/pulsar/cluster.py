"""A Pulsar cluster as processes of this machine.

ZooKeeper, bookies and brokers, each in a JVM of its own with a log of its own.

``PulsarStandaloneStarter`` next to ``PulsarBrokerStarter`` is not a cluster: a standalone uses
``NoopLoadManager``, which registers no broker with the others and names itself as the owner of
every bundle. Started separately, all brokers have the load manager of production.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pytest_loadtest.brokers import java
from pytest_loadtest.brokers.base import SERVING, Broker, BrokerFacts, BrokerRequest, described
from pytest_loadtest.brokers.cluster import ClusterNode, StartedCluster
from pytest_loadtest.brokers.process import Child
from pytest_loadtest.brokers.starting import (
    POLL,
    Progress,
    listens,
    on_free_ports,
    wait_ready,
)
from pytest_loadtest.brokers.watchdog import remove_folder
from pytest_loadtest.drivers.pulsar.admin import Admin
from pytest_loadtest.drivers.pulsar.broker import (
    ADMIN_TIMEOUT,
    BASE,
    HERE,
    OPEN,
    PULSAR,
    START_SECONDS,
    bookie_facts,
    configuration,
    java_command,
    new_data,
    port_lines,
    properties,
    pulsar_jars,
    start_pulsar,
)
from pytest_loadtest.drivers.pulsar.secured import secure
from pytest_loadtest.drivers.pulsar.settings import PulsarSettings
from pytest_loadtest.errors import TargetError
from pytest_loadtest.values.wording import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_loadtest.brokers.java import Java

BOOKIE: Final = "bookie"
NAME: Final = "loadtest"
# For ZooKeeper and the setup of the metadata: they do too little, or
# run too shortly, for the second compiler.
SMALL: Final = ("-Xms32m", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
BOOKIE_MEMORY: Final = ("-Xms32m", "-Xmx128m", "-XX:+UseSerialGC", "-XX:MaxDirectMemorySize=320m")
BROKER_MEMORY: Final = ("-Xms128m", "-Xmx384m", "-XX:+UseG1GC", "-XX:MaxDirectMemorySize=256m")
# Most copies of an entry by default, and acknowledgements of them, as in production: 3/3/2.
COPIES = 3
ACKS = 2
_CHOSEN: Final = frozenset(
    {
        "bookiePort",
        "metadataServiceUri",
        "journalDirectory",
        "journalDirectories",
        "ledgerDirectories",
        "zkServers",
        "httpServerEnabled",
    }
)
CLUSTER: Final = {
    "loadBalancerEnabled": "true",
    "loadManagerClassName": "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl",
    # Bundles move and split only when a test, or a broker's end, makes them.
    "loadBalancerSheddingEnabled": "false",
    "loadBalancerAutoBundleSplitEnabled": "false",
    "allowEphemeralPorts": "false",
    "dbStorage_writeCacheMaxSizeMb": "32",
    "dbStorage_readAheadCacheMaxSizeMb": "16",
    "dbStorage_rocksDB_blockCacheSize": "16777216",
    "managedLedgerCacheSizeMB": "64",
}
# ZooKeeper limits the time-outs of sessions to 2 to 20 ticks
# unless told otherwise; brokers ask for 30 s.
ZOOKEEPER: Final = {
    "tickTime": "1000",
    "minSessionTimeout": "1000",
    "maxSessionTimeout": "120000",
    "maxClientCnxns": "0",
    "admin.enableServer": "false",
    "clientPortAddress": HERE,
}


def start_processes(request: BrokerRequest, progress: Progress) -> Broker:
    """Start a cluster, or a standalone if the request has no nodes.

    See :func:`start_cluster` and :func:`start_pulsar`.
    """
    return start_cluster(request, progress) if request.nodes else start_pulsar(request, progress)


def start_cluster(request: BrokerRequest, progress: Progress) -> StartedCluster:
    """Start ZooKeeper, bookies and brokers.

    :raises UnavailableError: no Java 17, or the jars are neither cached nor available from Maven.
    :raises TargetError: a process did not start; its name and the
        last lines of its log are in the error.
    """
    runtime = java.require("Pulsar")
    version = request.version or PULSAR.version
    jars = pulsar_jars(version).resolve(version, progress)
    return on_free_ports(
        1 + request.nodes[BOOKIE] + 2 * request.nodes[SERVING],
        lambda ports: _Launch(runtime, jars, version, request, ports, progress).run(),
    )


class _Launch:
    """One start of a cluster on these ports."""

    def __init__(
        self,
        runtime: Java,
        jars: Path,
        version: str,
        request: BrokerRequest,
        ports: Sequence[int],
        progress: Progress,
    ) -> None:
        self._runtime = runtime
        self._jars = jars
        self._request = request
        self._progress = progress
        self._folder = request.folder.resolve()
        self._zookeeper, *others = ports
        bookies = request.nodes[BOOKIE]
        self._bookies = others[:bookies]
        self._brokers = others[bookies::2]
        self._webs = others[bookies + 1 :: 2]
        self._store = f"zk:{HERE}:{self._zookeeper}"
        counts = [counted(number, role) for role, number in request.nodes.items()]
        self._name = f"Pulsar {version} with {' and '.join(counts)}"
        self._nodes: list[ClusterNode] = []
        self._secured = OPEN

    def run(self) -> StartedCluster:
        self._progress(f"starting {self._name} on this machine")
        started = time.monotonic()
        try:
            self._start_zookeeper()
            self._wait()
            self._set_up()
            for index in range(len(self._bookies)):
                self._start_bookie(index)
            for index in range(len(self._brokers)):
                self._start_broker(index)
            cluster = self._wait()
            cluster.facts = self._facts()
        except BaseException:
            StartedCluster(self._nodes, self._folder).abandon()
            raise
        self._progress(f"{self._name} ready in {time.monotonic() - started:.0f} s")
        return cluster

    def _wait(self) -> StartedCluster:
        cluster = StartedCluster(self._nodes, self._folder)
        wait_ready(cluster, cluster.ready, self._name, START_SECONDS, self._progress)
        return cluster

    def _child(
        self, name: str, text: str, command: Callable[[Path, Path], list[str]], ports: Sequence[int]
    ) -> Child:
        """Start a process. :param command: (folder, file of its configuration) → command."""
        folder = self._folder / name.replace(" ", "-")
        new_data(folder)
        conf = folder / "conf"
        conf.touch(mode=0o600)
        conf.write_text(text)
        return Child(command(folder, conf), folder=folder, ports=ports)

    def _node(self, name: str, child: Child, ready: Callable[[], bool]) -> None:
        self._nodes.append(ClusterNode(name, child, ready, START_SECONDS, self._progress))

    def _java(
        self, memory: Sequence[str], main: str, *arguments: str
    ) -> Callable[[Path, Path], list[str]]:
        def command(folder: Path, conf: Path) -> list[str]:
            words = [str(conf) if word == "CONF" else word for word in arguments]
            return [*java_command(self._runtime, self._jars, folder, memory, main), *words]

        return command

    def _start_zookeeper(self) -> None:
        data = self._folder / "zookeeper" / "data"
        text = properties(
            ZOOKEEPER | {"clientPort": str(self._zookeeper), "dataDir": str(data / "zookeeper")}
        )
        command = self._java(SMALL, "org.apache.zookeeper.server.quorum.QuorumPeerMain", "CONF")
        child = self._child("zookeeper", text, command, [self._zookeeper])
        # ZooKeeper is stopped last, and its data deleted then.
        self._secured = secure(data / "security", self._request.security)
        self._node("ZooKeeper", child, partial(listens, HERE, self._zookeeper))

    def _set_up(self) -> None:
        """Write the cluster's metadata, which bookies and brokers need."""
        webs = _hosts(self._webs)
        brokers = _hosts(self._brokers)
        urls = [
            "--web-service-url",
            f"http://{webs}",
            "--broker-service-url",
            f"pulsar://{brokers}",
        ]
        if self._secured.tls:
            urls += [
                "--web-service-url-tls",
                f"https://{webs}",
                "--broker-service-url-tls",
                f"pulsar+ssl://{brokers}",
            ]
        stores = ["--metadata-store", self._store, "--configuration-metadata-store", self._store]
        command = self._java(
            SMALL, "org.apache.pulsar.PulsarClusterMetadataSetup", "--cluster", NAME, *stores, *urls
        )
        child = self._child("setup", "", command, ())
        try:
            end = time.monotonic() + START_SECONDS
            while (outcome := child.failure()) is None and time.monotonic() < end:
                time.sleep(POLL)
            if outcome is None or not outcome.startswith("exited with status 0,"):
                raise TargetError(
                    f"{self._name} did not start: setup of the metadata:"
                    f" {outcome or 'no end'}\n{child.tail()}"
                )
        finally:
            child.stop()
        remove_folder(str(child.folder))

    def _start_bookie(self, index: int) -> None:
        port = self._bookies[index]
        data = self._folder / f"bookie-{index + 1}" / "data"
        own = {
            "bookiePort": str(port),
            "metadataServiceUri": f"metadata-store:{self._store}",
            "advertisedAddress": HERE,
            "listeningInterface": "lo",
            "journalDirectories": str(data / "journal"),
            "ledgerDirectories": str(data / "ledgers"),
            "httpServerEnabled": "false",
        }
        command = self._java(BOOKIE_MEMORY, "org.apache.bookkeeper.server.Main", "--conf", "CONF")
        child = self._child(f"bookie {index + 1}", self._conf(own), command, [port])
        self._node(f"{BOOKIE} {index + 1}", child, partial(listens, HERE, port))

    def _start_broker(self, index: int) -> None:
        port = self._brokers[index]
        web = self._webs[index]
        own = {
            **self._secured.lines,
            **port_lines(port, web, tls=self._secured.tls),
            "bindAddress": HERE,
            "advertisedAddress": HERE,
            "clusterName": NAME,
            "metadataStoreUrl": self._store,
            "configurationMetadataStoreUrl": self._store,
        }
        command = self._java(
            BROKER_MEMORY, "org.apache.pulsar.PulsarBrokerStarter", "--broker-conf", "CONF"
        )
        child = self._child(f"broker {index + 1}", self._conf(own), command, [port, web])
        self._node(f"{SERVING} {index + 1}", child, self._admin(web).ready)

    def _conf(self, own: Mapping[str, str]) -> str:
        return configuration(
            self._settings,
            own,
            self._request.settings,
            managed=_CHOSEN | self._secured.lines.keys(),
        )

    @property
    def _settings(self) -> dict[str, str]:
        copies = str(min(len(self._bookies), COPIES))
        quorums = {
            "managedLedgerDefaultEnsembleSize": copies,
            "managedLedgerDefaultWriteQuorum": copies,
            "managedLedgerDefaultAckQuorum": str(min(len(self._bookies), ACKS)),
        }
        return BASE | CLUSTER | quorums | dict(self._request.settings)

    def _facts(self) -> BrokerFacts:
        admin = self._admin(*self._webs)
        scheme = "pulsar+ssl" if self._secured.tls else "pulsar"
        security = {"security": described(self._request.security)} if self._request.security else {}
        counts = {f"{role}s": str(number) for role, number in self._request.nodes.items()}
        memory = {"memory": f"brokers {' '.join(BROKER_MEMORY)}, bookies {' '.join(BOOKIE_MEMORY)}"}
        settings = (
            admin.decisive_settings()
            | bookie_facts(self._settings)
            | memory
            | dict(self._request.settings)
            | counts
            | security
        )
        return BrokerFacts(
            name="Pulsar",
            version=admin.version(),
            mode="process",
            url=f"{scheme}://{_hosts(self._brokers)}",
            admin_url=self._admin_url(*self._webs),
            settings=settings,
            client=self._secured.client,
        )

    def _admin(self, *ports: int) -> Admin:
        return Admin(
            self._admin_url(*ports),
            PulsarSettings(**{"operation_timeout": ADMIN_TIMEOUT, **self._secured.client}),
        )

    def _admin_url(self, *ports: int) -> str:
        return f"{'https' if self._secured.tls else 'http'}://{_hosts(ports)}"


def _hosts(ports: Sequence[int]) -> str:
    return ",".join(f"{HERE}:{port}" for port in ports)
