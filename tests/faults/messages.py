"""Faults of messages: the relay loses, doubles, swaps, damages or delays them."""

from __future__ import annotations

from .fault import MISSED, NO_DATA, Fault


def relay(slo: dict[str, object] | None = None, **settings: object) -> dict[str, object]:
    """Return the profile's keys for a relay with these faults."""
    bounds: dict[str, object] = {
        "throughput": "1%",
        "sent": "1%",
        "loss": 0,
        "outOfOrder": 0,
        "duplicates": 0,
    }
    return {
        "driver": {"name": "loopback", "maxPendingMessages": 10_000, **settings},
        "slo": bounds | (slo or {}),
    }


def service(slo: dict[str, object] | None = None, **settings: object) -> dict[str, object]:
    """Return the profile's keys for a route through the relay's service with these faults."""
    route = {
        "input": "orders/{topic}",
        "output": "confirmed/{topic}",
        "envelope": "json:/ref",
    }
    return relay(slo, service=settings) | {"route": route, "messageSize": 100}


SENT = {"offered": 1000, "sent": 1000, "acked": 1000, "failed": 0, "dropped": 0}
NOTHING = {"lost": 0, "duplicates": 0, "outOfOrder": 0, "corrupt": 0, "foreign": 0}

MESSAGES = (
    Fault(
        name="loss",
        happens="Messages that were acknowledged are never delivered.",
        made="The relay loses every 50th message of each stream; 4 streams of 250 messages.",
        profile=relay(loseEvery=50),
        verdict=MISSED, status=1, says=("✗ loss 20 <= 0 1 000 20 too many",),
        counts=SENT | NOTHING | {"received": 980, "lost": 20},
    ),
    Fault(
        name="all-lost",
        happens="Every message is acknowledged, and none is delivered.",
        made="The relay loses every message.",
        profile=relay({"loss": "100%"}, loseEvery=1),
        verdict=NO_DATA, status=1, says=("nothing was received: 1 000 messages were sent, 1 000 acknowledged",), slow=True,
    ),
    Fault(
        name="service",
        happens="A service loses some of its inputs, and sends two outputs for others.",
        made="A route through the relay's service, which loses every 50th of 1 000 inputs and doubles every 70th; two are both.",
        profile=service(lose=50, double=70),
        verdict=MISSED, status=1,
        says=("✗ loss 18 <= 0 1 000 18 too many", "✗ duplicates 12 <= 0 1 000 12 too many", "route orders/{topic} → service → confirmed/{topic}"),
        counts=SENT | NOTHING | {"received": 982, "lost": 18, "duplicates": 12}, slow=True,
    ),
    Fault(
        name="service-away",
        happens="A service takes all its inputs and sends nothing.",
        made="A route through the relay's service, which loses every input.",
        profile=service({"loss": "100%"}, lose=1),
        verdict=NO_DATA, status=1,
        says=(
            "nothing was received: 1 000 messages were sent, 1 000 acknowledged",
            "no message came on confirmed/{topic}: the service must have subscribed to orders/{topic} before the load begins",
        ),
        slow=True,
    ),
    Fault(
        name="duplicates",
        happens="Messages are delivered twice.",
        made="The relay doubles every 50th message of each stream.",
        profile=relay(duplicateEvery=50),
        verdict=MISSED, status=1, says=("✗ duplicates 20 <= 0 1 000 20 too many",),
        counts=SENT | NOTHING | {"received": 1000, "duplicates": 20},
    ),
    Fault(
        name="swapped",
        happens="Messages of a stream are delivered in another order.",
        made="The relay swaps every 50th pair of each stream.",
        profile=relay(swapEvery=50),
        verdict=MISSED, status=1, says=("✗ outOfOrder 8 <= 0 1 000 8 too many",),
        counts=SENT | NOTHING | {"received": 1000, "outOfOrder": 8},
    ),
    Fault(
        name="corrupt-head",
        happens="Bytes of the envelope are changed on the way.",
        made="The relay changes one byte in every 50th envelope.",
        profile=relay(corruptHeaderEvery=50),
        verdict=MISSED, status=1, says=("✗ loss 20 <= 0 1 000 20 too many", "✗ corrupt (implicit) 20 <= 0"),
        counts=SENT | NOTHING | {"received": 980, "lost": 20, "corrupt": 20},
    ),
    Fault(
        name="corrupt-body",
        happens="Bytes after the envelope are changed on the way.",
        made="The relay changes one byte in every 50th payload; `checksum: true`.",
        profile=relay(corruptBodyEvery=50) | {"checksum": True},
        verdict=MISSED, status=1, says=("✗ loss 20 <= 0 1 000 20 too many", "✗ corrupt (implicit) 20 <= 0"),
        counts=SENT | NOTHING | {"received": 980, "lost": 20, "corrupt": 20},
    ),
    Fault(
        name="delay",
        happens="Every message takes longer than the bound.",
        made="The relay delays messages by 200 ms; the bound on p50 is 100 ms.",
        profile=relay({"endToEndLatency": {"p50": "100ms"}}, delay="200ms"),
        verdict=MISSED, status=1, says=("✗ endToEndLatency.p50 … <= 100 ms",),
        counts=SENT | NOTHING | {"received": 1000},
    ),
    Fault(
        name="stall",
        happens="The target stands still for half of the run.",
        made="The relay stalls from 300 ms to 800 ms; the bound on p90 is 100 ms.",
        profile=relay({"endToEndLatency": {"p90": "100ms"}}, stall={"at": "300ms", "duration": "500ms"}),
        verdict=MISSED, status=1, says=("✗ endToEndLatency.p90 … <= 100 ms",),
        counts=SENT | NOTHING | {"received": 1000},
    ),
    Fault(
        name="rate-limit",
        happens="The target carries half of the rate, and has room for the rest.",
        made="The relay's capacity is 500 of 1 000 msg/s; the bound on throughput is 90 %.",
        profile=relay({"throughput": "90%"}, capacity=500),
        verdict=MISSED, status=1, says=("✗ throughput … >= 90 %",),
        counts=SENT | NOTHING | {"received": 1000},
    ),
)  # fmt: skip
