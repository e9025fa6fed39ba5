"""Texts of command-line options as values."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

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


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line says about load."""

    results: Path
    scale: float | str | None
    duration: int | None
    force: bool
    driver: Path | None
    omb_json: Path | None
    broker: str
    target: str | None
    admin: str | None
    spark_master: str | None
    spark_remote: str | None
    spark_conf: dict[str, str]

    @classmethod
    def of(cls, config: pytest.Config) -> Options:
        """:raises pytest.UsageError: an option says something it cannot."""
        option = config.option
        return cls(
            results=Path(config.rootpath, config.getini("load_results")), scale=scale(option.load_scale),
            duration=duration(option.load_duration),
            force=option.load_force, driver=_path(option.load_driver), omb_json=_path(option.load_omb_json), broker=option.load_broker,
            target=option.load_target, admin=option.load_admin_url,
            spark_master=option.load_spark_master, spark_remote=option.load_spark_remote, spark_conf=spark_conf(option.load_spark_conf),
        )  # fmt: skip
