"""Every fault of the catalogue that is fast: the session does what its entry says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from .catalogue import FAULTS
from .fault import differences
from .session import run_fault
from .together import by_profile, run_together

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from .fault import Seen

FAST = {name: fault for name, fault in FAULTS.items() if not fault.slow}


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Seen]:
    """Run the faults that a profile alone makes, in one session."""
    shared = [fault for fault in FAST.values() if by_profile(fault)]
    return run_together(shared, tmp_path_factory.mktemp("together"))


@pytest.mark.parametrize("name", FAST)
def test_a_fault_has_its_verdict_and_leaves_nothing_else(
    name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Verdict, exit status, counts, the report's words, files, processes, descriptors and memory are those of the catalogue."""
    fault = FAST[name]
    if by_profile(fault):
        seen = request.getfixturevalue("together")[name]
    else:
        seen = run_fault(fault, tmp_path)
    assert differences(fault, seen) == []
