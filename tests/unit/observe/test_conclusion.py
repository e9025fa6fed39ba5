"""Every rule at its boundary, what comes first where several hold, and what is said of things that nobody sampled."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from importlib.resources import files
from typing import Any

import numpy as np
import pytest
from builders.measurements import MS, made, spread
from builders.telemetry import made_telemetry

from pytest_loadtest.observe.conclusion import Bottleneck, conclude
from pytest_loadtest.observe.rules import RULES
from pytest_loadtest.observe.telemetry import Telemetry

QUEUE = 65_536  # more than 20 ms of the made run's 2.56 MB/s
CONCLUSIONS = {rule.conclusion for rule in RULES}


def judged(telemetry: Telemetry, **more: Any) -> Bottleneck:
    return conclude(telemetry, made(), cores=2, **more)


@pytest.mark.parametrize(
    ("just", "below", "conclusion", "evidence"),
    [
        (
            {"broker__busiestWanted": 0.9, "broker__busiest": 0.88}, {"broker__busiestWanted": 0.89},
            "broker CPU", "mosquitto's busiest thread used 0.88 of a core, in 10 of 10 samples",
        ),
        (
            {"broker__busiestWanted": 1.0, "broker__busiest": 0.6}, {"broker__busiestWanted": 0.8, "broker__busiest": 0.1},
            "broker CPU", "mosquitto's busiest thread used 0.60 of a core and waited for one 40 % of the time, in 10 of 10 samples",
        ),
        (
            {"broker__wanted": 1.8, "broker__cpu": 1.2}, {"broker__wanted": 1.79},
            "broker CPU", "mosquitto's threads used 1.20 cores and wanted 1.80 of this machine's 2, in 10 of 10 samples",
        ),
        (
            {"broker__unread": QUEUE + 1, "workers__unsent": 2**20}, {"broker__unread": QUEUE},
            "broker not reading", "64.0 KiB stood unread at mosquitto, which used 0.30 cores; 1.00 MiB more waited in our sockets, in 10 of 10 samples",
        ),
        (
            {"workers__unsent": QUEUE + 1, "workers__shut": 0.5, "broker__unread": 20_480}, {"workers__unsent": QUEUE, "workers__shut": 1.0},
            "broker not reading", "20.0 KiB stood unread at mosquitto, which used 0.30 cores; 64.0 KiB more waited in our sockets, in 10 of 10 samples",
        ),
        (
            {"broker__stopped": 1}, {"broker__stopped": 0},
            "broker not reading", "0 B stood unread at mosquitto, which was stopped by a signal; 0 B more waited in our sockets, in 10 of 10 samples",
        ),
        (
            {"broker__stale": 1, "broker__unread": 900}, {"broker__stale": 0, "broker__unread": 900},
            "broker not reading", "900 B stood unread at mosquitto, which used 0.30 cores; 0 B more waited in our sockets, in 10 of 10 samples",
        ),
        (
            {"broker__diskWait": 0.3, "broker__written": 2**21}, {"broker__diskWait": 0.29, "broker__written": 2**30},
            "broker disk", "mosquitto slept for the disk 30 % of the time while it wrote 2.00 MiB/s, in 10 of 10 samples",
        ),
        (
            {"broker__memoryLimit": 1e9, "broker__memory": 9e8}, {"broker__memoryLimit": 1e9, "broker__memory": 8.99e8},
            "broker memory", "mosquitto had 858 MiB of the 954 MiB of its control group, in 10 of 10 samples",
        ),
        (
            {"sys__heapLimit": 2e6, "sys__heap": 1.8e6}, {"sys__heapLimit": 2e6, "sys__heap": 1.79e6},
            "broker memory", "mosquitto's heap had 1.72 MiB of the 1.91 MiB that it may have, in 10 of 10 samples",
        ),
        (
            {"sys__heapLimit": 2e6, "sys__heap": 1.8e6, "sys__gc": 0.1}, {"sys__heapLimit": 2e6, "sys__heap": 1.8e6, "sys__gc": 0.09},
            "broker memory", "mosquitto's heap had 1.72 MiB of the 1.91 MiB that it may have, in 10 of 10 samples",
        ),
        (
            {"sys__directLimit": 2e6, "sys__direct": 1.8e6}, {"sys__directLimit": 2e6, "sys__direct": 1.79e6},
            "broker memory", "mosquitto's direct memory had 1.72 MiB of the 1.91 MiB that it may have, in 10 of 10 samples",
        ),
        (
            {"sys__throttled": 12.5, "sys__dispatchThrottled": 0}, {"sys__throttled": 0, "sys__dispatchThrottled": 0},
            "broker throttling", "mosquitto held producers back 12.5 times a second for a publish rate limit, in 10 of 10 samples",
        ),
        (
            {"sys__dispatchThrottled": 3}, {"sys__dispatchThrottled": 0},
            "broker throttling", "mosquitto held consumers back 3 times a second for a dispatch rate limit, in 10 of 10 samples",
        ),
        (
            {"sys__ledgerLatency": 5e7, "sys__publishLatency": 1e8}, {"sys__ledgerLatency": 4.9e7, "sys__publishLatency": 5e7},
            "bookie write", "a write to mosquitto's bookies took 50.0 ms on the average, of 100 ms that the broker needed to publish, in 10 of 10 samples",
        ),
        (
            {"sys__ledgerLatency": 5e7, "sys__publishLatency": 5e7}, {"sys__ledgerLatency": 5e7, "sys__publishLatency": 1.1e8},
            "bookie write", "a write to mosquitto's bookies took 50.0 ms on the average, of 50.0 ms that the broker needed to publish, in 10 of 10 samples",
        ),
        (
            {"sys__consumers": 200, "sys__starved": 2, "sys__backlog": 7}, {"sys__consumers": 200, "sys__starved": 1, "sys__backlog": 7},
            "consumer", "2 of 200 consumers had no permits left, or too many messages unacknowledged, while 7 entries stood in the backlog, in 10 of 10 samples",
        ),
        (
            {"sys__blocked": 1}, {"sys__consumers": 1, "sys__starved": 1, "sys__backlog": 0},
            "consumer", "1 subscriptions had too many messages unacknowledged to get more, in 10 of 10 samples",
        ),
        (
            {"workers__unsent": QUEUE + 1, "workers__shut": 0.49}, {"workers__unsent": QUEUE, "workers__shut": 0.49},
            "network", "64.0 KiB waited in our sockets, and no more than 0 B stood unread at mosquitto, in 10 of 10 samples",
        ),
        (  # the window that was shut is a relay's, and the broker would read
            {"workers__unsent": 2**20, "workers__shut": 1.0, "broker__relayed": 1}, {"workers__unsent": QUEUE, "workers__shut": 1.0, "broker__relayed": 1},
            "network", "1.00 MiB waited in our sockets, and no more than 0 B stood unread at mosquitto, in 10 of 10 samples",
        ),
        (
            {"broker__unsent": QUEUE + 1}, {"broker__unsent": QUEUE},
            "network", "64.0 KiB waited in mosquitto's sockets, and no more than 0 B stood unread at ours, in 10 of 10 samples",
        ),
        (
            {"workers__unread": QUEUE + 1}, {"workers__unread": QUEUE},
            "subscriber", "64.0 KiB stood unread at subscribers; 0 B more waited at mosquitto, in 10 of 10 samples",
        ),
        (
            {"workers__connections": 1000, "workers__stale": 10, "workers__unread": 900}, {"workers__connections": 1000, "workers__stale": 9},
            "subscriber", "900 B stood unread at subscribers; 0 B more waited at mosquitto, in 10 of 10 samples",
        ),
        (
            {"broker__unsent": 2**20, "broker__shut": 0.5}, {"broker__unsent": QUEUE, "broker__shut": 1.0},
            "subscriber", "0 B stood unread at subscribers; 1.00 MiB more waited at mosquitto, in 10 of 10 samples",
        ),
        (
            {"worker_gw0__busiestWanted": 0.9, "worker_gw0__busiest": 0.9}, {"worker_gw0__busiestWanted": 0.89},
            "generator", "worker gw0's busiest thread used 0.90 of a core, in 10 of 10 samples",
        ),
    ],
)  # fmt: skip
def test_each_rule_at_its_boundary(just: dict[str, float], below: dict[str, float], conclusion: str, evidence: str) -> None:
    found = judged(made_telemetry(**just))
    assert (found.conclusion, found.evidence) == (conclusion, evidence)
    assert judged(made_telemetry(**below)).conclusion == "nothing saturated"


def test_a_fiftieth_of_a_second_of_traffic_is_no_queue() -> None:
    """At 256 MB/s that is 5 MB."""
    fast = made(bytes_sent=2_560_000_000)
    conclusions = [conclude(made_telemetry(workers__unread=size), fast, cores=2).conclusion for size in (5_120_000, 5_120_001)]
    assert conclusions == ["nothing saturated", "subscriber"]


@pytest.mark.parametrize(("held", "conclusion"), [(1, "nothing saturated"), (2, "broker CPU")])
def test_what_holds_in_one_sample_is_no_bottleneck(held: int, conclusion: str) -> None:
    assert judged(made_telemetry(held, broker__busiestWanted=1.0)).conclusion == conclusion


def test_the_threads_of_a_broker_whose_busiest_is_not_known() -> None:
    """All of them together are told."""
    found = judged(made_telemetry(broker__busiestWanted=np.nan, broker__wanted=2.0, broker__cpu=1.5))
    assert (found.conclusion, found.evidence) == (
        "broker CPU",
        "mosquitto's threads used 1.50 cores and wanted 2.00 of this machine's 2, in 10 of 10 samples",
    )


def test_the_longest_comes_first_and_the_others_are_told() -> None:
    columns = made_telemetry(4, broker__busiestWanted=1.0, broker__busiest=1.0).columns
    telemetry = made_telemetry(7, workers__unread=2**20)
    found = judged(Telemetry(time=telemetry.time, columns={**telemetry.columns, "broker.busiestWanted": columns["broker.busiestWanted"]}))
    assert (found.conclusion, [one.conclusion for one in found.also]) == ("subscriber", ["broker CPU"])
    assert found.evidence.endswith("in 7 of 10 samples")


def test_a_broker_without_a_core_is_neither_asleep_nor_behind_a_network() -> None:
    """Why it does not read is known."""
    found = judged(
        made_telemetry(broker__busiestWanted=1.0, broker__unread=2**20, broker__stale=2, workers__unsent=2**20, workers__shut=1.0)
    )
    assert (found.conclusion, found.also) == ("broker CPU", ())
    disk = judged(made_telemetry(broker__diskWait=1, broker__unread=2**20))
    assert (disk.conclusion, disk.also) == ("broker disk", ())


def test_why_a_broker_takes_nothing_or_a_consumer_is_told_first() -> None:
    """A limit keeps producers' bytes unread; a worker without a core takes no messages."""
    limit = judged(made_telemetry(sys__throttled=5, broker__unread=2**20, broker__stale=2, workers__unsent=2**20, workers__shut=1.0))
    assert (limit.conclusion, limit.also) == ("broker throttling", ())
    busy = judged(made_telemetry(sys__blocked=1, worker_gw0__busiest=0.5, worker_gw0__busiestWanted=0.95))
    assert (busy.conclusion, busy.also) == ("generator", ())
    writing = judged(made_telemetry(sys__ledgerLatency=1e9, sys__publishLatency=1e9, broker__busiestWanted=1.0))
    assert (writing.conclusion, writing.also) == ("broker CPU", ())


