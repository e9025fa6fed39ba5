"""JUnit properties."""

from __future__ import annotations

from made_documents import FACTS, document

from pytest_loadtest.report.document import build
from pytest_loadtest.report.junit import properties
from pytest_loadtest.slo import Outcome, Verdict


def test_numbers_have_their_unit_in_the_name() -> None:
    """So that tools need not parse them."""
    found = dict(properties(document()))
    assert found["load.end_to_end.max.ms"] == "20.000"
    assert found["load.throughput.msg_per_s"] == "10000.0"
    assert found["load.lost"] == "0"
    assert found["load.outcome"] == "missed"
    assert found["load.objective.endToEndLatency.p99"].startswith("missed: endToEndLatency.p99 19.8 ms > 15.0 ms")


def test_a_scaled_run_says_so() -> None:
    """And one that is not, says that."""
    assert dict(properties(document()))["load.scaled"] == "no"
    assert dict(properties(document(facts={"scale": 0.001})))["load.scaled"] == "×0.001: says nothing about the full load"


def test_what_was_not_measured_is_left_out() -> None:
    """No property is better than a zero."""
    found = dict(properties(document(publish=None, counts={"out_of_order": None})))
    assert not any(name.startswith("load.publish") for name in found)
    assert "load.outOfOrder" not in found
    verdict = Verdict(outcome=Outcome.NO_DATA, findings=(), reasons=("worker gw1 died",))
    broken = dict(properties(build(FACTS, verdict, None)))
    assert broken["load.reason"] == "worker gw1 died"
    assert "load.lost" not in broken


def test_all_are_text() -> None:
    """JUnit knows nothing else."""
    assert all(isinstance(name, str) and isinstance(value, str) for name, value in properties(document()))
