"""How a phase goes on one worker: what crosses to the controller while load runs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelyReport:
    """Of the messages intended in each of the last seconds, how many copies took no longer than each bound.

    :param first: the first second told, from the phase's start. :param counts: ``[bound][second - first]``.
    """

    first: int
    counts: tuple[tuple[int, ...], ...]

    def of(self, bound: int, second: int) -> int:
        """Of one second, which is not before the first."""
        counts = self.counts[bound]
        return counts[second - self.first] if second - self.first < len(counts) else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One worker's counts in the current phase; ``sending`` until all its messages are handed over or dropped.

    :param elapsed: when it was told, ns after the phase's start; what arrived up to
        :data:`~pytest_loadtest.engine.run.COLLECT` before is counted.
    :param repeats: how many of the received copies may be second ones, by the sequences that the same consumer got before.
    :param redelivered: how many of them the target says it may have delivered before, to whichever consumer. :param resent: how many
        answered messages the client had sent again after a lost connection.
    :param beyond_bounds: for each latency bound that the controller watches, how many copies took longer.
    :param prompt: where the profile has latencies that end a run.
    """

    phase: str
    elapsed: int
    sending: bool
    offered: int
    sent: int
    acked: int
    failed: int
    dropped: int
    received: int
    repeats: int
    in_flight: int
    send_delay_p99: int | None
    blocked: bool
    beyond_bounds: tuple[int, ...] = ()
    prompt: TimelyReport | None = None
    workload: str = ""
    redelivered: int = 0
    resent: int = 0

    @property
    def has_second_copies(self) -> bool:
        """Whether some of the received copies may be second ones, of messages that this or another worker has."""
        return bool(self.repeats or self.redelivered or self.resent)
