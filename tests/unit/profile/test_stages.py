"""Stages: their pieces of constant rate, and invalid stages."""

from __future__ import annotations

import json
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest import profile
from pytest_loadtest.errors import ProfileError
from pytest_loadtest.values.quantities import MILLISECOND, SECOND, ByteRate

HEAD = "name: a\nproducerRate: 100\nmessageSize: 100\n"


def loads(text: str) -> profile.Profile:
    return profile.loads(text, "p.yaml")


def stages(*entries: dict[str, Any], **keys: Any) -> tuple[profile.Stage, ...]:
    return loads(
        json.dumps(
            {"name": "a", "producerRate": 100, "messageSize": 100, "stages": list(entries)} | keys
        )
    ).stages


def problems(text: str) -> list[str]:
    with pytest.raises(ProfileError) as caught:
        loads(text)
    return str(caught.value).splitlines()


def test_stages_are_the_measured_phase() -> None:
    """Its length is theirs; stages without a name get a number."""
    found = loads(
        f"{HEAD}stages: [{{name: base, duration: 10s}}, {{duration: 500ms, rate: 200/s}}, {{duration: 1min, rate: 0.5}}]"
    )
    assert found.test_duration == 70 * SECOND + 500 * MILLISECOND
    assert [stage.name for stage in found.stages] == ["base", "stage 2", "stage 3"]
    assert [stage.steps(found.producer_rate) for stage in found.stages] == [
        ((10 * SECOND, 100.0),),
        ((500 * MILLISECOND, 200.0),),
        ((60 * SECOND, 0.5),),
    ]


def test_a_ramp_has_pieces_with_the_rate_of_their_middle() -> None:
    """Pieces of 100 ms; the last one is the rest."""
    (stage,) = stages({"duration": "250ms", "rate": {"from": 0, "to": 1000}})
    assert stage.steps(1) == (
        (100 * MILLISECOND, 200.0),
        (100 * MILLISECOND, 600.0),
        (50 * MILLISECOND, 900.0),
    )


@pytest.mark.parametrize("period", ["100ms", "200ms", "950ms"])
def test_a_short_period_of_a_sine_has_ten_rates(period: str) -> None:
    """Held for 100 ms, the rates of 100 ms and of 200 ms would be constant and a square."""
    sine = {"mean": 500, "amplitude": 400, "period": period}
    (stage,) = stages({"duration": period, "rate": {"sine": sine}})
    rates = [round(rate) for _, rate in stage.steps(1)]
    assert rates == [624, 824, 900, 824, 624, 376, 176, 100, 176, 376]


def test_a_sine_starts_at_its_mean_and_rises_first() -> None:
    (stage,) = stages(
        {"duration": "1s", "rate": {"sine": {"mean": 100, "amplitude": 100, "period": "1s"}}}
    )
    rates = [round(rate) for _, rate in stage.steps(1)]
    assert rates == [131, 181, 200, 181, 131, 69, 19, 0, 19, 69]


def test_a_spike_is_base_peak_base() -> None:
    """One at the start or the end of its stage has fewer pieces."""
    middle, first, all_of_it = stages(
        {"duration": "10s", "rate": {"spike": {"base": 10, "peak": 500, "at": "4s", "for": "1s"}}},
        {"duration": "10s", "rate": {"spike": {"base": 10, "peak": 500, "at": 0, "for": "1s"}}},
        {"duration": "1s", "rate": {"spike": {"base": 10, "peak": 500, "at": 0, "for": "1s"}}},
    )
    assert middle.steps(1) == ((4 * SECOND, 10.0), (SECOND, 500.0), (5 * SECOND, 10.0))
    assert first.steps(1) == ((SECOND, 500.0), (9 * SECOND, 10.0))
    assert all_of_it.steps(1) == ((SECOND, 500.0),)


