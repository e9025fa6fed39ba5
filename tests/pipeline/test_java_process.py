"""Spark's Java process: what is said where it does not come up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_loadtest.errors import UsageError
from pytest_loadtest.pipeline import java_process
from pytest_loadtest.pipeline.java_process import JavaProcess

if TYPE_CHECKING:
    from pathlib import Path


def test_a_start_that_takes_too_long_ends_with_its_last_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Java that hangs would hold a session for ever."""
    script = tmp_path / "bin/spark-submit"
    script.parent.mkdir()
    script.write_text("#!/bin/sh\necho looking for the master\nexec sleep 600\n")
    script.chmod(0o755)
    monkeypatch.setattr(java_process, "spark_home", lambda: str(tmp_path))
    monkeypatch.setattr(java_process, "START_SECONDS", 2)
    java = JavaProcess({}, tmp_path / "spark.log", loopback=True)
    try:
        with pytest.raises(UsageError, match=r"was not ready after 2 s: looking for the master \(its output: .*spark.log\)"):
            java.gateway()
    finally:
        java.kill()
    assert not java.alive()
