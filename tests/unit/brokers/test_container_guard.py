"""The process that removes a run's containers, without an engine: the rest needs one and is in tests/plugin/test_containers.py."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from pytest_loadtest.brokers import container_guard

IMPATIENT = """
import sys
sys.path.append(sys.argv[1])
import container_guard as guard
guard.ENGINE_SECONDS, guard.TICK = 0.3, 0.05
sys.exit(guard.main(["pytest-loadtest=x"]))
"""


def test_an_engine_that_does_not_answer_is_reported_once(tmp_path: Path) -> None:
    """The guard retries until its time is over, prints the reason once, and exits with 1: a container may be left."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", IMPATIENT, str(Path(container_guard.__file__).parent)], input="remove", capture_output=True, text=True,
        env={**os.environ, "DOCKER_HOST": f"unix://{tmp_path}/docker.sock"}, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert len(done.stdout.splitlines()) == 1
