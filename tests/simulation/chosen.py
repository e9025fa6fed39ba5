"""The share of inputs with an output, of a service that chooses them (docs/howto/test-a-service.md)."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from simulation.violation import Violation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from simulation.facts import Facts

ROUNDING: Final = 1e-9
BY_CHANCE: Final = 0.01
"""The probability from which on a choice explains that nothing came."""


def check_share(facts: Facts, finding: dict[str, Any]) -> Iterator[Violation]:
    """A share of a service that chooses is judged only where its interval decides (docs/howto/test-a-service.md)."""
    if not facts.acked or not facts.copies:
        return  # Where nothing was received, nothing is judged (docs/howto/read-a-verdict.md, No data).
    least, most = finding["minimum"], finding["maximum"]
    expected = set()
    intervals = []
    for subscription in range(facts.subscriptions):
        share = facts.answered_on(subscription) / len(facts.acked)
        low, high = wilson(share, len(facts.acked))
        intervals.append(f"{low:.6f} to {high:.6f}")
        if any(abs(one - two) < ROUNDING for one in (low, high) for two in (least, most)):
            return
        if least <= low and high <= most:
            expected.add("met")
        elif high < least or low > most:
            expected.add("missed")
        else:
            expected.add("no data")
    # Each subscription must have the share: one that has not decides, then one of which nobody knows.
    outcome = next(one for one in ("missed", "no data", "met") if one in expected)
    if finding["outcome"] != outcome:
        text = f"the shares are {', '.join(intervals)}, bound {least} to {most}: {outcome}"
        yield Violation("output share", f"{text}, and not {finding['outcome']}")


def check_silence(facts: Facts, shown: dict[str, Any]) -> Iterator[Violation]:
    """A topic or stream is silent only if the choice alone leaves none of them without an output (docs/decisions/061).

    That is left open around the probability of 1 %, and where not every message was acknowledged.
    """
    if facts.dropped != 0 or len(facts.acked) != facts.offered:
        return
    topics = facts.profile.get("topics", 1)
    due: Counter[tuple[str, int, int]] = Counter()
    for sent in facts.acked:
        due["streams", sent.stream, 0] += 1
        for subscription in range(facts.subscriptions):
            due["pairs", sent.stream % topics, subscription] += 1
    heard: set[tuple[str, int, int]] = set()
    for stream, _, subscription in facts.copies:
        heard |= {("streams", stream, 0), ("pairs", stream % topics, subscription)}
    none = 1 - facts.answered / max(len(facts.acked) * facts.subscriptions, 1)
    for kind in ("pairs", "streams"):
        chances = [
            len(due) * none**number
            for key, number in due.items()
            if key[0] == kind and key not in heard
        ]
        certain = sum(chance < BY_CHANCE / 2 for chance in chances)
        possible = sum(chance < BY_CHANCE * 2 for chance in chances)
        if not certain <= shown[kind] <= possible:
            text = f"{certain} to {possible} {kind} are silent, reported are {shown[kind]}"
            yield Violation("silent", text)


def wilson(share: float, trials: int) -> tuple[float, float]:
    """Return the shares that are at most 2.5758 standard deviations (99 %) away from an observed one: the roots of a square equation.

    (p − share)² = z² p (1 − p) / trials (Wilson 1927; docs/decisions/061).
    """
    square = statistics.NormalDist().inv_cdf(0.995) ** 2 / trials
    half, last = share + square / 2, share**2
    root = math.sqrt(half**2 - (1 + square) * last)
    return (half - root) / (1 + square), (half + root) / (1 + square)
