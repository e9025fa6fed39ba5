"""``python -m pytest_loadtest``."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [(["--help"], 0, "usage: "), (["no-such-command"], 2, "no-such-command")],
)
def test_the_module_runs_the_commands_and_exits_with_their_status(
    arguments: list[str], status: int, text: str
) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "pytest_loadtest", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, text in ended.stdout + ended.stderr) == (status, True)


def test_importing_the_module_runs_nothing() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", "import pytest_loadtest.__main__"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stdout + ended.stderr == ""
