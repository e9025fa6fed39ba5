"""The verdicts on stages: by their own objectives, whether they began, hung or were cut short."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import jsonschema
import pytest
from builders.documents import as_json
from builders.measured_runs import LEAST, samples
from builders.measurements import spread

from pytest_loadtest import profile as profiles
from pytest_loadtest.errors import NoData
from pytest_loadtest.fleet.judge import conclude_run
from pytest_loadtest.metrics.full_windows import BlockedTopic, FullWindows
from pytest_loadtest.pipeline.run_file import RunChange, RunStage
from pytest_loadtest.report import terminal
from pytest_loadtest.report.document import results_schema
from pytest_loadtest.schedule.changes import Aborted, Change
from pytest_loadtest.values.quantities import SECOND
from pytest_loadtest.values.units import ms
from pytest_loadtest.verdict.slo import Outcome

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_loadtest.fleet.measured_run import MeasuredRun


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
