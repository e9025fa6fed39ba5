"""The grammar of ``slo:``."""

from __future__ import annotations

from typing import Any

import pytest
from builders.objectives import InvalidSlo, parse_slo
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.metrics import catalogue
from pytest_loadtest.verdict.grammar import INDEX, METRICS, SHARES
from pytest_loadtest.verdict.objectives import IMPLICIT, Objective, Slo, explicit, scale_objectives


def problems(section: dict[Any, Any]) -> list[tuple[Any, ...]]:
    with pytest.raises(InvalidSlo) as caught:
        parse_slo(section)
    return [
        (problem.path, problem.message, problem.suggestion) for problem in caught.value.problems
    ]


def only(section: dict[Any, Any]) -> Objective:
    (objective,) = explicit(parse_slo(section))
    return objective


def test_a_section_is_read_in_its_own_order() -> None:
    """Each metric has its direction and its unit; a percentage becomes a share."""
    section = {
        "throughput": "99%",
        "endToEndLatency": {"p50": "20ms", "p99": "100ms", "max": "2s"},
        "loss": 0,
        "duplicates": "0.01%",
    }
    found = [(o.name, o.minimum, o.maximum, o.unit) for o in explicit(parse_slo(section))]
    assert found == [
        ("throughput", 0.99, None, "ratio"),
        ("endToEndLatency.p50", None, 20e6, "ns"),
        ("endToEndLatency.p99", None, 100e6, "ns"),
        ("endToEndLatency.max", None, 2e9, "ns"),
        ("loss", None, 0, "messages"),
        ("duplicates", None, pytest.approx(0.0001), "ratio"),
    ]


@pytest.mark.parametrize("text", ["5000/s", "5_000 msg/s", "5e3/s", "5000.0 /s"])
def test_an_absolute_throughput_is_messages_per_second(text: object) -> None:
    """With its unit, however the number is written."""
    assert (only({"throughput": text}).minimum, only({"throughput": text}).unit) == (5000, "msg/s")


@pytest.mark.parametrize(
    ("written", "remedy"),
    [
        (0.99, "write 99% of the rate offered, or 0.99/s"),
        (1, "write 100% of the rate offered, or 1/s"),
        (99, "write 99% of the rate offered, or 99/s"),
        ("5e3", "write 5e3/s"),
    ],
)
def test_a_throughput_without_a_unit_is_an_error_with_both_spellings(
    written: object, remedy: str
) -> None:
    """0.99 read as messages per second would hold for every run."""
    assert problems({"throughput": written}) == [
        (("throughput",), f"'{written}' has no unit", remedy)
    ]


@pytest.mark.parametrize(
    "section",
    [{"throughput": "1/s"}, {"throughput": {"min": "1/s"}}, {"throughput": "1/s", "window": "10s"}],
)
def test_an_absolute_throughput_leaves_the_implicit_share(section: dict[str, Any]) -> None:
    """Otherwise a run that delivers half of its messages would meet 1/s."""
    found = [o for o in parse_slo(section) if o.metric == "throughput"]
    assert [(o.minimum, o.unit, o.implicit) for o in found] == [
        (1, "msg/s", False),
        (0.95, "ratio", True),
    ]
    assert not any(o.implicit for o in parse_slo({"throughput": "50%"}) if o.metric == "throughput")


def test_every_metric_can_have_both_bounds() -> None:
    """``{min:, max:}``."""
    both = only({"publishLatency": {"p99": {"min": "1ms", "max": "50ms"}}})
    assert (both.minimum, both.maximum) == (1e6, 50e6)
    assert only({"duplicates": {"min": 1}}).maximum is None


@pytest.mark.parametrize(
    ("key", "name"),
    [("p99.90", "p99.9"), ("p50.0", "p50"), ("p99.999", "p99.999"), ("p0.5", "p0.5")],
)
def test_a_percentile_has_one_spelling(key: str, name: str) -> None:
    """Trailing zeros do not make another percentile."""
    objective = only({"endToEndLatency": {key: "1s"}})
    assert (objective.statistic, objective.percentile) == (name, float(name[1:]))


@given(st.sets(st.sampled_from(METRICS)))
def test_an_implicit_objective_applies_exactly_if_the_section_has_none(named: set[str]) -> None:
    values: dict[str, object] = {
        metric: "1%" if metric in (*catalogue.named(form="count"), *SHARES) else {"p50": "1s"}
        for metric in named
    }
    values |= dict.fromkeys(named & set(catalogue.named(form="duration")), "1s") | dict.fromkeys(
        named & {INDEX}, "2.5"
    )
    values |= dict.fromkeys(named & {"throughput"}, "1%")
    found = parse_slo(values)
    assert {o.metric for o in found if o.implicit} == {o.metric for o in IMPLICIT} - named
    assert {o.metric for o in explicit(found)} == named


