"""A real Pulsar standalone as a process or a container.

Broker, bookie and metadata store in one JVM.

A process runs from Maven's jars. Its command is that of the distribution's
``bin/pulsar standalone``, with a heap that leaves room for the load generator.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pytest_loadtest.brokers import java
from pytest_loadtest.brokers.base import BrokerFacts, BrokerRequest, described, refuse_managed
from pytest_loadtest.brokers.container import (
    CONF,
    ContainerPlan,
    ContainerRecipe,
    publishing_address,
    with_conf,
)
from pytest_loadtest.brokers.java import Jars, Java, MachineNeed, needed_jars
from pytest_loadtest.brokers.process import GRACE, Child, data_folder
from pytest_loadtest.brokers.starting import Progress, StartedBroker, on_free_ports, wait_ready
from pytest_loadtest.brokers.watchdog import remove_folder
from pytest_loadtest.drivers.pulsar import embedded
from pytest_loadtest.drivers.pulsar.admin import Admin
from pytest_loadtest.drivers.pulsar.secured import Secured, secure
from pytest_loadtest.drivers.pulsar.settings import PulsarSettings
from pytest_loadtest.errors import TargetError, UsageError
from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_loadtest.brokers.docker_engine import RunningContainer


# It takes 10 s on an idle machine, and took over 90 s on two cores that ran twenty threads.
START_SECONDS = 240.0
OPEN = Secured()
HERE = "127.0.0.1"
ADMIN_TIMEOUT = 5 * SECOND
# Bytes of Java heap, and the same again of direct memory.
GIVEN = 1 << 30
MEMORY = ("-Xms256m", f"-Xmx{GIVEN >> 20}m", f"-XX:MaxDirectMemorySize={GIVEN >> 20}m")
LOG4J = Path(__file__).with_name("pulsar-log4j2.xml")
# Bytes that a bookie's frame needs in addition to the largest message.
FRAME_OVERHEAD = 10 * 1024
MANAGED = frozenset(
    {
        "brokerServicePort",
        "webServicePort",
        "bindAddress",
        "advertisedAddress",
        "listeningInterface",
        "metadataStoreUrl",
        "configurationMetadataStoreUrl",
        "clusterName",
        "nettyMaxFrameSizeBytes",
    }
)
PORTS = ("brokerServicePort", "webServicePort")
BASE = {
    "clusterName": "standalone",
    # Without this the bookie takes any free port instead of the given one.
    "allowEphemeralPorts": "true",
    "metadataStoreUrl": "",
    "configurationMetadataStoreUrl": "",
    # There is one bookie; with the class defaults of 2 the broker would wait for a second one.
    "managedLedgerDefaultEnsembleSize": "1",
    "managedLedgerDefaultWriteQuorum": "1",
    "managedLedgerDefaultAckQuorum": "1",
    # There is one broker: nothing can be balanced, and bundles are split only by request.
    "loadBalancerEnabled": "false",
    "loadManagerClassName": "org.apache.pulsar.broker.loadbalance.NoopLoadManager",
    "webSocketServiceEnabled": "false",
    "numHttpServerThreads": "4",
    # Otherwise the broker deletes a topic that has neither subscriptions nor producers.
    "brokerDeleteInactiveTopicsEnabled": "false",
    # A run deletes its namespace while its clients may still be closing.
    "forceDeleteNamespaceAllowed": "true",
    # Statistics must follow a run that takes seconds; Pulsar's default is 60 s.
    "statsUpdateFrequencyInSecs": "5",
    "statsUpdateInitialDelayInSecs": "5",
    "managedLedgerStatsPeriodSeconds": "5",
    "exposeTopicLevelMetricsInPrometheus": "true",
    # Otherwise the backlog counts entries, and a batch is one entry.
    "exposePreciseBacklogInPrometheus": "true",
    # A batch that was acknowledged in part is then delivered
    # again without the acknowledged messages.
    "acknowledgmentAtBatchIndexLevelEnabled": "true",
    "supportedNamespaceBundleSplitAlgorithms": (
        "range_equally_divide,topic_count_equally_divide,specified_positions_divide,"
        "flow_or_qps_equally_divide"
    ),
    "maxMessageSize": "5242880",
    # The bookie reads the same file.
    "ledgerStorageClass": "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage",
    "dbStorage_writeCacheMaxSizeMb": "64",
    "dbStorage_readAheadCacheMaxSizeMb": "64",
    # No fsync of the journal: otherwise the disk of the test machine decides the results.
    "journalSyncData": "false",
    "journalMaxGroupWaitMSec": "1",
    # Bookies refuse writes on a disk that is fuller than this. The default is 0.95.
    "diskUsageThreshold": "0.99",
    "diskUsageWarnThreshold": "0.99",
    "allowLoopback": "true",
    "gcWaitTime": "300000",
    "flushInterval": "60000",
}
OPENED = (
    "java.base/java.io",
    "java.base/java.nio",
    "java.base/java.util.zip",
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.platform",
    "java.management/sun.management",
    "jdk.management/com.sun.management.internal",
)
# Settings that influence results, but that the broker does not report: they are for the bookie.
BOOKIE = ("journalSyncData", "journalMaxGroupWaitMSec")


def start_pulsar(request: BrokerRequest, progress: Progress) -> StartedBroker:
    """Start Pulsar; it is ready after some ten seconds on an idle machine.

    :raises UnavailableError: no Java 17, or the jars are neither cached nor available from Maven.
    :raises TargetError: it did not start; the last lines of its log are in the error.
    """
    version = request.version or PULSAR.version
    runtime = java.require("Pulsar")
    jars = pulsar_jars(version).resolve(version, progress)
    program = partial(command, runtime, jars, version)
    return on_free_ports(3, lambda ports: _launch(program, ports, version, request, progress))


def standalone_conf(
    *,
    port: int,
    web_port: int,
    settings: Mapping[str, str],
    bind: str = HERE,
    advertised: str = HERE,
    secured: Secured = OPEN,
) -> str:
    """Return the text of ``standalone.conf``.

    The built-in base, then the profile's settings, then what is chosen per run.

    The largest frame depends on ``maxMessageSize``. Under TLS all ports are TLS ports.

    :raises UsageError: the profile sets a key that is chosen per run, or
        ``maxMessageSize`` is not a number of bytes.
    """
    ports = port_lines(port, web_port, tls=secured.tls)
    own = {
        **secured.lines,
        **ports,
        "bindAddress": bind,
        "advertisedAddress": advertised,
        # The bookie would listen on all interfaces without a password; only
        # the broker in the same JVM connects to it.
        "listeningInterface": "lo",
    }
    return configuration(
        BASE | dict(settings), own, settings, managed=frozenset({*ports, *secured.lines})
    )


def port_lines(port: int, web_port: int, *, tls: bool) -> dict[str, str]:
    """Return the lines of a broker's configuration for its two ports."""
    ports = dict(zip(PORTS, (str(port), str(web_port)), strict=True))
    if not tls:
        return ports
    return {f"{key}Tls": number for key, number in ports.items()} | dict.fromkeys(PORTS, "")


