"""Faults of the relay: the measurements show exactly these, and nothing else."""

from __future__ import annotations

import ast
import re
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pytest_loadtest.drivers.loopback.driver import LoopbackDriver
from pytest_loadtest.errors import GeneratorLimited, NoData
from pytest_loadtest.fleet import workload_share
from pytest_loadtest.message.samples import Status
from pytest_loadtest.values.quantities import MILLISECOND, SECOND
from pytest_loadtest.verdict.slo import Outcome

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_loadtest.engine.progress import Progress

    from .conftest import Bench, Judged

Report = Callable[[str, object], None]

PATIENT = "generator: {sendDelayP99: 5s, receiveLagP99: 5s, stalled: 1, cpu: 5}"
TURNS = 12


def profile(
    driver: str,
    *,
    rate: float,
    seconds: float,
    slo: str = "{endToEndLatency: {p50: 30s}}",
    generator: str = PATIENT,
    more: str = "",
) -> str:
    settings = f"{{name: loopback, {driver}}}" if driver else "{name: loopback}"
    return f"""
name: truth
messageSize: 128
producerRate: {rate}
testDuration: {int(seconds * 1000)}ms
drainTimeout: 1500ms
maxSendDelay: 60s
driver: {settings}
slo: {slo}
{generator}
{more}
"""


def test_a_delay_of_20_ms_shows_as_20_ms(bench: Bench, report: Report) -> None:
    """Against control runs without delay, p50 differs by 20 ms within 1 ms.

    What else goes on in the machine only ever adds to a latency; so runs with and without delay take turns and the least p50 of each
    counts, until they agree with the relay or the turns are over.
    """

    def p50(delay: str) -> float:
        histogram = bench.run(
            profile(f"delay: {delay}", rate=500, seconds=1.2)
        ).measurements.latencies["end_to_end"]
        assert histogram is not None
        return histogram.percentile(50) / MILLISECOND

    control, delayed = [], []
    for turn in range(1, TURNS + 1):
        control.append(p50("0ms"))
        delayed.append(p50("20ms"))
        report(
            f"turn {turn}: p50 without and with delay",
            f"{control[-1]:.3f} ms, {delayed[-1]:.3f} ms",
        )
        if abs(min(delayed) - min(control) - 20) <= 1:
            break
    assert min(delayed) - min(control) == pytest.approx(20, abs=1)


def test_a_stall_of_1_s_shows_in_every_message_due_in_it(bench: Bench, report: Report) -> None:
    """The latencies are those that arithmetic gives from the intended times, p82 to p99: no coordinated omission.

    The run outside the stall is its own control: it is repeated while the machine holds messages up there, and the quietest attempt counts. What
    the machine did in that one may make a latency longer, by as many messages as it held up, and never shorter.
    """
    text = profile("stall: {at: 2s, duration: 1s}, maxPendingMessages: 10000", rate=1000, seconds=5)
    attempts: list[Stalled] = []
    while len(attempts) < 3 and not (attempts and attempts[-1].quiet):
        attempts.append(Stalled(bench.run(text)))
        report(f"attempt {len(attempts)}", attempts[-1])
        attempts[-1].hold_every_message_to_the_stall()
    run = min(attempts, key=lambda attempt: attempt.held_up)
    for p in (82, 85, 90, 95, 97, 99):
        expected = run.analytic(p)
        tolerance, seen = max(0.05 * expected, 20 * MILLISECOND), run.histogram.percentile(p)
        report(f"p{p}", f"{seen / MILLISECOND:.1f} ms, analytic {expected / MILLISECOND:.1f} ms")
        assert (
            expected - tolerance
            <= seen
            <= run.analytic(min(100, p + 100 * run.held_up)) + run.woke_late + tolerance
        )


