"""Results documents for tests."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from builders.measurements import MS, Limits, made, spread
from builders.objectives import parse_slo
from builders.telemetry import made_telemetry
from pytest_loadtest.metrics.expected import Opening
from pytest_loadtest.metrics.measurements import Backlog
from pytest_loadtest.observe.conclusion import Bottleneck, Saturation
from pytest_loadtest.report.bottleneck import bottleneck_section
from pytest_loadtest.report.build import RunFacts, build_document
from pytest_loadtest.report.document import dumps, parse_document
from pytest_loadtest.verdict.peak import Ask, Peak, Step
from pytest_loadtest.verdict.slo import Outcome, evaluate

if TYPE_CHECKING:
    from pytest_loadtest.report.document import RunDocument

NATIVE = {"client": "native", "version": "1", "applied": {}, "not_applied": {}}
FACTS = RunFacts(
    test="loadtests/test_smoke.py::test_smoke",
    profile_name="smoke",
    profile={"name": "smoke", "producerRate": 10_000, "driver": {"name": "pulsar"}},
    seed=7,
    started="2026-11-21T03:00:00+00:00",
    results=".loadtest/1/test_smoke/1/smoke",
    plan={"rate": 10_000, "topics": 2, "partitions": 1, "producers": 4, "consumers": 6},
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
RESTARTED = {
    **FACTS.broker,
    "restarts": [
        {
            "node": "",
            "down": 3_020 * MS,
            "ready": 7_130 * MS,
            "downAt": "2026-11-21T03:00:03.020+00:00",
            "readyAt": "2026-11-21T03:00:07.130+00:00",
        },
        {
            "node": "bookie 2",
            "down": 9_000 * MS,
            "ready": None,
            "downAt": "2026-11-21T03:00:09.000+00:00",
            "readyAt": None,
        },
    ],
}
SLO = {"throughput": "99%", "endToEndLatency": {"p99": "15ms"}}


STEP = Ask(number=1, rate=10_000.0, duration=30_000 * MS, warmup=5_000 * MS, purpose="bracket")
PEAK = Peak(
    rate=19_843.0, low=19_843.0, high=20_240.0, limit="target", at_least=False, confirmed=True, broke_first="endToEndLatency.p99",
    steps=(
        Step(ask=STEP, outcome=Outcome.MET, throughput=9_999.5),
        Step(
            ask=replace(STEP, number=2, rate=20_240.0), outcome=Outcome.MISSED, broke=("endToEndLatency.p99",),
            text="endToEndLatency.p99 412 ms > 100 ms: 4.1 times the bound", early=True,
        ),
        Step(ask=replace(STEP, number=3, rate=19_843.0, duration=60_000 * MS, purpose="confirm"), outcome=Outcome.MET, throughput=19_842.0),
    ),
)  # fmt: skip
BACKLOG = Backlog(
    size_messages=1_048_576, size_bytes=2**30, build=32_000 * MS, drain=8_000 * MS, drained=True, left=0, allowed=10_000,
    drain_rate=131_072.0,
    publish_during_drain=spread(0.5, 12),
)  # fmt: skip

BOTTLENECK = bottleneck_section(
    Bottleneck(
        conclusion="broker CPU", evidence="mosquitto's busiest thread used 0.97 of a core, in 9 of 10 samples",
        also=(Saturation(conclusion="publisher window", evidence="messages waited 12.0 ms before a full window"),),
        missing=("worker gw1: it runs on another machine",),
    ),
    made_telemetry(broker__busiestWanted=1.0),
)  # fmt: skip


def document(
    section: dict[str, Any] = SLO,
    facts: dict[str, Any] | None = None,
    parts: dict[str, Any] | None = None,
    **changed: Any,
) -> RunDocument:
    """Return the document of a made run; ``parts``: further arguments of :func:`build_document`."""
    run = made(**changed)
    return build_document(
        replace(FACTS, **(facts or {})),
        evaluate(parse_slo(section), run, Limits()),
        run,
        **(parts or {}),
    )


def stage(name: str, section: dict[str, Any] = SLO, **changed: Any) -> Any:
    """Return one stage as :func:`build_document` takes it."""
    run = made(**changed)
    return name, evaluate(parse_slo(section), run, Limits()), run


def as_json(run: RunDocument) -> Any:
    """The document as JSON values, which a test may change."""
    return json.loads(dumps(run))


def from_json(values: Any) -> RunDocument:
    """The document of changed JSON values."""
    return parse_document(json.dumps(values))


def changed(run: RunDocument, path: str, value: Any) -> RunDocument:
    """The document with another value at a path of its JSON text, such as ``verdict/findings/0/observed``."""
    whole = as_json(run)
    *parents, name = path.split("/")
    node = whole
    for parent in parents:
        node = node[int(parent) if isinstance(node, list) else parent]
    node[int(name) if isinstance(node, list) else name] = value
    return from_json(whole)


def opening_document(
    losses: int | None = 0, rate: float | None = 100.0, *, alone: bool = True, **more: Any
) -> RunDocument:
    """Return the results of a run that opened 1000 connections. :param alone: it had no messages."""
    counts = dict.fromkeys(
        ("offered", "sent", "sent_in_time", "acked", "received", "received_in_time"), 0
    )
    silent = (
        {
            "rate": 0.0,
            "subscriptions": 0,
            "counts": counts,
            "end_to_end": None,
            "publish": None,
            "send_delay": None,
        }
        if alone
        else {}
    )
    opening = Opening(
        alone=alone, rate=rate, connections=1000, took=9_993 * MS, busiest="gw1", cpu=0.25, begun_late=MS, in_time=1000
    )  # fmt: skip
    return document(
        {"connectLatency": {"mean": "500ms"}}, facts={"driver": NATIVE | {"losses": losses}},
        **{**silent, "connect": spread(1, 20, 1000), "opening": opening, **more},
    )  # fmt: skip