def configuration(
    merged: Mapping[str, str],
    own: Mapping[str, str],
    given: Mapping[str, str],
    *,
    managed: frozenset[str] = frozenset(),
) -> str:
    """Return the text of a broker's or bookie's configuration.

    :param merged: the built-in base with the profile's settings.
    :param own: chosen per run.
    :param given: the profile's settings.
    :param managed: further keys that a profile cannot set.
    :raises UsageError: the profile sets a key that is chosen per run, or
        ``maxMessageSize`` is not a number of bytes.
    """
    refuse_managed("Pulsar", given, MANAGED | managed)
    size = merged["maxMessageSize"]
    if not size.isdecimal():
        raise UsageError(
            f"broker.settings: maxMessageSize: {size!r} is not a number of bytes: write e.g."
            " 5242880"
        )
    return properties({**merged, **own, "nettyMaxFrameSizeBytes": str(int(size) + FRAME_OVERHEAD)})


def properties(lines: Mapping[str, str]) -> str:
    """Return the text of a file of Java's properties."""
    text = "".join(f"{key}={value}\n" for key, value in lines.items())
    # java.util.Properties reads bytes as Latin-1, and other characters (of
    # paths) as escapes, which are spelled as in JSON.
    return re.sub(r"[^\x00-\x7f]", lambda character: json.dumps(character[0])[1:-1], text)


