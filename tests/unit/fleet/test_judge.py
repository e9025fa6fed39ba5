"""The verdict on measurements: by the objectives of the run, scaled or not."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from builders.documents import PEAK
from builders.measured_runs import LEAST, findings, samples
from builders.measurements import made as measured
from builders.telemetry import made_telemetry

from pytest_loadtest import ms
from pytest_loadtest import profile as profiles
from pytest_loadtest.fleet import observing
from pytest_loadtest.fleet.judge import combine_workloads, conclude_run, read_results
from pytest_loadtest.fleet.messages import RunResult
from pytest_loadtest.metrics.strays import Stray
from pytest_loadtest.observe.telemetry import COUNTERS, Telemetry
from pytest_loadtest.report.baseline import Baseline
from pytest_loadtest.results.load import Load, SloMissed
from pytest_loadtest.schedule.changes import Aborted
from pytest_loadtest.values.quantities import SECOND
from pytest_loadtest.verdict.slo import Outcome, Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_loadtest.verdict.peak import Limit


@pytest.mark.parametrize(
    ("scale", "cap", "bound"),
    [(None, None, 1000), (0.01, None, 10), (None, SECOND, 100), (0.1, SECOND, 10)],
)
def test_a_tolerance_in_messages_shrinks_with_the_run(
    scale: float | None, cap: int | None, bound: int, tmp_path: Path
) -> None:
    """A thousand lost messages of the whole load are ten of a hundredth, by a lower rate or a shorter duration."""
    profile = profiles.loads(f"{LEAST}slo: {{loss: 1000}}\n", "p.yaml")
    for lost, outcome in ((bound, Outcome.MET), (bound + 1, Outcome.MISSED)):
        found = findings(
            samples(
                profile,
                tmp_path,
                scale=scale,
                cap=cap,
                counts={"lost": lost, "received": 100_000 - lost},
            )
        )["loss"]
        assert (found.outcome, found.objective.maximum) == (outcome, bound)


def test_a_scaled_run_is_judged_by_the_section_scaled(tmp_path: Path) -> None:
    """Its numbers are not scaled; the bounds for production apply to a full run only."""
    text = "slo: {endToEndLatency: {p50: 1ms, p99: 5ms}, loss: 0}\nscaled: {slo: {endToEndLatency: {p99: 1s}, loss: 7}, generator: {cpu: 2}}\n"
    profile = profiles.loads(LEAST + text, "p.yaml")
    whole = findings(samples(profile, tmp_path))
    assert [whole[name].outcome for name in ("endToEndLatency.p50", "endToEndLatency.p99")] == [
        Outcome.MISSED
    ] * 2
    scaled = findings(samples(profile, tmp_path, scale=0.1, counts={"lost": 7}))
    assert "endToEndLatency.p50" not in scaled
    assert [scaled[name].outcome for name in ("endToEndLatency.p99", "loss")] == [Outcome.MET] * 2
    busy = measured().workers[0].__class__(worker="gw0", cpu=1.5, stalled=0, longest_stall=0, gc=0)
    outcomes = [
        conclude_run(samples(profile, tmp_path, scale=scale, workers=(busy,)))[0].load.outcome
        for scale in (None, 0.1)
    ]
    assert outcomes == [Outcome.GENERATOR_LIMITED, Outcome.MET]


def counted_by_the_broker(folder: Path, continuous: float, taken: float) -> None:
    """Write telemetry with the broker's counters at the end of the drain."""
    rows = [{}, {"sys.totalIn": taken, "sys.continuous": continuous}]
    folder.mkdir(exist_ok=True)
    observing.write_telemetry(folder, Telemetry.of_rows([SECOND, 2 * SECOND], rows))


@pytest.mark.parametrize(("continuous", "outcome"), [(1.0, Outcome.NO_DATA), (0.0, Outcome.MET)])
def test_a_broker_that_counts_fewer_messages_than_it_confirmed_is_no_data(
    continuous: float, outcome: Outcome, tmp_path: Path
) -> None:
    """Other clients can only raise its counter. If the counter may have restarted, the difference is only a note."""
    made = samples(profiles.loads(LEAST, "p.yaml"), tmp_path)
    made.run.facts.broker["mode"] = "url"
    counted_by_the_broker(tmp_path, continuous, made.measurements.counts.acked - 1)
    result, document = conclude_run(made)
    assert result.load.outcome is outcome
    told = document.verdict.reasons if continuous else document.notes
    assert any(text.startswith("the broker received ") for text in told)


