"""The page of faults in the documentation."""

from __future__ import annotations

from pathlib import Path

from .catalogue import CATALOGUE, FAULTS
from .page import faults_page

PAGE = Path(__file__).parents[2] / "docs/reference/faults.md"


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == faults_page(), "run scripts/schemas"


def test_each_fault_has_its_own_name() -> None:
    assert len(FAULTS) == sum(map(len, CATALOGUE.values()))
