"""Live metrics, scraped while load runs."""

from __future__ import annotations

import socket
import time
import urllib.request
from typing import TYPE_CHECKING

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from .projects import ALONE_OR_TWO

if TYPE_CHECKING:
    from collections.abc import Callable

    from prometheus_client.samples import Sample

    from .projects import Project

TESTS = """\
import time
from pathlib import Path

import pytest

@pytest.mark.load("steady")
def test_first(load): ...

@pytest.mark.load("steady", live=True, judge=False, testDuration="5min")
def test_second(load):
    load.begin()
    while not Path("scraped").exists():
        time.sleep(0.05)
    load.stop()
"""
PATIENCE = 150


def free_port() -> int:
    """Return a port on which no process listens."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def scrape(port: int) -> list[Sample]:
    """Return the served metrics, requested as by Prometheus; empty before the session listens."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/metrics",
        headers={"Accept": "application/openmetrics-text; version=1.0.0"},
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
            text = answer.read().decode()
    except OSError:
        return []
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


def until(port: int, found: Callable[[list[Sample]], bool]) -> list[Sample]:
    """Scrape repeatedly until the condition holds."""
    deadline = time.monotonic() + PATIENCE
    while not found(samples := scrape(port)):
        assert time.monotonic() < deadline, samples
        time.sleep(0.1)
    return samples


def value(samples: list[Sample], name: str, **labels: str) -> float:
    """Return the only sample with these labels; 0 if there is none yet."""
    found = [
        one.value for one in samples if one.name == name and labels.items() <= one.labels.items()
    ]
    assert len(found) <= 1, found
    return float(found[0]) if found else 0.0


@pytest.mark.parametrize("workers", ALONE_OR_TWO)
def test_metrics_show_the_load_while_it_runs(project: Project, workers: str) -> None:
    """Counters grow, the histogram has the received messages, and a run that has ended has an outcome."""
    project.profile("steady", rate=400, duration="5s", slo="{throughput: 1%, sent: 1%}")
    project.write("test_it.py", TESTS)
    port = free_port()
    process = project.start(workers, "--load-metrics", str(port), "--load-scale", "0.5")
    first = {
        "test": "test_it.py::test_first",
        "profile": "steady",
        "workload": "",
        "phase": "measure",
    }
    early = until(
        port, lambda found: value(found, "loadtest_messages_total", count="received", **first) > 0
    )
    assert value(early, "loadtest_workers", **first) == (2 if workers == "-n2" else 1)
    assert value(early, "loadtest_phase_duration_seconds", **first) == 5
    assert not [one for one in early if one.name == "loadtest_outcome"]
    assert [one.labels["scale"] for one in early if one.name == "loadtest_run_info"] == [
        "scaled ×0.5"
    ]
    received = value(early, "loadtest_messages_total", count="received", **first)
    assert (
        value(early, "loadtest_end_to_end_latency_seconds_bucket", le="+Inf", **first) == received
    )
    buckets = [
        one.value for one in early if one.name == "loadtest_end_to_end_latency_seconds_bucket"
    ]
    assert buckets == sorted(buckets)
    late = until(
        port,
        lambda found: (
            value(
                found, "loadtest_messages_total", count="received", test="test_it.py::test_second"
            )
            > 0
        ),
    )
    assert value(late, "loadtest_messages_total", count="received", **first) == 1000
    assert value(late, "loadtest_outcome", test="test_it.py::test_first", outcome="met") == 1
    assert {one.labels["test"] for one in late if one.name == "loadtest_workers"} == {
        "test_it.py::test_second"
    }
    project.write("scraped", "")
    done = project.finish(process)
    assert done.ret == 0, done.out
    assert scrape(port) == []


@pytest.mark.parametrize("workers", ALONE_OR_TWO)
def test_a_port_in_use_is_a_usage_error(project: Project, workers: str) -> None:
    """Before any broker is started."""
    project.profile("steady")
    project.write("test_it.py", TESTS)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = project.run(workers, "--load-metrics", f"127.0.0.1:{port}")
    assert done.ret == pytest.ExitCode.USAGE_ERROR, done.out
    assert (
        f"--load-metrics 127.0.0.1:{port}: Address already in use; choose another port" in done.out
    )
    assert not (project.path / ".loadtest").exists()
