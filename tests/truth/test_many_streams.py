"""Hundreds of streams on one worker: known faults of each are found to the message, also with full windows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .conftest import Bench

TOPICS, EACH = 500, 20


@pytest.mark.parametrize("window", [1000, 1])
def test_each_stream_has_its_own_faults(bench: Bench, window: int) -> None:
    """Of every stream each tenth message is lost and each seventh comes twice."""
    judged = bench.run(f"""
name: many streams
topics: {TOPICS}
producersPerTopic: 1
messageSize: 128
producerRate: 5000
testDuration: {TOPICS * EACH // 5}ms
drainTimeout: 1500ms
maxSendDelay: 60s
driver: {{name: loopback, loseEvery: 10, duplicateEvery: 7, delay: 5ms, maxPendingMessages: {window}}}
slo: {{endToEndLatency: {{p50: 30s}}}}
generator: {{sendDelayP99: 60s, receiveLagP99: 60s, stalled: 1, cpu: 5}}
""")
    counts = judged.measurements.counts
    assert counts.offered == counts.acked == TOPICS * EACH
    assert counts.lost == TOPICS * 2
    assert counts.received == TOPICS * (EACH - 2)
    assert counts.duplicates == TOPICS * 2
    assert counts.out_of_order == counts.corrupt == counts.foreign == counts.dropped == 0
    assert judged.lost() == [(stream, seq) for stream in range(TOPICS) for seq in (9, 19)]