@pytest.mark.parametrize(
    ("section", "left"),
    [({"throughput": {"max": "100%"}}, "throughput"), ({"failed": {"min": 1}}, "failed")],
)
def test_a_bound_on_one_side_leaves_the_implicit_one_on_the_other(
    section: dict[str, Any], left: str
) -> None:
    """An upper bound on throughput does not allow half of it to be missing."""
    found = parse_slo(section)
    assert [o for o in found if o.implicit] == list(IMPLICIT)
    assert [o.metric for o in explicit(found)] == [left]
    both = dict.fromkeys(("min", "max"), "50%")
    assert left not in {o.metric for o in parse_slo({left: both}) if o.implicit}


@pytest.mark.parametrize(
    "section", [{"loss": {"min": 1}}, {"corrupt": {"min": "1%"}}, {"dropped": {"min": 1}}]
)
def test_a_minimum_alone_is_wrong_for_a_metric_that_must_be_0(section: dict[str, Any]) -> None:
    """It would contradict the implicit bound, or allow everything to be lost."""
    ((path, message, hint),) = problems(section)
    (metric,) = section
    assert (path, message) == (
        (metric,),
        "min without max: a count needs an upper bound",
    )
    assert hint.startswith("write {min: ") and ", max: " in hint
    bucket = {"buckets": {BUCKET: {"loss": {"min": 1}}}}
    assert problems(bucket)[0][0] == ("buckets", BUCKET, "loss")


def test_an_empty_section_has_no_explicit_objective() -> None:
    """It is allowed; the caller makes ``assert_slo()`` a usage error."""
    assert explicit(parse_slo({})) == ()


def test_all_problems_are_reported_with_path_and_suggestion() -> None:
    found = problems({"thruput": 1, "endToEndLatency": {"p99": 20, "mx": "1s"}, "loss": "101%"})
    assert [(path, hint) for path, _, hint in found] == [
        (("thruput",), "did you mean throughput?"),
        (("endToEndLatency", "p99"), "write 20ms or 20s"),
        (("endToEndLatency", "mx"), "did you mean max?"),
        (("loss",), "write 100% or less"),
    ]


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"endToEndLatency": {"p100.1": "1s"}}, "out of range"),
        ({"endToEndLatency": {"p0": "1s"}}, "out of range"),
        ({"endToEndLatency": {"p999": "1s"}}, "out of range"),
        ({"endToEndLatency": {"p100": "1s"}}, "largest"),
        ({"endToEndLatency": {"p99": "1s", "p99.0": "2s"}}, "same percentile"),
        ({"endToEndLatency": {"p99": "5 parsecs"}}, "duration"),
        ({"endToEndLatency": {"p99": "0ms"}}, "'0ms' can never be met"),
        ({"endToEndLatency": {"p99": "-5ms"}}, "negative"),
        ({"endToEndLatency": {"min": "5ms"}}, "either way"),
        ({"endToEndLatency": {99: "5ms"}}, "not a statistic"),
        ({"endToEndLatency": "100ms"}, "which statistic"),
        ({"endToEndLatency": {}}, "no statistic"),
        ({"endToEndLatency": None}, "no statistic"),
        ({"loss": -1}, "negative"),
        ({"loss": 0.01}, "whole number"),
        ({"loss": "5/s"}, "whole number"),
        ({"loss": None}, "no value"),
        ({"loss": True}, "not a bound"),
        ({"loss": float("nan")}, "not a bound"),
        ({"loss": [1]}, "not a bound"),
        ({"loss": {}}, "no bound"),
        ({"loss": {"maximum": 1}}, "not a bound"),
        ({"loss": {"min": 5, "max": 1}}, "above max"),
        ({"throughput": {"min": "99%", "max": "5000/s"}}, "different units"),
        ({"throughput": "99 percent"}, "not a rate"),
        ({"throughput": "5__0/s"}, "not a rate"),
        ({"throughput": "5_/s"}, "not a rate"),
        ({"loss": "5_"}, "whole number"),
        ({"throughput": "0/s"}, "'0/s' is always met"),
        ({"sent": 5000}, "not a share"),
        ({"sent": "%"}, "not a percentage"),
        ({7: 1}, "not a metric"),
        ({"p99": "50ms"}, "'p99' is a statistic, not a metric"),
        ({"max": "50ms"}, "'max' is a statistic, not a metric"),
    ],
)
def test_a_wrong_bound_has_a_message_of_its_own(section: dict[Any, Any], message: str) -> None:
    ((path, text, _),) = problems(section)
    assert message in text
    assert path[0] == next(iter(section))


def test_the_remedy_of_an_unknown_metric_names_metrics_and_similar_keys() -> None:
    """Keys that are not metrics, such as ``window``, are suggested only to one who misspelled them."""
    (unlike, alike, statistic) = problems({"zzz": 1, "wndow": "5s", "p99": "50ms"})
    assert unlike[2].startswith("known: throughput, ")
    assert not {"window", "buckets", "custom", "whole"} & set(unlike[2].split(", "))
    assert alike[2] == "did you mean window?"
    assert statistic[2] == "write endToEndLatency: {p99: 50ms}"


