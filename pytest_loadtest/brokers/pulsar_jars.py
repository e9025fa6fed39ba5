"""Pulsar's jars: resolved once per version by Maven into the user's cache, then only looked up.

``~/.cache/pytest-loadtest/pulsar-<version>/`` appears whole or not at all: Maven fills a folder beside it, which is renamed. A lock
makes a second session wait instead of resolving too.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from pytest_loadtest.brokers._unavailable import UnavailableError
from pytest_loadtest.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DEFAULT_VERSION = "4.2.4"
POM = Path(__file__).with_name("pulsar-pom.xml")
REMEDY = "apt-get install maven, or python -m pytest_loadtest doctor --fix"
HEARTBEAT = 5.0  # s between two lines of progress
_VERSION = re.compile(r"\d+(\.\d+)*[0-9A-Za-z.\-]*")


def cache_root() -> Path:
    """``$XDG_CACHE_HOME/pytest-loadtest``, by default below ``~/.cache``."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "pytest-loadtest"


def cached_versions() -> tuple[str, ...]:
    """The Pulsar versions that need no Maven any more."""
    return tuple(sorted(path.name.removeprefix("pulsar-") for path in cache_root().glob("pulsar-*") if path.is_dir()))


def resolve(version: str, progress: Callable[[str], None]) -> Path:
    """The folder that holds the jars of this version; Maven runs only the first time.

    :raises UsageError: not a version.
    :raises UnavailableError: not cached and no Maven here, or Maven could not get it; with Maven's own words.
    """
    if not _VERSION.fullmatch(version):
        raise UsageError(f"{version!r} is not a Pulsar version: write one like {DEFAULT_VERSION}")
    jars = cache_root() / f"pulsar-{version}"
    if jars.is_dir():
        return jars
    mvn = shutil.which("mvn")
    if mvn is None:
        raise UnavailableError(f"Pulsar {version} is not cached and there is no Maven (mvn) to fetch it", REMEDY)
    jars.parent.mkdir(parents=True, exist_ok=True)
    with _lock(jars.with_name(f"pulsar-{version}.lock"), version, progress):
        if not jars.is_dir():
            _fetch(mvn, version, jars, progress)
    return jars


@contextmanager
def _lock(path: Path, version: str, progress: Callable[[str], None]) -> Iterator[None]:
    with path.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress(f"waiting for another session that resolves Pulsar {version}")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _fetch(mvn: str, version: str, jars: Path, progress: Callable[[str], None]) -> None:
    prefix = f".resolving-{version}-"
    for leftover in jars.parent.glob(f"{prefix}*"):  # of a session that was killed; nobody else is here, we hold the lock
        shutil.rmtree(leftover, ignore_errors=True)
    staging = Path(tempfile.mkdtemp(prefix=prefix, dir=jars.parent))
    try:
        progress(f"resolving Pulsar {version} (some 320 jars, 240 MB, once)")
        started = time.monotonic()
        shutil.copyfile(POM, staging / "pom.xml")
        _maven(mvn, version, staging, progress)
        count = sum(1 for _ in (staging / "lib").glob("*.jar"))
        if count == 0:
            raise UnavailableError(f"Maven ended well, yet brought no jar of Pulsar {version}")
        (staging / "lib").rename(jars)
        progress(f"resolved Pulsar {version}: {count} jars in {time.monotonic() - started:.0f} s")
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _maven(mvn: str, version: str, staging: Path, progress: Callable[[str], None]) -> None:
    command = maven_command(mvn, version, staging)
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=staging, text=True, stdin=subprocess.DEVNULL, stdout=pipe, stderr=subprocess.STDOUT) as process:
        try:
            assert process.stdout is not None
            errors = _follow(process.stdout, version, progress)
            status = process.wait()
        finally:
            process.kill()  # only does something on Ctrl-C
    if status != 0:
        said = "\n".join([f"Maven could not get Pulsar {version} (status {status})", *errors[:5]])
        raise UnavailableError(said, "check the version, the network and Maven's settings.xml")


def maven_command(mvn: str, version: str, staging: Path) -> list[str]:
    """Copies everything the pom needs at run time into ``staging/lib``; settings and mirrors are the user's own."""
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", "-Dmdep.prependGroupId=true", f"-DoutputDirectory={staging / 'lib'}"]
    return [mvn, "-B", "-f", str(staging / "pom.xml"), *goal, f"-Dpulsar.version={version}"]


def _follow(output: IO[str], version: str, progress: Callable[[str], None]) -> list[str]:
    """Tell how far it is; the error lines."""
    errors: list[str] = []
    downloaded = 0
    told = time.monotonic()
    for line in output:
        downloaded += line.count("Downloaded from ")
        if "[ERROR]" in line:
            errors.append(line.strip()[:300])
        if time.monotonic() - told >= HEARTBEAT:
            told = time.monotonic()
            progress(f"resolving Pulsar {version}: {downloaded} files downloaded")
    return errors