class Stalled:
    """A run of 5 s whose relay stalled from 2 s to 3 s after the first message that it got."""

    def __init__(self, judged: Judged) -> None:
        histogram = judged.measurements.latencies["end_to_end"]
        assert histogram is not None
        self.histogram, sent, received = (
            histogram,
            judged.samples("sent"),
            judged.samples("received"),
        )
        first, seen = (
            int(sent["sent"].min()),
            int(received["received"].min()),
        )  # the relay saw it between the two
        stalled, self._resumed = first + 2 * SECOND, first + 3 * SECOND
        surely = [
            (rows["intended"] >= seen + 2 * SECOND) & (rows["intended"] < self._resumed)
            for rows in (sent, received)
        ]
        self._due, self._late, self._unsure = (
            int(surely[0].sum()),
            received["received"][surely[1]],
            seen - first,
        )
        others = (received["intended"] < stalled - SECOND) | (received["intended"] >= self._resumed)
        latency = (received["received"] - received["intended"])[others]
        self.held_up = float((latency > 20 * MILLISECOND).sum()) / len(
            received["seq"]
        )  # share of all messages
        self.woke_late = int(self._late.min()) - self._resumed
        in_stall = (sent["intended"] >= stalled) & (sent["intended"] < self._resumed)
        self._analytic = np.where(in_stall, self._resumed - sent["intended"], 0) + np.median(
            latency
        )

    @property
    def quiet(self) -> bool:
        return self.held_up <= 0.001 and self.woke_late <= 10 * MILLISECOND

    def hold_every_message_to_the_stall(self) -> None:
        """Assert, on any machine, that every message due in the stall came after it."""
        assert self.histogram.n == 5000
        assert len(self._late) == self._due > 950 - 1000 * self._unsure / SECOND
        assert self.woke_late >= 0

    def analytic(self, p: float) -> float:
        """Return the expected latency, ns."""
        return float(np.percentile(self._analytic, p, method="inverted_cdf"))

    def __repr__(self) -> str:
        return f"{self.held_up:.2%} held up outside the stall, relay {self.woke_late / MILLISECOND:.1f} ms late behind it"


