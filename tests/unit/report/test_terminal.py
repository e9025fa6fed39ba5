"""The terminal summary."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jsonschema
import numpy as np
import pytest
from builders.documents import (
    BACKLOG,
    BOTTLENECK,
    FACTS,
    PEAK,
    RESTARTED,
    SLO,
    as_json,
    document,
    stage,
)
from builders.measurements import (
    OTHERS_SEND,
    Limits,
    lateness,
    made,
    made_bucket,
    made_series,
    spread,
)
from builders.objectives import parse_slo
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.metrics.expected import WorkerEvidence
from pytest_loadtest.metrics.measurements import ENVELOPES, DelayedIndex, Lost
from pytest_loadtest.report import terminal
from pytest_loadtest.report.build import build_document
from pytest_loadtest.report.document import results_schema
from pytest_loadtest.report.junit import junit_properties
from pytest_loadtest.report.terminal import (
    ASCII_BLOCKS,
    BLOCKS,
    MOST_LINES,
    WIDTH,
    brief_lines,
    quiet_lines,
    session_line,
    sparkline,
    summary_lines,
)
from pytest_loadtest.values.quantities import MILLISECOND, format_count
from pytest_loadtest.verdict.early import evaluate_ended
from pytest_loadtest.verdict.slo import Outcome, Verdict, evaluate


def starting(found: list[str], word: str) -> str:
    return next(line for line in found if line.strip().startswith(word))


def test_the_verdict_comes_first_and_misses_before_the_rest() -> None:
    found = summary_lines(document(counts={"lost": 3, "received": 99_997}))
    assert (
        found[0]
        == "loadtests/test_smoke.py::test_smoke · profile smoke · MISSED (2 of 8 objectives)"
    )
    marks = [line.split()[0] for line in found if line.strip()[0] in "✗✓?"]
    assert marks == ["✗", "✗", "✓", "✓"]
    assert starting(found, "✗ endToEndLatency.p99").split("  ")[-1] == "over by 32 %"
    assert (
        starting(found, "✓ implicit")
        == "  ✓ implicit: corrupt 0 (heads and sizes alone), dropped 0, sent 100 %, failed 0 %, silent 0"
    )
    assert found[-1] == "  results    .loadtest/1/test_smoke/1/smoke"


def test_the_second_line_marks_a_scaled_run() -> None:
    found = summary_lines(
        document(facts={"scale": 0.001, "scaling": {"rate": "2.50 M → 2 500 msg/s"}})
    )
    assert (
        found[1] == "  SCALED ×0.001 — says nothing about the full load (rate 2.50 M → 2 500 msg/s)"
    )


def test_the_target_has_its_settings() -> None:
    """A stand-in is marked; settings that the client lacks are listed."""
    assert (
        starting(summary_lines(document()), "target")
        == "  target     Pulsar 4.2.4 (process, pulsar://127.0.0.1:6650) · journalSyncData=false"
    )
    facts = {
        "broker": {"name": "pulsar-lite", "version": "1", "mode": "embedded", "evidence": False},
        "driver": {"not_applied": {"a": "why"}},
    }
    found = summary_lines(document(facts=facts))
    assert "a stand-in, no evidence about the real broker" in starting(found, "target")
    assert starting(found, "not set") == "  not set    a: why"


def test_the_client_that_ran_is_named() -> None:
    """It has its version; a client with the driver's name is not shown."""
    assert starting(summary_lines(document()), "driver") == "  driver     pulsar-client 3.13.0"
    native = {"driver": {"client": "native", "version": "0.1.0"}}
    assert starting(summary_lines(document(facts=native)), "driver") == "  driver     native 0.1.0"
    relay = {
        "driver": {"client": "loopback", "version": "protocol 2"},
        "profile": {"driver": {"name": "loopback"}},
    }
    for facts in (relay, {"driver": {}}):
        assert not [
            line for line in summary_lines(document(facts=facts)) if line.startswith("  driver")
        ]


