"""How the connections of a run came up before its load, where they were paced or are all that there is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """Of all workers together.

    :param alone: the run has connections and no messages. :param connections: that were opened; all of them came up.
    :param rate: asked, per second; None: as fast as they came. :param took: ns from the instant of the first until the last was up.
    :param busiest: the worker that used most of a core meanwhile. :param cpu: cores, how much that was.
    :param begun_late: ns, p99 of begun − intended, less the time in which the target left no room for one more; None without a rate.
    :param in_time: connections that came up while they were asked for, a span that is moved by the median latency; None without a rate.
    """

    alone: bool
    connections: int
    rate: float | None
    took: int
    busiest: str
    cpu: float
    begun_late: int | None
    in_time: int | None

    @property
    def achieved(self) -> float:
        """Connections per second. An even train of ``n`` lasts ``n / rate``, at whatever moment of its last interval the last one comes."""
        planned = 0.0 if self.rate is None else self.connections / self.rate
        return self.connections / max(self.took / 1e9, planned)
