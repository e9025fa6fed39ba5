"""Spark's Java process: what is said where it does not come up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_loadtest.errors import UsageError
from pytest_loadtest.pipeline import java_process
from pytest_loadtest.pipeline.java_process import JavaProcess

if TYPE_CHECKING:
    from pathlib import Path


def submit(folder: Path, monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    """Replace Spark's script by these lines."""
    script = folder / "bin/spark-submit"
    script.parent.mkdir()
    script.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    script.chmod(0o755)
    monkeypatch.setattr(java_process, "spark_home", lambda: str(folder))


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("exit 1", r"exit status 1 \(its output: .*spark.log"),
        ("echo java.net.BindException: in use; exit 2", "exit status 2, java.net.BindException"),
        ("kill -9 $$", "killed by signal 9"),
    ],
)
def test_a_process_that_ends_while_it_starts_is_an_error_with_its_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, why: str
) -> None:
    """This machine's Java is not the cause."""
    submit(tmp_path, monkeypatch, line)
    java = JavaProcess({}, tmp_path / "spark.log", loopback=True)
    try:
        with pytest.raises(UsageError, match=f"Spark could not start its Java process: {why}"):
            java.gateway()
    finally:
        java.kill()


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.2"])
def test_a_java_that_spark_cannot_run_on_is_named_with_the_versions_that_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    """Spark itself prints the number of a class file's format."""
    binary = tmp_path / "old/bin/java"
    binary.parent.mkdir(parents=True)
    binary.write_text(
        f"""#!/bin/sh
if [ "$1" = -version ]; then echo 'openjdk version "{version}"' >&2; exit; fi
echo 'java.lang.UnsupportedClassVersionError: class file version 61.0' >&2; exit 1
"""
    )
    binary.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    java = JavaProcess({}, tmp_path / "spark.log", loopback=True)
    needs = "it needs Java 17, 21, or 25 from 25.0.3 on the PATH or at JAVA_HOME"
    try:
        with pytest.raises(UsageError, match=f"{needs}, and {binary} is Java {version}; exit "):
            java.gateway()
    finally:
        java.kill()


def test_a_start_that_takes_too_long_ends_with_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Java that hangs would hold a session for ever."""
    submit(tmp_path, monkeypatch, "echo looking for the master", "exec sleep 600")
    monkeypatch.setattr(java_process, "START_SECONDS", 2)
    java = JavaProcess({}, tmp_path / "spark.log", loopback=True)
    try:
        with pytest.raises(
            UsageError,
            match=r"was not ready after 2 s: looking for the master \(its output: .*spark.log\)",
        ):
            java.gateway()
    finally:
        java.kill()
    assert not java.alive()
