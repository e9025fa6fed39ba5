"""Setup for all tests. It is not in the conftest.py of the project, as load tests need no Hypothesis."""

from __future__ import annotations

import gc
import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from collections.abc import Iterator

# No Java process of a test lives long enough for its second compiler to be worth its CPU: without it Pulsar starts with half the CPU.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")

# A slow machine is no failure, and the same tree has the same result twice. More examples: --hypothesis-profile thorough
settings.register_profile(
    "project",
    deadline=None,
    derandomize=True,
    max_examples=25,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "thorough", settings.get_profile("project"), max_examples=500, derandomize=False
)
settings.load_profile("project")


_unfreeze = gc.unfreeze
_unfrozen: list[bool] = []


def _noted_unfreeze() -> None:
    """Unfreeze all objects, and note that: ``gc.get_freeze_count`` would walk them to tell."""
    _unfreeze()
    _unfrozen.append(True)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Iterator[None]:
    """Collect tests without garbage collections, and exclude what they made from all later ones.

    Six thousand tests are a million objects. Each full collection would walk them in more than a
    second of CPU, and each load test in this process begins with one.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()
        gc.unfreeze = _noted_unfreeze


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Freeze objects again after a test whose load has ended, which unfreezes all of them."""
    if _unfrozen:
        _unfrozen.clear()
        gc.collect(1)
        gc.freeze()
