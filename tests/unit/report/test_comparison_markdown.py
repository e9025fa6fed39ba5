"""Comparisons as Markdown, for pull requests and for the summary of a run."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from builders.comparisons import comparisons, pairs
from builders.documents import as_json
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.report.build import with_comparison
from pytest_loadtest.report.ci import github_summary
from pytest_loadtest.report.compared import compare_pair
from pytest_loadtest.report.comparison import compare_runs, missing_comparison
from pytest_loadtest.report.comparison_markdown import (
    LIMIT,
    comparison_markdown,
    section_lines,
)
from pytest_loadtest.verdict.objectives import Slo

COMPARED = comparisons()
FOLD = re.compile(r"<details>.*?</details>", re.DOTALL)


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def figures(text: str) -> dict[str, list[str]]:
    """Return the rows of figures by name."""
    rows = [cells(line) for line in text.splitlines() if line.startswith("| ")]
    return {row[0]: row for row in rows if row[0] != "figure"}


def shown(name: str) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Return the figures of one comparison: above the fold, and in it."""
    part = comparison_markdown([COMPARED[name]]).partition("\n### ")[2]
    folds = "".join(FOLD.findall(part))
    return figures(FOLD.sub("", part)), figures(folds)


def overview(name: str) -> list[str]:
    lines = comparison_markdown([COMPARED[name]]).splitlines()
    return cells(lines[4])


def test_changed_figures_come_first_with_interval_arrow_and_word() -> None:
    above, folded = shown("slower")
    assert next(iter(above)) == "endToEndLatency.p99"
    row = above["endToEndLatency.p99"]
    assert row[3:] == ["+31 %", "+28 % to +34 %", "↑ worse", "**missed**"]
    words = [cell[5] for cell in above.values()]
    assert words == ["↑ worse"] * 4 + ["noise unknown"] * 2
    assert folded["throughput"][5:] == ["within noise", "**met**"]
    better, _ = shown("faster")
    assert better["endToEndLatency.p50"][5] == "↓ better"


def test_all_figures_of_the_comparison_are_there_once() -> None:
    for name, test in COMPARED.items():
        if test.section is None:
            continue
        above, folded = shown(name)
        assert not set(above) & set(folded)
        assert set(above) | set(folded) == {row.name for row in test.section.rows}


def test_a_change_within_noise_is_no_certain_change() -> None:
    above, folded = shown("same")
    assert above == {}
    assert folded["endToEndLatency.p99"][5] == "within noise"
    text = comparison_markdown([COMPARED["same"]])
    assert "compared: 1 without a certain change; bounds on regression: 2 met\n" in text


def test_losses_without_an_earlier_one_are_above_the_fold() -> None:
    """Nothing is a share of 0, so there is neither a change in per cent nor an interval."""
    above, folded = shown("losses")
    assert above["lost"] == ["lost", "0", "7", "-", "-", "noise unknown", ""]
    assert folded["publishLatency.p99"][5] == ""


@pytest.mark.parametrize("name", ["machine", "late", "was late", "scaled now", "broker"])
def test_figures_of_runs_that_are_not_comparable_are_neither_better_nor_worse(name: str) -> None:
    above, folded = shown(name)
    assert above == {}
    assert {row[5] for row in folded.values()} == {""}
    assert overview(name)[4] == "not comparable"
    text = comparison_markdown([COMPARED[name]])
    assert "compared: 1 not comparable" in text
    assert "\n- NOT COMPARABLE: " in text


def test_a_forced_comparison_says_so_and_has_its_words() -> None:
    """A run without a valid outcome is not compared, forced or not."""
    forced = comparisons(force=True)
    text = comparison_markdown([forced["machine"]])
    assert "↑ worse" in text
    assert "judged anyway, as requested\n  - machine.cores: 2 → 64" in text
    assert "↑ worse" not in comparison_markdown([forced["late"]])


def test_a_changed_outcome_and_its_cause_are_said() -> None:
    assert overview("slower")[:4] == [
        "✗",
        r"loadtests/test\_orders.py::test\_orders\[slower\] · profile smoke",
        "**met → missed**",
        "1 missed, 1 met",
    ]
    late = comparison_markdown([COMPARED["late"]])
    assert ": met → generator-limited\n" in late
    assert "- now: generator-limited: worker gw1 sent late" in late
    assert "- now: remedy: use more workers (-n)" in late
    assert "- baseline: generator-limited: " in comparison_markdown([COMPARED["was late"]])
    broken = comparison_markdown([COMPARED["broken"]])
    assert "- now: no data: worker gw1 died: exit status -9" in broken


