"""The load of a drawn world: how many messages of which sizes, from which streams to whom, and when."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from simulation.dice import dice, percent, significant, span
from simulation.world import MS, SECOND

if TYPE_CHECKING:
    from simulation.dice import Dice
    from simulation.draw import Features

MOST_DELIVERIES: Final = 3_000
"""Deliveries of one world, warm-up left out: a world must cost well below a second."""
MOST_BROADCAST: Final = 6_000
MANY: Final = 300
"""Messages of a calm world whose service chooses some: fewer leave its share open."""
FEWEST: Final = 5
"""Messages of a calm world, and of its windows and stages with objectives: an objective in which none is due has no data."""
MOST_CLIENTS: Final = 2_000
MOST_BYTES: Final = 8 * 1024**2
"""Bytes of all messages."""

HEAD: Final = 32
COMPACT_HEAD: Final = 16
CHECKSUM: Final = 4
MOST_RANGES: Final = 5
JSON: Final = "json:/reference"
CHOOSES: Final = 0.35
"""Share of the services with one output for an input that choose the inputs."""
TAPPED: Final = 0.4
"""Share of the services with a tap on their inputs."""
SMALLEST_JSON: Final = 100
"""Bytes of a body that has room for an envelope in JSON."""
UNDER_WAY: Final = 0.1
"""Seconds: what was sent in them is not backlog but under way (docs/reference/profile.md)."""


@dataclass(kw_only=True)
class Load:
    """One workload as it is drawn.

    :param keys: of the profile. :param duration: ns, of the measured phase, or of a step of a search. :param messages: due in it.
    :param stages: ``(duration, messages)`` of each. :param buckets: key of a size range → share of the messages.
    :param outputs: of a service, for each message. :param chosen: the share of the messages that have one. :param longest_delay: ns, of ``deliverAfter`` or ``deliverAt``. :param drain: ns, ``drainTimeout``.
    """

    keys: dict[str, Any] = field(default_factory=dict)
    duration: int = 0
    warmup: int = 0
    messages: int = 0
    size: float = 0.0
    topics: int = 1
    producers: int = 1
    subscriptions: int = 1
    consumers: int = 1
    outputs: int = 1
    chosen: float = 1.0
    stages: list[tuple[int, float]] = field(default_factory=list)
    buckets: dict[str, float] = field(default_factory=dict)
    longest_delay: int = 0
    drain: int = 30 * SECOND

    @property
    def rate(self) -> float:
        """Messages per second, on average."""
        return self.messages * SECOND / self.duration

    @property
    def deliveries(self) -> int:
        return self.messages * self.subscriptions * self.outputs

    @property
    def copies(self) -> int:
        """Deliveries of a message, at least 1."""
        return max(self.subscriptions, 1) * self.outputs

    @property
    def highest(self) -> float:
        """Messages per second, in the last step that a search may have."""
        limit = self.keys.get("search", {}).get("max", self.rate)
        return float(limit)

    @property
    def pauses(self) -> bool:
        """True if nothing is due in one of its stages."""
        return any(not messages for _, messages in self.stages)


def draw_load(
    seed: int, name: str, features: Features, latency: float, slowest: float | None = None
) -> Load:
    """Draw a workload.

    :param name: distinguishes the workloads of a world. :param latency: seconds that a message usually takes. :param slowest: seconds that a message takes in a calm world; None in others.
    """
    load = Load()
    _clients(load, features, dice(seed, name, "clients"))
    if "route" in features:
        _route(load, name, features, dice(seed, name, "route"))
    _amount(load, features, dice(seed, name, "amount"))
    if slowest is not None:
        # Of two messages, one may come before the time in which a throughput counts, and one after it.
        load.messages = max(load.messages, FEWEST)
    _sizes(load, features, dice(seed, name, "sizes"))
    _rate(load, features, dice(seed, name, "rate"))
    _window(load, features, dice(seed, name, "window"), slowest)
    if {"connects", "connect-rate"} <= set(features):
        load.keys["driver"]["connectRate"] = _connect_rate(
            load, latency, dice(seed, name, "rate of connections")
        )
    if "stages" in features:
        _stages(load, features, dice(seed, name, "stages"))
    if "delays" in features:
        _delays(load, dice(seed, name, "delays"))
    if "skew" in features:
        _skew(load, features, dice(seed, name, "skew"))
    if "route" in features:
        _choose(load, features, dice(seed, name, "chosen"), calm=slowest is not None)
    return load


# Clients.


def _clients(load: Load, features: Features, die: Dice) -> None:
    streams = die.weighted({1: 0.25, die.whole(2, 8): 0.5, die.whole(9, 64): 0.25})
    if "many-streams" in features:
        streams = die.weighted({die.whole(100, 4_999): 0.5, die.whole(5_000, 20_000): 0.5})
    load.topics = die.whole(1, streams)
    load.producers = max(streams // load.topics, 1)
    if "producer-only" in features:
        load.subscriptions = 0
    elif "broadcast" in features:
        load.subscriptions = 64
        load.topics = die.whole(1, 4)
    elif "many-subscriptions" in features:
        load.subscriptions = die.whole(2, 63)
    if "consumers" in features:
        load.consumers = die.randint(2, 6)
    _limit_clients(load)

    if load.topics > 1 or die.chance(0.1):
        load.keys["topics"] = load.topics
    if load.producers > 1 or die.chance(0.1):
        load.keys["producersPerTopic"] = load.producers
    if load.subscriptions != 1 or die.chance(0.1):
        load.keys["subscriptionsPerTopic"] = load.subscriptions
    if load.consumers > 1:
        load.keys["consumerPerSubscription"] = load.consumers
    if "partitions" in features:
        load.keys["partitionsPerTopic"] = die.whole(2, 16)
    if "keys" in features:
        load.keys["keyDistributor"] = die.choice(["KEY_ROUND_ROBIN", "RANDOM_NANO"])


def _limit_clients(load: Load) -> None:
    """Move streams from topics to producers until the consumers are few."""
    each = max(load.subscriptions * load.consumers, 1)
    most = max(MOST_CLIENTS // each, 1)
    if load.topics > most:
        load.producers *= load.topics // most
        load.topics = most


def _route(load: Load, name: str, features: Features, die: Dice) -> None:
    """Draw a service between the topics of producers and those of consumers."""
    topics = name.replace(" ", "-")
    route: dict[str, Any] = {"input": f"{topics}/in/{{topic}}", "output": f"{topics}/out/{{topic}}"}
    places = ["body", "body", "properties", "correlationData"]
    if not {"sizes", "skew"} & set(features):
        places.append(JSON)
    place = die.choice(places)
    if place != "body":
        route["envelope"] = place
    load.outputs = die.weighted({1: 0.5, 2: 0.25, 3: 0.1, die.whole(4, 16): 0.15})
    if load.outputs > 1:
        route["outputs"] = load.outputs
    if die.chance(0.3):
        names = [f"{topics}/{kind}/{{topic}}" for kind in ("out", "late", "other")]
        route["output"] = names[: die.randint(2, 3)]
    if die.chance(TAPPED):
        route["tap"] = True
    load.keys["route"] = route


def _choose(load: Load, features: Features, die: Dice, *, calm: bool) -> None:
    """Let a service choose the inputs that have an output: in a calm world so many of so many messages that its share is certain."""
    parts = {"windows", "drift", "stages", "buckets", "many-streams"}
    is_sparse = load.messages < MANY or bool(parts & set(features))
    impossible = load.outputs > 1 or "search" in features or (calm and is_sparse)
    if impossible or not die.chance(CHOOSES):
        return
    load.chosen = die.uniform(0.3, 0.95) if calm else die.uniform(0.02, 0.98)
    spread = math.sqrt(load.chosen * (1 - load.chosen) / load.messages)
    within = spread * die.between(2, 40)
    if calm:
        within = 10 * spread + 0.05
    load.keys["route"]["outputs"] = {
        "share": percent(load.chosen),
        "within": percent(min(max(within, 0.001), 0.99)),
    }


# How much, and how long.


def _amount(load: Load, features: Features, die: Dice) -> None:
    # A few hundred messages find what thousands do. Percentiles need more: 1 000 for p99, 10 000 for p99.9.
    load.messages = die.weighted(
        {
            die.whole(1, 9): 0.05,
            die.whole(10, 99): 0.2,
            die.whole(100, 400): 0.5,
            die.whole(400, 1_000): 0.12,
            die.whole(1_000, 1_600): 0.12,
            # Messages that wait for a window are offered again and again, which takes ten times as long.
            die.whole(10_000, 11_000): 0 if "small-window" in features else 0.013,
        }
    )
    copies = load.copies
    most = MOST_BROADCAST if "broadcast" in features else MOST_DELIVERIES
    if load.messages * copies > max(most, load.messages):
        load.messages = max(most // copies, 1)
    if "many-streams" in features:
        # A stream without a message is as possible as one with several.
        load.messages = die.whole(200, 2_000)

    # A worker costs CPU time for each virtual second, because its loop looks at connections every 2 ms.
    longest = die.weighted({6: 0.9, 20: 0.1})
    if {"many-workers", "many-streams"} & set(features):
        longest = 3
    seconds = die.between(0.5, longest)
    if {"drift", "long"} & set(features):
        seconds = die.between(10, 12)
    load.duration = round(seconds * 10) * 100 * MS
    if "windows" in features or die.chance(0.5):
        load.duration = max(round(seconds), 1) * SECOND
    if "warm-up" in features:
        load.warmup = round(die.between(0.1, 2) * 10) * 100 * MS
        load.keys["warmupDuration"] = span(load.warmup)
    if die.chance(0.9):
        load.drain = round(die.between(0.2, 6) * 10) * 100 * MS
        load.keys["drainTimeout"] = span(load.drain)


def _sizes(load: Load, features: Features, die: Dice) -> None:
    tail = CHECKSUM if "checksum" in features else 0
    compact = die.chance(0.3) and not {"bytes", "skew"} & set(features)
    least = (COMPACT_HEAD if compact else HEAD) + tail
    most = max(MOST_BYTES // load.messages, 4 * least)
    if tail:
        load.keys["checksum"] = True
    if die.chance(0.3):
        load.keys["useRandomizedPayloads"] = True
        load.keys["randomBytesRatio"] = die.choice([0.1, 0.5, 1.0])
    if "sizes" in features:
        _distribution(load, die, least, most)
        return
    size = die.weighted(
        {least: 0.15, least + 1: 0.1, HEAD + tail: 0.15, die.whole(least, 2_000): 0.6}
    )
    size = min(max(size, least), most)
    if HEAD <= size < HEAD + tail:
        size = HEAD + tail
    if load.keys.get("route", {}).get("envelope") == JSON:
        size = max(size, SMALLEST_JSON)
    if die.chance(0.05):
        size = min(64 * 1024, most)
    load.size = size
    load.keys["messageSize"] = size


def _distribution(load: Load, die: Dice, least: int, most: int) -> None:
    """Draw ranges that meet; the first begins where a head has room."""
    bounds = [max(least, HEAD + CHECKSUM)]
    for _ in range(die.randint(1, MOST_RANGES)):
        bounds.append(bounds[-1] + die.whole(1, max(min(bounds[-1] * 3, most - bounds[-1]), 1)))
    weights = [die.whole(1, 100) for _ in bounds[1:]]
    ranges = {
        f"{low}-{high}": weight
        for low, high, weight in zip(bounds, bounds[1:], weights, strict=False)
    }
    load.keys["messageSizeDistribution"] = ranges
    total = sum(weights)
    load.buckets = {name: weight / total for name, weight in ranges.items()}
    middles = [(low + high) / 2 for low, high in pairwise(bounds)]
    load.size = (
        sum(middle * weight for middle, weight in zip(middles, weights, strict=True)) / total
    )
    if die.chance(0.2):
        load.keys["payloadsPerBucket"] = die.whole(2, 8)


def _rate(load: Load, features: Features, die: Dice) -> None:
    if "search" in features:
        _search(load, features, die)
        return
    if "message-count" in features:
        _count(load, die)
        return
    if "backlog" in features:
        _backlog(load, die)
        return
    rate = max(significant(load.rate), 0.01)
    load.keys["testDuration"] = span(load.duration)
    if "bytes" in features:
        load.keys["producerRate"] = f"{max(round(rate * load.size), 1)}B/s"
    else:
        load.keys["producerRate"] = rate


def _count(load: Load, die: Dice) -> None:
    load.messages = die.weighted(
        {
            1: 0.2,
            2: 0.1,
            99: 0.05,
            100: 0.05,
            1_000: 0.1,
            1_024: 0.1,
            1_025: 0.1,
            load.messages: 0.3,
        }
    )
    copies = load.copies
    load.messages = max(min(load.messages, MOST_DELIVERIES // copies), 1)
    rate = max(significant(load.rate), 0.05)
    load.duration = math.ceil(load.messages * SECOND / rate)
    load.keys["messages"] = load.messages
    load.keys["producerRate"] = rate


def _backlog(load: Load, die: Dice) -> None:
    """Draw a backlog of some seconds of the load."""
    rate = float(die.whole(50, 400))
    load.duration = max(load.duration, 2 * SECOND)
    load.messages = round(rate * load.duration / SECOND)
    under_way = rate * UNDER_WAY * load.subscriptions * max(load.size, HEAD)
    load.keys["testDuration"] = span(load.duration)
    load.keys["producerRate"] = rate
    load.keys["consumerBacklogSizeGB"] = significant(die.between(3, 20) * under_way / 1024**3, 4)
    load.keys["backlogDrainRatio"] = die.choice([1.0, 0.9, 0.5])
    load.keys["backlogDrainTimeout"] = span(die.choice([2, 3, 8]) * SECOND)


def _search(load: Load, features: Features, die: Dice) -> None:
    """Draw a short search: its steps together send about as much as another world."""
    copies = load.copies
    most = max(MOST_DELIVERIES / copies / 8, 10)
    hold = die.choice([500, 1_000, 2_000]) * MS
    confirm = hold * die.choice([1, 2])
    precision = die.choice(["10%", "20%", "50%"])
    if "long-steps" in features:
        # Workers follow a change after two seconds: shorter steps never end early. Few steps, because each costs CPU time.
        hold = confirm = 6 * SECOND
        precision = "50%"
        most *= 2
    top = max(significant(most * SECOND / hold), 2.0)
    start = max(significant(top / die.between(2, 16)), 1.0)
    unit = ""
    if "bytes" in features:
        start, top = round(start * load.size), round(top * load.size)
        unit = "B/s"
    search: dict[str, Any] = {
        "start": f"{start}{unit}" if unit else start,
        "max": f"{top}{unit}" if unit else top,
        "hold": span(hold),
        "confirm": span(confirm),
        "warmup": span(die.choice([100, 500]) * MS),
        "precision": precision,
        "repeats": die.choice([1, 2]),
    }
    load.keys["producerRate"] = 0
    load.keys["search"] = search
    load.duration = hold
    load.warmup = 0
    load.messages = max(round(start / (load.size if unit else 1) * hold / SECOND), 1)


def _connect_rate(load: Load, latency: float, die: Dice) -> float:
    """Draw the rate of connections, half of the time so that all are due within a few of their latencies: then some come up too late."""
    clients = load.topics * (load.producers + load.subscriptions * load.consumers)
    return significant(clients / die.choice([die.between(0.02, 1), latency * die.between(0.3, 4)]))


def _window(load: Load, features: Features, die: Dice, slowest: float | None) -> None:
    """Draw the messages that a stream may have in flight. :param slowest: seconds of a message that must never wait; None: it may."""
    driver: dict[str, Any] = {}
    if "small-window" in features:
        # A window that a fault of 20 ms to 1 s fills.
        filling = round(load.rate / (load.topics * load.producers) * die.between(0.02, 1))
        window = die.weighted({1: 0.2, die.whole(2, 50): 0.4, max(filling, 1): 0.4})
        fails = die.chance(0.2)
        if slowest is not None:
            # Rates of stages are up to four times the mean; all messages of a stream may be due at once.
            window = max(window, 20 + math.ceil(40 * load.rate * slowest))
        driver["maxPendingMessages"] = window
        if fails and slowest is None:
            driver["blockIfQueueFull"] = False
    if "unacknowledged" in features:
        driver["acknowledged"] = False
    if "connects" in features:
        driver["connects"] = True
    if driver:
        load.keys["driver"] = driver
    if "short-send-delay" in features:
        load.keys["maxSendDelay"] = span(round(die.between(0.02, 2), 2) * SECOND)


# Changes while load runs.


def _stages(load: Load, features: Features, die: Dice) -> None:
    parts = die.randint(1, 4)
    shares = [die.uniform(0.5, 2) for _ in range(parts)]
    whole_seconds = "windows" in features
    stages: list[dict[str, Any]] = []
    for number, share in enumerate(shares):
        length = load.duration * share / sum(shares)
        step = SECOND if whole_seconds else 100 * MS
        duration = max(round(length / step), 1) * step
        stage: dict[str, Any] = {"name": f"part {number}", "duration": span(duration)}
        rate, mean = _stage_rate(load, features, die, duration)
        if rate is not None:
            stage["rate"] = rate
        attached = die.randint(1, load.consumers)
        if "consumer-changes" in features and "consumers" in features and die.chance(0.5):
            stage["consumerPerSubscription"] = attached
        stages.append(stage)
        load.stages.append((duration, mean * duration / SECOND))
    if load.pauses and not any(messages for _, messages in load.stages):
        stages[0].pop("rate", None)
        load.stages[0] = (load.stages[0][0], load.rate * load.stages[0][0] / SECOND)
    load.keys.pop("testDuration", None)
    load.keys["stages"] = stages
    load.duration = sum(duration for duration, _ in load.stages)
    load.messages = max(round(sum(messages for _, messages in load.stages)), 1)


def _stage_rate(load: Load, features: Features, die: Dice, duration: int) -> tuple[Any, float]:
    """Return a rate as the profile has it, and its mean in messages per second."""
    unit = load.size if "bytes" in features else 1.0

    def written(rate: float) -> Any:
        return f"{max(round(rate * unit), 1)}B/s" if "bytes" in features else significant(rate)

    rate = load.rate * die.between(0.4, 1.6)
    kind = die.weighted(
        {"default": 2, "constant": 3, "ramp": 2, "sine": 1, "spike": 2, "replay": 2, "pause": 1}
    )
    if kind == "pause" and not {"windows", "drift"} & set(features):
        return 0, 0.0
    third = span(duration // 3 // MS * MS)
    shapes: dict[str, Any] = {
        "constant": written(rate),
        "ramp": {"from": written(rate / 2), "to": written(rate * 1.5)},
        "sine": {
            "sine": {
                "mean": written(rate),
                "amplitude": written(rate * 0.5),
                "period": span(max(duration // 2, 200 * MS)),
            }
        },
        "spike": {
            "spike": {
                "base": written(rate / 2),
                "peak": written(rate * 2),
                "at": third,
                "for": third,
            }
        },
    }
    levels = [rate * die.between(0.5, 1.5) for _ in range(die.randint(1, 4))]
    if kind == "replay":
        return {"replay": [written(level) for level in levels]}, sum(levels) / len(levels)
    return (shapes[kind], rate) if kind in shapes else (None, load.rate)


def _delays(load: Load, die: Dice) -> None:
    """Draw delays of deliveries; the drain must be longer than the longest one, or what is delayed is lost."""
    kind = die.weighted({"one": 0.4, "range": 0.4, "at": 0.2})
    longest = die.whole(1, 4_000) * MS
    if kind == "one":
        load.keys["deliverAfter"] = span(longest)
    elif kind == "range":
        shortest = min(die.choice([0, die.whole(1, 4_000) * MS]), longest)
        load.keys["deliverAfter"] = {
            "min": span(shortest) if shortest else "0s",
            "max": span(longest),
        }
    else:
        longest = max(round(load.duration * die.uniform(0.2, 1.2)) // MS, 1) * MS
        load.keys["deliverAt"] = span(longest)
    load.longest_delay = longest
    if "drainTimeout" in load.keys:
        load.drain = longest + 2 * SECOND
        load.keys["drainTimeout"] = span(load.drain)


def _skew(load: Load, features: Features, die: Dice) -> None:
    if not 1 < load.topics <= 20:
        return
    section: dict[str, Any] = {}
    kind = die.weighted({"weights": 1, "zipf": 1, "swing": 2, "sizes": 1})
    if kind in ("weights", "sizes"):
        section["weights"] = [die.whole(1, 20) for _ in range(load.topics)]
    else:
        section["zipf"] = significant(die.uniform(0.3, 2), 2)
    free = not {"stages", "search", "bytes"} & set(features)
    if kind == "swing" and free and load.rate * load.duration / SECOND < 100_000:
        section["swing"] = span(max(load.duration // die.randint(2, 5) // MS, 100) * MS)
    if kind == "sizes" and not load.buckets and "bytes" not in features:
        least = HEAD + CHECKSUM
        section["messageSizes"] = [die.whole(least, 1_000) for _ in range(load.topics)]
        load.keys.pop("messageSize", None)
    load.keys["skew"] = section
