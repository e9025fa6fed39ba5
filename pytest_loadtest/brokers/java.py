"""The Java, and the jars from Maven, that run Pulsar and Artemis.

And a kind's needs as ``doctor`` shows them.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from pytest_loadtest.brokers.base import UnavailableError
from pytest_loadtest.errors import UsageError
from pytest_loadtest.values.records import immutable, record

OLDEST = 17
SPARK_JAVA = "Java 17, 21, or 25 from 25.0.3"
"""The versions that Spark is tested on by its project. It starts on others too, from 17 on."""
DEFAULT_PACKAGE: Final = "default-jre-headless"
"""Debian's package of the distribution's default JRE: Java 17 on Debian 12, 21 on Debian 13,
25 on Debian testing.
"""
OLDEST_PACKAGE: Final = f"openjdk-{OLDEST}-jre-headless"
"""The package for distributions whose default is older, as Debian 11 and Ubuntu 22.04.

Debian 13 does not have it.
"""
REMEDY = f"apt-get install {DEFAULT_PACKAGE}, or python -m pytest_loadtest doctor --fix"

CACHE_REMEDY: Final = "set XDG_CACHE_HOME to a folder that can be written"


@immutable
class Java:
    """A java binary and its version, as it writes it: ``17.0.15``, ``1.8.0_392``."""

    path: str
    version: str

    @property
    def numbers(self) -> tuple[int, ...]:
        """The version in numbers, the major version first: 8 for ``1.8.0``."""
        return tuple(map(int, re.findall(r"\d+", self.version.removeprefix("1."))))

    @property
    def major(self) -> int:
        """The major version."""
        return self.numbers[0]

    @property
    def runs_spark(self) -> bool:
        """True if Spark can run on it.

        Spark warns of Java 25 before 25.0.3: its G1 collector can corrupt data (JDK-8377811).
        """
        return self.major >= OLDEST and not (25,) <= self.numbers < (25, 0, 3)


def program() -> str | None:
    """Return ``$JAVA_HOME/bin/java``, or ``java`` on the PATH if JAVA_HOME is not set, as Spark's
    scripts do; None if there is none.
    """
    home = os.environ.get("JAVA_HOME")
    return shutil.which(f"{home}/bin/java" if home else "java")


def find() -> Java | None:
    """Return the Java of :func:`program`; None if there is none or it does not run."""
    path = program()
    if path is None:
        return None
    try:
        answer = subprocess.run(
            [path, "-version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = java_version(answer.stderr + answer.stdout)
    return Java(path, version) if version else None


def java_version(text: str) -> str:
    """Return ``17.0.15`` for ``openjdk version "17.0.15" 2025-04-15``; empty without a version."""
    match = re.search(r'version "(\d[^"]*)', text)
    return match[1] if match else ""


def debian_package() -> str:
    """Return the Debian package with a Java that is new enough.

    Without package lists, as before the first ``apt-get update``, this is the default one.
    """
    try:
        answer = subprocess.run(
            ["apt-cache", "show", "--no-all-versions", DEFAULT_PACKAGE],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return DEFAULT_PACKAGE
    return package_for(answer.stdout)


def package_for(description: str) -> str:
    """Return the package to install.

    :param description: apt's of the default JRE; empty if unknown.
    """
    default = re.search(r"^Depends:.*\bopenjdk-(\d+)-jre-headless", description, re.MULTILINE)
    if default is not None and int(default[1]) < OLDEST:
        return OLDEST_PACKAGE
    return DEFAULT_PACKAGE


def require(broker: str) -> Java:
    """Return the Java of this machine.

    :param broker: the broker to run on it, for the error's text.
    :raises UnavailableError: there is none, or it is too old.
    """
    java = find()
    if java is None:
        raise UnavailableError(f"{broker} needs Java, and there is none (JAVA_HOME, PATH)", REMEDY)
    if java.major < OLDEST:
        raise UnavailableError(
            f"{java.path} is Java {java.version}, {broker} needs {OLDEST} or later", REMEDY
        )
    return java


# The jars of brokers that run on Java: resolved once per version by Maven into the user's cache,
# then only looked up.
#
# ``~/.cache/pytest-loadtest/pulsar-<version>/`` appears complete or not at all: Maven fills another
# folder, which is then renamed. A lock makes a second session wait instead of resolving too.

MAVEN_REMEDY = "apt-get install maven, or python -m pytest_loadtest doctor --fix"
HEARTBEAT = 5.0  # s between two lines of progress
_HINTS = (
    "To see the full stack trace",
    "Re-run Maven",
    "For more information",
    "[Help",
)  # no causes of a failure
_NO_ANSWER = "Could not transfer"
_ABSENT = re.compile("Could not find artifact|was not found in")
_VERSION = re.compile(r"\d+(\.\d+)*[0-9A-Za-z.\-]*")


def cache_root() -> Path:
    """Return ``$XDG_CACHE_HOME/pytest-loadtest``, by default below ``~/.cache``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "pytest-loadtest")


