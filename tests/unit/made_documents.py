"""Documents of runs made up for tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from made_measurements import Limits, made

from pytest_loadtest.report.document import Document, RunFacts, build
from pytest_loadtest.slo import evaluate, parse

FACTS = RunFacts(
    test="loadtests/test_smoke.py::test_smoke",
    profile_name="smoke",
    profile={"name": "smoke", "producerRate": 10_000},
    seed=7,
    started="2026-11-21T03:00:00+00:00",
    results=".loadtest/1/test_smoke/1/smoke",
    plan={"rate": 10_000},
    broker={
        "name": "Pulsar",
        "version": "4.2.4",
        "mode": "process",
        "url": "pulsar://127.0.0.1:6650",
        "settings": {"journalSyncData": "false"},
    },
    driver={"client": "pulsar-client", "version": "3.13.0", "applied": {}, "not_applied": {}},
    versions={"pytest-loadtest": "0.1.0"},
    machine={"cores": 2},
)
SLO = {"throughput": "99%", "endToEndLatency": {"p99": "15ms"}}


def document(section: dict[str, Any] = SLO, facts: dict[str, Any] | None = None, **changed: Any) -> Document:
    """The document of a made run."""
    run = made(**changed)
    return build(replace(FACTS, **(facts or {})), evaluate(parse(section), run, Limits()), run)
