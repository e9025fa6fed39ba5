"""The terminal summary."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_documents import FACTS, document
from made_measurements import made_series, spread

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
