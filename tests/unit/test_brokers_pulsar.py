"""Pulsar's configuration, command, Java and jars, without starting any."""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path
from xml.etree import ElementTree

import pytest

from pytest_loadtest.brokers import java, pulsar, pulsar_admin, pulsar_jars
from pytest_loadtest.brokers._unavailable import UnavailableError
from pytest_loadtest.brokers.java import Java
from pytest_loadtest.errors import UsageError


def conf(**settings: str) -> dict[str, str]:
    text = pulsar.standalone_conf(port=1, web_port=2, settings=settings)
    return dict(line.split("=", 1) for line in text.splitlines())


def test_base() -> None:
    """Own ports on loopback, quorums of one, and the frame follows the largest message."""
    told = conf()
    assert (told["brokerServicePort"], told["webServicePort"], told["bindAddress"]) == ("1", "2", "127.0.0.1")
    assert {told[f"managedLedgerDefault{what}"] for what in ("EnsembleSize", "WriteQuorum", "AckQuorum")} == {"1"}
    assert int(told["nettyMaxFrameSizeBytes"]) == int(told["maxMessageSize"]) + pulsar.FRAME_OVERHEAD


def test_the_profile_wins_over_the_base() -> None:
    """Settings replace and add; the frame follows."""
    told = conf(maxMessageSize="1000", journalSyncData="true", anything="x=y")
    assert (told["journalSyncData"], told["anything"], told["nettyMaxFrameSizeBytes"]) == ("true", "x=y", "11240")


@pytest.mark.parametrize("settings", [{"webServicePort": "8080"}, {"maxMessageSize": "5MB"}, {"a": "1\nb=2"}])
def test_wrong_settings(settings: dict[str, str]) -> None:
    """What is chosen per run, what is not a number, what is not one line."""
    with pytest.raises(UsageError, match=r"broker\.settings"):
        conf(**settings)


@pytest.mark.parametrize(("major", "flag"), [(17, False), (25, True)])
def test_command(major: int, flag: bool, tmp_path: Path) -> None:
    """Everything the JVM writes stays in the data folder; newer Javas need leave for unsafe memory."""
    line = pulsar.command(Java("java", major), Path("/jars"), tmp_path)
    assert line[:3] == ["java", "-cp", "/jars/*"]
    assert ("--sun-misc-unsafe-memory-access=allow" in line) is flag
    data = str(tmp_path / "data")
    assert all(line[line.index(option) + 1].startswith(data) for option in ("--metadata-dir", "--bookkeeper-dir"))
    assert f"-Djava.io.tmpdir={data}/tmp" in line


@pytest.mark.parametrize(
    ("text", "major"),
    [('openjdk version "17.0.15" 2025-04-15', 17), ('java version "1.8.0_392"', 8), ('openjdk version "25" 2025-09-16', 25), ("", None)],
)
def test_java_versions(text: str, major: int | None) -> None:
    """Old and new spellings of Java's version."""
    assert java.parse_major(text) == major


def fake_java(folder: Path, version: str) -> Path:
    binary = folder / "bin" / "java"
    binary.parent.mkdir(parents=True)
    binary.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    binary.chmod(0o755)
    return binary