def test_a_restarted_broker_has_a_line_for_each_restart() -> None:
    found = summary_lines(document(facts={"broker": RESTARTED}))
    at = next(i for i, line in enumerate(found) if line.startswith("  target"))
    assert found[at + 1 : at + 3] == [
        "  broker     restarted 3.02 s into the phase, ready 4.11 s later",
        "  broker     bookie 2 ended 9.00 s into the phase, not ready again",
    ]


def test_a_broken_run_has_its_cause() -> None:
    verdict = Verdict(
        outcome=Outcome.NO_DATA, findings=(), reasons=("worker gw1 died: exit status -9", "gw2 too")
    )
    found = summary_lines(build_document(FACTS, verdict, None))
    assert found[:3] == [
        "loadtests/test_smoke.py::test_smoke · profile smoke · NO DATA",
        "  because    worker gw1 died: exit status -9",
        "             gw2 too",
    ]


def test_a_slow_generator_comes_with_its_remedy() -> None:
    """Evidence comes first."""
    workers = tuple(
        WorkerEvidence(worker=f"gw{n}", cpu=1 + n / 10, stalled=0, longest_stall=60_000_000, gc=0)
        for n in range(6)
    )
    found = summary_lines(document(workers=workers))
    assert (
        starting(found, "because")
        == "  because    worker gw5 used 1.50 cores > 0.95 (generator.cpu), and so did 5 more"
    )
    assert (
        starting(found, "remedy")
        == "  remedy     lower the rate, add workers (-n), free the machine, or use --load-scale auto"
    )
    assert "gw2 1.20 cores and 2 more · longest stall 60.0 ms" in starting(found, "generator")


