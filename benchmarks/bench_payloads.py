"""CPU per message of payload choice and envelope: ``python benchmarks/bench_payloads.py``.

Prints process CPU in ns per message, the best of several repeats (the least disturbed one), at
bursts of 100 and 1 000.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from pytest_loadtest.message.envelope import decode_heads, encode_heads
from pytest_loadtest.message.payloads import (
    Bucket,
    PayloadChooser,
    PayloadPool,
    build_pool,
    parse_range,
    whole_payloads,
)

if TYPE_CHECKING:
    from collections.abc import Callable

SMALL = {"0-256": 234, "256-512": 456, "512-1024": 678}
COMPACT = {"16-32": 1, "32-64": 1}
MESSAGES = 200_000
REPEATS = 7


def pool(weights: dict[str, int]) -> PayloadPool:
    """Return a pool of small payloads, so that copying bodies does not hide the other costs."""
    ranges = [(name, *parse_range(name), weight) for name, weight in weights.items()]
    buckets = [
        Bucket(name=name, low=low, high=high, weight=weight) for name, low, high, weight in ranges
    ]
    return build_pool(
        buckets=buckets,
        message_size=None,
        randomized=True,
        random_ratio=0.5,
        file_content=None,
        seed=0,
        checksum=False,
        max_size=None,
    )


def cost(work: Callable[[], object], burst: int) -> float:
    """Return the CPU ns per message of ``work``, which handles one burst."""
    rounds = MESSAGES // burst
    best = float("inf")
    for _ in range(REPEATS):
        begin = time.process_time_ns()
        for _ in range(rounds):
            work()
        best = min(best, (time.process_time_ns() - begin) / (rounds * burst))
    return best


def steps(chosen: PayloadPool, burst: int) -> dict[str, Callable[[], object]]:
    """Return the steps for each burst, by name."""
    chooser = PayloadChooser(chosen, 0, range(3, 5))
    nonce = 0xC0FFEE
    seq = np.arange(burst, dtype=np.int64)
    stream = np.full(burst, 3, np.int32)
    index = np.zeros(burst, np.int64)
    payload = chooser.draw(index + 1, seq)
    intended = seq * 1000
    size = chosen.sizes[payload]
    heads = encode_heads(
        chosen, nonce=nonce, stream=stream, seq=seq, intended=intended, payload=payload
    )
    return {
        "chooser.draw": lambda: chooser.draw(index, seq),
        "encode_heads": lambda: encode_heads(
            chosen, nonce=nonce, stream=stream, seq=seq, intended=intended, payload=payload
        ),
        "messages": lambda: whole_payloads(chosen, heads, payload),
        "decode_heads": lambda: decode_heads(heads, size, nonce),
    }


def table(title: str, weights: dict[str, int]) -> None:
    """Return one line per step and burst size."""
    chosen = pool(weights)
    for burst in (10, 100, 1000):
        for name, work in steps(chosen, burst).items():
            print(f"{title:8} burst {burst:5}  {name:14} {cost(work, burst):8.1f} ns/message")


if __name__ == "__main__":
    table("full", SMALL)
    table("compact", COMPACT)
