"""Every fault of the catalogue that is fast: the session does what its entry says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from .catalogue import FAULTS
from .fault import differences
from .session import run_fault
from .together import is_shared, run_together

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from .fault import Seen

FAST = {name: fault for name, fault in FAULTS.items() if not fault.slow}


@pytest.fixture(scope="module")
def by_profile(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Seen]:
    """Run the faults that a profile or a fake broker makes, in one session."""
    faults = [fault for fault in FAST.values() if is_shared(fault) and not fault.act]
    return run_together(faults, tmp_path_factory.mktemp("profile"))


@pytest.fixture(scope="module")
def by_action(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Seen]:
    """Run the faults of mosquitto and of connections to it, in one session."""
    faults = [fault for fault in FAST.values() if is_shared(fault) and fault.act]
    return run_together(faults, tmp_path_factory.mktemp("action"))


@pytest.mark.parametrize("name", FAST)
def test_a_fault_has_its_verdict_and_leaves_nothing_else(
    name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Verdict, exit status, counts, the report's words, files, processes, descriptors and memory are those of the catalogue."""
    fault = FAST[name]
    if not is_shared(fault):
        seen = run_fault(fault, tmp_path)
    elif fault.act:
        seen = request.getfixturevalue("by_action")[name]
    else:
        seen = request.getfixturevalue("by_profile")[name]
    assert differences(fault, seen) == []
