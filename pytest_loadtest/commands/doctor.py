"""``python -m pytest_loadtest doctor``: the needs of load tests on this machine.

Each thing that is missing has a remedy.

:func:`take_inventory` looks at the machine, :func:`inspect` judges (pure), :func:`render` writes
the table, :func:`fix` installs what it can. Only :func:`fix` may start a broker.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_loadtest.brokers import docker_engine, java
from pytest_loadtest.brokers.base import UnavailableError
from pytest_loadtest.brokers.container import recipe_of
from pytest_loadtest.brokers.java import FIX, Java, MachineNeed
from pytest_loadtest.errors import UsageError
from pytest_loadtest.fleet import planning
from pytest_loadtest.kinds.registry import able, kinds, load_reference
from pytest_loadtest.pipeline import java_process
from pytest_loadtest.pipeline.session import SparkHost
from pytest_loadtest.values.quantities import format_size
from pytest_loadtest.values.records import record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession


MAVEN = "maven"
MEMORY_NEEDED = 4 * 1024**3  # Pulsar 2 GiB, Spark 1 GiB, the load workers
DISK_NEEDED = 2 * 1024**3  # jars 240 MB twice (Maven's and ours), samples
FILES_NEEDED = 4096
PORTS_NEEDED = 10_000
CORES_NEEDED = 2
HOSTS = Path("/etc/hosts")
HOSTS_LINE = "127.0.0.1 localhost"


@record
class Inventory:
    """The relevant facts about this machine. None: missing or unknown."""

    java: Java | None
    java_package: str  # the Debian package that brings one
    maven: str | None
    docker: str | None  # engine version
    docker_missing: str  # the reason why there is none
    images: tuple[str, ...]  # the brokers' own images that the engine has
    needs: tuple[MachineNeed, ...]  # of all kinds of broker
    files: int  # hard limit of open files
    ports: int
    localhost: bool  # the name has an address, which a normal /etc/hosts provides
    cores: float
    memory: int | None  # bytes available
    disk: int  # bytes free on the cache's file system
    root: bool
    debian: bool

    @property
    def runs_java(self) -> bool:
        """True if Spark and brokers run on the machine's Java."""
        return self.java is not None and self.java.runs_spark


def take_inventory() -> Inventory:
    """Look at this machine; takes a second or two, mostly the start of Java."""
    docker, missing, images = _docker()
    needs: list[MachineNeed] = []
    for kind in able("doctor"):
        needs += load_reference(kind, str(kind.doctor))()
    needs.append(spark_archive(java_process.path()))
    here = planning.machine()
    return Inventory(
        java=java.find(),
        java_package=java.debian_package(),
        maven=shutil.which("mvn"),
        docker=docker,
        docker_missing=missing,
        images=images,
        needs=tuple(needs),
        files=here.files,
        ports=here.source_ports,
        localhost=_has_localhost(),
        cores=here.cores,
        memory=_available_memory(),
        disk=shutil.disk_usage(_existing(java.cache_root())).free,
        root=os.geteuid() == 0,
        debian=Path("/etc/debian_version").exists() and shutil.which("apt-get") is not None,
    )


def own_images() -> tuple[str, ...]:
    """Return the brokers' own images, in the default versions."""
    images = []
    for kind in kinds().values():
        for name, broker in kind.brokers.items():
            if broker.container:
                images.append(recipe_of(name).default_image(None))
    return tuple(images)


def _has_localhost() -> bool:
    try:
        return bool(socket.getaddrinfo("localhost", 0))
    except OSError:
        return False


def _docker() -> tuple[str | None, str, tuple[str, ...]]:
    try:
        return docker_engine.require_engine(), "", docker_engine.images_here(own_images())
    except UnavailableError as missing:
        return None, missing.reason, ()


def _available_memory() -> int | None:
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
    except OSError:
        return None
    available = re.search(r"MemAvailable: *(\d+)", text)
    return available and int(available[1]) * 1024


def _existing(path: Path) -> Path:
    while not path.exists():
        path = path.parent
    return path


