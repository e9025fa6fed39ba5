"""The verdict on measurements: by the objectives of the run, scaled or not, with telemetry, backlog and baseline."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from builders.documents import as_json
from builders.measurements import MS, spread
from builders.measurements import made as measured
from builders.plans import made as planned
from builders.progress import made_progress

from pytest_loadtest import profile as profiles
from pytest_loadtest.errors import NoData
from pytest_loadtest.fleet import observing
from pytest_loadtest.fleet.judge import conclude_run, read_results
from pytest_loadtest.fleet.measured_run import MeasuredRun
from pytest_loadtest.fleet.messages import Part
from pytest_loadtest.fleet.watches import BacklogWatch
from pytest_loadtest.fleet.workload_run import WorkloadRun
from pytest_loadtest.metrics.clocks import ClockFit, ClockLine, HostTime, WithinHosts
from pytest_loadtest.metrics.full_windows import BlockedTopic, FullWindows
from pytest_loadtest.observe.telemetry import COUNTERS, Telemetry
from pytest_loadtest.pipeline.run_file import RunChange, RunClock, RunStage
from pytest_loadtest.report import terminal
from pytest_loadtest.report.document import results_schema
from pytest_loadtest.schedule.changes import CHANGE_IN, Aborted, Change
from pytest_loadtest.values.quantities import SECOND
from pytest_loadtest.values.units import ms
from pytest_loadtest.verdict.slo import Outcome

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_loadtest.profile import Profile
    from pytest_loadtest.verdict.slo import Finding


LEAST = (
    "name: p\nmessageSize: 100\nproducerRate: 10000\ntestDuration: 10s\ndriver: {name: loopback}\n"
)


def samples(
    profile: Profile,
    folder: Path,
    *,
    scale: float | None = None,
    cap: int | None = None,
    **changed: Any,
) -> MeasuredRun:
    """Return a run folder with measurements, as a run of the profile would leave it."""
    plan = planned(profile, scale=scale, duration_cap=cap)
    run = WorkloadRun(
        name="",
        part=Part(profile=profile),
        plan=plan,
        root=folder,
        nonce=1,
        test="t",
        source="p.yaml",
        run="r",
        workers=["main"],
    )
    return MeasuredRun(
        folder=folder,
        run=replace(run.run_file(), started=1.7e9),
        measurements=measured(**changed),
        stages=(),
    )


def findings(of: MeasuredRun, **seen: Any) -> dict[str, Finding]:
    outcome, _ = conclude_run(of, **seen)
    return {finding.objective.name: finding for finding in outcome.load.verdict.findings}


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


def test_results_note_that_host_names_were_not_checked(tmp_path: Path) -> None:
    """Answers of another broker would prove nothing about this one."""
    tls = {"url": "pulsar+ssl://h:1", "adminUrl": None}
    for driver, notes in (
        ("{name: pulsar}", 0),
        ("{name: pulsar, tlsEnableHostnameVerification: false}", 1),
    ):
        profile = profiles.loads(LEAST.replace("{name: loopback}", driver), "p.yaml")
        aggregated = samples(profile, tmp_path)
        aggregated.run.facts.broker.update(tls)
        _, results = conclude_run(aggregated)
        assert (
            sum("names in certificates were not checked" in note for note in results.notes) == notes
        )


WITHIN = "100 000 of 100 000 deliveries (100 %) are within one host: their latencies need no relation of clocks"


@pytest.mark.parametrize(
    ("key", "within", "holds", "expected"),
    [
        ("", None, True, ["latencies between hosts are exact to the error of their clocks: h1 ±6.00 ms"]),
        (
            "", WithinHosts(deliveries=62_000, complete=False), True,
            ["latencies between hosts are exact to the error of their clocks: h1 ±6.00 ms; 62 000 of 100 000 deliveries (62 %) are within one host"],
        ),
        (
            "pairConsumers: host", WithinHosts(deliveries=50_000, complete=False), True,
            [
                "latencies between hosts are exact to the error of their clocks: h1 ±6.00 ms; 50 000 of 100 000 deliveries (50 %) are within one host",
                "pairConsumers: host is not possible with 1 topic on 2 hosts: write 2 topics or more, or use fewer hosts",
            ],
        ),
        (
            "", WithinHosts(deliveries=100_000, complete=True), True,
            [WITHIN],
        ),
        (
            "", WithinHosts(deliveries=100_000, complete=True), False,
            [f"{WITHIN}; the clock of host h1 was set while load ran"],
        ),
    ],
)  # fmt: skip
def test_results_note_how_far_clocks_matter(
    key: str, within: WithinHosts | None, holds: bool, expected: list[str], tmp_path: Path
) -> None:
    """On one host there is no such note."""
    made = samples(profiles.loads(LEAST + key + "\n", "p.yaml"), tmp_path)
    assert not [note for note in conclude_run(made)[1].notes if "host" in note]
    line = ClockLine(at=0, offset=0)
    fit = ClockFit(line=line, error=6 * MS, round_trip=MS, exchanges=9, holds=holds)
    run = replace(
        made.run,
        workers=("gw0", "h1-1"),
        clocks=(RunClock(worker="h1-1", host="h1", used=line, fit=fit),),
    )
    clocks = (HostTime(host="h1", error=6 * MS, round_trip=MS, holds=holds),)
    of = replace(
        made, run=run, measurements=replace(made.measurements, clocks=clocks, within_hosts=within)
    )
    _, document = conclude_run(of)
    assert [note for note in document.notes if "host" in note] == expected
    section = as_json(document)["measurements"]["withinHosts"]
    deliveries = None if within is None else within.deliveries
    assert section == (
        within
        and {
            "deliveries": deliveries,
            "share": within.deliveries / 100_000,
            "complete": within.complete,
        }
    )
    jsonschema.validate(as_json(document), results_schema())


BACKLOG = "consumerBacklogSizeGB: 0.001\nbacklogDrainTimeout: 10s\n"  # 10 737 messages of 100 B, of which 1 000 may be left


def watched(profile: Profile, left: int, *, after: int = 3 * SECOND) -> BacklogWatch:
    """Return the watch of a backlog of 20 000 with ``left`` deliveries left ``after`` seconds after consumers resumed."""
    plan = planned(profile)
    assert plan.backlog is not None
    watch = BacklogWatch(plan.backlog, plan.mean_size)
    watch.look([made_progress(acked=20_000)], SECOND)
    watch.look([made_progress(acked=20_000, received=20_000 - left)], SECOND + CHANGE_IN + after)
    return watch


@pytest.mark.parametrize(
    ("slo", "left", "after", "outcome"),
    [
        ("{}", 999, 3 * SECOND, Outcome.MET),
        ("{}", 1001, 10 * SECOND, Outcome.MISSED),
        ("{backlogDrain: 2s}", 999, 3 * SECOND, Outcome.MISSED),
        ("{backlogDrain: 4s}", 999, 3 * SECOND, Outcome.MET),
        ("{backlogDrain: 10s}", 1001, 10 * SECOND, Outcome.MISSED),
        ("{backlogDrain: {min: 1s}}", 1001, 10 * SECOND, Outcome.MISSED),
    ],
)
def test_a_backlog_that_is_not_drained_in_time_is_missed(
    slo: str, left: int, after: int, outcome: Outcome, tmp_path: Path
) -> None:
    """With or without an objective on it, and again when the samples are judged later, from the recorded backlog."""
    profile = profiles.loads(f"{LEAST}{BACKLOG}slo: {slo}\n", "p.yaml")
    made = samples(profile, tmp_path)
    first, _ = conclude_run(made, backlog=watched(profile, left, after=after))
    again, document = conclude_run(made, before=read_results(tmp_path))
    for load in (first.load, again.load):
        assert load.outcome is outcome
    text = next(
        finding.text
        for finding in document.verdict.findings
        if finding.outcome is outcome and "Drain" in finding.name
    )
    assert text.startswith("backlogDrain ")
    assert (
        "NOT drained: 1 001 of 20 000 deliveries still waiting after 10.0 s, 1 000 would do" in text
    ) == (left > 1000)
    assert json.loads((tmp_path / "results.json").read_text())["backlog"]["left"] == left


@pytest.mark.parametrize(
    ("left", "text", "observed"),
    [
        (
            1001,
            "backlogDrain more than 10.1 s > 10.0 s: it was not drained by then (NOT drained: 1 001 of ",
            10_063 * MS + 1,
        ),
        (20_000, "backlogDrain never > 10.0 s: it did not shrink (NOT drained: 20 000 of ", None),
        (21_126, "backlogDrain never > 10.0 s: it did not shrink (NOT drained: 21 126 of ", None),
    ],
)
def test_a_drain_that_was_given_up_has_no_end(
    left: int, text: str, observed: int | None, tmp_path: Path
) -> None:
    """It is longer than the wait, and never over if the backlog did not shrink; also where the samples are judged later."""
    profile = profiles.loads(LEAST + BACKLOG, "p.yaml")
    made = samples(profile, tmp_path)
    conclude_run(made, backlog=watched(profile, left, after=10_063 * MS))
    for _ in range(2):
        document = read_results(tmp_path)
        found = next(
            finding for finding in document.verdict.findings if finding.metric == "backlogDrain"
        )
        assert found.text.startswith(text)
        assert (found.observed, found.outcome) == (observed, Outcome.MISSED)
        assert f"{found.shown.observed} > 10.0 s: {found.shown.over}" in found.text
        assert document.backlog is not None
        assert (document.backlog.drain, document.backlog.waited) == (None, 10_063 * MS)
        conclude_run(made, before=document)


def test_a_backlog_that_was_never_built_is_no_data(tmp_path: Path) -> None:
    """Consumers did not pause or producers were too slow: the duration of a drain is unknown."""
    profile = profiles.loads(LEAST + BACKLOG, "p.yaml")
    plan = planned(profile)
    assert plan.backlog is not None
    outcome, _ = conclude_run(
        samples(profile, tmp_path), backlog=BacklogWatch(plan.backlog, plan.mean_size)
    )
    assert outcome.load.outcome is Outcome.NO_DATA
    assert outcome.load.verdict.reasons == (
        "backlogDrain: no backlog was built, or its drain was not seen",
    )


def test_the_duration_of_a_drain_counts_from_the_resumption_of_consumers(tmp_path: Path) -> None:
    profile = profiles.loads(LEAST + BACKLOG, "p.yaml")
    found = findings(samples(profile, tmp_path), backlog=watched(profile, 0, after=1500 * MS))[
        "backlogDrain"
    ]
    assert (found.observed, found.objective.implicit) == (1500 * MS, True)


@pytest.mark.parametrize(
    ("slo", "outcome", "observed"),
    [
        ("{}", Outcome.MET, 5 * SECOND),
        ("{backlogDrain: 5s}", Outcome.MET, 5 * SECOND),
        ("{backlogDrain: 4s}", Outcome.NO_DATA, None),
        ("{backlogDrain: 2s}", Outcome.MISSED, 3 * SECOND),
    ],
)
def test_an_uncertain_drain_is_judged_if_both_its_limits_agree(
    slo: str, outcome: Outcome, observed: int | None, tmp_path: Path
) -> None:
    """4 000 copies were second ones: drained after 3 s at the earliest, certainly after 5 s. The same when judged again."""
    profile = profiles.loads(f"{LEAST}{BACKLOG}slo: {slo}\n", "p.yaml")
    watch = watched(profile, 900)
    watch.look([made_progress(acked=20_000, received=23_000)], SECOND + CHANGE_IN + 5 * SECOND)
    made = samples(profile, tmp_path, counts={"duplicates": 4000})
    conclude_run(made, backlog=watch)
    found = findings(made, before=read_results(tmp_path))["backlogDrain"]
    assert (found.outcome, found.observed) == (outcome, observed)
    assert "drained between 3.00 s and 5.00 s: 4 000 copies were second ones" in found.text
    document = read_results(tmp_path)
    assert document is not None and document.backlog is not None
    section = document.backlog
    assert [section.drain, section.drained, section.left, section.drain_rate] == [None] * 4
    assert section.drained_between == (3 * SECOND, 5 * SECOND)


def test_copies_of_messages_answered_as_failed_make_a_drain_uncertain(tmp_path: Path) -> None:
    """They were delivered all the same: 4 000 copies that may hide others."""
    profile = profiles.loads(LEAST + BACKLOG, "p.yaml")
    made = samples(profile, tmp_path, counts={"acked": 96_000, "failed": 4000})
    found = findings(made, backlog=watched(profile, 900))["backlogDrain"]
    assert (found.outcome, found.observed) == (Outcome.NO_DATA, None)
    assert "drained between 3.00 s and an unknown time" in found.text


def test_a_backlog_not_drained_by_copies_was_not_drained_by_messages(tmp_path: Path) -> None:
    """Second copies can only make it look smaller."""
    profile = profiles.loads(LEAST + BACKLOG, "p.yaml")
    made = samples(profile, tmp_path, counts={"duplicates": 4000})
    found = findings(made, backlog=watched(profile, 1001, after=10 * SECOND))["backlogDrain"]
    assert found.outcome is Outcome.MISSED
    assert "NOT drained: more than 1 000 of 20 000 deliveries still waiting" in found.text


STAGED = (
    "name: p\nmessageSize: 100\nproducerRate: 10000\ndriver: {name: loopback}\n"
    "stages:\n  - {name: ramp, duration: 10s, rate: 10000}\n  - {name: spike, duration: 10s, rate: 20000, slo: {endToEndLatency: {p99: 1s}}}\n"
    "  - {name: calm, duration: 10s, rate: 10000}\n"
)


def ended_after_the_first_stage(folder: Path, aborted: Aborted | None = None) -> MeasuredRun:
    """Return a run whose body ended the load before its second stage."""
    found = samples(profiles.loads(STAGED, "p.yaml"), folder)
    changes = (RunChange(**Change(at=10 * SECOND, end=True).document(in_bytes=False)),)
    stages = (RunStage(name="ramp", start=0, duration=10 * SECOND, slo=None, rate=1.0),)
    run = replace(found.run, duration=10 * SECOND, aborted=aborted, changes=changes, stages=stages)
    return replace(found, run=run, stages=(("ramp", found.measurements),))


@pytest.mark.parametrize(
    ("aborted", "outcome"), [(None, Outcome.NO_DATA), (Aborted(reason="too late"), Outcome.MISSED)]
)
def test_a_stage_that_never_began_is_named_and_never_met(
    aborted: Aborted | None, outcome: Outcome, tmp_path: Path
) -> None:
    """Its objectives were not judged; an aborted run is missed in any case."""
    result, document = conclude_run(ended_after_the_first_stage(tmp_path, aborted))
    assert result.load.outcome is outcome
    spike, calm = result.load.stage("spike"), result.load.stage("calm")
    assert [(one.objective.name, one.outcome) for one in spike.verdict.findings] == [
        ("endToEndLatency.p99", Outcome.NO_DATA)
    ]
    assert (spike.outcome, calm.outcome) == (outcome, Outcome.MET)  # nothing was asked of the calm
    with pytest.raises(
        NoData, match=r"stage spike never began: the load was ended 10.0 s into the phase"
    ):
        _ = spike.lost
    assert [stage.measurements is None for stage in document.stages] == [False, True, True]
    jsonschema.validate(as_json(document), results_schema())
    shown = "\n".join(terminal.summary_lines(document))
    assert "stage spike never began: the load was ended 10.0 s into the phase" in shown
    assert "stage calm never began" in shown
    if aborted is None:
        assert document.verdict.reasons == (
            "stage spike: never began: the load was ended 10.0 s into the phase",
        )


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


HUNG = dict.fromkeys(("sent", "sent_in_time", "acked", "received", "received_in_time"), 0)
"""The counts of a stage in which the target answered nothing."""


def stage_outcome(
    folder: Path, *, subscriptions: int = 1, dropped: int = 0, own_drops: int = 0, **counts: int
) -> Outcome:
    """Return the outcome of a stage between two good ones. :param dropped: before full windows. :param counts: of the stage."""
    nothing = {} if subscriptions else {"received": 0, "received_in_time": 0}
    found = samples(
        profiles.loads(STAGED, "p.yaml"), folder, subscriptions=subscriptions, counts=nothing
    )
    topic = BlockedTopic(topic=0, dropped=dropped, start=0, end=10 * SECOND)
    full = (
        FullWindows(dropped=dropped, waited=1, topics=1, first_topics=(topic,)) if dropped else None
    )
    every = {**HUNG, "dropped": dropped + own_drops, **counts}
    made = replace(found.measurements.counts, **every, offered=every["dropped"] + every["sent"])
    hung = replace(found.measurements, counts=made, full_windows=full, latencies={})
    stages = tuple(
        RunStage(name=name, start=i * 10 * SECOND, duration=10 * SECOND, slo=None, rate=1.0)
        for i, name in enumerate(("ramp", "spike", "calm"))
    )
    parts = (("ramp", found.measurements), ("spike", hung), ("calm", found.measurements))
    result, _ = conclude_run(replace(found, run=replace(found.run, stages=stages), stages=parts))
    return result.load.stage("spike").outcome


@pytest.mark.parametrize("subscriptions", [0, 1])
@pytest.mark.parametrize(("own_drops", "outcome"), [(0, Outcome.MISSED), (1, Outcome.NO_DATA)])
def test_a_stage_in_which_the_target_hung_is_a_miss(
    own_drops: int, outcome: Outcome, subscriptions: int, tmp_path: Path
) -> None:
    """It answered before, in the same phase; nothing of the stage came, and all of it was dropped before full windows."""
    assert (
        stage_outcome(tmp_path, subscriptions=subscriptions, dropped=100_000, own_drops=own_drops)
        is outcome
    )


@pytest.mark.parametrize("subscriptions", [0, 1])
def test_a_stage_whose_messages_the_target_took_and_never_answered_is_a_miss(
    subscriptions: int, tmp_path: Path
) -> None:
    """All of them fit into the windows, so that none is dropped."""
    assert (
        stage_outcome(tmp_path, subscriptions=subscriptions, sent=1000, unknown=1000)
        is Outcome.MISSED
    )


def test_a_stage_whose_messages_were_acknowledged_and_not_received_is_no_data(
    tmp_path: Path,
) -> None:
    """The consumers may have failed, and not the target."""
    assert stage_outcome(tmp_path, sent=1000, acked=1000) is Outcome.NO_DATA


def test_the_loss_bound_of_the_profile_applies_to_the_max_of_a_stage(tmp_path: Path) -> None:
    """The stage's own section bounds no loss; the profile's allows 1 %."""
    some = {"counts": {"lost": 10, "received": 99_990}, "end_to_end": spread(1, 20, 99_990)}
    for slo, outcome in (
        ("loss: 1%", Outcome.MET),
        ("loss: 5", Outcome.MISSED),
        ("sent: 99%", Outcome.MISSED),
    ):
        text = f"slo: {{{slo}}}\nstages: [{{name: only, duration: 10s, slo: {{endToEndLatency: {{max: 50ms}}}}}}]\n"
        profile = profiles.loads(LEAST.replace("testDuration: 10s\n", "") + text, "p.yaml")
        made = samples(profile, tmp_path, **some)
        stages = (
            RunStage(
                name="only",
                start=0,
                duration=10 * SECOND,
                slo=dict(profile.stages[0].slo),
                rate=1.0,
            ),
        )
        made = replace(
            made, run=replace(made.run, stages=stages), stages=(("only", made.measurements),)
        )
        load = conclude_run(made)[0].load
        assert load.stage("only").outcome is outcome
        assert (load.stage("only").end_to_end.max < ms(50)) is (outcome is Outcome.MET)


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


def test_the_notes_of_telemetry_are_in_the_results(tmp_path: Path) -> None:
    made = samples(profiles.loads(LEAST, "p.yaml"), tmp_path)
    observing.write_telemetry(
        tmp_path, Telemetry.of_rows([SECOND], [{}], notes=("a topic has more partitions",))
    )
    _, document = conclude_run(made)
    assert list(document.notes) == ["a topic has more partitions"]


@pytest.mark.parametrize(
    ("before", "seen", "version", "notes"),
    [
        ("4.0.0", {"4.0.0": 0}, "4.0.0", []),
        ("unknown", {"4.0.0": 0}, "4.0.0", []),
        ("4.0.0", {}, "4.0.0", []),
        ("4.0.0", {"4.0.0": 0, "4.2.4": 5 * SECOND}, "4.0.0, then 4.2.4", ["changed while load ran: 4.0.0 first, 4.2.4 from 5.00 s into the phase"]),
        ("4.0.0", {"4.2.4": 0}, "4.2.4", ["was 4.0.0 before this phase"]),
        ("4.0.0", {"4.0.0 and 4.2.4": 0}, "4.0.0 and 4.2.4", []),
    ],
)  # fmt: skip
def test_a_run_has_the_versions_that_its_target_reported(
    before: str, seen: dict[str, int], version: str, notes: list[str], tmp_path: Path
) -> None:
    """Results of two versions are not shown as those of the first one."""
    made = samples(profiles.loads(LEAST, "p.yaml"), tmp_path)
    made.run.facts.broker.update(name="mosquitto", version=before)
    versions = {f"mosquitto {number}": at for number, at in seen.items()}
    observing.write_telemetry(tmp_path, Telemetry.of_rows([SECOND], [{}], versions=versions))
    _, document = conclude_run(made)
    assert document.broker["version"] == version
    assert len(document.notes) == len(notes)
    assert all(part in note for part, note in zip(notes, document.notes, strict=True))
