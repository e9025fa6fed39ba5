"""The grammar of windows and drift."""

from __future__ import annotations

import pytest
from builders.objectives import InvalidSlo, parse_slo

from pytest_loadtest.values.quantities import SECOND
from pytest_loadtest.verdict.objectives import Objective, Slo, scale_objectives

LATENCY = {"endToEndLatency": {"p99": "100ms"}}


def wrong(section: dict[str, object]) -> list[str]:
    with pytest.raises(InvalidSlo) as caught:
        parse_slo(section)
    return str(caught.value).splitlines()


def named(section: dict[str, object]) -> dict[str, Objective]:
    return {one.name: one for one in parse_slo(section)}


def test_latencies_and_throughput_hold_in_windows_and_counts_in_the_run() -> None:
    """So do connections, which come up before the first window."""
    found = named(
        {
            "window": "10s",
            "violations": "1%",
            **LATENCY,
            "throughput": "99%",
            "loss": 0,
            "connectLatency": {"max": "1s"},
        }
    )
    held = {name: (one.window, one.violations) for name, one in found.items() if not one.implicit}
    assert held == {
        "endToEndLatency.p99": (10 * SECOND, 0.01), "throughput": (10 * SECOND, 0.01), "loss": (None, 0), "connectLatency.max": (None, 0),
    }  # fmt: skip


def test_bounds_on_the_whole_run_have_a_name_of_their_own() -> None:
    found = named(
        {
            "window": "10s",
            **LATENCY,
            "whole": {"endToEndLatency": {"p99": "80ms"}, "buckets": {"0-256": {"loss": 0}}},
        }
    )
    assert found["whole.endToEndLatency.p99"].maximum == 80_000_000
    assert (found["whole.endToEndLatency.p99"].window, found["endToEndLatency.p99"].window) == (
        None,
        10 * SECOND,
    )
    assert found["whole.buckets.0-256.loss"].maximum == 0


@pytest.mark.parametrize(
    ("section", "implicit"),
    [
        ({"window": "10s", "throughput": "90%"}, False),
        ({"window": "10s", "violations": "1%", "throughput": "90%"}, True),
        ({"window": "10s", **LATENCY, "whole": {"throughput": "90%"}}, False),
        ({"drift": {"throughput": "5%"}}, True),
    ],
)
def test_an_implicit_objective_gives_way_to_a_bound_that_no_window_may_miss(
    section: dict[str, object], implicit: bool
) -> None:
    """If some may, they could be much worse. No two objectives have the same name."""
    found = parse_slo(section)
    assert any(one.implicit and one.metric == "throughput" for one in found) is implicit
    assert len({one.name for one in found}) == len(found)


def test_drift_is_a_share_of_the_first_tenth() -> None:
    """A latency may rise, throughput may fall; both bounds are possible."""
    found = named(
        {
            "drift": {
                "endToEndLatency.p99": "20%",
                "throughput": "5%",
                "sendDelay.max": {"min": "10%", "max": "200%"},
            }
        }
    )
    sides = {
        name: (one.minimum, one.maximum) for name, one in found.items() if name.startswith("drift.")
    }
    assert sides == {
        "drift.endToEndLatency.p99": (None, 0.2),
        "drift.throughput": (-0.05, None),
        "drift.sendDelay.max": (-0.1, 2.0),
    }


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"window": 10, **LATENCY}, "window: 10 is not a duration (write 10s)"),
        (
            {"window": "500ms", **LATENCY},
            "window: 500 ms is not a whole number of seconds (write 1s or more)",
        ),
        (
            {"window": "1500ms", **LATENCY},
            "window: 1.50 s is not a whole number of seconds (write 1s or more)",
        ),
        (
            {"window": "10s", "loss": 0},
            "window: no bound of this section is judged in windows: all are judged over the whole run",
        ),
        (
            {"window": "10s", "deliveryGap": {"max": "5s"}},
            "window: no bound of this section is judged in windows: all are judged",
        ),
        (
            {"violations": "1%", **LATENCY},
            "violations: 'violations' has no effect without window (write window: 10s next to it)",
        ),
        (
            {"whole": LATENCY, **LATENCY},
            "whole: 'whole' has no effect without window (write window: 10s next to it)",
        ),
        (
            {"window": "1s", "violations": 3, **LATENCY},
            "violations: 3 is not a share of the windows (write 1%)",
        ),
        (
            {"window": "1s", "violations": "100%", **LATENCY},
            "violations: '100%' lets every window miss (write less than 100%)",
        ),
        (
            {"window": "1s", "buckets": {"a": {"loss": 0}}, **LATENCY},
            "buckets: size buckets are judged over the whole run, not by window",
        ),
        (
            {"window": "1s", "whole": {"loss": 0}, **LATENCY},
            "whole.loss: 'loss' is judged over the whole run anyway (write it next to window)",
        ),
        (
            {"window": "1s", "whole": {}, **LATENCY},
            "whole: has no objective (write, for example, {endToEndLatency: {p99: 80ms}})",
        ),
        (
            {"window": "1s", "whole": {"drift": {}}, **LATENCY},
            "whole.drift: drift is judged for the whole run, not by bucket",
        ),
        ({"drift": "20%"}, "drift: bounds no metric (write drift: {endToEndLatency.p99: 20%})"),
        (
            {"drift": {"loss": "20%"}},
            "drift.loss: 'loss' is not a metric with drift (known: throughput",
        ),
        (
            {"drift": {"endToEndLatency": "20%"}},
            "drift.endToEndLatency: 'endToEndLatency' names no statistic",
        ),
        (
            {"drift": {"endToEndLatency.p101": "20%"}},
            "drift.endToEndLatency.p101: percentile 101 is out of range",
        ),
        (
            {"drift": {"throughput.p99": "20%"}},
            "drift.throughput.p99: 'throughput.p99' is not a metric: throughput has no statistics",
        ),
        (
            {"drift": {"endToEndLatency.p99": "20ms"}},
            "drift.endToEndLatency.p99: '20ms' is not a share of the first tenth (write 20%)",
        ),
        (
            {"drift": {"throughput": "100%"}},
            "drift.throughput: '100%' allows any drop (write less than 100%)",
        ),
    ],
)
def test_a_wrong_window_or_drift_is_a_problem(section: dict[str, object], message: str) -> None:
    """With path and what to write."""
    assert any(message in line for line in wrong(section)), wrong(section)


def test_a_section_keeps_its_window_as_a_number() -> None:
    """The workers measure each window by it; a drift needs none."""
    assert Slo.read({"window": "1min", **LATENCY}).window == 60 * SECOND
    assert Slo.read({"drift": {"throughput": "5%"}}).window is None
    assert Slo().window is None


def test_scaled_runs_keep_their_windows() -> None:
    """Rates shrink with the load, windows and shares do not; what was written for scaled runs stays."""
    found = scale_objectives(
        parse_slo(
            {
                "window": "10s",
                "violations": "1%",
                "throughput": "5000/s",
                "whole": {"throughput": "6000/s"},
            }
        ),
        0.1,
        0.1,
        ("whole",),
    )
    assert [(one.minimum, one.window, one.violations) for one in found[:2]] == [
        (500, 10 * SECOND, 0.01),
        (6000, None, 0),
    ]
