"""Receive lag, latencies and the gap between reads on real brokers.

Run ``python benchmarks/bench_lag.py --busy 2``.

It runs the engine, the native driver and the recorder as the other benchmarks do, with producers in
one process and consumers in another, at 1 000, 10 000 and 100 000 messages a second, on mosquitto,
Pulsar and the loopback's relay; with ``--busy 2`` again beside two busy loops, in four minutes for
everything. Percentiles are of all messages, without a warm-up. The gap is the time between two
reads of any socket that brought bytes. Messages leave once a tick of a millisecond, so at the lower
rates it is not shorter. mosquitto is too slow for 100 000 a second at QoS 1, so nothing is
acknowledged at that rate. ``--only mqtt`` selects a kind of broker, ``--rate`` the rates.
"""

from __future__ import annotations

import argparse
import json
import secrets
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import bench_mqtt
import bench_pulsar
import numpy as np
from bench_loopback import relay
from pyarrow import parquet
from roles import run_both, run_role

from pytest_loadtest import brokers
from pytest_loadtest.drivers.arrival_clock import SocketReader
from pytest_loadtest.drivers.base import DriverContext, TargetAddress
from pytest_loadtest.drivers.loopback.driver import LoopbackDriver
from pytest_loadtest.drivers.loopback.settings import LoopbackSettings
from pytest_loadtest.message.payloads import build_pool
from pytest_loadtest.schedule.topology import Topology
from pytest_loadtest.values.quantities import MICROSECOND, format_duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

KINDS = ("mqtt", "pulsar", "loopback")
RATES = (1_000, 10_000, 100_000)
MOST_AT_QOS_1 = 30_000  # messages a second that mosquitto acknowledges
HOG = "import time; end = time.monotonic() + {seconds}\nwhile time.monotonic() < end: pass"


def is_acknowledged(kind: str, rate: int) -> bool:
    """Return whether the broker acknowledges messages at this rate."""
    return kind != "mqtt" or rate <= MOST_AT_QOS_1


def made_driver(
    kind: str, rate: int, where: dict[str, Any], name: str, worker: str
) -> tuple[Any, DriverContext]:
    """Return the native driver of a kind of broker, for one producer and one consumer."""
    if kind == "mqtt":
        case = bench_mqtt.Case(
            name=name, rate=rate, qos=int(is_acknowledged(kind, rate)), window=1000
        )
        return bench_mqtt.made_driver(case, "native", where, name, worker)
    if kind == "pulsar":
        return bench_pulsar.made_driver(
            bench_pulsar.Case(name=name, rate=rate), "native", where, name, worker
        )
    pool = build_pool(
        buckets=None,
        message_size=128,
        randomized=True,
        random_ratio=0.5,
        file_content=None,
        seed=1,
        checksum=False,
        max_size=None,
    )
    context = DriverContext(
        target=TargetAddress(url=where["url"]),
        settings=LoopbackSettings(),
        clock=time.monotonic_ns,
        run=name,
        nonce=7,
        worker=worker,
        topology=Topology(topics=1, partitions=1, producers=1, subscriptions=1, consumers=1),
        pool=pool,
    )
    return LoopbackDriver(context), context


def note_reads(driver: Any, file: Path) -> None:
    """Save the time of each read of a socket when the driver is closed, ns."""
    times = list[int]()
    read = SocketReader.read
    close = driver.close

    def noted(reader: SocketReader, space: memoryview) -> int:
        count = read(reader, space)
        times.append(reader.taken)
        return count

    def save() -> None:
        np.save(file, np.array(times, np.int64))
        close()

    SocketReader.read = noted  # type: ignore[method-assign]
    driver.close = save


def column(folder: Path, kind: str, name: str) -> NDArray[np.int64]:
    """Return a column of all samples of a kind."""
    files = sorted(folder.glob(f"*/{kind}/*.parquet"))
    return np.concatenate(
        [
            np.zeros(0, np.int64),
            *(parquet.read_table(file, columns=[name])[name].to_numpy() for file in files),
        ]
    )


