"""Every rule at its boundary, and the rules that exclude each other."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.resources import files
from typing import Any

import numpy as np
import pytest
from builders.measurements import made
from builders.telemetry import made_telemetry, with_host

from pytest_loadtest.observe.conclusion import Bottleneck, conclude
from pytest_loadtest.observe.rules import RULES
from pytest_loadtest.observe.telemetry import SampledHost, Telemetry, merge_host
from pytest_loadtest.values.quantities import SECOND

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
            "broker CPU", "mosquitto's threads used 1.20 cores and needed 1.80 of this machine's 2, in 10 of 10 samples",
        ),
        (
            {"broker__unread": QUEUE + 1, "workers__unsent": 2**20}, {"broker__unread": QUEUE},
            "broker not reading", "64.0 KiB were unread at mosquitto, which used 0.30 cores; 1.00 MiB more waited in the generator's sockets, in 10 of 10 samples",
        ),
        (
            {"workers__unsent": QUEUE + 1, "workers__shut": 0.5, "broker__unread": 20_480}, {"workers__unsent": QUEUE, "workers__shut": 1.0},
            "broker not reading", "20.0 KiB were unread at mosquitto, which used 0.30 cores; 64.0 KiB more waited in the generator's sockets, in 10 of 10 samples",
        ),
        (
            {"broker__stopped": 1}, {"broker__stopped": 0},
            "broker not reading", "0 B were unread at mosquitto, which was stopped by a signal; 0 B more waited in the generator's sockets, in 10 of 10 samples",
        ),
        (
            {"broker__stale": 1, "broker__unread": 900}, {"broker__stale": 0, "broker__unread": 900},
            "broker not reading", "900 B were unread at mosquitto, which used 0.30 cores; 0 B more waited in the generator's sockets, in 10 of 10 samples",
        ),
        (
            {"broker__diskWait": 0.3, "broker__written": 2**21}, {"broker__diskWait": 0.29, "broker__written": 2**30},
            "broker disk", "mosquitto waited for the disk 30 % of the time while it wrote 2.00 MiB/s, in 10 of 10 samples",
        ),
        (
            {"broker__memoryLimit": 1e9, "broker__memory": 9e8}, {"broker__memoryLimit": 1e9, "broker__memory": 8.99e8},
            "broker memory", "mosquitto had 858 MiB of its control group's limit of 954 MiB, in 10 of 10 samples",
        ),
        (
            {"sys__heapLimit": 2e6, "sys__heap": 1.8e6}, {"sys__heapLimit": 2e6, "sys__heap": 1.79e6},
            "broker memory", "mosquitto's heap had 1.72 MiB of its limit of 1.91 MiB, in 10 of 10 samples",
        ),
        (
            {"sys__heapLimit": 2e6, "sys__heap": 1.8e6, "sys__gc": 0.1}, {"sys__heapLimit": 2e6, "sys__heap": 1.8e6, "sys__gc": 0.09},
            "broker memory", "mosquitto's heap had 1.72 MiB of its limit of 1.91 MiB, in 10 of 10 samples",
        ),
        (
            {"sys__directLimit": 2e6, "sys__direct": 1.8e6}, {"sys__directLimit": 2e6, "sys__direct": 1.79e6},
            "broker memory", "mosquitto's direct memory had 1.72 MiB of its limit of 1.91 MiB, in 10 of 10 samples",
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
            "bookie write", "a write to mosquitto's bookies took 50.0 ms on average, of the 100 ms that the broker needed to publish, in 10 of 10 samples",
        ),
        (
            {"sys__ledgerLatency": 5e7, "sys__publishLatency": 5e7}, {"sys__ledgerLatency": 5e7, "sys__publishLatency": 1.1e8},
            "bookie write", "a write to mosquitto's bookies took 50.0 ms on average, of the 50.0 ms that the broker needed to publish, in 10 of 10 samples",
        ),
        (
            {"sys__consumers": 200, "sys__starved": 2, "sys__backlog": 7}, {"sys__consumers": 200, "sys__starved": 1, "sys__backlog": 7},
            "consumer", "2 of 200 consumers had no permits left, or too many unacknowledged messages, with 7 entries in the backlog, in 10 of 10 samples",
        ),
        (
            {"sys__blocked": 1}, {"sys__consumers": 1, "sys__starved": 1, "sys__backlog": 0},
            "consumer", "1 subscription had too many unacknowledged messages to get more, in 10 of 10 samples",
        ),
        (
            {"workers__unsent": QUEUE + 1, "workers__shut": 0.49}, {"workers__unsent": QUEUE, "workers__shut": 0.49},
            "network", "64.0 KiB waited in the generator's sockets, and no more than 0 B were unread at mosquitto, in 10 of 10 samples",
        ),
        (  # the window that was shut is a relay's, and the broker would read
            {"workers__unsent": 2**20, "workers__shut": 1.0, "broker__relayed": 1}, {"workers__unsent": QUEUE, "workers__shut": 1.0, "broker__relayed": 1},
            "network", "1.00 MiB waited in the generator's sockets, and no more than 0 B were unread at mosquitto, in 10 of 10 samples",
        ),
        (
            {"broker__unsent": QUEUE + 1}, {"broker__unsent": QUEUE},
            "network", "64.0 KiB waited in mosquitto's sockets, and no more than 0 B were unread in the generator's, in 10 of 10 samples",
        ),
        (
            {"workers__unread": QUEUE + 1}, {"workers__unread": QUEUE},
            "subscriber", "64.0 KiB were unread at subscribers; 0 B more waited at mosquitto, in 10 of 10 samples",
        ),
        (
            {"workers__connections": 1000, "workers__stale": 10, "workers__unread": 900}, {"workers__connections": 1000, "workers__stale": 9},
            "subscriber", "900 B were unread at subscribers; 0 B more waited at mosquitto, in 10 of 10 samples",
        ),
        (
            {"broker__unsent": 2**20, "broker__shut": 0.5}, {"broker__unsent": QUEUE, "broker__shut": 1.0},
            "subscriber", "0 B were unread at subscribers; 1.00 MiB more waited at mosquitto, in 10 of 10 samples",
        ),
        (
            {"service_orders__busiestWanted": 0.9, "service_orders__busiest": 0.9}, {"service_orders__busiestWanted": 0.89},
            "service CPU", "service orders's busiest thread used 0.90 of a core, in 10 of 10 samples",
        ),
        (
            {"service_orders__busiestWanted": 0.5, "service_orders__cpu": 0.2, "service__unread": QUEUE + 1},
            {"service_orders__busiestWanted": 0.5, "service__unread": QUEUE},
            "service not reading", "64.0 KiB were unread at the services; service orders used 0.20 cores, in 10 of 10 samples",
        ),
        (
            {"service_orders__busiestWanted": 0, "service_orders__stopped": 1, "service__unread": 900},
            {"service_orders__busiestWanted": 0, "service_orders__stopped": 0, "service__unread": 900},
            "service not reading", "900 B were unread at the services; service orders was stopped by a signal, in 10 of 10 samples",
        ),
        (
            {"worker_gw0__busiestWanted": 0.9, "worker_gw0__busiest": 0.9}, {"worker_gw0__busiestWanted": 0.89},
            "generator", "worker gw0's busiest thread used 0.90 of a core, in 10 of 10 samples",
        ),
    ],
)  # fmt: skip
def test_each_rule_at_its_boundary(
    just: dict[str, float], below: dict[str, float], conclusion: str, evidence: str
) -> None:
    found = judged(made_telemetry(**just))
    assert (found.conclusion, found.evidence) == (conclusion, evidence)
    assert judged(made_telemetry(**below)).conclusion == "nothing saturated"


@pytest.mark.parametrize(
    ("conclusion", "columns"),
    [
        ("broker throttling", {"sys.throttled": (0, 1)}),
        ("broker throttling", {"sys.dispatchThrottled": (0, 1)}),
        ("broker memory", {"broker.memory": (1, 9), "broker.memoryLimit": (9, 9)}),
        ("broker memory", {"sys.heap": (1, 9), "sys.heapLimit": (9, 9)}),
        ("broker memory", {"sys.direct": (1, 9), "sys.directLimit": (9, 9)}),
        ("broker disk", {"broker.diskWait": (0, 1)}),
        ("bookie write", {"sys.ledgerLatency": (0, 1e9), "sys.publishLatency": (1e9, 1e9)}),
        ("broker not reading", {"broker.stopped": (0, 1)}),
        ("broker not reading", {"broker.unread": (0, 1e6)}),
        ("broker not reading", {"workers.unsent": (0, 1e6), "workers.shut": (0, 1)}),
        ("service not reading", {"service.unread": (0, 1e6)}),
        ("service not reading", {"service a.stopped": (0, 1), "service a.busiestWanted": (0, 0)}),
        ("subscriber", {"workers.unread": (0, 1e6)}),
        ("subscriber", {"broker.unsent": (0, 1e6), "broker.shut": (0, 1)}),
        ("consumer", {"sys.blocked": (0, 1)}),
        ("consumer", {"sys.starved": (0, 1), "sys.consumers": (1, 1), "sys.backlog": (1, 1)}),
        ("service CPU", {"service a.busiestWanted": (0, 1)}),
        ("service CPU", {"service a.busiestWanted": (0, 1), "service.unread": (np.nan, 0)}),
        ("broker CPU", {"broker.wanted": (0, 2)}),
        ("broker CPU", {"broker.wanted": (0, 1), "broker.busiestWanted": (0, 1)}),
        ("generator", {"worker gw0.busiestWanted": (0, 1)}),
        ("network", {"workers.unsent": (0, 1e6), "workers.shut": (0, 0)}),
        ("network", {"broker.unsent": (0, 1e6), "broker.shut": (0, 0)}),
    ],
)
def test_the_samples_of_a_rule_are_those_of_the_columns_that_it_reads(
    conclusion: str, columns: dict[str, tuple[float, float]]
) -> None:
    """Also where only one of its sources was sampled; the last two of ten samples are saturated."""
    held = {name: np.repeat([low, high], [8, 2]) for name, (low, high) in columns.items()}
    found = judged(Telemetry(time=np.arange(1, 11) * SECOND, columns=held))
    assert found.conclusion == conclusion
    assert found.evidence.endswith(", in 2 of 10 samples")


def test_a_fiftieth_of_a_second_of_traffic_is_no_queue() -> None:
    """That is 5 MB at 256 MB/s."""
    fast = made(bytes_sent=2_560_000_000)
    conclusions = [
        conclude(made_telemetry(workers__unread=size), fast, cores=2).conclusion
        for size in (5_120_000, 5_120_001)
    ]
    assert conclusions == ["nothing saturated", "subscriber"]


def test_all_threads_are_the_evidence_if_the_busiest_is_unknown() -> None:
    found = judged(
        made_telemetry(broker__busiestWanted=np.nan, broker__wanted=2.0, broker__cpu=1.5)
    )
    assert (found.conclusion, found.evidence) == (
        "broker CPU",
        "mosquitto's threads used 1.50 cores and needed 2.00 of this machine's 2, in 10 of 10 samples",
    )


def test_a_lack_of_cpu_or_disk_explains_a_broker_that_does_not_read() -> None:
    """The network is not blamed either."""
    found = judged(
        made_telemetry(
            broker__busiestWanted=1.0,
            broker__unread=2**20,
            broker__stale=2,
            workers__unsent=2**20,
            workers__shut=1.0,
        )
    )
    assert (found.conclusion, found.also) == ("broker CPU", ())
    disk = judged(made_telemetry(broker__diskWait=1, broker__unread=2**20))
    assert (disk.conclusion, disk.also) == ("broker disk", ())


def test_a_rate_limit_or_a_lack_of_cpu_explains_unread_bytes() -> None:
    """A limit keeps producers' bytes unread; a worker without a core takes no messages."""
    limit = judged(
        made_telemetry(
            sys__throttled=5,
            broker__unread=2**20,
            broker__stale=2,
            workers__unsent=2**20,
            workers__shut=1.0,
        )
    )
    assert (limit.conclusion, limit.also) == ("broker throttling", ())
    busy = judged(
        made_telemetry(sys__blocked=1, worker_gw0__busiest=0.5, worker_gw0__busiestWanted=0.95)
    )
    assert (busy.conclusion, busy.also) == ("generator", ())
    writing = judged(
        made_telemetry(sys__ledgerLatency=1e9, sys__publishLatency=1e9, broker__busiestWanted=1.0)
    )
    assert (writing.conclusion, writing.also) == ("broker CPU", ())


