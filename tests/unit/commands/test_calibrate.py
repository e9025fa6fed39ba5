"""Costs from CPU times, and the file of costs that plans read."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from builders.documents import BOTTLENECK
from builders.documents import document as made_document
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.commands import calibrate
from pytest_loadtest.commands.calibrate import LARGE, SMALL, PerMessage
from pytest_loadtest.errors import NoData
from pytest_loadtest.fleet import planning
from pytest_loadtest.kinds.costs import Cost
from pytest_loadtest.kinds.registry import shipped_costs
from pytest_loadtest.plan.needs import expected_batch
from pytest_loadtest.plan.plan import Plan, make_plan, profile_pool
from pytest_loadtest.plan.scaling import profile_cost_key
from pytest_loadtest.profile import from_document

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pytest_loadtest.report.document import BottleneckSection, RunDocument

COST = Cost(produce=1, consume=2, broker=3, per_byte=4)
times = st.floats(0, 1e9)


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


COUNTS = {"offered": 300, "sentInTime": 300, "receivedInTime": 240}


def document(counts: Mapping[str, int] = COUNTS, **changed: Any) -> RunDocument:
    """Return a run of 3 s at 100 msg/s, 80 of them received.

    Its samples of the first second and of the drain have 9 cores.
    """
    sampled = {
        "worker gw0.cpu": (9.0, 0.02, 0.04, 9.0),
        "worker gw1.cpu": (9.0, 0.016, None, 9.0),
        "broker.cpu": (9.0, 0.04, 0.04, 9.0),
    }
    run = made_document(facts={"profile_name": "slow"})
    assert run.measurements is not None
    measured = replace(
        run.measurements, duration=3_000_000_000, counts=run.measurements.counts | counts
    )
    times = (1_000_200_000, 2_000_200_000, 3_000_200_000, 4_000_200_000)
    bottleneck = replace(
        BOTTLENECK, time=times, columns=sampled, missing=("broker's CPU: no process",)
    )
    verdict = replace(run.verdict, reasons=("the target went away",))
    return replace(
        run, **{"measurements": measured, "bottleneck": bottleneck, "verdict": verdict} | changed
    )


def test_cpu_time_is_divided_by_the_messages_of_each_process() -> None:
    """The sender's by the messages sent, the receiver's and the broker's by those received.

    The first second does not count.
    """
    found = PerMessage.of(document())
    assert (found.produce, found.consume, found.broker) == pytest.approx(
        (300_000, 200_000, 500_000)
    )


def test_a_run_without_measurements_has_no_cost() -> None:
    with pytest.raises(NoData, match="the run slow was not measured: the target went away"):
        PerMessage.of(document(measurements=None))


@pytest.mark.parametrize(
    "bottleneck",
    [None, replace(BOTTLENECK, time=(2_000_000_000,), columns={}, missing=("no process",))],
)
def test_unknown_cpu_time_is_not_zero(bottleneck: BottleneckSection | None) -> None:
    with pytest.raises(NoData, match="the CPU time of worker gw0 is unknown: no"):
        PerMessage.of(document(bottleneck=bottleneck))


def test_a_run_with_less_than_half_of_its_messages_has_no_cost() -> None:
    with pytest.raises(NoData, match="149 of 300 messages arrived"):
        PerMessage.of(document(COUNTS | {"receivedInTime": 149}))


@given(
    fixed=st.tuples(times, times, times), per_byte=st.tuples(*[st.floats(0, 1000)] * 3), tick=times
)
def test_a_linear_cost_is_split_exactly(
    fixed: tuple[float, ...], per_byte: tuple[float, ...], tick: float
) -> None:
    """The cost per tick at the lower rate is in neither part."""

    def at(size: int, extra: float) -> PerMessage:
        produce, consume, broker = (
            message + size * byte + extra for message, byte in zip(fixed, per_byte, strict=True)
        )
        return PerMessage(produce=produce, consume=consume, broker=broker)

    cost = calibrate.cost_of(at(SMALL, tick), at(LARGE, tick), at(SMALL, 0), 0.5)
    assert (cost.produce, cost.consume, cost.broker) == pytest.approx(fixed, rel=1e-6, abs=1e-3)
    assert cost.per_byte == pytest.approx(sum(per_byte), rel=1e-6, abs=1e-3)
    assert cost.shared == 0.5


@given(*[st.builds(PerMessage, produce=times, consume=times, broker=times)] * 3)
def test_noise_makes_no_cost_negative(
    slow: PerMessage, large: PerMessage, fast: PerMessage
) -> None:
    assert min(calibrate.cost_of(slow, large, fast).document().values()) >= 0


def test_plans_use_measured_costs() -> None:
    """A measured row replaces the shipped one; the other rows stay."""
    path = calibrate.keep({"pulsar": COST})
    assert planning.costs() == {**shipped_costs(), "pulsar": COST}
    document = json.loads(path.read_text())
    assert set(document) == {"version", "measured", "python", "costs"}


def test_measured_costs_of_older_versions_get_the_shipped_share() -> None:
    """They keep it when another row is written; rows of removed clients are left out."""
    row = {name: figure for name, figure in COST.document().items() if name != "shared"}
    planning.costs_file().parent.mkdir(parents=True)
    planning.costs_file().write_text(
        json.dumps({"costs": {"pulsar-native": row, "pulsar": row, "gone": row}})
    )
    expected = {
        **shipped_costs(),
        "pulsar": COST,
        "pulsar-native": replace(COST, shared=shipped_costs()["pulsar-native"].shared),
    }
    assert planning.costs() == expected
    calibrate.keep({"loopback": COST})
    assert planning.costs() == {**expected, "loopback": COST}


def test_an_earlier_calibration_stays() -> None:
    """Each driver can be measured on its own; an unreadable file is replaced."""
    planning.costs_file().parent.mkdir(parents=True)
    planning.costs_file().write_text("{")
    calibrate.keep({"pulsar": COST})
    calibrate.keep({"loopback": COST})
    assert planning.costs() == {**shipped_costs(), "pulsar": COST, "loopback": COST}


def test_the_table_shows_measured_and_shipped_costs() -> None:
    """They are in µs and µs per KiB, the shipped ones in parentheses."""
    lines = calibrate.table({"loopback": Cost(produce=1234, consume=2000, broker=3000, per_byte=1)})
    shipped = shipped_costs()["loopback"].produce / 1e3
    assert f"1.2 ({shipped:.1f})" in lines[1]
    assert "1.0 (" in lines[1]
    assert lines[2:] == ["in parentheses: the shipped figures"]
    shared = calibrate.table({"pulsar-native": shipped_costs()["pulsar-native"]})[2]
    assert shared == "pulsar-native: messages of one batch share 99% of send, receive and broker"


def plan(key: str, size: int, rate: float) -> Plan:
    """Return the plan for two workers."""
    profile = from_document(calibrate.profile_of(key, "fast", size, rate))
    return make_plan(
        profile,
        profile_pool(profile),
        workers=2,
        cost=shipped_costs()[key],
        machine=planning.machine(),
        broker_here=True,
    )


@pytest.mark.parametrize("key", calibrate.measurable_rows())
def test_a_plan_reads_the_row_that_was_measured_for_its_client(key: str) -> None:
    assert profile_cost_key(plan(key, SMALL, 100).profile) == key


@pytest.mark.parametrize("key", calibrate.measurable_rows())
def test_a_calibration_uses_less_than_a_third_of_a_core(key: str) -> None:
    """It does so for each process, by the shipped costs, and has two phases."""
    shipped = shipped_costs()[key]
    for size, rate in calibrate._rates(shipped):
        assert rate * max(shipped.produce, shipped.consume) <= 0.3e9 * 1.001
        assert [phase.name for phase in plan(key, size, rate).phases] == ["warm-up", "measure"]


@pytest.mark.parametrize("key", calibrate.measurable_rows())
def test_the_first_worker_only_sends_and_the_second_only_receives(key: str) -> None:
    """Otherwise their CPU times would be mixed."""
    shares = plan(key, SMALL, 100).assignments
    assert [(len(share.streams), len(share.consumers)) for share in shares] == [(1, 0), (0, 1)]


@pytest.mark.parametrize("key", calibrate.measurable_rows())
def test_each_message_is_a_batch_of_its_own(key: str) -> None:
    """This holds at every rate, also for late ticks: the measured cost is that of one message."""
    for size, rate in calibrate._rates(shipped_costs()[key]):
        made = plan(key, size, rate)
        assert (
            expected_batch(made.profile, made.topology, size, 100 * rate) == 1.0
            or not shipped_costs()[key].shared
        )
        assert made.needs.batch == (1.0 if shipped_costs()[key].shared else None)