def command(
    runtime: Java,
    jars: Path,
    version: str,
    folder: Path,
    bookie_port: int,
    options: Sequence[str] = (),
) -> list[str]:
    """Return the java command of a standalone with configuration and data in ``folder``.

    It keeps data that exists there.

    :param options: further ones of Java.
    """
    data = folder / "data"
    arguments = ["-c", str(folder / "standalone.conf"), "-nfw", "-nss", "-a", "127.0.0.1"]
    arguments += ["--metadata-dir", str(data / "metadata")]
    arguments += ["--bookkeeper-dir", str(data / "bookkeeper")]
    if _major(version) < 5:  # later versions take any free port
        arguments += ["--bookkeeper-port", str(bookie_port)]
    program = java_command(
        runtime,
        jars,
        folder,
        [*MEMORY, "-XX:+UseG1GC", *options],
        "org.apache.pulsar.PulsarStandaloneStarter",
    )
    return [*program, *arguments]


def java_command(
    runtime: Java, jars: Path, folder: Path, memory: Sequence[str], main: str
) -> list[str]:
    """Return the java command of one of Pulsar's programs, without its arguments.

    :param memory: options for heap and collector.
    """
    unsafe = ["--sun-misc-unsafe-memory-access=allow"] if runtime.major >= 23 else []
    options = {
        "log4j.shutdownHookEnabled": "false",
        "log4j2.is.webapp": "false",
        "log4j.configurationFile": str(LOG4J),
        "java.net.preferIPv4Stack": "true",
        "java.io.tmpdir": str(folder / "data" / "tmp"),
        "jute.maxbuffer": "10485760",
        "io.netty.tryReflectionSetAccessible": "true",
        "org.apache.pulsar.shade.io.netty.tryReflectionSetAccessible": "true",
        "pulsar.allocator.exit_on_oom": "true",
        "io.netty.recycler.maxCapacityPerThread": "4096",
        # Chunks of 8 MiB, so that buffers for messages of 5 MiB come from the pool.
        "io.netty.allocator.maxOrder": "10",
        "bookkeeper.metadata.bookie.drivers": (
            "org.apache.pulsar.metadata.bookkeeper.PulsarMetadataBookieDriver"
        ),
        "bookkeeper.metadata.client.drivers": (
            "org.apache.pulsar.metadata.bookkeeper.PulsarMetadataClientDriver"
        ),
    }
    mapped = java.from_archive(java.class_archive(jars, runtime))
    jvm = [*memory, "-XX:+ExitOnOutOfMemoryError", *unsafe, *mapped]
    jvm += [word for package in OPENED for word in ("--add-opens", f"{package}=ALL-UNNAMED")]
    jvm += [f"-D{key}={value}" for key, value in options.items()]
    return [runtime.path, "-cp", f"{jars}/*", *jvm, main]


def new_data(folder: Path) -> str:
    """Make the folders of a process, with no data; return what :func:`data_folder` returns."""
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / "data"
    # A process that was killed together with its watchdog leaves its data behind.
    remove_folder(str(data))
    memory = data_folder(data, Path("/proc/self/mounts").read_text(encoding="utf-8"))
    (data / "tmp").mkdir()
    return memory


