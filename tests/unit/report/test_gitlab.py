"""GitLab's metrics report, read as GitLab reads it."""

from __future__ import annotations

import shlex

from builders.documents import FACTS, PEAK, document
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from pytest_loadtest.report.document import build_document
from pytest_loadtest.report.gitlab import gitlab_metrics
from pytest_loadtest.verdict.slo import Outcome, Verdict

MISSED = document()
BROKEN = build_document(FACTS, Verdict(outcome=Outcome.NO_DATA, findings=(), reasons=("worker gw1 died",)), None)


def of_gitlab(text: str) -> dict[str, str]:
    """Name with labels → value, by the rules of GitLab's parser: ``line.gsub(/#.*$/, '').shellsplit``."""
    words = [shlex.split(line.partition("#")[0]) for line in text.split("\n")]
    return {name: value for name, value, *_ in filter(None, words)}


def of_openmetrics(text: str) -> dict[tuple[str, ...], float]:
    """Sample name and values of its labels, by name → value."""
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {(sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value for sample in samples}


def test_it_is_openmetrics() -> None:
    """With its end mark, seconds, and everything that was counted."""
    found = of_openmetrics(gitlab_metrics([document(parts={"peak": PEAK})]))
    who = ("smoke", "", FACTS.test, "")
    assert found["loadtest_outcome", "missed", *who] == 1
    assert found["loadtest_latency_seconds", "end-to-end", "smoke", "p99", "", FACTS.test, ""] == 0.0198
    assert found["loadtest_messages", "lost", *who] == 0
    assert found["loadtest_peak_per_second", "smoke", "", FACTS.test, "messages", ""] == 19_800
    assert gitlab_metrics([MISSED]).endswith("# EOF\n")


def test_gitlab_reads_the_same() -> None:
    """As many names and values, each with its labels."""
    text = gitlab_metrics([MISSED, {**MISSED, "test": "other"}])
    found = of_gitlab(text)
    assert len(found) == len(of_openmetrics(text))
    assert found[f"loadtest_outcome{{outcome=missed,profile=smoke,scale=,test={FACTS.test},workload=}}"] == "1.0"


def test_what_was_not_measured_is_left_out() -> None:
    """No number is better than a zero."""
    assert {name for name, *_ in of_openmetrics(gitlab_metrics([BROKEN]))} == {"loadtest_outcome", "loadtest_objectives_missed"}
    without = of_openmetrics(gitlab_metrics([document(publish=None, counts={"out_of_order": None})]))
    assert not [labels for labels in without if "publish" in labels or "outOfOrder" in labels]


def test_of_several_attempts_the_last_one_counts() -> None:
    """A name may stand there once."""
    found = of_openmetrics(gitlab_metrics([BROKEN, MISSED]))
    assert [labels[1] for labels in found if labels[0] == "loadtest_outcome"] == ["missed"]


@given(st.text(st.characters(codec="utf-8", exclude_characters="\r"), min_size=1, max_size=60))
def test_no_name_of_a_test_breaks_the_file(name: str) -> None:
    """Neither for GitLab nor for OpenMetrics."""
    text = gitlab_metrics([{**MISSED, "test": name}])
    assert len(of_gitlab(text)) == len(of_openmetrics(text))