def test_a_service_without_a_core_is_named_and_does_not_count_as_one_that_does_not_read() -> None:
    found = judged(
        made_telemetry(
            service_orders__busiestWanted=0.2,
            service_other__busiestWanted=1.0,
            service_other__busiest=0.7,
            service__unread=2.0**20,
        )
    )
    assert (found.conclusion, found.also) == ("service CPU", ())
    assert found.evidence.startswith("service other's busiest thread used 0.70 of a core")


GROWING = [
    9_000.0,
    np.nan,
    19_001.0,
    19_001.0,
    np.nan,
    21_000.0,
    20_000.0,
    30_000.0,
    np.nan,
    np.nan,
]
"""Messages of the made run's 10 000/s that wait: three times more than before, by a second's for good."""
TEETH = [10_000.0, 20_000.0, 30_000.0, 0.0, 10_000.0, 20_000.0, 30_001.0, 0.0, 11_000.0, 21_000.0]


def test_a_service_waits_if_more_and_more_of_its_inputs_do() -> None:
    found = judged(
        made_telemetry(
            service__backlog=GROWING, service_orders__cpu=0.02, service_orders__busiestWanted=0.02
        )
    )
    assert (found.conclusion, found.also) == ("service waits", ())
    assert found.evidence == (
        "up to 30000 messages waited for the service, more and more; service orders used 0.02"
        " cores, in 3 of 6 samples"
    )
    elsewhere = judged(made_telemetry(service__backlog=GROWING))
    assert "more and more; what it used is unknown, in" in elsewhere.evidence


