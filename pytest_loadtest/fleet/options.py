"""Texts of command-line options as values."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_loadtest.errors import UsageError
from pytest_loadtest.values.addresses import check_address
from pytest_loadtest.values.quantities import parse_duration

NO_BASELINE = "none"
"""``--load-baseline none``: the ini key does not apply in this session."""


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


def image(name: str | None, broker: str, target: str | None) -> str | None:
    """``--load-image``.

    :raises pytest.UsageError: another option says that the broker is no container.
    """
    if name is not None and target is not None:
        raise pytest.UsageError(f"--load-image {name}: the broker of --load-target {target} runs already; leave one of them out")
    if name is not None and broker not in ("auto", "container"):
        raise pytest.UsageError(f"--load-image {name}: an image runs as a container; leave --load-broker {broker} out")
    return name


def address(text: str | None, option: str) -> str | None:
    """``--load-target``, ``--load-admin-url``: an address, and nothing else.

    :raises pytest.UsageError: it says who somebody is.
    """
    try:
        check_address(text, option)
    except UsageError as error:
        raise pytest.UsageError(str(error)) from None
    return text


def baseline(text: str | None, ini: str, *, force: bool) -> str | None:
    """``--load-baseline``, or else the ini key ``load_baseline``: a file, a folder or ``last-met``; None without either, and for ``none``.

    :raises pytest.UsageError: there is none, and ``--load-baseline-force`` is given.
    """
    wanted = ini or None if text is None else text
    wanted = None if wanted == NO_BASELINE else wanted
    if wanted is None and force:
        raise pytest.UsageError("--load-baseline-force: there is nothing to force without --load-baseline")
    return wanted


def history(text: str, root: Path) -> Path | None:
    """``--load-history``, from the root.

    :raises pytest.UsageError: it cannot be a file there.
    """
    if not text:
        return None
    path = root / text
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise pytest.UsageError(f"--load-history {text}: {path} cannot be written; name a file in a folder that is there")
    return path


def listening(text: str | None) -> tuple[str, int] | None:
    """``--load-metrics``: a port of this machine's loopback, or HOST:PORT.

    :raises pytest.UsageError: neither.
    """
    if text is None:
        return None
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or not 0 < int(port) < 65536:
        raise pytest.UsageError(f"--load-metrics {text}: write a port from 1 to 65535 (9400), or HOST:PORT")
    return host.strip("[]") or "127.0.0.1", int(port)


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
    image: str | None
    spark_master: str | None
    spark_remote: str | None
    spark_conf: dict[str, str]
    root: Path = Path()
    baseline: str | None = None
    baseline_source: str = "--load-baseline"
    baseline_force: bool = False
    history: Path | None = None
    metrics: tuple[str, int] | None = None

    @classmethod
    def of(cls, config: pytest.Config) -> Options:
        """:raises pytest.UsageError: an option says something it cannot."""
        option = config.option
        return cls(
            results=Path(config.rootpath, config.getini("load_results")), scale=scale(option.load_scale),
            duration=duration(option.load_duration),
            force=option.load_force, driver=_path(option.load_driver), omb_json=_path(option.load_omb_json), broker=option.load_broker,
            target=address(option.load_target, "--load-target"), admin=address(option.load_admin_url, "--load-admin-url"),
            image=image(option.load_image, option.load_broker, option.load_target),
            spark_master=option.load_spark_master, spark_remote=option.load_spark_remote, spark_conf=spark_conf(option.load_spark_conf),
            root=config.rootpath, baseline=baseline(option.load_baseline, config.getini("load_baseline"), force=option.load_baseline_force),
            baseline_source="load_baseline (ini)" if option.load_baseline is None else "--load-baseline",
            baseline_force=option.load_baseline_force,
            history=history(option.load_history or config.getini("load_history"), config.rootpath),
            metrics=listening(option.load_metrics),
        )  # fmt: skip