def inspect(machine: Inventory) -> tuple[MachineNeed, ...]:
    """Return the rows of the table."""
    return (*_broker_rows(machine), *_limit_rows(machine))


def _broker_rows(machine: Inventory) -> Iterator[MachineNeed]:
    in_java = [need for need in machine.needs if need.jars_of]
    version = None
    if machine.java is not None:
        version = f"{machine.java.version} ({machine.java.path})"
    yield MachineNeed(
        name="Java",
        value=version,
        ok=machine.runs_java,
        cost=", ".join(f"no {need.jars_of}" for need in in_java) + " and no Spark",
        remedy=f"apt-get install {machine.java_package}, or set JAVA_HOME to {java.SPARK_JAVA}",
    )
    yield MachineNeed(
        name="Maven",
        value=machine.maven,
        ok=machine.maven is not None or all(need.ok for need in in_java),
        cost="jars of brokers cannot be fetched",
        remedy=f"apt-get install {MAVEN}",
    )
    yield from machine.needs
    yield MachineNeed(
        name="Docker",
        value=machine.docker or machine.docker_missing,
        ok=machine.docker is not None,
        cost="no brokers in containers; processes work too",
        remedy=docker_engine.ENGINE_REMEDY,
    )
    if machine.docker:
        absent = [image for image in own_images() if image not in machine.images]
        yield MachineNeed(
            name="images",
            value=", ".join(machine.images) or None,
            ok=not absent,
            cost=f"the first run pulls {' and '.join(absent)}",
            remedy=f"docker pull {' '.join(absent[:1])}, or an image of your own registry:"
            " --load-image, target.image",
        )


def _limit_rows(machine: Inventory) -> Iterator[MachineNeed]:
    elsewhere = "a broker elsewhere (--load-target URL)"
    yield MachineNeed(
        name="cores",
        value=f"{machine.cores:g}",
        ok=machine.cores >= CORES_NEEDED,
        cost="broker and load share one core: low rates only",
        remedy=f"use more cores, or {elsewhere}",
    )
    memory = machine.memory
    yield MachineNeed(
        name="memory",
        value=None if memory is None else f"{format_size(memory)} available",
        ok=memory is None or memory >= MEMORY_NEEDED,
        cost=f"Pulsar, Spark and the workers need {format_size(MEMORY_NEEDED)}",
        remedy=f"use a larger machine, or {elsewhere}",
    )
    yield MachineNeed(
        name="disk",
        value=f"{format_size(machine.disk)} free",
        ok=machine.disk >= DISK_NEEDED,
        cost=f"jars and samples need {format_size(DISK_NEEDED)}",
        remedy=f"free some, or set XDG_CACHE_HOME to another disk than that of {java.cache_root()}",
    )
    yield MachineNeed(
        name="open files",
        value=str(machine.files),
        ok=machine.files >= FILES_NEEDED,
        cost=f"at most some {machine.files} connections a worker",
        remedy="ulimit -Hn 65536",
    )
    yield MachineNeed(
        name="localhost",
        value="has an address" if machine.localhost else None,
        ok=machine.localhost,
        cost="no Spark",
        remedy=_hosts_command(),
    )
    yield MachineNeed(
        name="ephemeral ports",
        value=str(machine.ports),
        ok=machine.ports >= PORTS_NEEDED,
        cost=f"at most {machine.ports} connections to one address",
        remedy="sysctl -w net.ipv4.ip_local_port_range='10240 65535'",
    )


def render(rows: tuple[MachineNeed, ...]) -> str:
    """Return the table as text: mark, thing, value.

    A missing thing also has its cost and remedy.
    """
    width = max(len(row.name) for row in rows)
    lines = []
    for row in rows:
        sign = "ok" if row.ok else "--"
        lines.append(f"{sign}  {row.name:<{width}}  {row.value or 'not found'}")
        if not row.ok:
            lines.append(f"{'':{width + 6}}costs: {row.cost}")
            lines.append(f"{'':{width + 6}}remedy: {row.remedy}")
    return "\n".join(lines)


