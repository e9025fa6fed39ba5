"""The backlog of a run as it is judged: when it was drained, or that the end of its drain is uncertain."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from builders.measured_runs import LEAST, findings, samples
from builders.measurements import MS
from builders.plans import made as planned
from builders.progress import made_progress

from pytest_loadtest import profile as profiles
from pytest_loadtest.fleet.judge import conclude_run, read_results
from pytest_loadtest.fleet.watches import BacklogWatch
from pytest_loadtest.schedule.changes import CHANGE_IN
from pytest_loadtest.values.quantities import SECOND
from pytest_loadtest.verdict.slo import Outcome

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_loadtest.profile import Profile


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
        "NOT drained: 1 001 of 20 000 deliveries still waiting after 10.0 s, at most 1 000 are allowed"
        in text
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


@pytest.mark.parametrize(
    ("slo", "outcome", "text"),
    [
        ("{loss: 7%}", Outcome.NO_DATA, "drained between 4.00 s and an unknown time: "),
        ("{loss: 7%, backlogDrain: 3s}", Outcome.MISSED, "4.00 s > 3.00 s"),
        ("{loss: 5%}", Outcome.MISSED, "NOT drained: 6 000 of 20 000 deliveries still waiting"),
        ("{}", Outcome.MISSED, "NOT drained: 6 000 of 20 000 deliveries still waiting"),
    ],
)
def test_lost_messages_that_are_allowed_may_not_have_waited(
    slo: str, outcome: Outcome, text: str, tmp_path: Path
) -> None:
    """The target may have dropped them; it need not be missed for them. The same when judged again."""
    profile = profiles.loads(f"{LEAST}{BACKLOG}slo: {slo}\n", "p.yaml")
    watch = watched(profile, 7000, after=4 * SECOND)
    watch.look([made_progress(acked=20_000, received=14_000)], SECOND + CHANGE_IN + 10 * SECOND)
    came = {"lost": 6000, "received": 94_000, "received_in_time": 99_000}
    made = samples(profile, tmp_path, counts=came)
    first = findings(made, backlog=watch)["backlogDrain"]
    again = findings(made, before=read_results(tmp_path))["backlogDrain"]
    for found in (first, again):
        assert found.outcome is outcome
        assert text in found.text
        assert ("6 000 never came" in found.text) == ("7%" in slo)


def test_a_few_lost_messages_do_not_make_the_end_of_a_drain_uncertain(tmp_path: Path) -> None:
    profile = profiles.loads(f"{LEAST}{BACKLOG}slo: {{loss: 1%}}\n", "p.yaml")
    made = samples(profile, tmp_path, counts={"lost": 10, "received": 99_990})
    found = findings(made, backlog=watched(profile, 900))["backlogDrain"]
    assert (found.outcome, found.observed) == (Outcome.MET, 3 * SECOND)
    document = read_results(tmp_path)
    assert document is not None
    assert document.backlog is not None
    assert (document.backlog.left, document.backlog.drain_rate) == (None, 19_100 / 3)


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
