"""The objectives of a drawn world: every metric and statistic, loose and tight, with tolerances."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from simulation.dice import dice, percent, significant, span
from simulation.draw_load import FEWEST
from simulation.world import MS, SECOND

if TYPE_CHECKING:
    from collections.abc import Sequence

    from simulation.dice import Dice
    from simulation.draw import Features
    from simulation.draw_load import Load

STATISTICS: Final[dict[str, int]] = {
    "max": 1, "mean": 1, "min": 1, "p1": 11, "p50": 20, "p75": 40, "p90": 100, "p95": 200, "p99": 1_000, "p99.5": 2_000, "p99.9": 10_000,
}  # fmt: skip
"""Statistic → samples that it needs: ten beyond the percentile."""

RISING: Final = ("p50", "p75", "p90", "p95")
"""Percentiles that the steps of a search have samples for."""

LATENCIES: Final[dict[str, float]] = {
    "endToEndLatency": 5, "publishLatency": 3, "sendDelay": 1.5, "receiveLag": 0.7, "broadcastCompletion": 4, "broadcastSpread": 4,
    "lateness": 3, "earliness": 2, "deliveryGap": 1, "connectLatency": 8,
}  # fmt: skip
"""Metric → its weight where it applies."""

COUNTS: Final[dict[str, float]] = {
    "loss": 3, "duplicates": 2, "outOfOrder": 1.5, "failed": 2, "corrupt": 1.5, "dropped": 2, "foreign": 1, "silent": 1,
}  # fmt: skip
SHARES: Final[dict[str, float]] = {"throughput": 3, "sent": 2, "connectRate": 6}

COUNTED_BY: Final[dict[str, str]] = {
    "lose-acknowledged": "loss", "lose-copy": "loss", "forget": "loss", "reject": "failed", "lose-unanswered": "failed", "cut-lose": "failed",
    "double": "duplicates", "redeliver": "duplicates", "cut-resend": "duplicates", "restart": "duplicates", "corrupt-body": "corrupt",
    "corrupt-head": "corrupt", "foreign": "foreign", "misrouted": "foreign", "service-lose": "loss", "service-death": "loss",
    "service-double": "duplicates",
}  # fmt: skip
"""Kind of fault → the metric that counts what it does."""

WINDOWED: Final = (
    "endToEndLatency", "publishLatency", "sendDelay", "receiveLag", "broadcastCompletion", "broadcastSpread", "lateness", "earliness",
    "throughput",
)  # fmt: skip
DRIFTING: Final = ("endToEndLatency", "publishLatency", "sendDelay", "throughput")
WHOLE_RUN_ONLY: Final = ("foreign", "connectLatency", "connectRate")
"""Metrics that no stage can bound."""

FEW: Final = 100
"""Messages of which one is more than the implicit bound on throughput allows to be late."""
TOO_FINE: Final = 0.04
"""Share of latencies with a percentile that has too few samples: *no data*."""


@dataclass(frozen=True, kw_only=True)
class Scales:
    """Sizes that objectives are drawn around.

    :param latency: ns of a message without faults. :param faults: ns by which the world's faults delay something.
    :param counts: metrics that count what the world's faults do. :param calm: every objective must be met: only loose ones.
        :param paused: bounds on a maximum, ns, that only a short stop of a worker breaks; None: nothing does.
    """

    latency: float
    faults: tuple[int, ...]
    calm: bool
    counts: tuple[str, ...] = ()
    paused: tuple[float, float] | None = None


class Author:
    """Writes the ``slo`` sections of one workload."""

    def __init__(
        self, seed: int, name: str, load: Load, features: Features, scales: Scales
    ) -> None:
        self._load = load
        self._features = features
        self._scales = scales
        self._die: Dice = dice(seed, name, "objectives")

    def write(self) -> None:
        """Add ``slo`` to the keys of the workload, to some of its stages, ``abort`` and ``generator``."""
        load = self._load
        slo = self._section(load.messages, load.duration)
        if "delays" in self._features and "hosts" in self._features and self._often():
            # Without a bound, no message may come early at all, which the clocks of other hosts can never show.
            slo["earliness"] = {"max": self._earliness()}
        if self._scales.calm and "connectRate" in load.keys.get("driver", {}):
            # Of few connections the last one is a large share.
            slo["connectRate"] = percent(0.2)
        if "search" in self._features and self._often():
            self._rise(slo)
        if "tolerances" in self._features or self._hides_a_stop():
            self._tolerate(slo)
        if self._scales.calm and load.messages < FEW and "throughput" in self._metrics():
            # Of few messages the last one, still under way at the end, is a large share.
            slo["throughput"] = percent(0.2)
        if "buckets" in self._features and load.buckets:
            self._buckets(slo)
        if "windows" in self._features:
            self._windows(slo)
        if "drift" in self._features:
            self._drift(slo)
        if slo:
            load.keys["slo"] = slo
        if "stage-objectives" in self._features:
            self._stages()
        if "abort" in self._features:
            self._abort()

    def _stages(self) -> None:
        """Bound some of the stages."""
        fewest = FEWEST if self._scales.calm else 0
        stages = zip(self._load.keys.get("stages", ()), self._load.stages, strict=False)
        for stage, (duration, messages) in stages:
            if messages <= fewest or not self._die.chance(0.5):
                continue
            section = self._section(messages, duration, whole_run=False)
            if section:
                stage["slo"] = section

    def _rise(self, slo: dict[str, Any]) -> None:
        """Bound a percentile that rises with the load, which is what a search is about."""
        samples = self._samples("endToEndLatency", self._load.messages)
        fit = [name for name in RISING if STATISTICS[name] <= samples * 0.7]
        if fit and "endToEndLatency" in self._metrics():
            bound = span(self._scale("endToEndLatency", self._load.duration))
            slo.setdefault("endToEndLatency", {})[self._die.choice(fit)] = bound

    def _hides_a_stop(self) -> bool:
        """Return whether to allow what is missing in a world in which a worker stops for a moment."""
        scales = self._scales
        return scales.paused is not None and bool(scales.counts) and self._die.chance(0.8)

    def _often(self) -> bool:
        return self._scales.calm or self._die.chance(0.7)

    # --- a section

    def _section(self, messages: float, duration: int, *, whole_run: bool = True) -> dict[str, Any]:
        slo: dict[str, Any] = {}
        for metric in self._chosen(self._metrics()):
            if not whole_run and (
                metric in WHOLE_RUN_ONLY
                or (metric == "corrupt" and "checksum" not in self._features)
            ):
                continue
            slo[metric] = self._bound(metric, messages, duration)
        return slo

    def _metrics(self) -> dict[str, float]:
        """Return the metrics that the workload can have, with their weights."""
        load, features = self._load, self._features
        candidates = {**LATENCIES, **COUNTS, **SHARES}
        absent: list[str] = []
        if "producer-only" in features:
            absent += [
                "endToEndLatency", "receiveLag", "deliveryGap", "loss", "duplicates", "outOfOrder", "corrupt", "foreign", "throughput",
            ]  # fmt: skip
        if "broadcast" not in features:
            absent += ["broadcastCompletion", "broadcastSpread"]
        if "connects" not in features:
            absent.append("connectLatency")
        if "connects" not in features or "connect-rate" not in features:
            absent.append("connectRate")
        if "delays" not in features:
            absent += ["lateness", "earliness"]
        if "delays" in features:
            absent.append("outOfOrder")
        if "unacknowledged" in features:
            absent.append("publishLatency")
            if "producer-only" in features:
                absent.append("silent")
        if load.pauses:
            absent.append("deliveryGap")
        if load.chosen < 1:
            # A lost output cannot be told from one that was not chosen.
            absent += ["loss", "throughput"]
        if "backlog" in features:
            candidates["backlogDrain"] = 30
        return {metric: weight for metric, weight in candidates.items() if metric not in absent}

    def _chosen(self, candidates: dict[str, float]) -> list[str]:
        """Return some metrics, each once, in the order of the table."""
        number = self._die.weighted({0: 0.08, 1: 0.2, 2: 0.25, 3: 0.2, 4: 0.12, 6: 0.1, 20: 0.05})
        keyed = [
            (self._die.random() ** (1 / weight), metric) for metric, weight in candidates.items()
        ]
        first = sorted(keyed, reverse=True)[:number]
        chosen = [metric for _, metric in first]
        return [metric for metric in candidates if metric in chosen]

    def _bound(self, metric: str, messages: float, duration: int) -> Any:
        if metric in LATENCIES:
            return self._latency(metric, self._samples(metric, messages), duration)
        if metric in COUNTS:
            return self._count(metric, messages)
        if metric == "backlogDrain":
            return self._load.keys["backlogDrainTimeout"]
        if metric == "throughput":
            return self._throughput()
        return percent(
            0.5 if self._scales.calm else self._die.choice([0.99, 0.999, 1, 0.95, 0.9, 0.5])
        )

    def _samples(self, metric: str, messages: float) -> float:
        load = self._load
        if metric == "deliveryGap":
            return load.topics * load.subscriptions
        if metric == "connectLatency":
            return load.topics * (load.producers + load.subscriptions)
        if metric in ("publishLatency", "sendDelay", "broadcastCompletion", "broadcastSpread"):
            return messages
        return messages * load.subscriptions * load.outputs * load.chosen

    # --- latencies

    def _latency(self, metric: str, samples: float, duration: int) -> dict[str, Any]:
        possible = [name for name, needed in STATISTICS.items() if needed <= samples * 0.7]
        if not self._scales.calm and self._die.chance(TOO_FINE):
            possible = list(STATISTICS)
        section: dict[str, Any] = {}
        for statistic in self._die.some(possible or ["max"], 3):
            section[statistic] = self._latency_bound(metric, statistic, duration)
        return section

    def _latency_bound(self, metric: str, statistic: str, duration: int) -> Any:
        if metric == "earliness":
            return self._earliness() if statistic == "max" else {"max": "1ms"}
        longest = self._scale(metric, duration)
        upper = span(longest)
        if statistic == "min" or (not self._scales.calm and self._die.chance(0.08)):
            lower = (
                1_000 if self._scales.calm else min(longest, self._die.between(1_000, 1_000_000))
            )
            has_lower = self._die.chance(0.3)
            # The error of clocks between hosts reaches a lower bound of a microsecond.
            is_open = self._scales.calm and "hosts" in self._features
            if has_lower and not is_open and metric not in ("lateness", "sendDelay", "receiveLag"):
                return {"min": span(lower), "max": upper}
            return {"max": upper}
        return upper

    def _earliness(self) -> str:
        if self._scales.calm:
            return "100ms"
        return self._die.choice(["0s", "1ms", "50ms", "1s"])

    def _scale(self, metric: str, duration: int) -> float:
        """Return a bound in ns around what the metric is without faults, or around what a fault adds."""
        die, scales = self._die, self._scales
        usual = scales.latency
        if metric == "endToEndLatency" or metric.startswith("broadcast"):
            usual += self._load.longest_delay
        if metric == "deliveryGap":
            usual = (
                duration / max(self._load.messages, 1) * self._load.topics * self._load.producers
            )
        if metric == "sendDelay":
            usual = MS
        if scales.calm:
            loosest = usual * die.between(30, 1_000) + 50 * MS
            if "backlog" in self._features:
                # Consumers are stopped while it builds up.
                loosest += 60 * SECOND
            return loosest + 2 * duration if metric == "deliveryGap" else loosest
        kind = die.weighted({"tight": 0.25, "fault": 0.45 if scales.faults else 0, "loose": 0.3})
        if kind == "tight":
            return usual * die.between(0.7, 5)
        if kind == "fault":
            return usual + die.choice(scales.faults) * die.between(0.3, 3)
        return usual * die.between(20, 1_000) + SECOND

    # --- counts and rates

    def _count(self, metric: str, messages: float) -> Any:
        die = self._die
        kind = die.weighted({"none": 0.4, "number": 0.3, "share": 0.3})
        if kind == "none":
            return 0
        if kind == "number":
            return die.whole(1, max(int(messages / 3), 2))
        return percent(die.between(0.0005, 0.5))

    def _throughput(self) -> str:
        if self._scales.calm:
            return percent(0.5)
        if self._die.chance(0.3):
            return f"{significant(self._load.rate * max(self._load.subscriptions, 1) * self._die.between(0.3, 1.02))}/s"
        return percent(self._die.choice([0.99, 0.97, 0.95, 0.9, 0.75, 0.5, 0.2]))

    def _tolerate(self, slo: dict[str, Any]) -> None:
        """Allow some of what the implicit objectives forbid, and often what the world's faults do."""
        load = self._load
        counts = [metric for metric in self._metrics() if metric in COUNTS]
        for metric in self._die.some(counts, 5):
            if metric != "outOfOrder":
                slo[metric] = percent(self._die.between(0.01, 0.9))
        does_allow = bool(self._scales.counts) and self._die.chance(0.7)
        if does_allow:
            for metric in self._scales.counts:
                if metric in counts:
                    slo[metric] = percent(self._die.uniform(0.3, 0.95))
            if "endToEndLatency" in self._metrics():
                # The maximum is that of what came, if what is missing is allowed.
                latency = slo.setdefault("endToEndLatency", {})
                latency.setdefault(
                    "max", self._latency_bound("endToEndLatency", "max", load.duration)
                )
                if self._scales.paused is not None:
                    latency["max"] = span(self._die.between(*self._scales.paused))
        if "throughput" in self._metrics() and (does_allow or self._die.chance(0.7)):
            slo["throughput"] = percent(self._die.choice([0.1, 0.5, 0.8]))
        if self._die.chance(0.5):
            slo["sent"] = percent(self._die.choice([0.1, 0.5, 0.8]))

    # --- parts of a section

    def _buckets(self, slo: dict[str, Any]) -> None:
        sections: dict[str, Any] = {}
        for name in self._die.some(list(self._load.buckets), 2):
            messages = self._load.messages * self._load.buckets[name]
            candidates = {
                metric: weight
                for metric, weight in self._metrics().items()
                if metric in ("endToEndLatency", "publishLatency", "loss")
            }
            section = {
                metric: self._bound(metric, messages, self._load.duration)
                for metric in self._chosen(candidates)
            }
            if section:
                sections[name] = section
        if sections and not self._calm_and_sparse():
            slo["buckets"] = sections

    def _calm_and_sparse(self) -> bool:
        return self._scales.calm and self._load.messages < 500

    def _windows(self, slo: dict[str, Any]) -> None:
        """Draw windows; each has a share of the samples, so statistics that need more are left out."""
        load, die = self._load, self._die
        seconds = load.duration // SECOND
        shortest = min(stage for stage, _ in load.stages) if load.stages else load.duration
        if not seconds or shortest < SECOND or "buckets" in slo:
            return
        width = die.randint(1, min(seconds, 10))
        messages = load.messages * width / seconds
        if self._scales.calm and messages < FEWEST:
            return
        for metric in [metric for metric in slo if metric in WINDOWED and metric != "earliness"]:
            slo[metric] = self._bound(metric, messages, width * SECOND)
        if not any(metric in WINDOWED for metric in slo):
            metric = "sendDelay" if "producer-only" in self._features else "endToEndLatency"
            slo[metric] = self._bound(metric, messages, width * SECOND)
        slo["window"] = f"{width}s"
        if die.chance(0.4):
            slo["violations"] = percent(die.choice([0.05, 0.2, 0.5]))
        whole: dict[str, Any] = {}
        if die.chance(0.4) and "producer-only" not in self._features:
            whole["endToEndLatency"] = self._bound("endToEndLatency", load.messages, load.duration)
        if "violations" in slo and "earliness" in slo:
            # Where some windows may miss it, no message of the whole run may be early.
            whole["earliness"] = {"max": self._earliness()}
        is_sparse = self._scales.calm and load.messages < FEW
        if "violations" in slo and is_sparse and "throughput" in self._metrics():
            whole["throughput"] = percent(0.2)
        if whole:
            slo["whole"] = whole

    def _drift(self, slo: dict[str, Any]) -> None:
        load, die = self._load, self._die
        if load.duration < 10 * SECOND or load.pauses:
            return
        if self._scales.calm and load.messages < 10 * FEW:
            # Without a message in the first or last tenth there is no drift.
            return
        metrics = [metric for metric in DRIFTING if metric in self._metrics()]
        if self._scales.calm and len(metrics) > 1:
            # A send delay of 0 in the first tenth has no share.
            metrics.remove("sendDelay")
        section: dict[str, str] = {}
        for metric in die.some(metrics, 2):
            if metric == "throughput":
                section[metric] = percent(
                    0.9 if self._scales.calm else die.choice([0.02, 0.2, 0.5])
                )
                continue
            samples = self._samples(metric, load.messages / 10)
            possible = [
                name
                for name, needed in STATISTICS.items()
                if needed <= samples * 0.5 and name not in ("max", "min")
            ]
            statistic = die.choice(possible or ["mean"])
            section[f"{metric}.{statistic}"] = (
                "5000%" if self._scales.calm else percent(die.between(0.05, 10))
            )
        slo["drift"] = section

    def _abort(self) -> None:
        load, die = self._load, self._die
        section: dict[str, Any] = {}
        latency_possible = not {"bytes", "producer-only"} & set(self._features)
        latency_possible = latency_possible and load.chosen == 1
        if latency_possible and die.chance(0.7):
            statistic = die.choice(["p50", "p90", "p99"])
            section[f"endToEndLatency.{statistic}"] = span(
                self._scale("endToEndLatency", load.duration)
            )
            section["for"] = f"{die.randint(1, 4)}s"
        for metric in ("failed", "dropped"):
            if die.chance(0.4):
                section[metric] = self._count(metric, load.messages)
        if section:
            load.keys["abort"] = section


def generator_limits(die: Dice, scales: Scales) -> dict[str, Any]:
    """Draw limits of the generator; in a calm world only loose ones."""
    limits: dict[str, Any] = {}
    smallest = 100 * MS if scales.calm else MS
    if die.chance(0.7):
        limits["sendDelayP99"] = span(die.between(smallest, SECOND))
    if die.chance(0.5):
        limits["receiveLagP99"] = span(die.between(smallest, SECOND))
    if die.chance(0.4):
        limits["stalled"] = significant(die.between(0.1 if scales.calm else 0.005, 0.8), 2)
    return limits


def widest_fault(delays: Sequence[int]) -> tuple[int, ...]:
    """Return the delays that an objective can be drawn around: at least 1 µs."""
    return tuple(delay for delay in delays if delay >= 1_000)
