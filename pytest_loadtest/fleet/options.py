"""Texts of command-line options as values."""

from __future__ import annotations

import pytest

from pytest_loadtest.quantities import parse_duration


def scale(text: str | None) -> float | str | None:
    """``--load-scale``: a factor above 0, ``auto``, or None.

    :raises pytest.UsageError: neither.
    """
    if text is None or text == "auto":
        return text
    try:
        factor = float(text)
    except ValueError:
        factor = 0.0
    if not 0 < factor < float("inf"):
        raise pytest.UsageError(f"--load-scale {text}: write a factor above 0 (0.01), or auto")
    return factor


def duration(text: str | None) -> int | None:
    """``--load-duration`` in ns.

    :raises pytest.UsageError: it is not one.
    """
    if text is None:
        return None
    try:
        value = parse_duration(text)
    except ValueError as error:
        raise pytest.UsageError(f"--load-duration: {error}") from None
    if value <= 0:
        raise pytest.UsageError(f"--load-duration {text}: must be above 0")
    return value


def spark_conf(pairs: list[str]) -> dict[str, str]:
    """``--load-spark-conf KEY=VALUE`` as a mapping.

    :raises pytest.UsageError: one has no ``=``.
    """
    wrong = [pair for pair in pairs if "=" not in pair]
    if wrong:
        raise pytest.UsageError(f"--load-spark-conf {wrong[0]}: write KEY=VALUE")
    return dict(pair.split("=", 1) for pair in pairs)