def test_blocked_time_has_its_own_line() -> None:
    found = summary_lines(document(blocked=spread(0.001, 1).total // 2))
    assert (
        starting(found, "blocked")
        == "  blocked    25.0 s summed over messages, 50 % of the send delay: the target's full window"
    )


def test_missing_values_are_not_shown_as_0() -> None:
    found = summary_lines(
        document(publish=None, end_to_end=spread(1, 20, 500), counts={"out_of_order": None})
    )
    assert starting(found, "publish").endswith("not measured")
    assert starting(found, "end-to-end").count("too few") == 2
    assert "out of order not applicable" in starting(found, "in ")


def test_duplicates_of_resent_messages_are_shown_if_there_are_any() -> None:
    resent = {"duplicates": 5_000, "resent": 40, "duplicates_of_resent": 3_000}
    assert "lost 0, duplicates 5 000 (3 000 of resent messages), out of order 0" in starting(
        summary_lines(document(counts=resent)), "in "
    )
    assert "duplicates 0 (0 of resent messages)," in starting(
        summary_lines(document(counts={"resent": 40})), "in "
    )
    assert "duplicates 5, out of order 0" in starting(
        summary_lines(document(counts={"duplicates": 5})), "in "
    )


def test_lost_messages_are_listed_by_range() -> None:
    """At most five ranges are listed; the document has all."""
    lost = tuple(
        Lost(topic=1, subscription=0, stream=n, first=n, last=n + (n > 0)) for n in range(8)
    )
    found = summary_lines(document(lost=lost, counts={"lost": 15, "received": 99_985}))
    assert starting(found, "lost") == "  lost       0 of stream 0 (topic 1, subscription 0)"
    assert starting(found, "1–2") == "             1–2 of stream 1 (topic 1, subscription 0)"
    assert starting(found, "… and") == "             … and 3 more ranges in results.json"


def test_without_unicode_every_line_is_ascii() -> None:
    found = summary_lines(
        document(
            facts={"scale": 0.5, "scaling": {"rate": "2 → 1"}},
            counts={"lost": 3, "received": 99_997},
        ),
        unicode=False,
    )
    assert all(line.isascii() for line in found)
    assert starting(found, "XX") and starting(found, "ok")


@given(
    st.lists(st.none() | st.floats(0, 1e12), min_size=1, max_size=400), st.sampled_from([min, max])
)
def test_a_sparkline_fits_and_shows_gaps(values: list[float | None], worst: object) -> None:
    """Each group of seconds has one character; a gap is a group without a measured second."""
    for blocks in (BLOCKS, ASCII_BLOCKS):
        drawn = sparkline(values, blocks, worst=worst)
        step = -(-len(values) // WIDTH)
        groups = [values[at : at + step] for at in range(0, len(values), step)]
        assert [character == " " for character in drawn] == [
            not any(value is not None for value in group) for group in groups
        ]
        assert set(drawn) <= set(blocks) | {" "}


def test_the_drain_is_not_in_the_range_of_received_messages() -> None:
    """It has no rate; its last second would be the lowest one of every run."""
    series = made_series(12)
    series.received[10:] = 3
    line = starting(summary_lines(document(series=series)), "received/s")
    assert line.split()[2:] == [
        format_count(int(series.received[:10].min())),
        "to",
        *format_count(int(series.received[:10].max())).split(),
    ]
    assert len(line.split()[1]) == 10


@pytest.mark.parametrize("seconds", [0, 1])
def test_a_run_of_a_second_has_no_plot(seconds: int) -> None:
    assert not any(
        "/s  " in line
        for line in summary_lines(document(series=made_series(seconds)))
        if line.startswith("  received")
    )


def test_a_miss_that_ended_its_run_has_a_cause_instead_of_a_number() -> None:
    """There were too few messages for its percentile."""
    run = made(end_to_end=spread(1, 20, 900))
    found = summary_lines(
        build_document(
            FACTS, evaluate_ended(parse_slo(SLO), run, Limits(), "endToEndLatency.p99"), run
        )
    )
    row = starting(found, "✗ endToEndLatency.p99")
    assert row.split(maxsplit=2)[2].startswith("missed")
    assert row.endswith("900  could no longer be met when the run was ended early (900 samples)")


def test_received_messages_are_not_applicable_without_consumers() -> None:
    run: dict[str, Any] = {
        "subscriptions": 0,
        "end_to_end": None,
        "counts": {"received": 0, "received_in_time": 0, "out_of_order": None},
    }
    found = summary_lines(document({"publishLatency": {"p99": "1s"}}, **run))
    assert starting(found, "in ") == "  in         not applicable: nothing subscribes in this run"
    assert "delivered nowhere (nothing subscribes)" in starting(found, "rate")


def test_a_run_that_only_receives_shows_no_count_that_nobody_made() -> None:
    found = summary_lines(document(rate=0.0, end_to_end=None, counts=OTHERS_SEND))
    expected = "  in         received 100 000; the rest is unknown: others send"
    assert starting(found, "in ") == expected


def test_a_fan_out_has_the_rate_out_of_the_target() -> None:
    """It is in deliveries and bits."""
    run: dict[str, Any] = {
        "subscriptions": 4,
        "counts": {"received_in_time": 2_000, "received": 2_000, "sent": 500},
        "bytes_sent": 500 * 1_000,
    }
    part = made_bucket("all", sent=500, bytes_sent=500 * 1_000, received_in_time=2_000)
    assert "out of the target" not in starting(summary_lines(document(buckets=(part,))), "rate")
    found = starting(summary_lines(document(**run, buckets=(part,))), "rate")
    assert found.endswith("; out of the target 200 msg/s, 1.60 Mbit/s"), found


def test_the_rate_out_of_the_target_counts_each_size_bucket_separately() -> None:
    """Nothing of ten kilobytes arrived, everything of a hundred bytes did: the mean of both would be wrong."""
    small = made_bucket("0-256", sent=400, bytes_sent=400 * 100, received_in_time=1_600)
    large = made_bucket("1KB-10KB", sent=100, bytes_sent=100 * 10_000, received_in_time=0)
    run: dict[str, Any] = {
        "subscriptions": 4,
        "counts": {"received_in_time": 1_600, "received": 1_600, "sent": 500},
        "bytes_sent": 1_040_000,
    }
    assert starting(summary_lines(document(**run, buckets=(small, large))), "rate").endswith(
        "; out of the target 160 msg/s, 128 kbit/s"
    )


def test_the_bits_out_of_a_service_are_unknown() -> None:
    """It makes bodies of its own: two outputs of 10 bytes for each input of a kilobyte are not 2 kB."""
    part = made_bucket("all", sent=500, bytes_sent=500 * 1_000, received_in_time=1_000)
    counts = {"received_in_time": 1_000, "received": 1_000, "sent": 500}
    profile = {**FACTS.profile, "route": {"input": "a", "output": ["b"]}}
    found = summary_lines(
        document(facts={"profile": profile}, outputs=2, counts=counts, buckets=(part,))
    )
    assert starting(found, "rate").endswith("; out of the target 100 msg/s")


def test_every_part_can_be_shown_in_ascii() -> None:
    parts = {"stages": (stage("ramp"),), "peak": PEAK, "backlog": BACKLOG, "bottleneck": BOTTLENECK}
    found = summary_lines(
        document(facts={"workload": "files"}, parts=parts, buckets=(made_bucket("0-256", lost=1),)),
        unicode=False,
    )
    assert all(line.isascii() for line in found)
    assert (
        found[0]
        == "loadtests/test_smoke.py::test_smoke | profile smoke | workload files | MISSED (2 of 16 objectives)"
    )


def test_the_corrupt_count_has_a_note_without_checksums() -> None:
    """Without a checksum only damage to heads is detected."""
    whole = document(facts={"profile": {**FACTS.profile, "checksum": True}}, checked=None)
    for found, said, text in (
        (document(), " (heads and sizes alone)", ", by heads and sizes alone: no checksum"),
        (whole, "", ""),
        (
            document(
                facts={"profile": {**FACTS.profile, "route": {"input": "a", "output": ["b"]}}},
                checked=ENVELOPES,
            ),
            " (envelopes alone)",
            ", by envelopes alone: the service makes the bodies",
        ),
    ):
        shown = summary_lines(found)
        assert starting(shown, "✓ implicit").startswith(
            f"  ✓ implicit: loss 0, corrupt 0{said}, dropped 0"
        )
        assert starting(shown, "in ").endswith(f", corrupt 0{said}")
        finding = next(finding for finding in found.verdict.findings if finding.metric == "corrupt")
        assert finding.text == f"corrupt 0 <= 0 (0 of 100 000 deliveries{text})"
        assert dict(junit_properties(found))["load.objective.corrupt"].endswith(finding.text)


def test_messages_that_never_came_are_next_to_the_samples() -> None:
    """A percentile among them is "never"; too few samples are something else."""
    counts = {
        "acked": 9_910,
        "unknown": 90,
        "offered": 10_000,
        "sent": 10_000,
        "received": 9_910,
        "received_in_time": 9_910,
    }
    found = summary_lines(
        document(
            {"endToEndLatency": {"p99.9": "1s"}}, counts=counts, end_to_end=spread(1, 3, 9_910)
        )
    )
    assert starting(found, "end-to-end").split()[-9:] == [
        "never",
        "never",
        "2.00",
        "ms",
        "9",
        "910,",
        "90",
        "never",
        "came",
    ]
    assert "never" in starting(found, "✗ endToEndLatency.p99.9")
    assert "too many never came" in starting(found, "✗ endToEndLatency.p99.9")


def test_the_bottleneck_has_a_line_with_its_evidence() -> None:
    """Further lines have other saturated sides, and what was not sampled."""
    found = summary_lines(document(parts={"bottleneck": BOTTLENECK}))
    at = found.index(
        "  bottleneck broker CPU: mosquitto's busiest thread used 0.97 of a core, in 9 of 10 samples"
    )
    assert found[at + 1 : at + 3] == [
        "             also publisher window: messages waited 12.0 ms before a full window",
        "             not sampled: worker gw1: it runs on another machine",
    ]
    few = "too few samples to tell: 1 sample of the measured phase"
    unknown = replace(BOTTLENECK, conclusion=None, evidence=few, also=(), missing=())
    assert (
        "  bottleneck unknown: too few samples to tell: 1 sample of the measured phase"
        in summary_lines(document(parts={"bottleneck": unknown}))
    )
    older = document()
    assert older.bottleneck is None
    assert not any("bottleneck" in line for line in summary_lines(older))


VALUES = np.arange(-2000, 8000) * MILLISECOND // 10  # a fifth is early, by 200 ms at most


DELAYED: dict[str, Any] = {
    "lateness": lateness(VALUES), "counts": {"out_of_due_order": 7}, "delayed_index": DelayedIndex(bytes=2500, messages=1000),
}  # fmt: skip


def outcome(**section: Any) -> dict[str, str]:
    """Return the outcome of each objective of the section."""
    found = evaluate(parse_slo(section, implicit=()), made(**DELAYED), Limits())
    return {finding.objective.name: finding.outcome.value for finding in found.findings}


def test_objectives_on_delayed_messages_have_outcomes() -> None:
    """A median may be below zero."""
    assert outcome(lateness={"p50": "301ms", "p99": "700ms"}) == {
        "lateness.p50": "met",
        "lateness.p99": "missed",
    }
    assert outcome(earliness={"max": "200ms", "p50": "1ms"}) == {
        "earliness.max": "met",
        "earliness.p50": "met",
    }
    assert outcome(earliness={"max": "0s"}) == {"earliness.max": "missed"}
    assert outcome(delayedIndexBytesPerMessage=2.5) == {"delayedIndexBytesPerMessage": "met"}
    assert outcome(delayedIndexBytesPerMessage=2.4) == {"delayedIndexBytesPerMessage": "missed"}


@pytest.mark.parametrize(
    "section",
    [
        {"lateness": {"max": "1s"}},
        {"earliness": {"max": "0s"}},
        {"delayedIndexBytesPerMessage": 2.5},
    ],
)
def test_objectives_on_delays_without_measurements_are_no_data(section: dict[str, Any]) -> None:
    assert evaluate(parse_slo(section, implicit=()), made(), Limits()).outcome is Outcome.NO_DATA


def test_messages_that_never_came_are_late() -> None:
    """They count in percentiles of lateness, not of earliness."""
    measurements = made(
        **{**DELAYED, "counts": {"out_of_due_order": 0, "received": 90_000, "lost": 10_000}}
    )
    found = evaluate(
        parse_slo({"lateness": {"p99": "10s"}, "earliness": {"p99": "1s"}}, implicit=()),
        measurements,
        Limits(),
    )
    assert [finding.outcome for finding in found.findings] == [Outcome.MISSED, Outcome.MET]


def test_a_document_has_lateness_only_with_delays() -> None:
    found = document(**DELAYED)
    jsonschema.Draft202012Validator(results_schema()).validate(as_json(found))
    measured, plain = (as_json(run)["measurements"] for run in (found, document()))
    late, early = (measured["latencies"][kind] for kind in ("lateness", "earliness"))
    assert (late["minimum"], early["maximum"]) == (-200 * MILLISECOND, 200 * MILLISECOND)
    assert (late["samples"], early["samples"]) == (10_000, 10_000)
    assert measured["counts"]["outOfDueOrder"] == 7
    assert measured["delayedIndex"] == {"bytes": 2500, "messages": 1000, "bytesPerMessage": 2.5}
    assert "lateness" not in plain["latencies"]
    assert plain["delayedIndex"] is plain["counts"]["outOfDueOrder"] is None


def test_the_summary_has_rows_for_lateness() -> None:
    text = "\n".join(terminal.summary_lines(document(**DELAYED)))
    assert "lateness" in text and "earliness" in text
    assert "7 copies after one that is due more than a tick later" in text
    assert "index      2.5 B a message, 2.44 KiB for 1 000 delayed" in text
    assert "due more than a tick" not in "\n".join(terminal.summary_lines(document()))


def test_no_name_acts_on_the_terminal() -> None:
    """Names come from profiles and brokers; an escape sequence could hide a miss."""
    found = summary_lines(
        document(
            facts={
                "profile_name": "a\x1b[2Jb\rc\u202e",
                "broker": {"name": "x", "version": "1\x07"},
            }
        )
    )
    assert "profile a\\x1b[2Jb\\rc\\u202e ·" in found[0]
    assert "  target     x 1\\x07 ()" in found


MET = {"endToEndLatency": {"p99": "25ms"}}
SCALE = {"scale": 0.01, "scaling": {"rate": "2.50 M → 2 000 msg/s"}}


def test_a_met_run_has_two_lines() -> None:
    found = brief_lines(document(section=MET))
    assert found[0] == "✓ loadtests/test_smoke.py::test_smoke · profile smoke · MET"
    figures, tightest = found[1].split(" · ")
    assert figures == "  10.0 k msg/s, end-to-end p50 10.5 ms, p99 19.8 ms, lost 0"
    assert tightest == "tightest endToEndLatency.p99 19.8 ms <= 25.0 ms, 20.7 % to spare"
    assert len(found) == 2


def test_what_a_met_run_has_changed_is_always_printed() -> None:
    facts = {
        **SCALE,
        "notes": ("a note",),
        "driver": {**FACTS.driver, "not_applied": {"ackTimeout": "no such setting"}},
    }
    found = brief_lines(document(section=MET, facts=facts))
    assert found[0].endswith(" · MET · SCALED ×0.01 (rate 2.50 M → 2 000 msg/s)")
    said = ["  note       a note", "  not set    ackTimeout: no such setting"]
    assert found[2:] == said
    assert quiet_lines(document(section=MET, facts=facts))[1:] == said


def test_a_missed_run_begins_with_its_misses_and_is_short() -> None:
    lost = tuple(
        Lost(stream=3, topic=0, subscription=0, first=at, last=at) for at in range(0, 100, 2)
    )
    found = brief_lines(
        document(
            counts={"lost": 50, "received": 99_950},
            lost=lost,
            facts={"broker": RESTARTED, "notes": tuple(f"note {n}" for n in range(8))},
        )
    )
    assert len(found) == MOST_LINES
    assert [line.split()[1] for line in found if line.lstrip().startswith("✗")] == [
        "loadtests/test_smoke.py::test_smoke",
        "loss",
        "endToEndLatency.p99",
    ]
    assert found[-2].endswith(" more lines with -v")
    assert found[-1].startswith("  results ")


def test_a_run_with_more_notes_than_lines_keeps_all_of_them() -> None:
    notes = tuple(f"note {n}" for n in range(2 * MOST_LINES))
    found = brief_lines(document(facts={"notes": notes}))
    assert [line.split("note", 1)[1].strip() for line in found if "  note  " in line] == list(notes)


def test_a_run_without_measurements_has_its_cause_in_the_brief_summary() -> None:
    verdict = Verdict(outcome=Outcome.NO_DATA, findings=(), reasons=("worker gw1 died",))
    broken = build_document(FACTS, verdict, None)
    assert brief_lines(broken)[:2] == [
        "? loadtests/test_smoke.py::test_smoke · profile smoke · NO DATA",
        "  because    worker gw1 died",
    ]
    assert quiet_lines(broken) == brief_lines(broken)[:2]


def test_a_met_run_without_notes_is_only_in_the_line_of_the_session() -> None:
    met = document(section=MET)
    assert quiet_lines(met) == []
    assert session_line([Outcome.MET, Outcome.MISSED, Outcome.MET], reduced=1) == (
        "load tests: 1 missed, 2 met; 1 scaled or shortened"
    )
    assert session_line([Outcome.MET], reduced=0) == "load tests: 1 met"


def test_a_met_search_has_its_peak_in_the_brief_summary() -> None:
    found = brief_lines(document(section=MET, parts={"peak": PEAK}))
    assert found[1].startswith("  peak 19 843 msg/s, held for ")


def test_the_brief_summary_can_be_shown_in_ascii() -> None:
    for run in (document(section=MET), document()):
        for line in (*brief_lines(run, unicode=False), *quiet_lines(run, unicode=False)):
            assert line.isascii()
