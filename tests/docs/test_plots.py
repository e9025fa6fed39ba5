"""The documentation's plots are drawn from stored data, without a broker."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]
DATA = ROOT / "docs" / "howto" / "delayed-index.json"
MOST = 60_000  # bytes


def drawn(data: Path) -> str:
    command = [sys.executable, str(ROOT / "benchmarks" / "delayed_index.py"), str(data)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_the_plot_of_the_delayed_index_has_both_versions(tmp_path: Path) -> None:
    """The table has them too, and the plot is as small as the one in the repository."""
    pytest.importorskip("matplotlib", reason="pip install --group plots")
    data = Path(shutil.copy(DATA, tmp_path))
    table = drawn(data)
    text = data.with_suffix(".svg").read_text()
    ElementTree.fromstring(text)
    for version in ("4.0.0", "4.2.4"):
        assert f"| {version} |" in table
        assert f"{version}: the broker's metric" in text
    assert max(len(text), DATA.with_suffix(".svg").stat().st_size) < MOST