def test_java_home_comes_before_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """JAVA_HOME names the Java that is meant."""
    fake_java(tmp_path / "other", "8")
    home = fake_java(tmp_path / "home", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", f"{tmp_path}/other/bin:{os.environ['PATH']}")
    assert java.require() == Java(str(home), 21)


def test_old_java_is_refused_with_the_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Pulsar's own refusal comes late and in its log; ours at once, with the package to install."""
    fake_java(tmp_path, "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(UnavailableError, match=r"Java 11, Pulsar needs 17.*openjdk-17-jre-headless"):
        java.require()


def test_pom_names_the_default_version() -> None:
    """The pinned version is the same in the pom and in the code."""
    root = ElementTree.parse(pulsar_jars.POM).getroot()
    assert root.findtext("{*}properties/{*}pulsar.version") == pulsar_jars.DEFAULT_VERSION


@pytest.mark.parametrize("version", ["", "../x", "4.2.4 -X", "latest"])
def test_a_version_is_not_a_path(version: str) -> None:
    """The version becomes a folder and an argument: only versions pass."""
    with pytest.raises(UsageError, match="not a Pulsar version"):
        pulsar_jars.resolve(version, print)


MVN = """#!/bin/sh
for word in "$@"; do case "$word" in -DoutputDirectory=*) out="${word#*=}";; -Dpulsar.version=*) version="${word#*=}";; esac; done
echo "Downloaded from central: x.jar"
if [ "$version" = 9.9.9 ]; then echo "[ERROR] Could not find artifact pulsar-broker:9.9.9"; exit 1; fi
mkdir -p "$out"; touch "$out/a.jar" "$out/b.jar"
echo run >> "$RUNS"
"""


@pytest.fixture
def maven(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A Maven that makes two jars in no time; the file that counts its runs."""
    mvn = tmp_path / "bin" / "mvn"
    mvn.parent.mkdir()
    mvn.write_text(MVN)
    mvn.chmod(0o755)
    runs = tmp_path / "runs"
    monkeypatch.setenv("RUNS", str(runs))
    monkeypatch.setenv("PATH", f"{mvn.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return runs


def test_jars_are_resolved_once(maven: Path) -> None:
    """The second call only looks; nothing but the jars and the lock is left."""
    said: list[str] = []
    jars = pulsar_jars.resolve("4.0.0", said.append)
    assert pulsar_jars.resolve("4.0.0", said.append) == jars
    assert sorted(path.name for path in jars.iterdir()) == ["a.jar", "b.jar"]
    assert maven.read_text().split() == ["run"]
    assert sorted(path.name for path in jars.parent.iterdir()) == ["pulsar-4.0.0", "pulsar-4.0.0.lock"]
    assert pulsar_jars.cached_versions() == ("4.0.0",)
    assert said[-1].startswith("resolved Pulsar 4.0.0: 2 jars")


def test_a_failed_resolve_leaves_nothing_and_says_why(maven: Path) -> None:
    """Maven's own words, and no half-filled folder that a later session would trust."""
    with pytest.raises(UnavailableError, match=r"Could not find artifact pulsar-broker:9\.9\.9"):
        pulsar_jars.resolve("9.9.9", print)
    assert not maven.exists()
    assert pulsar_jars.cached_versions() == ()


def test_leftovers_of_a_killed_session_are_removed(maven: Path) -> None:
    """A staging folder without its session is in nobody's way."""
    leftover = pulsar_jars.cache_root() / ".resolving-4.0.0-dead"
    leftover.mkdir(parents=True)
    pulsar_jars.resolve("4.0.0", print)
    assert not leftover.exists()


def test_a_second_session_waits_and_then_finds_the_jars(maven: Path) -> None:
    """Two sessions never resolve the same version at once."""
    root = pulsar_jars.cache_root()
    root.mkdir(parents=True)
    waiting = threading.Event()
    found: list[Path] = []
    second = threading.Thread(target=lambda: found.append(pulsar_jars.resolve("4.0.0", lambda _: waiting.set())))
    with (root / "pulsar-4.0.0.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        second.start()
        assert waiting.wait(30)
        (root / "pulsar-4.0.0").mkdir()
    second.join(30)
    assert found == [root / "pulsar-4.0.0"]
    assert not maven.exists()


def test_an_admin_that_is_not_there_knows_nothing() -> None:
    """Unknown is said as unknown."""
    assert not pulsar_admin.ready("http://127.0.0.1:1")
    assert pulsar_admin.version("http://127.0.0.1:1") == "unknown"
    assert pulsar_admin.decisive_settings("http://127.0.0.1:1") == {}
