"""The plugin's own part in the report of a test."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pytest_loadtest.plugin.hooks import pytest_runtest_makereport


@pytest.mark.parametrize(("has_timeout", "fails"), [(True, True), (True, False), (False, True)])
def test_no_timeout_ends_within_the_report_of_a_failed_load_test(
    has_timeout: bool, fails: bool
) -> None:
    """All workers have the same one, and it would end the session: it is cancelled before the report is made."""
    cancelled: list[Any] = []
    item: Any = SimpleNamespace(
        get_closest_marker=lambda name: name == "load" or None,
        config=SimpleNamespace(
            pluginmanager=SimpleNamespace(hasplugin=lambda name: has_timeout and name == "timeout")
        ),
        ihook=SimpleNamespace(
            pytest_timeout_cancel_timer=lambda **given: cancelled.append(given["item"])
        ),
    )
    call: Any = SimpleNamespace(excinfo=object() if fails else None)
    hook: Any = pytest_runtest_makereport
    next(hook(item, call))
    assert cancelled == ([item] if has_timeout and fails else [])