@pytest.mark.parametrize(
    ("restarts", "outcome"), [([], Outcome.NO_DATA), ([{"down": 1, "ready": 2}], Outcome.MET)]
)
def test_losing_the_broker_counters_is_no_data(
    restarts: list[Any], outcome: Outcome, tmp_path: Path
) -> None:
    """Unless the run restarted the broker on purpose, which resets its counters."""
    made = samples(profiles.loads(LEAST, "p.yaml"), tmp_path)
    made.run.facts.broker["restarts"] = restarts
    said = f"{COUNTERS}: KeyError: 'x', 12 s into the phase"
    observing.write_telemetry(
        tmp_path,
        Telemetry.of_rows([SECOND], [{"sys.dropped": 0.0}], missing=(said,), lost={COUNTERS: said}),
    )
    result, document = conclude_run(made)
    assert result.load.outcome is outcome
    assert document.bottleneck is not None and document.bottleneck.missing == (said,)


@pytest.mark.parametrize(
    ("workload", "sole_user", "outcome"),
    [
        (None, False, Outcome.NO_DATA),
        ("calm", False, Outcome.MET),
        ("calm", True, Outcome.NO_DATA),
    ],
)
def test_drops_that_another_workload_may_miss_are_only_a_note(
    workload: str | None, sole_user: bool, outcome: Outcome, tmp_path: Path
) -> None:
    """The broker of several workloads counts the drops of all of them together."""
    made = samples(profiles.loads(LEAST, "p.yaml"), tmp_path)
    made = replace(made, run=replace(made.run, workload=workload, sole_user=sole_user))
    rows = [{"sys.dropped": 20.0}, {"sys.dropped": 464.0}]
    observing.write_telemetry(tmp_path, Telemetry.of_rows([SECOND, 2 * SECOND], rows))
    result, document = conclude_run(made)
    assert result.load.outcome is outcome
    told = document.notes if outcome is Outcome.MET else document.verdict.reasons
    assert any(text.startswith("the broker dropped 444 messages ") for text in told)


def test_a_target_that_fell_silent_is_a_miss_whatever_the_objectives_say(tmp_path: Path) -> None:
    """Also when the samples are judged again."""
    made = samples(profiles.loads(LEAST, "p.yaml"), tmp_path)
    assert conclude_run(made)[0].load.outcome is Outcome.MET
    result, document = conclude_run(
        replace(made, run=replace(made.run, went_away="the target went away"))
    )
    assert (result.load.outcome, document.verdict.reasons) == (
        Outcome.MISSED,
        ("the target went away",),
    )


def test_a_run_that_the_generator_limited_says_that_the_target_went_away(tmp_path: Path) -> None:
    """As a note: it is no evidence against the generator."""
    made = samples(
        profiles.loads(LEAST, "p.yaml"), tmp_path, counts={"offered": 100_001, "dropped": 1}
    )
    result, document = conclude_run(
        replace(made, run=replace(made.run, went_away="the target went away"))
    )
    assert result.load.outcome is Outcome.GENERATOR_LIMITED
    assert "the target went away" not in document.verdict.reasons
    assert "the target went away" in document.notes


@pytest.mark.parametrize(
    ("counts", "outcome"),
    [
        ({}, Outcome.MET),
        ({"lost": 1}, Outcome.MISSED),
        ({"offered": 100_001, "dropped": 1}, Outcome.GENERATOR_LIMITED),
    ],
)
def test_a_dead_service_is_a_cause_of_a_miss(
    counts: dict[str, int], outcome: Outcome, tmp_path: Path
) -> None:
    """It changes no outcome."""
    ended = "service s.py exited with status 3, 2 s after its start"
    made = samples(profiles.loads(LEAST, "p.yaml"), tmp_path, counts=counts)
    result, document = conclude_run(replace(made, run=replace(made.run, ended_services=(ended,))))
    assert result.load.outcome is outcome
    assert (ended in document.verdict.reasons) is (outcome is Outcome.MISSED)
    assert (ended in document.notes) is (outcome is not Outcome.MISSED)


