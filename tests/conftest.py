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


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Iterator[None]:
    """Collect tests without garbage collections.

    Six thousand tests are a million objects, none of them garbage: each full collection would walk
    them in more than a second of CPU.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