@pytest.mark.parametrize(
    ("columns", "conclusion"),
    [
        ({"service__backlog": np.linspace(9_000, 19_000, 10)}, "nothing saturated"),
        ({"service__backlog": [11_000.0, *[10_500.0] * 9]}, "nothing saturated"),
        ({"service__backlog": np.linspace(90_000, 91_000, 10)}, "nothing saturated"),
        ({"service__backlog": TEETH}, "nothing saturated"),
        ({"service__backlog": GROWING, "broker__busiestWanted": 0.9}, "broker CPU"),
        ({"service__backlog": GROWING, "broker__diskWait": 0.3}, "broker disk"),
        ({"service__backlog": GROWING, "sys__dispatchThrottled": 1}, "broker throttling"),
        ({"service__backlog": GROWING, "service_orders__busiestWanted": 1.0}, "service CPU"),
        ({"service__backlog": GROWING, "service__unread": QUEUE + 1}, "service not reading"),
    ],
)
def test_a_service_does_not_wait(columns: dict[str, Any], conclusion: str) -> None:
    """A second's inputs more, a backlog that shrinks or was there before, one that it acknowledges
    from time to time, no core, messages that it does not read, or a broker that does not send them.
    """
    found = judged(made_telemetry(**columns))
    assert (found.conclusion, found.also) == (conclusion, ())