def test_every_fault_is_counted_to_the_message(bench: Bench, report: Report) -> None:
    """Lost, doubled, swapped and damaged messages at once: counts and lost sequences follow from the relay's rules."""
    count = 10_000
    faults = "loseEvery: 1000, duplicateEvery: 500, swapEvery: 7, corruptHeaderEvery: 700, corruptBodyEvery: 900"
    text = profile(
        f"{faults}, maxPendingMessages: 10000",
        rate=5000,
        seconds=2,
        slo="{loss: 0, outOfOrder: 0, sent: 1%, throughput: 1%}",
        more="checksum: true",
    )
    # A pair is held together for one second: a longer stall of the machine between the two would leave them as they are.
    judged = bench.quiet(lambda: bench.run(text), SECOND // 2, report)

    def hit(every: int) -> set[int]:
        return set(range(every - 1, count, every))

    lost, doubled, head, body = hit(1000), hit(500), hit(700), hit(900)
    assert head & body, "no message is hit twice: the test is weaker than it should be"
    unseen = lost | head  # no row of them: never delivered, or their head cannot be read
    gone = unseen | body
    late = {
        first for first in range(12, count, 14) if first not in gone and first + 1 not in unseen
    }
    counts = judged.measurements.counts
    report("counts", counts)
    assert (
        counts.offered,
        counts.sent,
        counts.acked,
        counts.failed,
        counts.dropped,
        counts.unknown,
    ) == (count, count, count, 0, 0, 0)
    assert judged.lost() == [(0, seq) for seq in sorted(gone)]
    assert counts.lost == len(gone)
    assert counts.received == count - len(gone)
    assert counts.duplicates == len(doubled - gone)
    assert counts.corrupt == sum(2 if seq in doubled else 1 for seq in (head | body) - lost)
    assert counts.out_of_order == len(late)
    assert counts.foreign == 0
    strays = judged.measurements.strays
    assert {(stray.kind, stray.topic, stray.size) for stray in strays} == {
        ("corrupt", "topic 0", 128)
    }
    # Messages 699, 899 and 1399; only the body of the second is damaged.
    intact = ast.literal_eval(f"b'{strays[1].beginning}'")
    assert len(intact) == 64 and int.from_bytes(intact[16:24], "little") == 899
    assert judged.outcome is Outcome.MISSED
    assert {"loss", "corrupt", "outOfOrder"} <= set(judged.missed())


ENVELOPES = {
    "JSON": 'route: {input: "orders-{topic}", output: "confirmed-{topic}", envelope: "json:/ref"}',
    "template": """route: {input: "orders-{topic}", output: "confirmed-{topic}", envelope: "json:/ref"}
payload: {pool: 20, template: '{"note": "{{ text(integer(1, 99)) }}", "ref": "{{ envelope }}"}'}""",
    "binary": 'route: {input: "orders-{topic}", output: "confirmed-{topic}"}',
    "properties": """route: {input: "orders-{topic}", output: "confirmed-{topic}", envelope: properties}
payload: {pool: 20, template: '{"note": "{{ text(integer(1, 99)) }}"}'}""",
}


@pytest.mark.parametrize("envelope", ENVELOPES)
def test_faults_of_a_service_are_counted_to_the_message(
    bench: Bench, report: Report, envelope: str
) -> None:
    """Of 2 500 inputs every 500th is lost, every 700th doubled, every 90th overtaken."""
    text = profile(
        "service: {lose: 500, double: 700, slow: 90, slowBy: 400ms, threads: 40}",
        rate=1250,
        seconds=2,
        slo="{loss: 0, duplicates: 0, outOfOrder: 0, sent: 1%, throughput: 1%}",
        more=ENVELOPES[envelope],
    )
    text = text.replace("name: truth", "name: truth\ntopics: 4")
    if "payload:" in text:
        text = text.replace("messageSize: 128\n", "")
    # An input that takes 400 ms is overtaken by the next one of its stream, if that comes in time.
    judged = bench.quiet(lambda: bench.run(text), SECOND // 5, report)
    counts = judged.measurements.counts
    report("counts", counts)
    assert (counts.sent, counts.acked, counts.received) == (2500, 2500, 2495)
    assert (counts.lost, counts.duplicates) == (5, 3)
    assert counts.out_of_order == 27
    assert (counts.foreign, counts.corrupt) == (0, 0)
    assert set(judged.missed()) == {"loss", "duplicates", "outOfOrder"}
    latency = judged.measurements.latencies["end_to_end"]
    assert latency is not None
    assert latency.percentile(95) < 400 * MILLISECOND <= latency.maximum


def test_a_full_window_is_the_targets_fault(bench: Bench, report: Report) -> None:
    """A relay with half the capacity: the rate is missed, the blocked time is shown, and the generator is not limited."""
    limits = "generator: {sendDelayP99: 2s, receiveLagP99: 2s, stalled: 1, cpu: 5}"
    text = profile(
        "capacity: 1000, blockIfQueueFull: true, maxPendingMessages: 200",
        rate=2_000,
        seconds=3,
        slo="{throughput: 99%}",
        generator=limits,
    )
    judged = bench.quiet(lambda: bench.run(text), SECOND // 2, report)
    measurements = judged.measurements
    delay, own = (
        measurements.latencies[kind].percentile(99) for kind in ("send_delay", "own_send_delay")
    )
    report("send delay p99", f"{delay / MILLISECOND:.0f} ms")
    report("own send delay p99", f"{own / MILLISECOND:.0f} ms")
    report("missed", judged.missed())
    assert judged.outcome is Outcome.MISSED
    assert {"throughput", "sent"} <= set(judged.missed())
    assert all(
        "of the send delay was spent before the target's full window" in text
        for text in judged.missed().values()
    )
    assert delay > 2 * SECOND  # taken for the generator's own it would have been its fault
    assert measurements.counts.sent_in_time < 0.7 * measurements.counts.offered
    assert measurements.throughput == pytest.approx(1000, rel=0.1)
    assert measurements.counts.lost == 0


def test_a_growing_backlog_is_not_throughput(bench: Bench, report: Report) -> None:
    """A relay that carries 1 000 of 2 000 msg/s and has room for the rest: throughput is what it carries."""
    driver = "capacity: 1000, maxPendingMessages: 100000"
    judged = bench.run(
        profile(driver, rate=2_000, seconds=3, slo="{throughput: 1200/s, sent: 1%}").replace(
            "drainTimeout: 1500ms", "drainTimeout: 30s"
        )
    )
    report("throughput", judged.measurements.throughput)
    assert judged.measurements.counts.received == judged.measurements.counts.offered  # in the end
    assert judged.measurements.throughput == pytest.approx(1000, rel=0.1)
    assert set(judged.missed()) == {"throughput"}


def test_half_the_rate_misses_an_objective_on_latency_alone(bench: Bench, report: Report) -> None:
    """A run that did not apply its load does not pass, even without an objective on throughput."""
    judged = bench.run(profile("capacity: 500, maxPendingMessages: 100", rate=1000, seconds=2))
    report("missed", judged.missed())
    assert judged.outcome is Outcome.MISSED
    assert set(judged.missed()) == {"sent", "throughput"}
    assert 0.4 < judged.measurements.counts.sent_in_time / judged.measurements.counts.offered < 0.75


def test_half_the_rate_in_a_wide_window_misses_the_delivered_throughput(
    bench: Bench, report: Report
) -> None:
    """The client's window takes everything in time, so only deliveries show that the target did not keep up."""
    judged = bench.run(
        profile("capacity: 500, maxPendingMessages: 100000", rate=1000, seconds=2).replace(
            "drainTimeout: 1500ms", "drainTimeout: 30s"
        )
    )
    report("missed", judged.missed())
    assert judged.outcome is Outcome.MISSED
    assert set(judged.missed()) == {"throughput"}


def test_nothing_received_is_no_data(bench: Bench) -> None:
    """All messages are acknowledged and then lost: this is neither 100 % loss nor 0."""
    assert_nothing_received(
        bench.run(
            profile("loseEvery: 1", rate=500, seconds=1, slo="{loss: 100%, throughput: 0.001%}")
        )
    )


def test_a_consumer_that_never_starts_is_no_data(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its subscription is never made, so the relay keeps nothing for it."""
    monkeypatch.setattr(workload_share, "driver_class", lambda name, client: Deaf)
    assert_nothing_received(bench.run(profile("", rate=500, seconds=1, slo="{loss: 0}")))


class Deaf(LoopbackDriver):
    """A driver whose consumers never subscribe."""

    def open_consumers(self, consumers: Sequence[int]) -> NDArray[np.int32]:
        return np.arange(len(consumers), dtype=np.int32)


def assert_nothing_received(judged: Judged) -> None:
    assert judged.outcome is Outcome.NO_DATA
    assert judged.load.verdict.reasons == (
        "nothing was received: 500 messages were sent, 500 acknowledged",
    )
    assert {finding.outcome for finding in judged.load.verdict.findings} == {Outcome.NO_DATA}
    with pytest.raises(NoData, match="nothing was received"):
        judged.load.assert_slo()


def test_100_million_a_second_end_before_any_load(gated_bench: Bench) -> None:
    """The plan exceeds this machine, by its costs: the error has evidence and remedy, and no relay is started."""
    with pytest.raises(GeneratorLimited) as caught:
        gated_bench.run(hundred_million())
    text = str(caught.value)
    assert "generator-limited before any load" in text
    assert "a worker would need" in text
    assert "--load-scale auto" in text
    assert "--load-force" in text


def test_100_million_a_second_by_force_are_generator_limited(bench: Bench, report: Report) -> None:
    """With evidence and remedy: the target carried all that it got."""
    judged = bench.run(hundred_million())
    counts, verdict = judged.measurements.counts, judged.load.verdict
    report("counts", counts)
    report("reasons", verdict.reasons)
    assert counts.offered == 1_000_000
    assert np.count_nonzero(judged.samples("sent")["status"] == Status.DROPPED) == counts.dropped
    assert judged.outcome is Outcome.GENERATOR_LIMITED
    assert "use --load-scale auto" in verdict.reasons[-1]
    assert any(
        f"{counts.dropped:,} messages were dropped".replace(",", " ") in reason
        for reason in verdict.reasons
    )
    assert counts.lost == 0
    with pytest.raises(GeneratorLimited, match="own (send )?delay"):
        judged.load.assert_slo()


def hundred_million() -> str:
    """Default limits of the generator; a window that is never full, or the relay would be to blame; 10 ms, so that a million rows are made, no more.

    A worker that sends less than eight million a second is late beyond ``maxSendDelay``, which is above the limit on the send delay's p99.
    """
    text = profile("maxPendingMessages: 10000000", rate=100_000_000, seconds=0.01, generator="")
    return text.replace("maxSendDelay: 60s", "maxSendDelay: 110ms").replace(
        "drainTimeout: 1500ms", "drainTimeout: 10s"
    )


def test_a_lost_message_is_later_than_any_bound(bench: Bench, report: Report) -> None:
    """One of 110 is lost, which the bound on loss allows: p99 holds, p99.9 does not."""
    slo = "{loss: 1%, throughput: 90%, endToEndLatency: {p99: 30s, p99.9: 30s}}"
    judged = bench.run(profile("loseEvery: 110", rate=5_000, seconds=2.2, slo=slo))
    report("missed", judged.missed())
    assert judged.measurements.counts.lost == 100
    assert list(judged.missed()) == ["endToEndLatency.p99.9"]
    assert "10 900 samples, 100 never came" in judged.missed()["endToEndLatency.p99.9"]


def test_a_pause_of_the_generator_is_not_the_targets_latency(bench: Bench, report: Report) -> None:
    """The loop stops once for 1.5 s: the largest latency is the generator's, even within its limits on p99 and stalls."""
    paused: list[int] = []

    def pause(progress: Progress) -> None:
        if not paused and progress.elapsed > SECOND:
            paused.append(progress.elapsed)
            time.sleep(1.5)  # the fault itself

    judged = bench.run(
        profile("", rate=500, seconds=4, slo="{endToEndLatency: {max: 1s}}"), act=pause
    )
    report("reasons", judged.load.verdict.reasons)
    assert paused
    assert judged.outcome is Outcome.GENERATOR_LIMITED
    assert re.match(
        r"endToEndLatency\.max would be \S+ m?s without the generator's own part of ",
        judged.load.verdict.reasons[0],
    )
