"""Messages to more than 64 subscriptions: each lost or doubled pair of message and subscriber is found."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from .conftest import Bench

SUBSCRIPTIONS, MESSAGES = 150, 60


def test_every_lost_and_doubled_pair_is_counted(bench: Bench) -> None:
    """Each tenth message is lost for all, each seventh comes twice; the others are complete."""
    judged = bench.run(f"""
name: broadcast
topics: 2
subscriptionsPerTopic: {SUBSCRIPTIONS}
messageSize: 64
producerRate: 60
testDuration: 1s
drainTimeout: 1500ms
driver: {{name: loopback, loseEvery: 10, duplicateEvery: 7, delay: 5ms}}
slo: {{broadcastCompletion: {{p50: 30s}}}}
generator: {{sendDelayP99: 60s, receiveLagP99: 60s, stalled: 1, cpu: 5}}
""")
    m = judged.measurements
    assert (m.counts.offered, m.counts.acked) == (MESSAGES, MESSAGES)
    lost, twice = MESSAGES // 10, 2 * len([n for n in range(1, 31) if n % 7 == 0 and n % 10])
    assert (m.counts.lost, m.counts.received) == (
        lost * SUBSCRIPTIONS,
        (MESSAGES - lost) * SUBSCRIPTIONS,
    )
    assert m.counts.duplicates == twice * SUBSCRIPTIONS
    assert {(one.stream, one.first, one.last) for one in m.lost} == {
        (stream, seq, seq) for stream in (0, 1) for seq in (9, 19, 29)
    }
    assert len(m.lost) == lost * SUBSCRIPTIONS
    completion, spread = m.latencies["completion"], m.latencies["spread"]
    assert (completion.n, spread.n, m.never_came("completion")) == (
        MESSAGES - lost,
        MESSAGES - lost,
        lost,
    )
    assert completion.maximum == m.latencies["end_to_end"].maximum
    received = judged.samples("received")
    pairs = np.unique(
        received["seq"] * 1000 + received["subscription"] + received["stream"] * 10**6
    )
    assert len(pairs) == m.counts.received