def test_what_a_broker_did_that_is_sampled_less_often_is_not_told() -> None:
    telemetry = made_telemetry(broker__unread=QUEUE + 1, without=("broker.cpu",))
    assert judged(telemetry).evidence == "64.0 KiB stood unread at mosquitto; 0 B more waited in our sockets, in 10 of 10 samples"


def test_a_full_window_is_the_last_explanation() -> None:
    """Most of the publish latency, and at least a millisecond a message; whatever else was saturated most of the time made it full."""
    publish = spread(10, 30)
    waiting, hardly = (made(publish=publish, blocked=round(100_000 * mean * MS)) for mean in (10.01, 9.99))
    found = conclude(made_telemetry(), waiting, cores=2)
    assert (found.conclusion, found.evidence) == (
        "publisher window",
        (
            "messages waited 10.0 ms before a full window, of a mean publish latency of 20.0 ms; mosquitto's busiest thread used 0.30 of a core"
            " and waited for one 10 % of the time, no queue stood"
        ),
    )
    assert conclude(made_telemetry(), hardly, cores=2).conclusion == "nothing saturated"
    short = made(publish=spread(0.5, 0.6), blocked=round(100_000 * 0.99 * MS))
    assert conclude(made_telemetry(), short, cores=2).conclusion == "nothing saturated"
    for held, first in ((5, "broker CPU"), (4, "publisher window")):
        both = conclude(made_telemetry(held, broker__busiestWanted=1.0), waiting, cores=2)
        assert (both.conclusion, len(both.also)) == (first, 1)


