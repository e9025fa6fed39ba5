"""Java, and the jars of brokers, with a Maven that needs no network."""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path
from xml.etree import ElementTree

import pytest

from pytest_loadtest.brokers import java
from pytest_loadtest.brokers.base import UnavailableError
from pytest_loadtest.brokers.java import Java
from pytest_loadtest.drivers.mqtt import artemis
from pytest_loadtest.drivers.pulsar import broker as pulsar_jars
from pytest_loadtest.errors import UsageError


@pytest.mark.parametrize("jars", [pulsar_jars.PULSAR, artemis.JARS], ids=lambda jars: jars.name)
def test_the_pom_has_the_default_version(jars: java.Jars) -> None:
    root = ElementTree.parse(jars.pom).getroot()
    assert root.findtext("{*}properties/{*}broker.version") == jars.version


@pytest.mark.parametrize("version", ["", "../x", "4.2.4 -X", "latest"])
def test_a_version_with_other_characters_is_rejected(version: str) -> None:
    """It becomes a folder and an argument."""
    with pytest.raises(UsageError, match="not a version of Pulsar"):
        pulsar_jars.PULSAR.resolve(version, print)


FAILURE = """\
[WARNING] Could not transfer metadata x/maven-metadata.xml: Connection refused
[WARNING] something else
[ERROR] Could not find artifact pulsar-broker:9.9.9 -> [Help 1]
[ERROR]
[ERROR] To see the full stack trace of the errors, re-run Maven with the -e switch.
[ERROR] [Help 1] http://cwiki.apache.example"""
MVN = """#!/bin/sh
for word in "$@"; do case "$word" in -DoutputDirectory=*) out="${word#*=}";; -Dbroker.version=*) version="${word#*=}";; esac; done
echo "Downloaded from central: x.jar"
if [ "$version" = 9.9.9 ]; then echo "$FAILURE"; exit 1; fi
mkdir -p "$out"; touch "$out/a.jar" "$out/b.jar"
echo run >> "$RUNS"
"""


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A Maven that makes two jars at once; the file counts its runs."""
    mvn = tmp_path / "bin" / "mvn"
    mvn.parent.mkdir()
    mvn.write_text(MVN)
    mvn.chmod(0o755)
    counted = tmp_path / "runs"
    monkeypatch.setenv("RUNS", str(counted))
    monkeypatch.setenv("FAILURE", FAILURE)
    monkeypatch.setenv("PATH", f"{mvn.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return counted


def test_jars_are_resolved_once(runs: Path) -> None:
    """The second call finds them; only the jars and the lock are left."""
    said: list[str] = []
    jars = pulsar_jars.PULSAR.resolve("4.0.0", said.append)
    assert pulsar_jars.PULSAR.resolve("4.0.0", said.append) == jars
    assert sorted(path.name for path in jars.iterdir()) == ["a.jar", "b.jar"]
    assert runs.read_text().split() == ["run"]
    assert sorted(path.name for path in jars.parent.iterdir()) == [
        "pulsar-4.0.0",
        "pulsar-4.0.0.lock",
    ]
    assert pulsar_jars.PULSAR.cached_versions() == ("4.0.0",)
    assert said[-1].startswith("resolved Pulsar 4.0.0: 2 jars")


@pytest.mark.usefixtures("runs")
def test_a_cache_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the variable that names another."""
    cache = tmp_path / "file"
    cache.touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    with pytest.raises(UnavailableError) as raised:
        pulsar_jars.PULSAR.resolve("4.0.0", print)
    folder = cache / "pytest-loadtest"
    assert raised.value.reason == f"Pulsar 4.0.0 cannot be kept in {folder}: Not a directory"
    assert raised.value.remedy == "set XDG_CACHE_HOME to a folder that can be written"


def test_a_failed_resolve_leaves_no_folder_and_has_mavens_error(runs: Path) -> None:
    """A later session would use a half-filled folder."""
    with pytest.raises(UnavailableError) as raised:
        pulsar_jars.PULSAR.resolve("9.9.9", print)
    assert raised.value.reason.splitlines() == [
        "Maven could not get Pulsar 9.9.9 (status 1)",
        "Could not transfer metadata x/maven-metadata.xml: Connection refused",
        "Could not find artifact pulsar-broker:9.9.9 -> [Help 1]",
    ]
    assert not runs.exists()
    assert pulsar_jars.PULSAR.cached_versions() == ()