@pytest.mark.parametrize(
    ("duration", "every", "pieces"),
    [
        ("3s", {}, [(SECOND, 1.0), (SECOND, 2.0), (SECOND, 3.0)]),
        ("4s", {"every": "1s"}, [(SECOND, 1.0), (SECOND, 2.0), (SECOND, 3.0), (SECOND, 1.0)]),
        ("1500ms", {"every": "1s"}, [(SECOND, 1.0), (SECOND // 2, 2.0)]),
        ("2ns", {}, [(1, 2.0), (1, 3.0)]),
    ],
)
def test_a_replay_fills_its_stage(
    duration: str, every: dict[str, str], pieces: list[tuple[int, float]]
) -> None:
    """With its own step it repeats, or is cut."""
    (stage,) = stages({"duration": duration, "rate": {"replay": [1, 2, 3], **every}})
    assert list(stage.steps(1)) == pieces


RATES = st.floats(0.5, 1e6)
SHAPES = st.one_of(
    RATES,
    st.fixed_dictionaries({"from": RATES, "to": RATES}),
    RATES.map(lambda mean: {"sine": {"mean": mean, "amplitude": mean / 2, "period": "1s"}}),
    st.tuples(RATES, RATES).map(
        lambda both: {"spike": {"base": both[0], "peak": both[1], "at": 0, "for": "1ns"}}
    ),
    st.fixed_dictionaries(
        {"replay": st.lists(RATES, min_size=1, max_size=9)},
        optional={"every": st.sampled_from(["1s", "70ms"])},
    ),
)


@given(SHAPES, st.integers(1, 10**10))
def test_pieces_add_up_to_the_stage(rate: Any, duration: int) -> None:
    """To the nanosecond, whatever the shape; no piece is empty, no rate below 0."""
    (stage,) = stages({"duration": f"{duration}ns", "rate": rate})
    pieces = stage.steps(1.0)
    assert list(accumulate(length for length, _ in pieces))[-1] == duration
    assert all(length > 0 and rate >= 0 for length, rate in pieces)


def test_rates_in_bytes_stay_in_bytes() -> None:
    (stage, rest) = stages(
        {"duration": "1s", "rate": {"from": "1MB/s", "to": "2MB/s"}},
        {"duration": "1s"},
        producerRate="1MB/s",
    )
    assert all(
        isinstance(rate, ByteRate)
        for one in (stage, rest)
        for _, rate in one.steps(ByteRate(1024**2))
    )


def test_a_stage_changes_sizes_consumers_and_objectives() -> None:
    """Other keys are those of the profile."""
    found = loads(
        HEAD + "consumerPerSubscription: 3\ndriver: {name: loopback}\nstages:\n  - {duration: 1s}\n"
        "  - {duration: 1s, consumerPerSubscription: 1, messageSizeDistribution: {64-128: 2}, slo: {buckets: {64-128: {loss: 0}}}}\n"
    )
    first, second = found.stages
    assert (first.buckets, first.consumer_per_subscription) == (None, None)
    assert first.slo.objectives == ()
    assert [bucket.name for bucket in second.buckets or ()] == ["64-128"]
    assert second.consumer_per_subscription == 1
    assert [objective.name for objective in second.slo.objectives] == ["buckets.64-128.loss"]


def test_stages_read_back_from_results() -> None:
    """With every shape."""
    shapes: list[Any] = [
        5, "7/s", {"from": 1, "to": 2}, {"sine": {"mean": 2, "amplitude": 1, "period": "1s"}},
        {"spike": {"base": 1, "peak": 2, "at": "0s", "for": "1s"}}, {"replay": [1, 2]},
    ]  # fmt: skip
    found = loads(
        json.dumps(
            {
                "name": "a",
                "producerRate": 1,
                "messageSize": 99,
                "stages": [{"duration": "2s", "rate": rate} for rate in shapes],
            }
        )
    )
    again = profile.from_document(json.loads(json.dumps(found.document())))
    assert (again.stages, again.test_duration) == (found.stages, found.test_duration)


WRONG = [
    (
        "{name: dip, duration: 10s, rate: {sine: {mean: 500, amplitude: 700, period: 5s}}}",
        "4:73: stage 'dip': the sine goes down to -200 msg/s: amplitude 700 is above mean 500 (write 500 or less)",
    ),
    ("{duration: 0s}", "4:21: stages.0.duration: must be above 0 (write 30s)"),
    ("{rate: 5}", "4:10: stages.0.duration is missing (write duration: 30s)"),
    ("{duration: 1s, rate: -5}", "4:31: stages.0.rate: -5 must be at least 0"),
    ("{duration: 1s, rate: {from: -5, to: 1}}", "4:38: stages.0.rate.from: -5 must be at least 0"),
    ("{duration: 1s, rate: {from: 5}}", "4:25: stages.0.rate.to is missing (write to: 5000)"),
    (
        "{duration: 1s, rate: {from: 0, to: 0}}",
        "4:1: stages: every rate is 0: nothing would be sent (write a rate above 0 in one of them)",
    ),
    (
        "{duration: 1s}, {name: rest, duration: 1s, rate: 0, slo: {loss: 0}}",
        "4:62: stage 'rest': its rate is 0, so no message is due in it, and there is nothing to judge (remove slo, or write a rate above 0)",
    ),
    (
        "{duration: 1s, rate: {sinus: 5}}",
        "4:31: stages.0.rate: not a rate (write a number, or {from: , to: }, {sine: {mean: , amplitude: , period: }}, {spike: {base: , peak: , at: , for: }}, {replay: [ ]})",
    ),
    (
        "{duration: 1s, rate: {from: 5, to: 6, till: 7}}",
        "4:48: unknown key 'till' (known: from, to)",
    ),
    (
        "{duration: 1s, rate: {replay: []}}",
        "4:40: stages.0.rate.replay is empty (give it a value, or remove the key)",
    ),
    (
        "{duration: 5s, rate: {spike: {base: 1, peak: 2, at: 4s, for: 3s}}}",
        "4:39: stage 'stage 1': the spike ends after 7.00 s, the stage after 5.00 s (write a longer duration, or a shorter at or for)",
    ),
    (
        "{duration: 1s, rate: {from: 5, to: 5MB/s}}",
        "4:45: stage 'stage 1': mixes messages and bytes: producerRate is in messages (write messages, as in 5000/s)",
    ),
    (
        "{duration: 1s, consumerPerSubscription: 2}",
        "4:50: stage 'stage 1': 2 consumers, but the profile's consumerPerSubscription is 1 (write 1 or less, or raise the profile's)",
    ),
    (
        "{duration: 1s, slo: {los: 0}}",
        "4:31: stages.0.slo.los: 'los' is not a metric (did you mean loss?)",
    ),
    (
        "{duration: 1s, slo: {buckets: {0-256: {loss: 0}}}}",
        "4:41: stages.0.slo.buckets.0-256: '0-256' is not a size bucket of this profile (without messageSizeDistribution there are none)",
    ),
    (
        "{duration: 1s, messageSizeDistribution: {100-200: 1, 150-300: 1}}",
        "4:63: size range '150-300' overlaps '100-200' (write ranges that meet but do not overlap: the high end is excluded)",
    ),
    ("{duration: 1s, rates: 5}", "4:25: unknown key 'rates' (did you mean rate?)"),
]


@pytest.mark.parametrize(("stage", "line"), WRONG, ids=[stage for stage, _ in WRONG])
def test_a_wrong_stage_is_an_error_with_its_name(stage: str, line: str) -> None:
    """With the value and what to write."""
    assert problems(f"{HEAD}stages: [{stage}]\n") == [f"p.yaml:{line}"]


def test_a_stage_of_a_run_that_only_consumes_has_no_objectives() -> None:
    """The stage of a message from others is unknown, so they could never be judged."""
    text = "name: a\ntopic: persistent://a/b/c\nproducersPerTopic: 0\nstages: [{duration: 1s, slo: {throughput: 5/s}}]\n"
    with pytest.raises(ProfileError) as caught:
        loads(text)
    told = "stages.0.slo.throughput: a run without producers measures only the throughput of the whole run"
    assert (
        str(caught.value)
        == f"p.yaml:4:31: {told} (write slo: {{throughput: 1000/s}} for the whole run)"
    )


def test_a_wrong_stage_hides_no_problem_of_another() -> None:
    """Problems between keys follow once every key is valid."""
    text = f"{HEAD}stages:\n  - {{duration: 0s}}\n  - {{name: x, duration: 1s, rate: 0, slo: {{loss: LOSS}}}}\n  - {{name: x, duration: 1s}}\n"
    wrong = text.replace("LOSS", "x")
    assert [line.split(": ")[0] for line in problems(wrong)] == ["p.yaml:5:16", "p.yaml:6:50"]
    valid = text.replace("LOSS", "0").replace("0s", "1s")
    assert [line.split(": ")[0] for line in problems(valid)] == ["p.yaml:6:38", "p.yaml:7:12"]


@pytest.mark.parametrize("key", ["testDuration: 5s", "testDurationMinutes: 1", "messages: 5"])
def test_stages_exclude_every_other_duration(key: str) -> None:
    name = key.partition(":")[0]
    assert problems(f"{HEAD}stages: [{{duration: 1s}}]\n{key}\n") == [
        f"p.yaml:5:1: stages and {name} exclude each other (keep one, e.g. stages)"
    ]


def test_a_metric_of_the_whole_run_is_an_error_in_a_stage() -> None:
    """Foreign messages and damaged heads; damage after the head is known with a checksum."""
    told = r"p.yaml:5:\d+: stages.0.slo.{}: .*write it in the profile's own slo"
    for metric in ("foreign", "corrupt"):
        with pytest.raises(ProfileError, match=told.format(metric)):
            profile.loads(HEAD + f"stages:\n  - {{duration: 1s, slo: {{{metric}: 0}}}}\n", "p.yaml")
    assert profile.loads(
        HEAD + "checksum: true\nstages:\n  - {duration: 1s, slo: {corrupt: 0}}\n", "p.yaml"
    ).stages[0].slo == {"corrupt": 0}


def test_a_stage_has_no_custom_metrics() -> None:
    """The hook is called for the whole run."""
    text = HEAD + "stages:\n  - {duration: 1s, slo: {custom: {gold.p99: 5ms}}}\n"
    with pytest.raises(
        ProfileError,
        match=r"p.yaml:5:\d+: stages.0.slo.custom: .*cover the whole run.*write it in the profile's own slo",
    ):
        profile.loads(text, "p.yaml")


STAGED = "name: a\nmessageSize: 100\n"


def test_stages_that_all_have_rates_need_no_rate_of_the_profile() -> None:
    """They are no search; read back from results they are the same."""
    found = loads(
        f"{STAGED}stages: [{{duration: 1s, rate: 5}}, {{duration: 2s, rate: {{from: 0, to: 9}}}}]\n"
    )
    assert (found.peak_search, found.in_bytes, found.test_duration) == (False, False, 3 * SECOND)
    again = profile.from_document(found.document())
    assert (again.peak_search, again.stages, again.search) == (
        False,
        found.stages,
        None if "search" in found.document() else again.search,
    )
    assert "search" not in found.document()


@pytest.mark.parametrize("stage", ["{duration: 1s}", "{duration: 1s, rate: 5}, {duration: 1s}"])
def test_a_stage_without_a_rate_needs_that_of_the_profile(stage: str) -> None:
    assert problems(f"{STAGED}stages: [{stage}]\n") == [
        "p.yaml:1:1: producerRate is missing (write producerRate: 1000, or a rate in each stage)"
    ]


def test_the_unit_of_stages_without_a_rate_of_the_profile_is_that_of_their_rates() -> None:
    """0 has no unit; different ones are an error at the second."""
    found = loads(
        f"{STAGED}stages: [{{duration: 1s, rate: 0}}, {{duration: 1s, rate: {{from: 0, to: 1MB/s}}}}]\n"
    )
    assert found.in_bytes
    assert problems(
        f"{STAGED}stages: [{{duration: 1s, rate: 1MB/s}}, {{duration: 1s, rate: 5}}]\n"
    ) == [
        "p.yaml:3:60: stage 'stage 2': mixes messages and bytes: another rate is in bytes (write bytes, as in 10MB/s)"
    ]


@pytest.mark.parametrize("rate", ["0", "0/s", "{from: 0, to: 0}", "{replay: [0, 0]}"])
def test_a_rate_of_0_in_a_stage_is_a_pause(rate: str) -> None:
    first, second = loads(
        f"{STAGED}stages: [{{duration: 1s, rate: 5}}, {{duration: 1s, rate: {rate}}}]\n"
    ).stages
    assert (first.pauses(0), second.pauses(5)) == (False, True)
    assert {piece for _, piece in second.steps(5.0)} == {0}


PAUSED = "stages: [{duration: 20s, rate: 5}, {name: rest, duration: 15s, rate: 0}, {duration: 15s, rate: 0}, {duration: 20s, rate: 5}]"


@pytest.mark.parametrize(
    ("slo", "words"),
    [
        (
            "{throughput: 1%, window: 10s}",
            "slo.window: nothing is due in stage 'rest' for 30.0 s, so a window of 10.0 s in it has no data",
        ),
        (
            "{deliveryGap: {max: 29s}}",
            "slo.deliveryGap: nothing is due in stage 'rest' for 30.0 s, which is a gap longer than the bound",
        ),
    ],
)
def test_an_objective_that_a_pause_leaves_without_data_is_an_error(slo: str, words: str) -> None:
    """Stages of rate 0 in a row are one pause. Windows in stages with messages can be judged."""
    (line,) = problems(f"{STAGED}{PAUSED}\nslo: {slo}\n")
    assert words in line
    assert loads(
        f"{STAGED}{PAUSED}\nslo: {{deliveryGap: {{max: 31s}}, throughput: 1%, window: 30s}}\n"
    )


@pytest.mark.parametrize(
    ("rate", "slo", "words"),
    [
        (
            "{replay: [100, 0, 0, 100], every: 5s}",
            "{throughput: 1%, window: 5s}",
            "nothing is due in stage 'a' for 10.0 s, so a window of 5.00 s in it has no data",
        ),
        (
            "{spike: {base: 0, peak: 100, at: 12s, for: 5s}}",
            "{deliveryGap: {max: 5s}}",
            "nothing is due in stage 'a' for 12.0 s, which is a gap longer than the bound",
        ),
        (
            "{replay: [0, 0, 100, 100]}",
            "{drift: {throughput: 5%}}",
            "nothing is due in stage 'a' for 10.0 s, so the first or the last tenth has no data",
        ),
    ],
)
@pytest.mark.parametrize("of_stage", [False, True])
def test_a_shape_that_pauses_within_a_stage_is_a_pause(
    rate: str, slo: str, words: str, of_stage: bool
) -> None:
    """For objectives on the run and on the stage."""
    own = f"slo: {slo}" if of_stage else "slo: {}"
    text = f"{STAGED}stages: [{{name: a, duration: 20s, rate: {rate}, {own}}}]\n"
    (line,) = problems(text if of_stage else f"{text}slo: {slo}\n")
    assert words in line
    even = text.replace(rate, "100")
    assert loads(even if of_stage else f"{even}slo: {slo}\n")


@pytest.mark.parametrize(
    ("delay", "is_error"),
    [
        ("deliverAfter: {min: 0s, max: 60s}", False),
        ("deliverAt: 6s", False),  # gaps of 6 s and 5 s
        ("deliverAfter: 60s", True),
    ],
)
def test_messages_with_different_delays_may_come_in_a_pause(delay: str, is_error: bool) -> None:
    """A bound on the delivery gap can be met then."""
    driver = "driver: {name: pulsar, subscriptionType: Shared}\n"
    pause = (
        "stages: [{duration: 1s, rate: 100}, {duration: 10s, rate: 0}, {duration: 9s, rate: 100}]\n"
    )
    text = f"messageSize: 1KB\n{driver}{pause}slo: {{deliveryGap: {{max: 9s}}}}\n{delay}\n"
    if is_error:
        (line,) = problems(text)
        assert "which is a gap longer than the bound" in line
    else:
        assert loads(text)


def test_objectives_of_a_stage_of_rate_0_are_one_problem() -> None:
    """Not one more for each that the pause spoils, with another remedy."""
    slo = "{throughput: 1%, window: 5s, drift: {throughput: 5%}, deliveryGap: {max: 1s}}"
    text = f"{STAGED}stages: [{{duration: 20s, rate: 0, slo: {slo}}}, {{duration: 1s, rate: 5}}]\n"
    (line,) = problems(text)
    assert "its rate is 0, so no message is due in it, and there is nothing to judge" in line


@pytest.mark.parametrize("rates", [(0, 5), (5, 0)])
def test_a_drift_to_or_from_a_pause_is_an_error(rates: tuple[int, int]) -> None:
    first, last = rates
    text = f"{STAGED}stages: [{{duration: 20s, rate: {first}}}, {{duration: 20s, rate: {last}}}]\nslo: {{drift: {{throughput: 5%}}}}\n"
    (line,) = problems(text)
    assert "slo.drift: nothing is due in stage" in line