def test_a_window_at_qos_0_is_of_the_send_delay() -> None:
    run = made(publish=None, send_delay=spread(10, 30), blocked=round(100_000 * 15 * MS))
    assert "15.0 ms before a full window, of a mean send delay of 20.0 ms" in conclude(made_telemetry(), run, cores=2).evidence


def test_a_worker_without_a_core_is_no_subscriber_that_sleeps() -> None:
    """What stands unread at its sockets then is a consequence."""
    unread = {"workers__unread": 2.0**20, "workers__stale": 2.0}
    assert judged(made_telemetry(**unread)).conclusion == "subscriber"
    found = judged(made_telemetry(**unread, worker_gw0__busiest=0.5, worker_gw0__busiestWanted=0.95))
    assert (found.conclusion, [one.conclusion for one in found.also]) == ("generator", [])


def test_the_verdict_on_the_generator_holds() -> None:
    found = judged(made_telemetry(broker__busiestWanted=1.0), generator=("own send delay p99 3 s > 100 ms",))
    assert (found.conclusion, found.evidence) == ("generator", "own send delay p99 3 s > 100 ms")
    assert [one.conclusion for one in found.also] == ["broker CPU"]
    both = judged(made_telemetry(worker_gw0__busiestWanted=1.0, worker_gw0__busiest=1.0), generator=("own send delay p99 3 s > 100 ms",))
    assert both.evidence == "own send delay p99 3 s > 100 ms; worker gw0's busiest thread used 1.00 of a core, in 10 of 10 samples"


