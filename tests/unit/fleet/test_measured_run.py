"""The metrics of users' hooks: accepted values, and errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from builders.run_file import made_run_file

from pytest_loadtest.fleet.measured_run import custom_metrics
from pytest_loadtest.pipeline.samples import SampleFiles
from pytest_loadtest.values.units import Rate, ms

if TYPE_CHECKING:
    from pathlib import Path


def measured(tmp_path: Path, answer: Any) -> tuple[dict[str, Any], str]:
    """Return the metrics and the failure of a hook that returns or raises ``answer``."""

    def hook(spark: object, run: object, samples: object) -> Any:
        if isinstance(answer, BaseException):
            raise answer
        return answer

    return custom_metrics(hook, None, made_run_file(), SampleFiles(tmp_path, ()))  # type: ignore[arg-type]


def test_durations_rates_numbers_and_none_are_accepted(tmp_path: Path) -> None:
    """Numbers of numpy and Spark too."""
    from decimal import Decimal

    import numpy as np

    metrics, failure = measured(
        tmp_path,
        {
            "a": ms(12),
            "b": Rate(5),
            "c": np.int64(3),
            "d": np.float32(0.5),
            "e": Decimal("1.5"),
            "f": None,
        },
    )
    assert (metrics, failure) == (
        {"a": ms(12), "b": Rate(5), "c": 3.0, "d": 0.5, "e": 1.5, "f": None},
        "",
    )
    assert type(metrics["b"]) is Rate and type(metrics["c"]) is float


@pytest.mark.parametrize(
    "value",
    [
        True,
        "12ms",
        float("nan"),
        float("inf"),
        [1],
        ms(float("nan")),
        Rate(float("nan")),
        Rate(float("inf")),
    ],
)
def test_any_other_value_is_the_users_error(tmp_path: Path, value: object) -> None:
    """The error has the name and says what to return."""
    metrics, failure = measured(tmp_path, {"gold.p99": value})
    assert not metrics
    assert failure.startswith(
        f"pytest_loadtest_aggregate returned {value!r} for 'gold.p99': return a duration, ms(…)"
    )


def test_an_exception_is_reported_with_the_lines_of_the_users_code(tmp_path: Path) -> None:
    """Without lines of this package."""
    metrics, failure = measured(tmp_path, KeyError("gold"))
    assert not metrics
    first, *rest = failure.splitlines()
    assert first == "pytest_loadtest_aggregate failed: KeyError: 'gold'"
    assert (
        "test_measured_run.py" in rest[0]
        and "raise answer" in rest[1]
        and "pytest_loadtest/fleet" not in failure
    )


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (pytest.skip.Exception("no such module"), "Skipped: no such module"),
        (pytest.fail.Exception("too few"), "Failed: too few"),
        (SystemExit(3), "SystemExit: 3"),
    ],
)
def test_a_hook_that_skips_fails_or_exits_costs_only_its_own_metrics(
    tmp_path: Path, error: BaseException, text: str
) -> None:
    """Their exceptions are no ``Exception``, as of ``pytest.importorskip``."""
    try:
        metrics, failure = measured(tmp_path, error)
    except pytest.skip.Exception:
        pytest.fail("the hook has skipped this test")
    assert not metrics
    assert failure.splitlines()[0] == f"pytest_loadtest_aggregate failed: {text}"


def test_an_interrupt_in_a_hook_ends_the_command(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        measured(tmp_path, KeyboardInterrupt())
