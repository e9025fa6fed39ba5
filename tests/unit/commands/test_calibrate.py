"""From CPU times to costs, and to the file that plans read."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.commands import calibrate
from pytest_loadtest.commands.calibrate import LARGE, SMALL, PerMessage
from pytest_loadtest.errors import NoData
from pytest_loadtest.fleet import machine
from pytest_loadtest.fleet.pair import Spent
from pytest_loadtest.kinds.costs import Cost
from pytest_loadtest.kinds.registry import shipped_costs
from pytest_loadtest.schedule.batches import expected_batch
from pytest_loadtest.schedule.pricing import profile_cost_key

COST = Cost(produce=1, consume=2, broker=3, per_byte=4)
times = st.floats(0, 1e9)


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_each_pays_for_the_messages_it_had() -> None:
    """The sender for what it sent, receiver and broker for what arrived."""
    spent = Spent(sent=10, received=5, sender=100, receiver=100, broker=200)
    assert PerMessage.of(spent) == PerMessage(produce=10, consume=20, broker=40)


@given(fixed=st.tuples(times, times, times), per_byte=st.tuples(*[st.floats(0, 1000)] * 3), tick=times)
def test_a_linear_cost_is_found_again(fixed: tuple[float, ...], per_byte: tuple[float, ...], tick: float) -> None:
    """What a message costs and what a byte costs come apart; what a tick costs at the lower rate goes into neither."""

    def at(size: int, extra: float) -> PerMessage:
        produce, consume, broker = (message + size * byte + extra for message, byte in zip(fixed, per_byte, strict=True))
        return PerMessage(produce=produce, consume=consume, broker=broker)

    cost = calibrate.cost_of(at(SMALL, tick), at(LARGE, tick), at(SMALL, 0), 0.5)
    assert (cost.produce, cost.consume, cost.broker) == pytest.approx(fixed, rel=1e-6, abs=1e-3)
    assert cost.per_byte == pytest.approx(sum(per_byte), rel=1e-6, abs=1e-3)
    assert cost.shared == 0.5


@given(*[st.builds(PerMessage, produce=times, consume=times, broker=times)] * 3)
def test_noise_makes_no_cost_negative(slow: PerMessage, large: PerMessage, fast: PerMessage) -> None:
    """Whatever was measured."""
    assert min(calibrate.cost_of(slow, large, fast).document().values()) >= 0


def test_cpu_time_of_a_process() -> None:
    """As the kernel counts it, to a tick of its clock."""
    before = time.process_time_ns()
    seen = calibrate.cpu_time(os.getpid())
    tick = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    assert before - 2 * tick <= seen <= time.process_time_ns() + 2 * tick


def test_cpu_time_of_nobody() -> None:
    """Is unknown, not zero."""
    with pytest.raises(NoData, match="CPU time cannot be read"):
        calibrate.cpu_time(2**22 + 1)


def test_plans_use_what_was_kept() -> None:
    """The measured row is there in place of the shipped one; the others stay as shipped."""
    path = calibrate.keep({"pulsar": COST})
    assert machine.costs() == {**shipped_costs(), "pulsar": COST}
    document = json.loads(path.read_text())
    assert set(document) == {"version", "measured", "python", "costs"}


def test_figures_kept_before_batches_were_shared() -> None:
    """Are read with the shipped share, also where others are kept beside them; those of a client that is no more are left out."""
    row = {name: figure for name, figure in COST.document().items() if name != "shared"}
    machine.costs_file().parent.mkdir(parents=True)
    machine.costs_file().write_text(json.dumps({"costs": {"pulsar-native": row, "pulsar": row, "gone": row}}))
    expected = {**shipped_costs(), "pulsar": COST, "pulsar-native": replace(COST, shared=shipped_costs()["pulsar-native"].shared)}
    assert machine.costs() == expected
    calibrate.keep({"loopback": COST})
    assert machine.costs() == {**expected, "loopback": COST}


def test_an_earlier_calibration_stays() -> None:
    """One driver after the other; a broken file is nobody's cost and is replaced."""
    machine.costs_file().parent.mkdir(parents=True)
    machine.costs_file().write_text("{")
    calibrate.keep({"pulsar": COST})
    calibrate.keep({"loopback": COST})
    assert machine.costs() == {**shipped_costs(), "pulsar": COST, "loopback": COST}


def test_the_table_shows_both() -> None:
    """Measured, and shipped in parentheses, in µs and µs per KiB."""
    lines = calibrate.table({"loopback": Cost(produce=1234, consume=2000, broker=3000, per_byte=1)})
    shipped = shipped_costs()["loopback"].produce / 1e3
    assert f"1.2 ({shipped:.1f})" in lines[1]
    assert "1.0 (" in lines[1]
    assert lines[2:] == ["in parentheses: the shipped figures"]
    shared = calibrate.table({"pulsar-native": shipped_costs()["pulsar-native"]})[2]
    assert shared == "pulsar-native: messages of one batch share 99% of send, receive and broker"


@pytest.mark.parametrize("key", calibrate.rows())
def test_a_calibrated_cost_is_that_of_one_client(key: str) -> None:
    """Whichever of them plans would choose: the row measured is the row that such a plan reads."""
    assert profile_cost_key(calibrate._plan(key, SMALL, 100).profile) == key


@pytest.mark.parametrize("key", calibrate.rows())
def test_load_is_what_a_machine_carries(key: str) -> None:
    """Less than a third of a core for each process by the shipped costs, and two phases; producers and the one consumer are apart."""
    shipped = shipped_costs()[key]
    for size, rate in calibrate._rates(shipped):
        assert rate * max(shipped.produce, shipped.consume) <= 0.3e9 * 1.001
        plan = calibrate._plan(key, size, rate)
        assert [phase.name for phase in plan.phases] == ["warm-up", "measure"]
        producers = plan.topology.streams
        assert [(len(a.streams), len(a.consumers)) for a in plan.assignments] == [(producers, 0), (0, 1)]


@pytest.mark.parametrize("key", calibrate.rows())
def test_each_message_is_a_batch_of_its_own(key: str) -> None:
    """Where that matters, at every rate that is driven and with room for ticks that are late: so what is measured is the figure itself."""
    for size, rate in calibrate._rates(shipped_costs()[key]):
        plan = calibrate._plan(key, size, rate)
        if shipped_costs()[key].shared:
            assert expected_batch(plan.profile, plan.topology, size, 3 * rate) == plan.needs.batch == 1.0
        else:
            assert (plan.topology.streams, plan.needs.batch) == (1, None)
