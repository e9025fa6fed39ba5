"""The values of the ``--load-…`` options and ini keys.

Parsed once, in the process that pytest was started in, before any test runs. A wrong value is
pytest's usage error and names the option.
"""

from __future__ import annotations

import os
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_loadtest.fleet.option_rows import option_or_ini
from pytest_loadtest.values.addresses import check_address, check_samples_location, masked
from pytest_loadtest.values.quantities import parse_duration
from pytest_loadtest.values.records import record

if TYPE_CHECKING:
    from pytest_loadtest.plan.hosts import HostShare

HOSTS: pytest.StashKey[tuple[HostShare, ...]] = pytest.StashKey()
"""The hosts of ``--load-hosts``, and this one if it has workers too."""
NO_BASELINE = "none"  # ``--load-baseline none`` overrides the ini key


def parse_scale(text: str | None) -> float | str | None:
    """Return ``--load-scale`` as a factor above 0, ``auto`` or None."""
    if text is None or text == "auto":
        return text
    try:
        factor = float(text)
    except ValueError:
        factor = 0.0
    if not 0 < factor < float("inf"):
        raise pytest.UsageError(f"--load-scale {text}: write a factor above 0 (0.01), or auto")
    return factor


def parse_cap(text: str | None) -> int | None:
    """Return ``--load-duration`` in ns."""
    if text is None:
        return None
    try:
        value = parse_duration(text)
    except ValueError as error:
        raise pytest.UsageError(f"--load-duration: {error}") from None
    if value <= 0:
        raise pytest.UsageError(f"--load-duration {text}: must be above 0")
    return value


def parse_spark_conf(pairs: list[str]) -> dict[str, str]:
    """Return the values of ``--load-spark-conf KEY=VALUE`` as a mapping."""
    wrong = [pair for pair in pairs if "=" not in pair]
    if wrong:
        raise pytest.UsageError(f"--load-spark-conf {wrong[0]}: write KEY=VALUE")
    return dict(pair.split("=", 1) for pair in pairs)


def check_image(name: str | None, broker: str, target: str | None) -> str | None:
    """Return ``--load-image``, after a check that the other options allow a container."""
    if name is not None and target is not None:
        raise pytest.UsageError(
            f"--load-image {name}: the broker of --load-target {masked(target)} runs already;"
            " leave one of them out"
        )
    if name is not None and broker not in ("auto", "container"):
        raise pytest.UsageError(
            f"--load-image {name}: an image runs as a container;"
            f" leave --load-broker-mode {broker} out"
        )
    return name


def check_target(text: str | None, broker: str) -> str | None:
    """Return ``--load-target``, after a check that the run does not start a broker of its own."""
    address = _address(text, "--load-target")
    if address is not None and broker not in ("auto", "url"):
        raise pytest.UsageError(
            f"--load-target {masked(address)}: --load-broker-mode {broker} starts another broker:"
            " leave one of them out"
        )
    return address


def _address(text: str | None, option: str) -> str | None:
    """Return the address in an option, after a check that it contains no credentials."""
    check_address(text, option)
    return text


def _baseline(text: str, *, force: bool) -> str | None:
    """Return the baseline: a file, a folder or ``last-met``; None for neither or ``none``."""
    if text and text != NO_BASELINE:
        return text
    if force:
        raise pytest.UsageError(
            "--load-baseline-force: there is nothing to force without --load-baseline"
        )
    return None


def _history(config: pytest.Config) -> Path | None:
    """Return the file of the history as a writable path, relative to the root folder.

    None on a worker, which does not write it: the folder need not exist on its host.
    """
    text, _ = option_or_ini(config, "load_history")
    if not text or hasattr(config, "workerinput"):
        return None
    path = config.rootpath / text
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise pytest.UsageError(
            f"--load-history {text}: {path} cannot be written; name a file in an existing folder"
        )
    return path


def parse_samples_location(location: str, source: str, root: Path) -> str | None:
    """Return where samples are stored: a URI, or an absolute path; None if it is empty.

    :param source: the option or ini key, for messages.
    :param root: a relative path is relative to it.
    """
    if not location:
        return None
    check_samples_location(location, source)
    if "://" in location:
        return location.rstrip("/")
    folder = root / location
    if not folder.is_dir():
        raise pytest.UsageError(
            f"{source} {location}: {folder} is not a folder:"
            " name one that all hosts share, or s3://BUCKET/PREFIX"
        )
    return str(folder).rstrip("/")


def parse_listen_address(text: str | None) -> tuple[str, int] | None:
    """Return host and port of ``--load-metrics``; the host is 127.0.0.1 if only a port is given."""
    if text is None:
        return None
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or not 0 < int(port) < 65536:
        raise pytest.UsageError(
            f"--load-metrics {text}: write a port from 1 to 65535 (9400), or HOST:PORT"
        )
    return host.strip("[]") or "127.0.0.1", int(port)


@record
class Options:
    """The options of load tests, checked. See ``pytest --help`` for each."""

    results: Path
    scale: float | str | None = None
    duration: int | None = None
    force: bool = False
    omb_json: Path | None = None
    broker: str = "auto"
    target: str | None = None
    admin: str | None = None
    image: str | None = None
    spark_master: str | None = None
    spark_remote: str | None = None
    spark_conf: dict[str, str] = field(default_factory=dict)
    root: Path = Path()
    baseline: str | None = None
    baseline_source: str = "--load-baseline"
    baseline_force: bool = False
    history: Path | None = None
    metrics: tuple[str, int] | None = None
    hosts: tuple[HostShare, ...] = ()
    samples: str | None = None

    @property
    def spark_here(self) -> bool:
        """True if Spark runs on this machine."""
        return self.spark_remote is None and (self.spark_master or "local").startswith("local")

    @classmethod
    def of(cls, config: pytest.Config) -> Options:
        """Read the options of a session.

        :raises pytest.UsageError: one has a wrong value, or two contradict each other.
        :raises UsageError: an address has credentials.
        """
        option = config.option
        baseline, baseline_source = option_or_ini(config, "load_baseline")
        samples, samples_source = option_or_ini(config, "load_samples")
        return cls(
            results=Path(config.rootpath, config.getini("load_results")),
            scale=parse_scale(option.load_scale),
            duration=parse_cap(option.load_duration),
            force=option.load_force,
            omb_json=option.load_omb_json and config.invocation_params.dir / option.load_omb_json,
            broker=option.load_broker_mode,
            target=check_target(option.load_target, option.load_broker_mode),
            admin=_address(option.load_admin_url, "--load-admin-url"),
            image=check_image(option.load_image, option.load_broker_mode, option.load_target),
            spark_master=_address(option.load_spark_master, "--load-spark-master"),
            spark_remote=option.load_spark_remote,
            spark_conf=parse_spark_conf(option.load_spark_conf),
            root=config.rootpath,
            baseline=_baseline(baseline, force=option.load_baseline_force),
            baseline_source=baseline_source,
            baseline_force=option.load_baseline_force,
            history=_history(config),
            metrics=parse_listen_address(option.load_metrics),
            hosts=config.stash.get(HOSTS, ()),
            samples=parse_samples_location(samples, samples_source, config.rootpath),
        )