def distributions(folder: Path, *, acknowledged: bool) -> dict[str, list[float]]:
    """Return p50, p90, p99 and maximum of each quantity, ns; of those that were measured."""
    acked = column(folder, "sent", "acked")
    due = column(folder, "sent", "intended")
    received, intended, lag = (
        column(folder, "received", name) for name in ("received", "intended", "lag")
    )
    reads = np.load(folder / "reads.npy")
    values = {
        "receive lag": lag[lag >= 0] * MICROSECOND,
        "publish": (acked - due)[(acked > 0) & acknowledged],
        "end-to-end": received - intended,
        "gap between reads": np.diff(reads[(reads >= due.min()) & (reads <= due.max())]),
    }
    return {
        name: np.percentile(value, (50, 90, 99, 100)).tolist()
        for name, value in values.items()
        if len(value)
    }


@contextmanager
def target(kind: str) -> Iterator[dict[str, Any]]:
    """Start a broker of a kind; its addresses."""
    with ExitStack() as stack:
        if kind == "loopback":
            _, port = stack.enter_context(relay())
            yield {"url": f"loopback://127.0.0.1:{port}"}
            return
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-lag-")))
        settings = {"max_inflight_messages": "1000"} if kind == "mqtt" else {}
        request = brokers.BrokerRequest(
            kind=kind, mode="process", folder=folder / "broker", settings=settings
        )
        broker = brokers.start(request, lambda line: print(line, file=sys.stderr))
        stack.callback(broker.stop)
        yield {"url": broker.facts.url, "admin_url": broker.facts.admin_url}


@contextmanager
def busy_loops(many: int) -> Iterator[None]:
    """Keep so many cores busy, for a minute at most."""
    loops = [
        subprocess.Popen([sys.executable, "-S", "-c", HOG.format(seconds=60)]) for _ in range(many)
    ]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def run_case(kind: str, rate: int, seconds: float, where: dict[str, Any]) -> dict[str, Any]:
    """Run both roles at a rate."""
    name = f"bench-{secrets.token_hex(4)}"
    lead, _ = made_driver(kind, rate, where, name, "lead")
    lead.prepare()
    try:
        return run_both(
            __file__,
            [kind, rate, seconds, where, name],
            look=partial(distributions, acknowledged=is_acknowledged(kind, rate)),
        )
    finally:
        lead.close()
        lead.cleanup()


def show(title: str, found: dict[str, Any]) -> None:
    """Print the table of a case."""
    out = found["out"]
    got = found["in"]
    print(
        f"{title}: sent {out['messages']} of {out['expected']}, got {got['messages']};"
        f" core {out['core']:.2f} + {got['core']:.2f};"
        f" stall {out['stall']:.0f}/{got['stall']:.0f} ms"
    )
    for name, values in found["looked"].items():
        print(
            f"  {name:18}",
            *(
                f"{part} {format_duration(value):>8} "
                for part, value in zip(("p50", "p90", "p99", "max"), values, strict=True)
            ),
        )
    sys.stdout.flush()


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument(
        "--busy", type=int, default=0, help="run each case again beside so many busy loops"
    )
    parser.add_argument("--only", nargs="*", choices=KINDS, default=KINDS)
    parser.add_argument("--rate", type=int, nargs="*", default=RATES)
    parser.add_argument("--job", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.job:
        role, kind, rate, seconds, where, name, folder = json.loads(asked.job)
        driver, context = made_driver(kind, rate, where, name, role)
        if role == "in":
            note_reads(driver, Path(folder) / "reads.npy")
        return run_role(role, driver, context, rate=rate, seconds=seconds, folder=Path(folder))
    for kind in asked.only:
        with target(kind) as where:
            for rate in asked.rate:
                for many in dict.fromkeys((0, asked.busy)):
                    with busy_loops(many):
                        found = run_case(kind, rate, asked.seconds, where)
                    show(
                        f"{kind}, {rate} msg/s, {f'{many} busy loops' if many else 'quiet'}", found
                    )
    return None


if __name__ == "__main__":
    main()
