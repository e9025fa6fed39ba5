"""The notes about certificates, clocks and versions of the target in the results of a run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import jsonschema
import pytest
from builders.documents import as_json
from builders.measured_runs import LEAST, samples
from builders.measurements import MS

from pytest_loadtest import profile as profiles
from pytest_loadtest.fleet import observing
from pytest_loadtest.fleet.judge import conclude_run
from pytest_loadtest.fleet.run_notes import clock_notes
from pytest_loadtest.metrics.clocks import ClockFit, ClockLine, HostTime, WithinHosts
from pytest_loadtest.observe.telemetry import Telemetry
from pytest_loadtest.pipeline.run_file import RunClock
from pytest_loadtest.report.document import results_schema
from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from pathlib import Path


def test_results_note_that_host_names_were_not_checked(tmp_path: Path) -> None:
    """Answers of another broker would prove nothing about this one."""
    tls = {"url": "pulsar+ssl://h:1", "adminUrl": None}
    for driver, notes in (
        ("{name: pulsar}", 0),
        ("{name: pulsar, tlsEnableHostnameVerification: false}", 1),
    ):
        profile = profiles.loads(LEAST.replace("{name: loopback}", driver), "p.yaml")
        aggregated = samples(profile, tmp_path)
        aggregated.run.facts.broker.update(tls)
        _, results = conclude_run(aggregated)
        assert (
            sum("names in certificates were not checked" in note for note in results.notes) == notes
        )


WITHIN = "100 000 of 100 000 deliveries (100 %) are within one host: their latencies do not depend on the clocks of several hosts"


@pytest.mark.parametrize(
    ("key", "within", "holds", "expected"),
    [
        ("", None, True, ["latencies between hosts are exact to the error of their clocks: h1 ±6.00 ms"]),
        (
            "", WithinHosts(deliveries=62_000, complete=False), True,
            ["latencies between hosts are exact to the error of their clocks: h1 ±6.00 ms; 62 000 of 100 000 deliveries (62 %) are within one host"],
        ),
        (
            "pairConsumers: host", WithinHosts(deliveries=50_000, complete=False), True,
            [
                "latencies between hosts are exact to the error of their clocks: h1 ±6.00 ms; 50 000 of 100 000 deliveries (50 %) are within one host",
                "pairConsumers: host is not possible with 1 topic on 2 hosts: write 2 topics or more, or use fewer hosts",
            ],
        ),
        (
            "", WithinHosts(deliveries=100_000, complete=True), True,
            [WITHIN],
        ),
        (
            "", WithinHosts(deliveries=100_000, complete=True), False,
            [f"{WITHIN}; the clock of host h1 was set while load ran"],
        ),
    ],
)  # fmt: skip
def test_results_note_how_far_clocks_matter(
    key: str, within: WithinHosts | None, holds: bool, expected: list[str], tmp_path: Path
) -> None:
    """On one host there is no such note."""
    made = samples(profiles.loads(LEAST + key + "\n", "p.yaml"), tmp_path)
    assert not [note for note in conclude_run(made)[1].notes if "host" in note]
    line = ClockLine(at=0, offset=0)
    fit = ClockFit(line=line, error=6 * MS, round_trip=MS, exchanges=9, holds=holds)
    run = replace(
        made.run,
        workers=("gw0", "h1-1"),
        clocks=(RunClock(worker="h1-1", host="h1", used=line, fit=fit),),
    )
    clocks = (HostTime(host="h1", error=6 * MS, round_trip=MS, holds=holds),)
    of = replace(
        made, run=run, measurements=replace(made.measurements, clocks=clocks, within_hosts=within)
    )
    _, document = conclude_run(of)
    assert [note for note in document.notes if "host" in note] == expected
    section = as_json(document)["measurements"]["withinHosts"]
    deliveries = None if within is None else within.deliveries
    assert section == (
        within
        and {
            "deliveries": deliveries,
            "share": within.deliveries / 100_000,
            "complete": within.complete,
        }
    )
    jsonschema.validate(as_json(document), results_schema())


def test_a_run_that_sends_nothing_has_no_note_about_latencies_between_hosts(
    tmp_path: Path,
) -> None:
    profile = profiles.loads(LEAST, "p.yaml")
    made = samples(profile, tmp_path)
    clocks = (HostTime(host="h1", error=6 * MS, round_trip=MS, holds=True),)
    assert clock_notes(replace(made.measurements, clocks=clocks), made.run, profile)
    counts = replace(made.measurements.counts, offered=0)
    only_receives = replace(made.measurements, clocks=clocks, counts=counts)
    assert clock_notes(only_receives, made.run, profile) == ()


@pytest.mark.parametrize(
    ("before", "seen", "version", "notes"),
    [
        ("4.0.0", {"4.0.0": 0}, "4.0.0", []),
        ("unknown", {"4.0.0": 0}, "4.0.0", []),
        ("4.0.0", {}, "4.0.0", []),
        ("4.0.0", {"4.0.0": 0, "4.2.4": 5 * SECOND}, "4.0.0, then 4.2.4", ["changed while load ran: 4.0.0 first, 4.2.4 from 5.00 s into the phase"]),
        ("4.0.0", {"4.2.4": 0}, "4.2.4", ["was 4.0.0 before this phase"]),
        ("4.0.0", {"4.0.0 and 4.2.4": 0}, "4.0.0 and 4.2.4", []),
    ],
)  # fmt: skip
def test_a_run_has_the_versions_that_its_target_reported(
    before: str, seen: dict[str, int], version: str, notes: list[str], tmp_path: Path
) -> None:
    """Results of two versions are not shown as those of the first one."""
    made = samples(profiles.loads(LEAST, "p.yaml"), tmp_path)
    made.run.facts.broker.update(name="mosquitto", version=before)
    versions = {f"mosquitto {number}": at for number, at in seen.items()}
    observing.write_telemetry(tmp_path, Telemetry.of_rows([SECOND], [{}], versions=versions))
    _, document = conclude_run(made)
    assert document.broker["version"] == version
    assert len(document.notes) == len(notes)
    assert all(part in note for part, note in zip(notes, document.notes, strict=True))
