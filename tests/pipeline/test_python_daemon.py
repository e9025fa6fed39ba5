"""The daemon that forks Spark's Python workers on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
DAEMON = """
import sys
print(any(entry.endswith(".zip") for entry in sys.path), "pyspark.worker" in sys.modules)
print([name for name in sys.modules if name.partition(".")[0] == "pytest_loadtest"])
"""


def test_the_daemon_runs_the_installed_pyspark_without_this_package(tmp_path: Path) -> None:
    """Zip files are removed from the path, the worker is imported before any fork, and workers use only the code sent to them."""
    (tmp_path / "pyspark").mkdir()
    for name, code in (("__init__", ""), ("worker", ""), ("daemon", DAEMON)):
        (tmp_path / "pyspark" / f"{name}.py").write_text(code)
    path = os.pathsep.join(map(str, (tmp_path / "pyspark.zip", tmp_path, ROOT)))
    ended = subprocess.run(
        [sys.executable, "-m", "pytest_loadtest.pipeline.python_daemon"], capture_output=True, text=True, check=True,
        env=os.environ | {"PYTHONPATH": path},
    )  # fmt: skip
    assert ended.stdout.splitlines() == ["False True", "[]"]