def test_a_service_does_not_wait_in_a_run_that_broke() -> None:
    """How many messages it should have got in a second is unknown."""
    growing = made_telemetry(service__backlog=GROWING)
    assert conclude(growing, None, cores=2).conclusion == "nothing saturated"


def test_evidence_leaves_out_a_column_without_samples() -> None:
    telemetry = made_telemetry(broker__unread=QUEUE + 1, without=("broker.cpu",))
    assert (
        judged(telemetry).evidence
        == "64.0 KiB were unread at mosquitto; 0 B more waited in the generator's sockets, in 10 of 10 samples"
    )


def test_a_worker_without_a_core_is_no_slow_subscriber() -> None:
    """Unread bytes in its sockets are a consequence."""
    unread = {"workers__unread": 2.0**20, "workers__stale": 2.0}
    assert judged(made_telemetry(**unread)).conclusion == "subscriber"
    found = judged(
        made_telemetry(**unread, worker_gw0__busiest=0.5, worker_gw0__busiestWanted=0.95)
    )
    assert (found.conclusion, [one.conclusion for one in found.also]) == ("generator", [])


def test_the_busiest_worker_is_named() -> None:
    found = judged(made_telemetry(worker_gw1__busiestWanted=1.0, worker_gw1__busiest=0.95))
    assert (
        found.evidence
        == "worker gw1's busiest thread used 0.95 of a core and waited for one 5 % of the time, in 10 of 10 samples"
    )