def _launch(
    command_in: Callable[[Path, int], list[str]],
    ports: tuple[int, ...],
    version: str,
    request: BrokerRequest,
    progress: Progress,
    grace: float = GRACE,
) -> StartedBroker:
    """:param grace: s between SIGTERM and SIGKILL when it is stopped."""
    port, web_port, bookie_port = ports
    folder = request.folder.resolve()
    memory = new_data(folder)
    secured = secure(folder / "data" / "security", request.security)
    conf = folder / "standalone.conf"
    # The file may contain the password of the broker's own client.
    conf.touch(mode=0o600)
    conf.write_text(
        standalone_conf(port=port, web_port=web_port, settings=request.settings, secured=secured)
    )
    admin_url = f"{'https' if secured.tls else 'http'}://{HERE}:{web_port}"
    admin = Admin(
        admin_url, PulsarSettings(**{"operation_timeout": ADMIN_TIMEOUT, **secured.client})
    )
    name = f"Pulsar {version}"
    progress(f"starting {name}")
    child = Child(command_in(folder, bookie_port), folder=folder, ports=ports, grace=grace)
    wait = partial(wait_ready, child, admin.ready, name, START_SECONDS, progress)
    progress(f"{name} ready in {wait():.0f} s")
    version = admin.version()
    scheme = "pulsar+ssl" if secured.tls else "pulsar"
    settings = decisive_facts(admin, request.settings)
    if request.security:
        settings["security"] = described(request.security)
    if memory:
        settings["data"] = f"in memory, {memory}"
    facts = BrokerFacts(
        name="Pulsar",
        version=version,
        mode="process",
        url=f"{scheme}://{HERE}:{port}",
        admin_url=admin_url,
        settings=settings,
        client=secured.client,
    )
    return StartedBroker(facts, child, wait)


@cache
def open_admin(url: str) -> Admin:
    """Return the admin REST of a broker without authentication.

    Cached, because it is polled and reads the machine's certificates.
    """
    return Admin(url, PulsarSettings(operation_timeout=ADMIN_TIMEOUT))


def describe_broker(admin_url: str) -> tuple[str, dict[str, str]]:
    """Return the version of a target that the run did not start.

    The second value are the settings that influence results.
    """
    admin = open_admin(admin_url)
    return admin.version(), admin.decisive_settings()