def test_the_worker_that_wanted_most_is_named() -> None:
    found = judged(made_telemetry(worker_gw1__busiestWanted=1.0, worker_gw1__busiest=0.95))
    assert found.evidence == "worker gw1's busiest thread used 0.95 of a core and waited for one 5 % of the time, in 10 of 10 samples"


def test_readers_of_results_know_every_conclusion() -> None:
    text = files("pytest_loadtest.report").joinpath("results.schema.json").read_text(encoding="utf-8")
    known = json.loads(text)["properties"]["bottleneck"]["properties"]["conclusion"]["enum"]
    assert CONCLUSIONS | {"publisher window", "nothing saturated", None} == set(known)


# --- what nobody sampled


def test_of_a_remote_broker_our_sockets_tell() -> None:
    """Its window was shut: it did not read, or what stands before it; its window was open: the network."""
    missing = ("broker's CPU, memory, disk and sockets: its process is none that the run started on this machine",)
    shut, open_ = (
        judged(made_telemetry(without=("broker",), missing=missing, workers__unsent=2**20, workers__shut=share)) for share in (0.9, 0.2)
    )
    assert (shut.conclusion, shut.evidence, shut.missing) == (
        "broker not reading", "1.00 MiB waited in our sockets because the other side's window was shut; why, was not sampled, in 10 of 10 samples", missing,
    )  # fmt: skip
    assert (open_.conclusion, open_.evidence) == (
        "network", "1.00 MiB waited in our sockets, and the other side's window was shut for no more than 20 % of the time, in 10 of 10 samples",
    )  # fmt: skip


def test_nothing_saturated_says_what_that_rests_on() -> None:
    assert judged(made_telemetry()).evidence == (
        "mosquitto's busiest thread used 0.30 of a core and waited for one 10 % of the time, no queue stood"
    )
    assert (
        judged(made_telemetry(without=("broker",))).evidence == "no queue stood, of broker memory, broker disk, broker CPU nothing is known"
    )


def test_unknown_is_not_zero() -> None:
    """Shares are of the samples that know: queues are sampled less often where there are many."""
    telemetry = made_telemetry(workers__unread=2**20)
    unread = telemetry.columns["workers.unread"].copy()
    unread[[0, 1, 3, 4, 6, 7, 8, 9]] = math.nan
    stale = unread * 0
    found = judged(Telemetry(time=telemetry.time, columns={**telemetry.columns, "workers.unread": unread, "workers.stale": stale}))
    assert (found.conclusion, found.evidence.rpartition(", ")[2]) == ("subscriber", "in 2 of 2 samples")


def test_one_sample_is_too_few() -> None:
    found = conclude(made_telemetry(broker__busiestWanted=1.0).until(1_000_000_000), None, cores=2)
    assert (found.conclusion, found.evidence) == (None, "1 samples of the measured phase are too few to tell")


def test_of_a_broken_run_samples_alone_tell() -> None:
    assert conclude(made_telemetry(broker__stopped=1), None, cores=2).conclusion == "broker not reading"


def test_samples_of_the_drain_do_not_count() -> None:
    """The made run takes ten seconds: of one that took five, only half is looked at."""
    found = conclude(made_telemetry(3, broker__busiestWanted=1.0), made(duration=5_000 * MS), cores=2)
    assert found.evidence.endswith("in 3 of 5 samples")


def test_nothing_saturated_is_not_said_of_a_run_of_which_a_source_was_lost() -> None:
    """What saturated before is still told."""
    lost = {"broker": "broker: KeyError: 'x', 2 s into the phase"}
    found = judged(replace(made_telemetry(), lost=lost))
    assert found.conclusion is None
    assert (
        found.evidence == "nothing saturated as far as it was sampled, which was not to the end: broker: KeyError: 'x', 2 s into the phase"
    )
    busy = {"broker.busiest": 0.99, "broker.busiestWanted": 1.0, "broker.cpu": 1.0, "broker.wanted": 1.0}
    assert judged(replace(made_telemetry(**busy), lost=lost)).conclusion == judged(made_telemetry(**busy)).conclusion