def test_the_schema_has_every_conclusion() -> None:
    text = (
        files("pytest_loadtest.report").joinpath("results.schema.json").read_text(encoding="utf-8")
    )
    conclusions = json.loads(text)["$defs"]["BottleneckSection"]["properties"]["conclusion"]["enum"]
    assert CONCLUSIONS | {"publisher window", "nothing saturated", None} == set(conclusions)


def test_our_sockets_are_the_evidence_about_a_remote_broker() -> None:
    """A closed window means that it, or a relay before it, did not read; an open one that the network was slow."""
    missing = (
        "broker's CPU, memory, disk and sockets: its process was not started by the run on this machine",
    )
    shut, open_ = (
        judged(
            made_telemetry(
                without=("broker",), missing=missing, workers__unsent=2**20, workers__shut=share
            )
        )
        for share in (0.9, 0.2)
    )
    assert (shut.conclusion, shut.evidence, shut.missing) == (
        "broker not reading", "1.00 MiB waited in the generator's sockets because the other side's window was closed; the reason was not sampled, in 10 of 10 samples", missing,
    )  # fmt: skip
    assert (open_.conclusion, open_.evidence) == (
        "network", "1.00 MiB waited in the generator's sockets, and the other side's window was closed for no more than 20 % of the time, in 10 of 10 samples",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "conclusion", "evidence"),
    [
        (
            {"busiestWanted": 1.0, "busiest": 0.75}, "generator",
            "the busiest thread of worker h2-1 on host h2 used 0.75 of a core and waited for one 25 % of the time, in 10 of 10 samples",
        ),
        ({"unread": 2**20}, "subscriber", "1.00 MiB were unread at subscribers on host h2; 0 B more waited at mosquitto, in 10 of 10 samples"),
        (
            {"unsent": 2**20, "shut": 0.1}, "network",
            "1.00 MiB waited in the generator's sockets on host h2, and no more than 0 B were unread at mosquitto, in 10 of 10 samples",
        ),
        (
            {"unsent": 2**20, "shut": 0.9}, "broker not reading",
            "0 B were unread at mosquitto, which used 0.30 cores; 1.00 MiB more waited in the generator's sockets on host h2, in 10 of 10 samples",
        ),
    ],
)  # fmt: skip
def test_the_host_of_the_saturated_side_is_named(
    changed: dict[str, float], conclusion: str, evidence: str
) -> None:
    """One of three hosts is enough."""
    telemetry = with_host(with_host(made_telemetry(), "h1"), "h2", **changed)
    found = judged(telemetry)
    assert (found.conclusion, found.evidence) == (conclusion, evidence)


def test_the_controllers_host_is_named_if_there_are_others() -> None:
    found = judged(with_host(made_telemetry(workers__unread=2**20), "h1"))
    assert found.evidence.startswith("1.00 MiB were unread at subscribers on the controller's host")


def test_a_host_has_its_share_of_the_traffic() -> None:
    """A queue of one host is compared with 20 ms of the traffic of its own connections: here a quarter."""
    run = replace(made(), bytes_sent=made().bytes_sent * 100)
    rate = run.bytes_sent / (run.duration / 1e9)

    def conclusion(unsent: float) -> str | None:
        telemetry = with_host(made_telemetry(workers__connections=6), "h1", unsent=unsent, shut=0.9)
        return conclude(telemetry, run, cores=2).conclusion

    assert conclusion(rate / 4 * 0.02 + 1) == "broker not reading"
    assert conclusion(rate / 4 * 0.02 - 1) == "nothing saturated"


def test_sockets_of_other_hosts_are_enough() -> None:
    """No worker runs on the controller's host."""
    without = with_host(made_telemetry(without=("workers.",)), "h1")
    assert "no queue built up" in judged(without).evidence
    assert "no samples of subscriber" in judged(made_telemetry(without=("workers.",))).evidence


def test_a_source_that_was_lost_on_a_host_makes_the_conclusion_unknown() -> None:
    part = Telemetry.of_rows(
        [], [], missing=("worker h1-1: gone",), lost={"worker h1-1": "worker h1-1: gone"}
    )
    found = judged(
        merge_host(
            made_telemetry(), SampledHost(name="h1", workers=("h1-1",), cores=4, cost=0.1), part
        )
    )
    assert found.conclusion is None
    assert found.evidence.endswith("host h1: worker h1-1: gone")
