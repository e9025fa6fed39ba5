"""The sections of a document that judge."""

from __future__ import annotations

from typing import Any

import pytest
from builders.documents import PEAK, as_json, changed, document

from pytest_loadtest.report.document import results_schema
from pytest_loadtest.verdict.grammar import METRICS
from pytest_loadtest.verdict.slo import Outcome


def test_every_metric_is_in_the_schema() -> None:
    found = results_schema()["$defs"]["FindingEntry"]["properties"]["metric"]["enum"]
    assert found == [*METRICS, "custom", "regression"]


def test_every_outcome_is_in_the_schema() -> None:
    assert results_schema()["$defs"]["Outcome"]["enum"] == [outcome.value for outcome in Outcome]


def windows(number: int) -> dict[str, Any]:
    listed = [
        {"start": at, "end": at + 1, "observed": None, "outcome": "no data"} for at in range(number)
    ]
    return {
        "width": 1,
        "violations": 0,
        "number": number,
        "missed": 0,
        "generatorLimited": 0,
        "noData": number,
        "listed": listed,
    }


def test_a_finding_lists_at_most_a_thousand_windows() -> None:
    run = changed(document(), "verdict/findings/0/windows", windows(1000))
    assert as_json(run)["verdict"]["findings"][0]["windows"] == windows(1000)
    with pytest.raises(ValueError, match=r"verdict\.findings\.0\.windows\.listed: .* at most 1000"):
        changed(document(), "verdict/findings/0/windows", windows(1001))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("verdict/outcome", "good"),
        ("peak/limit", "patience"),
        ("peak/steps/0/purpose", "fun"),
        ("peak/steps/0/number", 0),
    ],
)
def test_a_value_outside_its_list_is_an_error(path: str, value: Any) -> None:
    with pytest.raises(ValueError, match=path.replace("/", r"\.")):
        changed(document(parts={"peak": PEAK}), path, value)
