"""The plugin's own part in the report of a test."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pytest_loadtest.plugin.hooks import pytest_runtest_makereport


@pytest.mark.parametrize(
    ("has_timeout", "error", "is_cancelled"),
    [
        (True, AssertionError(), True),
        (True, None, False),
        (True, pytest.skip.Exception(), False),
        (False, AssertionError(), False),
    ],
)
def test_no_timeout_ends_within_the_report_of_a_failed_load_test(
    has_timeout: bool, error: BaseException | None, is_cancelled: bool
) -> None:
    """All workers have the same one, and it would end the session: it is cancelled before the report is made.

    That of a skipped test still ends a teardown that hangs.
    """
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

    def run_body() -> None:
        if error is not None:
            raise error

    call = pytest.CallInfo.from_call(run_body, "call")
    hook: Any = pytest_runtest_makereport
    next(hook(item, call))
    assert cancelled == ([item] if is_cancelled else [])