@pytest.mark.parametrize(
    ("forgotten", "outcome"), [(0, Outcome.MISSED), (2, Outcome.MET), (None, Outcome.NO_DATA)]
)
def test_duplicates_at_qos_2_are_judged_by_the_reported_session_losses(
    forgotten: int | None, outcome: Outcome, tmp_path: Path
) -> None:
    """From the run's facts, once all workers have reported."""
    profile = profiles.loads(LEAST.replace("{name: loopback}", "{name: mqtt, qos: 2}"), "p.yaml")
    made = samples(
        profile, tmp_path, counts={"duplicates": 4, "resent": 4, "duplicates_of_resent": 4}
    )
    made.run.facts.driver["forgotten"] = forgotten
    assert conclude_run(made)[0].load.outcome is outcome


@pytest.mark.parametrize(
    ("counts", "strays", "note"),
    [
        (
            {"foreign": 7},
            1,
            "7 messages on b had no envelope of this run: the service must pass it",
        ),
        ({"foreign": 7}, 0, "7 messages came on the output of another topic than the input's: the"),
        (
            {},
            0,
            "no message came on b: the service must have subscribed to a before the load begins",
        ),
        ({"received": 1}, 0, None),
    ],
)
def test_a_service_that_answers_nothing_is_told_what_to_look_at(
    counts: dict[str, int], strays: int, note: str | None, tmp_path: Path
) -> None:
    """Of messages without an envelope of this run workers keep the first ones, of others none."""
    profile = profiles.loads(LEAST + "route: {input: a, output: b}\n", "p.yaml")
    nothing = {"received": 0, "received_in_time": 0, "lost": 100_000}
    kept = (Stray(kind="foreign", at=0, topic="b", size=1, beginning="x"),) * strays
    made = samples(profile, tmp_path, counts={**nothing, **counts}, strays=kept)
    _, document = conclude_run(made)
    assert [text[: len(note or "")] for text in document.notes] == ([note] if note else [])


def test_the_notes_of_telemetry_are_in_the_results(tmp_path: Path) -> None:
    made = samples(profiles.loads(LEAST, "p.yaml"), tmp_path)
    observing.write_telemetry(
        tmp_path, Telemetry.of_rows([SECOND], [{}], notes=("a topic has more partitions",))
    )
    _, document = conclude_run(made)
    assert list(document.notes) == ["a topic has more partitions"]


@pytest.mark.parametrize(
    ("limit", "outcome"),
    [("none", Outcome.MISSED), ("generator", Outcome.GENERATOR_LIMITED)],
)
def test_a_search_without_a_peak_is_missed_unless_the_generator_was_its_limit(
    limit: Limit, outcome: Outcome, tmp_path: Path
) -> None:
    """Its last step was met."""
    profile = profiles.loads(f"{LEAST}slo: {{loss: 0}}\n", "p.yaml")
    peak = replace(PEAK, rate=None, low=None, limit=limit)
    result, _ = conclude_run(samples(profile, tmp_path), peak=peak)
    assert result.load.verdict.outcome is outcome


@pytest.mark.parametrize(
    ("limit", "confirmed", "outcome"),
    [
        ("target", True, Outcome.MET),
        ("target", False, Outcome.MISSED),
        ("generator", False, Outcome.MET),
    ],
)
def test_a_rate_that_no_confirmation_held_is_missed(
    limit: Limit, confirmed: bool, outcome: Outcome, tmp_path: Path
) -> None:
    """A target with credit for bursts holds a rate for some seconds."""
    profile = profiles.loads(f"{LEAST}slo: {{loss: 0}}\n", "p.yaml")
    peak = replace(PEAK, limit=limit, confirmed=confirmed)
    result, _ = conclude_run(samples(profile, tmp_path), peak=peak)
    assert result.load.verdict.outcome is outcome
    if outcome is Outcome.MISSED:
        with pytest.raises(SloMissed, match="no rate holds all objectives in a confirmation"):
            result.load.assert_slo()


