"""Every fault of the catalogue that is fast: the session does what its entry says."""

from __future__ import annotations

from pathlib import Path

import pytest

from .catalogue import FAULTS
from .fault import differences
from .session import run_fault


@pytest.mark.parametrize("name", [name for name, fault in FAULTS.items() if not fault.slow])
def test_a_fault_has_its_verdict_and_leaves_nothing_else(name: str, tmp_path: Path) -> None:
    """Verdict, exit status, counts, the report's words, files, processes, descriptors and memory are those of the catalogue."""
    assert differences(FAULTS[name], run_fault(FAULTS[name], tmp_path)) == []