@pytest.mark.parametrize(
    "words",
    [
        "Non-resolvable import POM: Could not find artifact pulsar:pom:9.9.9 in central",
        "pulsar-broker:jar:9.9.9 was not found in https://repo.example during a previous attempt.",
    ],
)
def test_a_version_that_the_registry_lacks_is_an_error_that_says_so(
    runs: Path, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    """Its first question, and those of a day after it, which Maven answers from its own cache."""
    monkeypatch.setenv("FAILURE", f"[ERROR] Some problems\n[ERROR] {words}")
    with pytest.raises(UnavailableError) as raised:
        pulsar_jars.PULSAR.resolve("9.9.9", print)
    assert str(raised.value) == (
        f"Maven's repositories have no Pulsar 9.9.9\n{words}; write a version that was released"
    )


def test_leftovers_of_a_killed_session_are_removed(runs: Path) -> None:
    leftover = java.cache_root() / ".resolving-pulsar-4.0.0-dead"
    leftover.mkdir(parents=True)
    pulsar_jars.PULSAR.resolve("4.0.0", print)
    assert not leftover.exists()


def test_a_second_session_waits_and_then_finds_the_jars(runs: Path) -> None:
    """Two sessions never resolve the same version at once."""
    root = java.cache_root()
    root.mkdir(parents=True)
    waiting = threading.Event()
    found: list[Path] = []
    second = threading.Thread(
        target=lambda: found.append(pulsar_jars.PULSAR.resolve("4.0.0", lambda _: waiting.set()))
    )
    with (root / "pulsar-4.0.0.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        second.start()
        assert waiting.wait(30)
        (root / "pulsar-4.0.0").mkdir()
    second.join(30)
    assert found == [root / "pulsar-4.0.0"]
    assert not runs.exists()


def test_brokers_of_the_same_version_have_separate_jars(runs: Path) -> None:
    for jars in (pulsar_jars.PULSAR, artemis.JARS):
        jars.resolve("4.0.0", print)
    assert runs.read_text().split() == ["run", "run"]
    assert artemis.JARS.cached_versions() == pulsar_jars.PULSAR.cached_versions() == ("4.0.0",)


def test_the_error_without_maven_has_the_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnavailableError, match="doctor --fix"):
        pulsar_jars.PULSAR.resolve("4.2.4", print)


@pytest.mark.parametrize(
    ("text", "version", "numbers"),
    [
        ('openjdk version "17.0.15" 2025-04-15', "17.0.15", (17, 0, 15)),
        ('java version "1.8.0_392"', "1.8.0_392", (8, 0, 392)),
        ('openjdk version "25" 2025-09-16', "25", (25,)),
        ('openjdk version "27-ea" 2027-03-16', "27-ea", (27,)),
    ],
)
def test_old_and_new_version_texts_of_java_are_read(
    text: str, version: str, numbers: tuple[int, ...]
) -> None:
    assert java.java_version(text) == version
    assert Java("java", version).numbers == numbers


def test_a_text_without_a_version_has_none() -> None:
    assert java.java_version('sh: java version "": not found') == ""


@pytest.mark.parametrize(
    ("version", "runs"),
    [
        ("1.8.0_392", False),
        ("11.0.2", False),
        ("16.0.2", False),
        ("17", True),
        ("17.0.15", True),
        ("21.0.13", True),
        ("24.0.1", True),
        ("25", False),
        ("25.0.2", False),
        ("25.0.3", True),
        ("25.1", True),
        ("26", True),
    ],
)
def test_spark_runs_on_java_17_and_newer_but_not_on_the_first_of_25(
    version: str, runs: bool
) -> None:
    """The G1 collector of Java 25 before 25.0.3 can corrupt data."""
    assert Java("java", version).runs_spark == runs


def fake_java(folder: Path, version: str) -> Path:
    binary = folder / "bin" / "java"
    binary.parent.mkdir(parents=True)
    binary.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    binary.chmod(0o755)
    return binary


def test_java_home_comes_before_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_java(tmp_path / "other", "8")
    home = fake_java(tmp_path / "home", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", f"{tmp_path}/other/bin:{os.environ['PATH']}")
    assert java.require("Pulsar") == Java(str(home), "21.0.1")


def test_a_java_home_without_java_is_no_java(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Spark's scripts look nowhere else then."""
    fake_java(tmp_path / "other", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    monkeypatch.setenv("PATH", f"{tmp_path}/other/bin:{os.environ['PATH']}")
    assert java.find() is None
    monkeypatch.delenv("JAVA_HOME")
    assert java.find() == Java(f"{tmp_path}/other/bin/java", "21.0.1")


def test_the_error_for_an_old_java_has_the_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Pulsar's own error comes late and is in its log."""
    fake_java(tmp_path, "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(
        UnavailableError, match=r"Java 11.0.2, Pulsar needs 17.*default-jre-headless"
    ):
        java.require("Pulsar")


@pytest.mark.parametrize(
    ("description", "package"),
    [
        (
            "Package: default-jre-headless\nDepends: openjdk-17-jre-headless, ca-certificates-java",
            "default-jre-headless",
        ),
        (
            "Package: default-jre-headless\nDepends: ca-certificates-java, openjdk-21-jre-headless (>= 21)",
            "default-jre-headless",
        ),
        (
            "Package: default-jre-headless\nDepends: openjdk-11-jre-headless",
            "openjdk-17-jre-headless",
        ),
        ("", "default-jre-headless"),
    ],
)
def test_the_default_jre_is_installed_where_it_is_new_enough(
    description: str, package: str
) -> None:
    assert java.package_for(description) == package


def test_the_class_archive_of_jars_is_that_of_this_java_once_it_is_made(tmp_path: Path) -> None:
    """It is below their folder, with which it is removed."""
    archive = java.class_archive(tmp_path, Java("java", "17.0.15"))
    assert archive.parent == tmp_path
    assert archive != java.class_archive(tmp_path, Java("java", "21.0.1"))
    assert java.from_archive(archive) == []
    archive.touch()
    assert f"-XX:SharedArchiveFile={archive}" in java.from_archive(archive)


@pytest.mark.parametrize("written", [True, False])
def test_a_new_archive_replaces_older_ones_if_java_wrote_it(written: bool, tmp_path: Path) -> None:
    old = tmp_path / "pulsar-1-old.jsa"
    old.touch()
    said: list[str] = []
    with java.new_archive(
        tmp_path / "pulsar-1-new.jsa", "pulsar-1-*", "Pulsar", said.append
    ) as new:
        if written:
            new.touch()
    [left] = tmp_path.iterdir()
    assert left.name == ("pulsar-1-new.jsa" if written else "pulsar-1-old.jsa")
    assert any("wrote no class archive" in line for line in said) is not written