@given(st.floats(1e-6, 1, exclude_min=True))
def test_scaling_moves_absolute_throughput_with_the_rate_and_counts_with_the_messages(
    factor: float,
) -> None:
    """Shares and latencies keep their bounds."""
    before = parse_slo(
        {
            "throughput": "5000/s",
            "endToEndLatency": {"p99": "1s"},
            "duplicates": "1%",
            "loss": {"min": 3, "max": 1000},
        }
    )
    after = scale_objectives(before, factor, factor / 2)
    assert after[0].minimum == 5000 * factor
    for bound, whole in ((after[3].minimum, 3), (after[3].maximum, 1000)):
        assert bound is not None
        assert bound == int(bound)
        assert bound <= whole * factor / 2 + 1e-6 < bound + 1 + 1e-5
    assert after[1:3] == before[1:3]
    assert after[4:] == before[4:]
    assert scale_objectives(parse_slo({"throughput": "99%"}), factor, factor) == parse_slo(
        {"throughput": "99%"}
    )


def test_a_tolerance_of_a_thousand_messages_is_ten_at_a_hundredth_of_the_load() -> None:
    """Rounded down: of 150 lost messages, one in a thousand may be lost never."""
    assert scale_objectives(parse_slo({"loss": 1000}), 0.01, 0.01)[0].maximum == 10
    assert scale_objectives(parse_slo({"loss": 150}), 0.001, 0.001)[0].maximum == 0
    assert (
        scale_objectives(parse_slo({"loss": 100}), 1.0, 0.29)[0].maximum == 29
    )  # though 100 * 0.29 is a little less in binary


def test_bounds_for_scaled_runs_are_not_scaled() -> None:
    """By their key: a metric, or all buckets."""
    before = parse_slo(
        {"throughput": "5000/s", "loss": 1000, "duplicates": 10, "buckets": {BUCKET: {"loss": 100}}}
    )
    after = scale_objectives(before, 0.5, 0.1, written={"loss", "buckets"})
    assert [(o.name, o.minimum or o.maximum) for o in explicit(after)] == [
        ("throughput", 2500), ("loss", 1000), ("duplicates", 1), (f"buckets.{BUCKET}.loss", 100),
    ]  # fmt: skip


BUCKET = "1048576-5242880"


def test_a_bucket_has_objectives_of_its_own() -> None:
    """By the same grammar; they override no implicit objective."""
    found = parse_slo(
        {"buckets": {BUCKET: {"endToEndLatency": {"p99": "2s"}, "loss": 0, "throughput": "99%"}}}
    )
    assert [(o.name, o.bucket, o.maximum) for o in explicit(found)] == [
        (f"buckets.{BUCKET}.endToEndLatency.p99", BUCKET, 2e9),
        (f"buckets.{BUCKET}.loss", BUCKET, 0),
        (f"buckets.{BUCKET}.throughput", BUCKET, None),
    ]
    assert [o for o in found if o.implicit] == list(IMPLICIT)


def test_an_absolute_throughput_of_a_bucket_is_scaled_too() -> None:
    """It is a share of the load."""
    (objective,) = explicit(
        scale_objectives(parse_slo({"buckets": {BUCKET: {"throughput": "100/s"}}}), 0.5, 0.5)
    )
    assert (objective.minimum, objective.bucket) == (50, BUCKET)


@pytest.mark.parametrize(
    ("buckets", "path", "message", "hint"),
    [
        (None, (), "names no size bucket", 'write buckets: {"1048576-5242880": {endToEndLatency: {p99: 2s}}}'),
        ({"0-256": {}}, ("0-256",), "has no objective", "write, for example, {endToEndLatency: {p99: 2s}, loss: 0}"),
        ({"0-256": {"los": 0}}, ("0-256", "los"), "'los' is not a metric", "did you mean loss?"),
        (
            {"0-256": {"duplicates": 0}}, ("0-256", "duplicates"), "duplicates is judged for the whole run, not by bucket",
            "known: throughput, publishLatency, endToEndLatency, receiveLag, loss",
        ),
        ({"0-256": {"loss": "101%"}}, ("0-256", "loss"), "'101%' is above 100%", "write 100% or less"),
    ],
)  # fmt: skip
def test_a_wrong_bucket_is_a_problem_at_its_path(
    buckets: Any, path: tuple[str, ...], message: str, hint: str
) -> None:
    """With the metrics that a bucket can have."""
    assert problems({"buckets": buckets}) == [(("buckets", *path), message, hint)]


def test_a_section_that_replaces_keys_of_another_is_read_together_with_it() -> None:
    """Its bounds hold in the windows of the other section, whose own problems are not repeated."""
    base = {"window": "10s", "endToEndLatency": {"p99": "100ms"}, "los": 0}
    section = Slo.read({"endToEndLatency": {"p99": "1s"}, "lost": 0}, base)
    assert [(one.maximum, one.window) for one in section.objectives] == [(1e9, 10**10)]
    assert [problem.path for problem in section.problems] == [("lost",)]
    assert section.merged() == {
        "window": "10s",
        "endToEndLatency": {"p99": "1s"},
        "los": 0,
        "lost": 0,
    }
