"""The terminal summary."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_documents import BACKLOG, FACTS, PEAK, document, stage
from made_measurements import MS, made_bucket, made_series, spread

from pytest_loadtest.measurements import Lost, WorkerEvidence
from pytest_loadtest.report.document import build
from pytest_loadtest.report.terminal import ASCII_BLOCKS, BLOCKS, WIDTH, lines, sparkline
from pytest_loadtest.slo import Outcome, Verdict


def starting(found: list[str], word: str) -> str:
    return next(line for line in found if line.strip().startswith(word))


def test_the_verdict_stands_first_and_misses_before_the_rest() -> None:
    """A reader who stops early has read what matters."""
    found = lines(document(counts={"lost": 3, "received": 99_997}))
    assert found[0] == "loadtests/test_smoke.py::test_smoke · profile smoke · MISSED (2 of 7 objectives)"
    marks = [line.split()[0] for line in found if line.strip()[0] in "✗✓?"]
    assert marks == ["✗", "✗", "✓", "✓"]
    assert starting(found, "✗ endToEndLatency.p99").split("  ")[-1] == "over by 32 %"
    assert starting(found, "✓ implicit") == "  ✓ implicit: corrupt 0, dropped 0, sent 100 %, failed 0 %"
    assert found[-1] == "  results    .loadtest/1/test_smoke/1/smoke"


def test_a_scaled_run_says_so() -> None:
    """In its second line."""
    found = lines(document(facts={"scale": 0.001, "scaling": {"rate": "2.50 M → 2 500 msg/s"}}))
    assert found[1] == "  SCALED ×0.001 — says nothing about the full load (rate 2.50 M → 2 500 msg/s)"


def test_the_target_is_named_with_what_decides_results() -> None:
    """A stand-in says that it is none; settings that the client lacks are listed."""
    assert starting(lines(document()), "target") == "  target     Pulsar 4.2.4 (process, pulsar://127.0.0.1:6650) · journalSyncData=false"
    facts = {
        "broker": {"name": "pulsar-lite", "version": "1", "mode": "embedded", "evidence": False},
        "driver": {"not_applied": {"a": "why"}},
    }
    found = lines(document(facts=facts))
    assert "a stand-in, no evidence about the real broker" in starting(found, "target")
    assert starting(found, "not set") == "  not set    a: why"


def test_a_broken_run_gives_its_cause() -> None:
    """Also when there is nothing else to show."""
    verdict = Verdict(outcome=Outcome.NO_DATA, findings=(), reasons=("worker gw1 died: exit status -9", "gw2 too"))
    found = lines(build(FACTS, verdict, None))
    assert found[:3] == [
        "loadtests/test_smoke.py::test_smoke · profile smoke · NO DATA",
        "  because    worker gw1 died: exit status -9",
        "             gw2 too",
    ]


def test_a_slow_generator_comes_with_its_remedy() -> None:
    """Evidence first."""
    workers = tuple(WorkerEvidence(worker=f"gw{n}", cpu=1 + n / 10, stalled=0, longest_stall=60_000_000, gc=0) for n in range(6))
    found = lines(document(workers=workers))
    assert starting(found, "because") == "  because    worker gw5 used 1.50 cores > 0.95 (generator.cpu), and so did 5 more"
    assert starting(found, "remedy") == "  remedy     lower the rate, add workers (-n), or use --load-scale auto"
    assert "gw2 1.20 cores and 2 more · longest stall 60.0 ms" in starting(found, "generator")


def test_blocked_time_is_the_targets() -> None:
    """It stands on a line of its own."""
    found = lines(document(blocked=spread(0.001, 1).total // 2))
    assert starting(found, "blocked") == "  blocked    25.0 s summed over messages, 50 % of the send delay: the target's full window"


def test_absence_is_shown_as_absence() -> None:
    """Never as 0."""
    found = lines(document(publish=None, end_to_end=spread(1, 20, 500), counts={"out_of_order": None}))
    assert starting(found, "publish").endswith("not measured")
    assert starting(found, "end-to-end").count("too few") == 2
    assert "out of order not applicable" in starting(found, "in ")


def test_lost_messages_are_listed_by_range() -> None:
    """The first five; the rest is in the document."""
    lost = tuple(Lost(topic=1, subscription=0, stream=n, first=n, last=n + (n > 0)) for n in range(8))
    found = lines(document(lost=lost, counts={"lost": 15, "received": 99_985}))
    assert starting(found, "lost") == "  lost       0 of stream 0 (topic 1, subscription 0)"
    assert starting(found, "1–2") == "             1–2 of stream 1 (topic 1, subscription 0)"
    assert starting(found, "… and") == "             … and 3 more ranges in results.json"


def test_without_unicode_every_line_is_ascii() -> None:
    """For terminals that show nothing else."""
    found = lines(document(facts={"scale": 0.5, "scaling": {"rate": "2 → 1"}}, counts={"lost": 3, "received": 99_997}), unicode=False)
    assert all(line.isascii() for line in found)
    assert starting(found, "XX") and starting(found, "ok")


@given(st.lists(st.none() | st.floats(0, 1e12), min_size=1, max_size=400), st.sampled_from([min, max]))
def test_a_sparkline_fits_and_shows_gaps(values: list[float | None], worst: object) -> None:
    """One character per group of seconds; a gap exactly where a whole group was not measured."""
    for blocks in (BLOCKS, ASCII_BLOCKS):
        drawn = sparkline(values, blocks, worst=worst)
        step = -(-len(values) // WIDTH)
        groups = [values[at : at + step] for at in range(0, len(values), step)]
        assert [character == " " for character in drawn] == [not any(value is not None for value in group) for group in groups]
        assert set(drawn) <= set(blocks) | {" "}


@pytest.mark.parametrize("seconds", [0, 1])
def test_a_run_of_a_second_has_no_plot(seconds: int) -> None:
    """One bar says nothing."""
    assert not any("/s  " in line for line in lines(document(series=made_series(seconds))) if line.startswith("  received"))


def test_stages_stand_in_a_table_with_what_they_missed() -> None:
    """The headline counts them in."""
    found = lines(document({"endToEndLatency": {"p99": "25ms"}}, parts={"stages": (stage("ramp", {"loss": 0}), stage("spike"))}))
    assert found[0].endswith("MISSED (1 of 20 objectives)")
    at = next(i for i, line in enumerate(found) if line.split()[:1] == ["stage"])
    assert found[at : at + 4] == [
        "     stage     for       offered     delivered  end-to-end p50      p99      max  lost",
        "  ✓  ramp   10.0 s  10.0 k msg/s  10.0 k msg/s         10.5 ms  19.8 ms  20.0 ms     0",
        "  ✗  spike  10.0 s  10.0 k msg/s  10.0 k msg/s         10.5 ms  19.8 ms  20.0 ms     0",
        "  ✗ stage spike: endToEndLatency.p99 19.8 ms > 15.0 ms: over by 32 % (100 000 samples)",
    ]


@pytest.mark.parametrize(
    ("section", "lost", "shown"), [({"loss": 0}, 0, False), ({"loss": 0}, 7, True), ({"buckets": {"0-256": {"loss": 0}}}, 0, True)]
)
def test_size_buckets_are_shown_where_they_matter(section: dict[str, Any], lost: int, shown: bool) -> None:
    """One has an objective, or one lost something."""
    found = lines(document(section, buckets=(made_bucket("0-256"), made_bucket("256-1KB", lost=lost, end_to_end=None, publish=None))))
    table = [line.split("  ") for line in found if line.strip().startswith(("size bucket", "0-256", "256-1KB"))]
    assert bool(table) is shown
    if lost:
        assert [cell.strip() for cell in table[2] if cell] == ["256-1KB", "50 000", "50 000", "50 000", "7", "-", "-", "-", "-"]


def test_a_peak_stands_first_with_interval_limit_and_steps() -> None:
    """The answer, what broke first, then how it was found."""
    found = lines(document(parts={"peak": PEAK}))
    assert found[2:8] == [
        "  peak       19 843 msg/s, held for 60.0 s; 20 240 msg/s was missed",
        "             limit: the target; endToEndLatency.p99 broke first",
        "     step          rate     for     delivered",
        "  ✓     1  10 000 msg/s  30.0 s  10 000 msg/s  bracket",
        "  ✗     2  20 240 msg/s  30.0 s             -  bracket, ended early  endToEndLatency.p99 412 ms > 100 ms: 4.1 times the bound",
        "  ✓     3  19 843 msg/s  60.0 s  19 842 msg/s  confirm",
    ]


@pytest.mark.parametrize(
    ("changed", "answer", "limit"),
    [
        (
            {"limit": "generator", "at_least": True, "high": None},
            "at least 19 843 msg/s, held for 60.0 s",
            "limit: the generator, not the target: add workers (-n) to see more; endToEndLatency.p99 broke first",
        ),
        (
            {"limit": "maximum", "at_least": True, "high": None, "broke_first": None},
            "at least 19 843 msg/s, held for 60.0 s",
            "limit: search.max, not the target: raise it to see more",
        ),
        (
            {"confirmed": False, "rate": 312.5, "high": None},
            "312.5 msg/s, not confirmed by a longer hold",
            "limit: the target; endToEndLatency.p99 broke first",
        ),
        (
            {"limit": "none", "rate": None, "low": None, "high": 20_240.0},
            "none: no rate held",
            "limit: the objectives held at no rate tried; endToEndLatency.p99 broke first",
        ),
    ],
)
def test_a_peak_says_what_limited_it(changed: dict[str, Any], answer: str, limit: str) -> None:
    """What the target may exceed is called "at least"."""
    found = lines(document(parts={"peak": replace(PEAK, **changed)}))
    assert [line.strip() for line in found[2:4]] == [f"peak       {answer}", limit]


def test_a_peak_in_bytes_is_shown_in_bytes() -> None:
    """As the profile asks."""
    facts = {"profile": {"name": "smoke", "search": {"start": "1048576B/s"}}}
    found = lines(document(facts=facts, parts={"peak": replace(PEAK, rate=2e8, high=3e8)}))
    assert starting(found, "peak") == "  peak       191 MiB/s; 286 MiB/s was missed"


def test_a_backlog_has_build_and_drain_and_what_publishing_was_like() -> None:
    """One that did not drain says so."""
    found = lines(document(parts={"backlog": BACKLOG}))
    assert starting(found, "backlog") == ("  backlog    1 048 576 deliveries, 1.00 GiB, built in 32.0 s, drained in 8.00 s at 131 k msg/s")
    assert starting(found, "publish latency") == "             publish latency meanwhile: p50 6.25 ms, p99 11.9 ms"
    stuck = lines(document(parts={"backlog": replace(BACKLOG, drained=False, drain=600_000 * MS, publish_during_drain=None)}))
    assert "NOT drained within 10.0 min (backlogDrainTimeout)" in starting(stuck, "backlog")
    assert starting(stuck, "publish latency").endswith("meanwhile: not measured")


def test_a_run_without_consumers_says_so() -> None:
    """No zeros where nothing was to come."""
    run: dict[str, Any] = {"subscriptions": 0, "end_to_end": None, "counts": {"received": 0, "received_in_time": 0, "out_of_order": None}}
    found = lines(document({"publishLatency": {"p99": "1s"}}, **run))
    assert starting(found, "in ") == "  in         not applicable: nothing subscribes in this run"
    assert "delivered nowhere (nothing subscribes)" in starting(found, "rate")


def test_every_part_can_be_shown_in_ascii() -> None:
    """Stages, peak, buckets and backlog, too."""
    parts = {"stages": (stage("ramp"),), "peak": PEAK, "backlog": BACKLOG}
    found = lines(document(facts={"workload": "files"}, parts=parts, buckets=(made_bucket("0-256", lost=1),)), unicode=False)
    assert all(line.isascii() for line in found)
    assert found[0] == "loadtests/test_smoke.py::test_smoke | profile smoke | workload files | MISSED (2 of 14 objectives)"