def decisive_facts(admin: Admin, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that influence results.

    The running broker's, the bookie's as configured, the memory, and the profile's own.
    """
    bookie = bookie_facts(BASE | dict(settings))
    return admin.decisive_settings() | bookie | {"memory": " ".join(MEMORY)} | dict(settings)


def bookie_facts(configured: Mapping[str, str]) -> dict[str, str]:
    """Return the bookie's settings that influence results."""
    return {key: configured[key] for key in BOOKIE}


# The jars of Pulsar, and what they need of a machine.

PULSAR: Final = Jars(
    "Pulsar", "4.2.4", "some 320 jars, 240 MB", Path(__file__).with_name("pulsar-pom.xml")
)


def pulsar_jars(version: str) -> Jars:
    """Return the jars of a version: the poms before and from Pulsar 5 on differ."""
    if _major(version) < 5:
        return PULSAR
    return replace(PULSAR, pom=PULSAR.pom.with_name("pulsar-5-pom.xml"))


def _major(version: str) -> int:
    """Return the number of the major version; that of the default for a text that is no version."""
    number = re.match(r"\d+", version)
    return int(number[0]) if number else _major(PULSAR.version)


def machine_needs() -> tuple[MachineNeed, ...]:
    """Return what Pulsar needs of this machine, for ``doctor``."""
    runtime = java.find()
    jars = java.cache_root() / f"pulsar-{PULSAR.version}"
    return judge_machine(
        PULSAR.cached_versions(),
        lite=embedded.find_binary() is not None,
        archived=runtime is not None and java.class_archive(jars, runtime).is_file(),
    )


def judge_machine(cached: Sequence[str], *, lite: bool, archived: bool) -> tuple[MachineNeed, ...]:
    """:param cached: versions whose jars are cached. :param lite: pulsar-lite is installed.
    :param archived: the default version has a class archive.
    """
    return (
        needed_jars(
            PULSAR, cached, "the first run on Pulsar fetches 240 MB, about a minute", "real Pulsar"
        ),
        MachineNeed(
            name="Pulsar archive",
            value="made" if archived else None,
            ok=archived,
            cost="Pulsar starts in some 20 s instead of 10",
            remedy=java.FIX,
            fetch=make_pulsar_archive,
        ),
        MachineNeed(
            name="pulsar-lite",
            value="installed" if lite else None,
            ok=lite,
            cost="no stand-in for smoke runs without Java",
            remedy=embedded.REMEDY,
        ),
    )


# Java writes a class archive at its end.
WRITE_SECONDS = 300.0


def make_pulsar_archive(tell: Progress) -> None:
    """Start the default version once, and keep its classes in the form that they have in memory.

    Every later start, of a cluster's processes too, takes half the time. A failure is only
    reported, as Pulsar also starts without an archive.

    :raises UnavailableError: there is no Java, or Maven cannot fetch the jars.
    """
    runtime = java.require("Pulsar")
    version = PULSAR.version
    jars = PULSAR.resolve(version, tell)
    archive = java.class_archive(jars, runtime)
    if archive.is_file():
        return
    with java.new_archive(archive, "*.jsa", f"Pulsar {version}", tell) as new:
        # The second compiler would take as long as the rest of this start.
        options = ["-XX:TieredStopAtLevel=1", f"-XX:ArchiveClassesAtExit={new}"]
        program = partial(command, runtime, jars, version, options=options)
        request = BrokerRequest(kind="pulsar", mode="process", folder=new.parent / "broker")
        try:
            on_free_ports(
                3,
                lambda ports: _launch(program, ports, version, request, tell, WRITE_SECONDS),
            ).stop()
        except TargetError as error:
            tell(str(error))


# Pulsar as a container: Apache's own image, or the user's, with the configuration of the process.


def pulsar_plan(
    *, image: str, ports: tuple[int, ...], settings: Mapping[str, str], host: str
) -> ContainerPlan:
    """Return the plan of a Pulsar standalone on ``ports`` (broker, web).

    It is advertised as ``host``, and configured as the process is.
    """
    port, web_port = ports
    conf = standalone_conf(
        port=port, web_port=web_port, settings=settings, bind="0.0.0.0", advertised=host
    )
    return ContainerPlan(
        name="Pulsar",
        image=image,
        command=with_conf("/tmp/standalone.conf", "bin/pulsar standalone -nfw -nss"),
        env={
            CONF: conf,
            "PULSAR_STANDALONE_CONF": "/tmp/standalone.conf",
            "PULSAR_MEM": " ".join(MEMORY),
        },
        ports=ports,
        url=f"pulsar://{host}:{port}",
        address=publishing_address(host),
        admin_url=f"http://{host}:{web_port}",
    )


def default_image(version: str | None) -> str:
    """Return the name of Apache's image. :param version: the tag; None: the default version."""
    return f"apachepulsar/pulsar:{version or PULSAR.version}"


def container_ready(plan: ContainerPlan) -> bool:
    """Return whether clients can work, by the admin REST."""
    return open_admin(plan.admin_url or "").ready()


def describe_container(
    plan: ContainerPlan, running: RunningContainer, settings: Mapping[str, str]
) -> tuple[str, Mapping[str, str]]:
    """Return version and the settings that influence results, by the admin REST."""
    admin = open_admin(plan.admin_url or "")
    return admin.version(), decisive_facts(admin, settings)


RECIPE: Final = ContainerRecipe(
    default_image=default_image,
    ports=2,
    plan=pulsar_plan,
    ready=container_ready,
    describe=describe_container,
)