@immutable
class Jars:
    """The jars on one broker's class path.

    :param name: the broker's name. :param version: default version; its pom names it too.
    :param download: size of the first run's download, as text.
    :param pom: the file that names the jars of ``${broker.version}``.
    """

    name: str
    version: str
    download: str
    pom: Path

    def cached_versions(self) -> tuple[str, ...]:
        """Return the versions that are in the cache."""
        prefix = f"{self.name.lower()}-"
        return tuple(
            sorted(
                path.name.removeprefix(prefix)
                for path in cache_root().glob(f"{prefix}*")
                if path.is_dir()
            )
        )

    def resolve(self, version: str, progress: Callable[[str], None]) -> Path:
        """Return the folder with the jars of this version; Maven runs only the first time.

        :raises UsageError: it is not a version.
        :raises UnavailableError: it is not cached, and the cache cannot be written, or Maven is
            missing or failed; with Maven's error lines.
        """
        what = f"{self.name} {version}"
        if not _VERSION.fullmatch(version):
            raise UsageError(
                f"{version!r} is not a version of {self.name}: write one like {self.version}"
            )
        jars = cache_root() / f"{self.name.lower()}-{version}"
        if jars.is_dir():
            return jars
        mvn = shutil.which("mvn")
        if mvn is None:
            raise UnavailableError(
                f"{what} is not cached and there is no Maven (mvn) to fetch it", MAVEN_REMEDY
            )
        try:
            jars.parent.mkdir(parents=True, exist_ok=True)
            with _lock(jars.with_name(f"{jars.name}.lock"), what, progress):
                if not jars.is_dir():
                    progress(f"resolving {what} ({self.download}, once)")
                    _fetch(mvn, self.pom, version, jars, what, progress)
        except OSError as error:
            raise UnavailableError(
                f"{what} cannot be kept in {jars.parent}: {error.strerror}", CACHE_REMEDY
            ) from error
        return jars


