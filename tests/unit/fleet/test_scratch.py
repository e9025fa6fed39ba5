"""Temporary folders that a killed process leaves behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_loadtest.fleet.scratch import ScratchFolder

OWNER = """
import sys, time
from pytest_loadtest.fleet.scratch import ScratchFolder
folder = ScratchFolder("loadtest-scratch-")
(folder.path / "samples").write_text("some")
print(folder.path, flush=True)
time.sleep(600)
"""


@pytest.fixture(autouse=True)
def own_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let temporary folders be in the test's own."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)


def test_the_folder_of_a_killed_process_is_removed_by_the_next_one(tmp_path: Path) -> None:
    """That of a process that runs stays, whatever its age; so does one that is too young to judge."""
    path = os.pathsep.join(filter(None, sys.path))
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": path},
    )
    assert owner.stdout is not None
    try:
        folder = Path(owner.stdout.readline().strip())
        os.utime(folder, (0, 0))
        ScratchFolder("loadtest-scratch-").remove()
        assert (folder / "samples").exists()
    finally:
        owner.send_signal(signal.SIGKILL)
        owner.wait()
        owner.stdout.close()
    (young := tmp_path / "loadtest-scratch-young").mkdir()
    (other := tmp_path / "loadtest-others-old").mkdir()
    os.utime(other, (0, 0))
    ScratchFolder("loadtest-scratch-").remove()
    assert sorted(tmp_path.iterdir()) == [other, young]


def test_a_folder_is_removed_once() -> None:
    folder = ScratchFolder("loadtest-scratch-")
    assert folder.path.is_dir()
    folder.remove()
    folder.remove()
    assert not folder.path.exists()