@pytest.mark.parametrize(("whole", "own", "never"), [("5%", 0, True), (0, "5%", False)])
def test_the_largest_latency_of_a_stage_is_that_of_its_own_bounds(
    whole: object, own: object, never: bool, tmp_path: Path
) -> None:
    stages = f"stages: [{{name: only, duration: 10s, rate: 10000, slo: {{loss: {own}}}}}]\n"
    text = LEAST.replace("producerRate: 10000\n", "").replace("testDuration: 10s\n", "")
    profile = profiles.loads(f"{text}{stages}slo: {{loss: {whole}}}\n", "p.yaml")
    made = samples(profile, tmp_path, counts={"lost": 2000, "received": 98_000})
    result, document = conclude_run(replace(made, stages=(("only", made.measurements),)))
    stage = result.load.stage("only")
    assert (stage.end_to_end.max > ms(1000)) is never
    (entry,) = document.stages
    assert entry.measurements is not None
    assert (entry.measurements.latencies["endToEnd"].maximum is None) is never


@pytest.mark.parametrize(
    ("scales", "scale"),
    [
        ((None, None), None),
        ((None, 1.0), 1.0),
        ((1.0, None), 1.0),
        ((0.5, 1.0), 0.5),
        ((1.0, 0.5), 0.5),
    ],
)
def test_workloads_are_scaled_together_if_one_is(
    scales: tuple[float | None, ...], scale: float | None
) -> None:
    """``--load-duration`` shortens the long ones alone."""
    verdict = Verdict(outcome=Outcome.MISSED, findings=(), reasons=())
    results = []
    for number, each in enumerate(scales):
        load = Load(
            profile_name="p", observed=measured(), verdict=verdict, scale=each, name=f"{number}"
        )
        results.append(RunResult(load=load, properties=()))
    whole = combine_workloads("p", results).load
    assert whole.scale == scale
    with pytest.raises(SloMissed) as missed:
        whole.ensure_asserted()
    assert ("says nothing about the full load" in str(missed.value)) == (scale is not None)


@pytest.mark.parametrize("shown", [False, True])
def test_only_the_step_with_the_answer_of_a_search_is_compared_with_a_baseline(
    shown: bool, tmp_path: Path
) -> None:
    """Another step does not say that no baseline was given; it is judged before the search ends."""
    text = LEAST.replace("10000", "0") + "slo: {loss: 0, regression: {endToEndLatency.p50: 5%}}\n"
    found = samples(profiles.loads(text, "p.yaml"), tmp_path)
    _, document = conclude_run(found, peak=PEAK if shown else None)
    _, again = conclude_run(found, before=document)
    for judged in (document, again):
        assert any("regression of" in note for note in judged.notes) == shown


def test_an_aborted_run_is_missed_and_compared_with_no_baseline(tmp_path: Path) -> None:
    """It is shorter than every run that was not aborted."""
    text = f"{LEAST}slo: {{loss: 0, regression: {{endToEndLatency.p50: 5%}}}}\n"
    made = samples(profiles.loads(text, "p.yaml"), tmp_path)
    _, whole = conclude_run(made)
    reason = Aborted(reason="failed 2 % > 1 %")
    aborted = replace(made, run=replace(made.run, duration=2 * SECOND, aborted=reason))
    result, _ = conclude_run(aborted, baseline=Baseline(find=lambda _: whole))
    assert result.load.outcome is Outcome.MISSED


def test_a_search_without_a_peak_that_is_judged_again_states_its_bottleneck_once(
    tmp_path: Path,
) -> None:
    """Its results are in the folder of the step that was missed above the peak."""
    folder = tmp_path / "step-02"
    folder.mkdir()
    profile = profiles.loads(f"{LEAST}slo: {{loss: 0}}\n", "p.yaml")
    made = samples(profile, folder)
    observing.write_telemetry(folder, made_telemetry(broker__busiestWanted=1.0))
    _, step = conclude_run(made)
    assert step.bottleneck is not None and step.bottleneck.conclusion is not None
    peak = replace(PEAK, rate=None, low=None, steps=PEAK.steps[1:2])
    _, first = conclude_run(made, peak=peak)
    assert first.bottleneck is not None
    assert first.bottleneck.evidence.startswith("at 20 240 msg/s, which was missed: ")
    _, again = conclude_run(made, before=read_results(folder))
    assert again == first