@contextmanager
def _lock(path: Path, what: str, progress: Callable[[str], None]) -> Iterator[None]:
    with path.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress(f"waiting for another session that resolves {what}")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _fetch(
    mvn: str, pom: Path, version: str, jars: Path, what: str, progress: Callable[[str], None]
) -> None:
    prefix = f".resolving-{jars.name}-"
    for leftover in jars.parent.glob(
        f"{prefix}*"
    ):  # from a killed session: a live one would hold the lock
        shutil.rmtree(leftover, ignore_errors=True)
    staging = Path(tempfile.mkdtemp(prefix=prefix, dir=jars.parent))
    try:
        started = time.monotonic()
        shutil.copyfile(pom, staging / "pom.xml")
        _maven(maven_command(mvn, version, staging), staging, what, progress)
        count = sum(1 for _ in (staging / "lib").glob("*.jar"))
        if count == 0:
            raise UnavailableError(f"Maven succeeded but fetched no jar of {what}")
        (staging / "lib").rename(jars)
        progress(f"resolved {what}: {count} jars in {time.monotonic() - started:.0f} s")
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _maven(command: list[str], staging: Path, what: str, progress: Callable[[str], None]) -> None:
    with subprocess.Popen(
        command,
        cwd=staging,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        try:
            assert process.stdout is not None
            errors = _follow(process.stdout, what, progress)
            status = process.wait()
        finally:
            process.kill()  # only does something on Ctrl-C
    if status == 0:
        return
    reachable = not any(_NO_ANSWER in line for line in errors)
    absent = next((line for line in errors if _ABSENT.search(line)), None)
    if absent and reachable:
        raise UnavailableError(
            f"Maven's repositories have no {what}\n{absent}", "write a version that was released"
        )
    reason = "\n".join([f"Maven could not get {what} (status {status})", *errors[:5]])
    raise UnavailableError(reason, "check the version, the network and Maven's settings.xml")


def maven_command(mvn: str, version: str, staging: Path) -> list[str]:
    """Return the command that copies the pom's run-time dependencies into ``staging/lib``.

    The user's own Maven settings apply.
    """
    goal = [
        "dependency:copy-dependencies",
        "-DincludeScope=runtime",
        "-Dmdep.prependGroupId=true",
        f"-DoutputDirectory={staging / 'lib'}",
    ]
    return [mvn, "-B", "-f", str(staging / "pom.xml"), *goal, f"-Dbroker.version={version}"]


def _follow(output: IO[str], what: str, progress: Callable[[str], None]) -> list[str]:
    """Report progress while Maven runs, and return its error lines."""
    errors = []
    downloaded = 0
    reported = time.monotonic()
    for line in output:
        downloaded += line.count("Downloaded from ")
        errors += _causes(line)
        if time.monotonic() - reported >= HEARTBEAT:
            reported = time.monotonic()
            progress(f"resolving {what}: {downloaded} files downloaded")
    return errors


def _causes(line: str) -> list[str]:
    """Return the cause of a failure in a line of Maven's output, if it has one.

    Without a network the cause is only in a warning.
    """
    tag, _, text = line.strip().partition("] ")
    is_error = tag == "[ERROR" or text.startswith(_NO_ANSWER)
    return [text[:300]] if is_error and text and not text.startswith(_HINTS) else []


# A class archive: most of the start of a program in Java is loading and verifying its classes. Java
# maps them from an archive as they were in memory when it was made. It checks whether the archive
# matches the jars, and otherwise loads the classes normally, so a stale archive only costs time.


def class_archive(jars: Path, runtime: Java) -> Path:
    """Return the path of the class archive of the jars in a folder, which need not exist.

    It is in that folder, so that jars which are fetched again do not have the archive of others.
    """
    return jars / f"java-{runtime.version}.jsa"


@contextmanager
def new_archive(
    archive: Path, replaced: str, of: str, tell: Callable[[str], None]
) -> Iterator[Path]:
    """Yield the path to which a process writes its classes at its end; without a failure they are
    then the archive.

    :param replaced: pattern of the archives that it replaces.
    """
    tell(f"making the class archive of {of} (once, half a minute)")
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".making-", dir=archive.parent) as folder:
        new = Path(folder) / archive.name
        yield new
        if not new.is_file():
            tell(f"Java wrote no class archive: {of} starts without one, in ten seconds more")
            return
        for other in archive.parent.glob(replaced):
            other.unlink()
        new.rename(archive)


def from_archive(archive: Path | None) -> list[str]:
    """Return the options with which Java takes its classes from an archive; none without one."""
    if archive is None or not archive.is_file():
        return []
    return [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto"]


# The needs of a kind of broker on this machine, as ``doctor`` shows and fetches them.

FIX: Final = "python -m pytest_loadtest doctor --fix"


@record
class MachineNeed:
    """One thing that brokers of a kind need.

    :param value: the version or path that is present, as text; None: nothing.
    :param ok: it is sufficient.
    :param cost: what does not work without it. :param remedy: the line that helps.
    :param package: the Debian package that has it.
    :param fetch: gets it; called with a function that takes lines of progress.
    :param jars_of: for jars that Maven fetches, the program that they are for: ``Artemis``.
    """

    name: str
    value: str | None
    ok: bool
    cost: str
    remedy: str
    package: str = ""
    fetch: Callable[[Callable[[str], None]], object] | None = None
    jars_of: str = ""


def needed_jars(jars: Jars, cached: Sequence[str], cost: str, what: str) -> MachineNeed:
    """Return the need for jars from Maven.

    :param cached: versions in the cache. :param what: the program that runs from them.
    """
    return MachineNeed(
        name=f"{jars.name} jars",
        value=", ".join(cached) or None,
        ok=jars.version in cached,
        cost=cost,
        remedy=FIX,
        fetch=lambda tell: jars.resolve(jars.version, tell),
        jars_of=what,
    )