def test_a_test_on_one_side_says_which() -> None:
    assert overview("gone")[2:] == ["met", "1 no data", "only in the baseline"]
    assert overview("new")[2:] == ["met", "none", "only in the later results"]
    text = comparison_markdown([COMPARED["gone"]])
    assert "only in the baseline: .loadtest/1/gone/1/smoke/measure; its bounds" in text


def test_a_scaled_run_says_nothing_about_the_full_load() -> None:
    text = comparison_markdown([COMPARED["scaled"]])
    for side in ("baseline", "now"):
        assert f"- {side}: SCALED ×0.01: says nothing about the full load (rate 20 k" in text
    assert "SCALED ×0.01" in overview("scaled")[1]


def test_the_worst_test_comes_first() -> None:
    text = comparison_markdown(list(COMPARED.values()))
    marks = [line[4] for line in text.splitlines() if line.startswith("### ")]
    assert marks == sorted(marks, key="?!✗✓".index)
    assert len(marks) == len(COMPARED)


def test_results_that_cannot_be_read_are_named() -> None:
    problems = [f"file{number} is | not a document {'x' * 999}" for number in range(40)]
    text = comparison_markdown(list(COMPARED.values()), problems)
    assert r"- **no data**: file0 is \| not" in text
    assert "- **no data**: … and 30 more\n\n| |" in text
    assert len(text) < LIMIT


@given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=60))
def test_no_name_breaks_the_tables(name: str) -> None:
    was, now = pairs()["slower"]
    assert was is not None
    assert now is not None
    test = compare_pair(replace(was, test=name), replace(now, test=name))
    lines = comparison_markdown([test]).split("\n")
    expected = comparison_markdown([COMPARED["slower"]]).split("\n")
    assert len(lines) == len(expected)
    assert [len(cells(line)) for line in lines] == [len(cells(line)) for line in expected]


@given(st.integers(0, 40_000), st.integers(1, 12))
def test_a_comment_is_not_larger_than_allowed(room: int, number: int) -> None:
    """What was left out is said if there is room for it."""
    tests = [COMPARED["slower"], COMPARED["same"]] * number
    whole = comparison_markdown(tests, room=10**9)
    found = comparison_markdown(tests, room=room)
    assert len(found.encode()) <= max(room, 200)
    if found != whole and room > 1000:
        cut = r"are left out: too long|… and \d+ more (rows|tests)"
        assert re.search(cut, found)


def test_six_hundred_tests_fit_in_a_comment() -> None:
    """GitHub rejects a comment of more than 65 536 characters. Some of these have no room even for a row."""
    text = comparison_markdown([COMPARED["slower"]] * 600)
    assert LIMIT * 0.9 < len(text.encode()) <= LIMIT == 60_000
    assert re.search(r"… and \d+ more rows: see the results folder\n", text)
    assert re.search(r"… and 600 more tests: see the results folder\n$", text)


def test_folded_figures_are_left_out_before_tests() -> None:
    tests = [COMPARED["slower"]] * 40
    text = comparison_markdown(tests)
    assert text.count("\n### ") == 40
    assert text.count("The folded figures are left out: too long.") == 40
    assert "<details>" not in text


def test_the_summary_of_a_run_has_the_same_comparison() -> None:
    """``--load-baseline`` compares each run of a session."""
    was, now = pairs()["slower"]
    assert was is not None
    assert now is not None
    found = compare_runs(was, now, Slo.read({"regression": {"throughput": "5%"}}).gates)
    above, folded = section_lines(found.section)
    text = github_summary([with_comparison(now, *found)])
    assert "\n".join([*above, *folded]) in text
    assert f"Compared with `{was.results}` ({was.started}, met):" in text
    assert as_json(now)["comparison"] is None
    gone = with_comparison(now, *missing_comparison((), "the baseline x is gone"))
    assert "- no baseline: the baseline x is gone" in github_summary([gone])