def missing_packages(machine: Inventory) -> tuple[str, ...]:
    """Return the Debian packages that are missing, in the order of the table."""
    missing = []
    if not machine.runs_java:
        missing.append(machine.java_package)
    if machine.maven is None:
        missing.append(MAVEN)
    return (*missing, *(need.package for need in machine.needs if need.package and not need.ok))


def fix(machine: Inventory, tell: Callable[[str], None]) -> bool:
    """Install missing packages, fetch the brokers' jars, make the class archives.

    :returns: True if nothing is left to do by hand.

    Only root on Debian and its derivatives installs packages; other users get the exact line to
    run.
    """
    if missing_packages(machine) and not _install_packages(machine, tell):
        return False
    if not machine.localhost and not _name_localhost(machine, tell):
        return False
    try:
        for need in machine.needs:
            if need.fetch is not None and not need.ok:
                need.fetch(tell)
    except UnavailableError as missing:
        tell(str(missing))
        return False
    return True


def _hosts_command() -> str:
    return f"echo '{HOSTS_LINE}' >> {HOSTS}"


def _name_localhost(machine: Inventory, tell: Callable[[str], None]) -> bool:
    if not machine.root:
        tell(f"as root: {_hosts_command()}")
        return False
    tell(_hosts_command())
    with HOSTS.open("a", encoding="ascii") as hosts:
        hosts.write(f"{HOSTS_LINE}\n")
    return True


UPDATE = ("apt-get", "update")
INSTALL = ("apt-get", "install", "-y", "--no-install-recommends")


def _install_packages(machine: Inventory, tell: Callable[[str], None]) -> bool:
    line = " ".join([*UPDATE, "&&", *INSTALL, *missing_packages(machine)])
    if not machine.debian:
        others = ", ".join(("Maven", *(need.name for need in machine.needs if need.package)))
        tell(f"install by hand: {java.SPARK_JAVA}, {others} (on Debian: {line})")
        return False
    if not machine.root:
        tell(f"as root: {line}")
        return False
    if not _run_apt(UPDATE, tell):
        return False
    # Only now are there package lists, and with them the version of the default JRE.
    updated = replace(machine, java_package=java.debian_package())
    return _run_apt((*INSTALL, *missing_packages(updated)), tell)


def _run_apt(command: tuple[str, ...], tell: Callable[[str], None]) -> bool:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    tell(" ".join(command))
    status = subprocess.run(command, env=environment, check=False).returncode
    if status != 0:
        tell(f"{' '.join(command)} ended with status {status}; run it by hand to see the reason")
    return status == 0


# The JVM writes the class archive at its end, which takes 20 s on two slow cores.
WRITE_SECONDS = 300


def spark_archive(archive: Path | None) -> MachineNeed:
    """Return the need for the class archive at this path.

    :param archive: None: there is no Java to make it with.
    """
    made = archive is not None and archive.is_file()
    return MachineNeed(
        name="Spark archive",
        value="made" if made else None,
        ok=made,
        cost="Spark starts in some 20 s instead of 10, in every session",
        remedy=FIX,
        fetch=make_class_archive,
    )


def make_class_archive(tell: Callable[[str], None]) -> None:
    """Make the archive with which Spark starts in a third of the time; takes half a minute.

    A failure is only reported, as Spark also starts without it. See
    :mod:`pytest_loadtest.pipeline.java_process`.
    """
    archive = java_process.path()  # the packages may have brought Java
    if archive is None or archive.is_file():
        return
    with java.new_archive(archive, java_process.of_this_pyspark(), "Spark", tell) as new:
        writes_archive = {java_process.OPTIONS: f"-XX:ArchiveClassesAtExit={new}"}
        host = SparkHost(new.parent, writes_archive | {"spark.master": "local[1]"})
        try:
            host.warm()
            _second_scan(host.session())
        except UsageError as error:
            tell(str(error))
        finally:
            host.stop(WRITE_SECONDS)


def _second_scan(session: SparkSession) -> None:
    """Run a small aggregation, so that its classes are in the archive too."""
    from pytest_loadtest.pipeline import transforms

    with transforms.for_workers():
        transforms.deliveries(session.range(1), [[]], [], [], 1).toArrow()
