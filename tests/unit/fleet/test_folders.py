"""Where results go."""

from __future__ import annotations

import re
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.fleet.folders import run_folder, safe_name, session_folder


def test_tree() -> None:
    """Session, test, attempt, workload, stage."""
    folder = run_folder(Path("s"), "loadtests/test_a.py::test_b[x/y]", 2, "Production load test - 2M msg/s")
    assert re.fullmatch(r"s/loadtests-test_a\.py-test_b-x-y-[0-9a-f]{6}/2/Production-load-test---2M-msg-s-[0-9a-f]{6}/measure", str(folder))
    assert not folder.exists()
    assert session_folder(Path("r")).parent == Path("r")


@given(st.text(min_size=1, max_size=300))
def test_names_are_safe(text: str) -> None:
    """No shell, glob or parent folder in them, short enough for every file system, and never empty."""
    name = safe_name(text)
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]*", name)
    assert len(name) <= 90


@given(st.lists(st.text(min_size=1, max_size=100), unique=True, min_size=2, max_size=2))
def test_names_of_different_texts_differ(texts: list[str]) -> None:
    """Two tests never share a folder."""
    assert safe_name(texts[0]) != safe_name(texts[1])
