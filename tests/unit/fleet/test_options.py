"""Values of the command-line options."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_loadtest.errors import UsageError
from pytest_loadtest.fleet.options import (
    Options,
    check_image,
    check_target,
    parse_cap,
    parse_listen_address,
    parse_samples_location,
    parse_scale,
    parse_spark_conf,
)
from pytest_loadtest.values.quantities import SECOND


@pytest.mark.parametrize(
    ("text", "value"), [(None, None), ("auto", "auto"), ("0.1", 0.1), ("2", 2.0), ("1e-3", 0.001)]
)
def test_a_scale_is_a_factor_or_auto(text: str | None, value: object) -> None:
    assert parse_scale(text) == value


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "much", "", "10%", "Auto"])
def test_a_wrong_scale_is_a_usage_error_with_the_remedy(text: str) -> None:
    with pytest.raises(pytest.UsageError, match=r"--load-scale .*: write a factor above 0"):
        parse_scale(text)


def test_a_duration_needs_a_unit_and_must_be_positive() -> None:
    assert parse_cap(None) is None
    assert parse_cap("10s") == 10 * SECOND
    for text in ("10", "0s", "-1s", "soon"):
        with pytest.raises(pytest.UsageError, match="--load-duration"):
            parse_cap(text)


def test_an_image_needs_a_container_started_by_the_run() -> None:
    """Another mode or an address is a usage error."""
    assert check_image("registry.example/pulsar:4", "auto", None) == check_image(
        "registry.example/pulsar:4", "container", None
    )
    assert check_image(None, "process", "mqtt://h:1") is None
    with pytest.raises(
        pytest.UsageError,
        match="--load-image x: an image runs as a container; leave --load-broker-mode process out",
    ):
        check_image("x", "process", None)
    with pytest.raises(
        pytest.UsageError,
        match="--load-image x: the broker of --load-target mqtt://h:1 runs already",
    ):
        check_image("x", "auto", "mqtt://h:1")


def test_an_address_needs_a_run_that_starts_no_broker() -> None:
    """Otherwise a met run of a local broker would seem to be one of the address."""
    assert check_target(None, "process") is None
    for mode in ("auto", "url"):
        assert check_target("mqtt://h:1", mode) == "mqtt://h:1"
    with pytest.raises(
        pytest.UsageError,
        match="--load-target mqtt://h:1: --load-broker-mode process starts another broker: leave",
    ):
        check_target("mqtt://h:1", "process")


def test_a_spark_property_is_split_at_the_first_equals_sign() -> None:
    """A later value of the same key wins."""
    assert parse_spark_conf(["a=1", "b=x=y", "a=2"]) == {"a": "2", "b": "x=y"}
    with pytest.raises(pytest.UsageError, match="--load-spark-conf c: write KEY=VALUE"):
        parse_spark_conf(["a=1", "c"])


def test_metrics_listen_on_the_loopback_unless_a_host_is_named() -> None:
    assert parse_listen_address(None) is None
    assert parse_listen_address("9400") == ("127.0.0.1", 9400)
    assert parse_listen_address("0.0.0.0:9400") == ("0.0.0.0", 9400)
    assert parse_listen_address("[::1]:9400") == ("::1", 9400)
    for text in ("", "0", "65536", "localhost", "localhost:", "9400:localhost", "-1"):
        with pytest.raises(pytest.UsageError, match="--load-metrics .*: write a port"):
            parse_listen_address(text)


def test_the_place_of_samples_is_a_uri_or_an_existing_folder(tmp_path: Path) -> None:
    """A relative path is relative to the root folder."""
    option = "--load-samples"
    (tmp_path / "shared").mkdir()
    assert parse_samples_location("", option, tmp_path) is None
    assert parse_samples_location("s3://b/p/", option, tmp_path) == "s3://b/p"
    assert parse_samples_location("shared/", option, tmp_path) == str(tmp_path / "shared")
    assert parse_samples_location(str(tmp_path), option, Path("/")) == str(tmp_path)
    with pytest.raises(
        pytest.UsageError,
        match=r"^load_samples \(ini\) away: .*/away is not a folder: name one that all hosts share",
    ):
        parse_samples_location("away", "load_samples (ini)", tmp_path)
    with pytest.raises(
        UsageError,
        match=r"^--load-samples s3://\*\*\*: a URI of samples must not have a user",
    ):
        parse_samples_location("s3://key:hush@b", option, tmp_path)


def test_a_worker_needs_no_folder_for_the_history(tmp_path: Path) -> None:
    """Only the controller writes the file; the root folder of another host has other folders."""
    (tmp_path / "pytest.ini").write_text("[pytest]\nload_history = trends/history.jsonl\n")
    arguments = ["-c", str(tmp_path / "pytest.ini")]
    with pytest.raises(pytest.UsageError, match=r"--load-history trends/.*cannot be written"):
        Options.of(pytest.Config.fromdictargs({}, arguments))
    worker = pytest.Config.fromdictargs({}, arguments)
    worker.workerinput = {}  # type: ignore[attr-defined]
    assert Options.of(worker).history is None
