"""The bandwidth of a host, with drivers of known throughput."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from null_driver import NullDriver

from pytest_loadtest.drivers.base import Acks, Burst, DriverContext, TargetAddress
from pytest_loadtest.drivers.mqtt.settings import MqttSettings
from pytest_loadtest.errors import NoData, TargetError
from pytest_loadtest.fleet import host_bandwidth
from pytest_loadtest.fleet.host_bandwidth import (
    SIZE,
    STREAMS,
    BandwidthRequest,
    bandwidth_answer,
    measure_bandwidth,
)
from pytest_loadtest.message.samples import Status
from pytest_loadtest.values.quantities import MILLISECOND

if TYPE_CHECKING:
    from collections.abc import Callable

REQUEST = BandwidthRequest(
    target=TargetAddress(url="mqtt://b:1"),
    settings=MqttSettings(password="s3cret"),
    client="native",
    sources=("::1",),
)


@pytest.fixture
def measured(
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[Callable[[DriverContext], Any]], host_bandwidth.Bandwidth]:
    """Measure with a driver, in two rounds of a tenth of a second each."""

    def measure(driver: Callable[[DriverContext], Any]) -> host_bandwidth.Bandwidth:
        monkeypatch.setattr(host_bandwidth, "driver_class", lambda _name, _client: driver)
        return measure_bandwidth(REQUEST)

    for name in ("WARMUP", "DURATION", "DRAIN"):
        monkeypatch.setattr(host_bandwidth, name, 100 * MILLISECOND)
    return measure


def test_the_result_is_a_lower_bound_of_what_the_target_takes(measured: Any) -> None:
    """Three messages of each stream in flight, each answered after 5 ms: 2 400 a second, and on a busy machine fewer."""
    drivers = []

    def driver(context: DriverContext) -> NullDriver:
        drivers.append(
            NullDriver(
                context,
                deliver=False,
                latency=lambda seq: np.full(len(seq), 5 * MILLISECOND),
                window=3,
            )
        )
        return drivers[-1]

    capacity = STREAMS * 3 / 0.005 * SIZE * 8
    assert capacity / 20 < measured(driver).bits_per_second <= capacity
    assert drivers[0]._context.sources == ("::1",)


class Scripted(NullDriver):
    """Answers every message with a status; None: never."""

    status: int | None = None
    rejects = False
    offered: list[tuple[int, int, int]]
    taken: list[int]

    def __init__(self, context: DriverContext) -> None:
        super().__init__(context, deliver=False)
        self.offered, self.taken, self._unanswered = [], [], list[int]()
        made.append(self)

    def send(self, burst: Burst) -> Any:
        """Take the first half only, if it rejects."""
        count = (len(burst) + 1) // 2 if self.rejects else len(burst)
        self.offered += zip(
            burst.row.tolist(), burst.stream.tolist(), burst.seq.tolist(), strict=True
        )
        self.taken += burst.row[:count].tolist()
        self._unanswered += burst.row[:count].tolist()
        rejected = np.arange(count, len(burst))
        return rejected if len(rejected) else None

    def acks(self) -> Acks | None:
        rows, self._unanswered = self._unanswered, []
        if not rows or self.status is None:
            return None
        time = np.full(len(rows), self._clock(), np.int64)
        return Acks(np.array(rows, np.int64), time, np.full(len(rows), self.status, np.int8))


made: list[Scripted] = []


@pytest.mark.parametrize(
    ("status", "reason"), [(None, r"within 0 s$"), (int(Status.FAILED), r"; it rejected \d+$")]
)
def test_a_target_that_acknowledges_nothing_has_no_bandwidth(
    measured: Any, status: int | None, reason: str
) -> None:
    with pytest.raises(
        NoData, match=rf"the target acknowledged none of \d+ messages of 64 KiB .*{reason}"
    ):
        measured(type("Silent", (Scripted,), {"status": status}))


def test_a_target_that_is_lost_meanwhile_has_no_bandwidth(measured: Any) -> None:
    """Although it acknowledged messages before."""
    lost = {
        "status": int(Status.ACKED),
        "disconnected": lambda _: "producer of stream 3 (connection lost)",
    }
    with pytest.raises(
        TargetError, match=r"lost while it was measured: producer of stream 3 \(connection lost\)"
    ):
        measured(type("Lost", (Scripted,), lost))


def test_every_message_is_offered_until_it_is_taken(measured: Any) -> None:
    """Also across the rounds, in the order of its stream."""
    measured(type("Rejecting", (Scripted,), {"status": int(Status.ACKED), "rejects": True}))
    taken = made[-1].taken
    assert taken == list(range(len(taken)))
    assert all(
        (row % STREAMS, row // STREAMS) == (stream, seq) for row, stream, seq in made[-1].offered
    )


def test_a_round_ends_at_its_number_of_bytes(
    measured: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exceeded by a burst at most."""
    monkeypatch.setattr(host_bandwidth, "WARMUP_BYTES", 100 * SIZE)
    monkeypatch.setattr(host_bandwidth, "MOST_BYTES", 200 * SIZE)
    measured(type("Taking", (Scripted,), {"status": int(Status.ACKED)}))
    assert 300 <= len(made[-1].taken) < 300 + 2 * host_bandwidth._BURST


def test_a_request_travels_as_one_line() -> None:
    """With its secrets, for standard input."""
    assert "\n" not in REQUEST.encode()
    assert BandwidthRequest.decode(REQUEST.encode()) == REQUEST


def test_a_target_that_cannot_be_reached_is_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(_: BandwidthRequest) -> None:
        raise TargetError("mqtt://b:1: Connection refused")

    monkeypatch.setattr(host_bandwidth, "measure_bandwidth", unreachable)
    assert bandwidth_answer(REQUEST.encode()) == {"problem": "mqtt://b:1: Connection refused"}
