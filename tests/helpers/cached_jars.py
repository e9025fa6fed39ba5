"""Skips tests of brokers whose jars are not here: no test loads them from Maven."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_loadtest.brokers import java

if TYPE_CHECKING:
    from pytest_loadtest.brokers.java import Jars


def missing_jars(jars: Jars) -> str | None:
    """Return why a broker's default version cannot start; None if it can."""
    if java.find() is not None and jars.version in jars.cached_versions():
        return None
    return f"no Java, or {jars.name}'s jars are not cached: python -m pytest_loadtest doctor --fix"


def require_jars(jars: Jars) -> None:
    """Skip the test if the broker cannot start."""
    if (reason := missing_jars(jars)) is not None:
        pytest.skip(reason)


def skip_without_jars(jars: Jars) -> pytest.MarkDecorator:
    """Return the mark that skips a module's tests if the broker cannot start."""
    reason = missing_jars(jars)
    return pytest.mark.skipif(reason is not None, reason=str(reason))
