"""A run's document as JUnit properties: numbers with their unit in the name, so that tools need not parse them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_loadtest.report.document import Document

LATENCIES = {"publish": "publish", "endToEnd": "end_to_end", "sendDelay": "send_delay"}
COUNTS = ("offered", "sent", "acked", "received", "lost", "duplicates", "outOfOrder", "failed", "dropped", "corrupt", "foreign")


def properties(document: Document) -> list[tuple[str, str]]:
    """For ``record_property``. What was not measured is left out."""
    broker, scale, measured = document["broker"], document["scale"], document["measurements"]
    found = [
        ("load.outcome", document["verdict"]["outcome"]),
        ("load.profile", document["profile"]["name"]),
        ("load.seed", str(document["seed"])),
        ("load.scaled", "no" if scale is None else f"×{scale['factor']:g}: says nothing about the full load"),
    ]
    if broker:
        found.append(("load.broker", f"{broker.get('name')} {broker.get('version')} ({broker.get('mode')})"))
    found += [("load.reason", reason) for reason in document["verdict"]["reasons"]]
    found += [
        (f"load.objective.{finding['name']}", f"{finding['outcome']}: {finding['text']}") for finding in document["verdict"]["findings"]
    ]
    if measured is not None:
        found += _numbers(measured)
    return [*found, ("load.results", document["results"])]


def _numbers(measured: Document) -> list[tuple[str, str]]:
    found = [("load.rate.msg_per_s", f"{measured['rate']:.1f}")]
    if measured["throughput"] is not None:
        found.append(("load.throughput.msg_per_s", f"{measured['throughput']:.1f}"))
    for key, name in LATENCIES.items():
        latency = measured["latencies"][key]
        if latency is not None:
            values = {**latency["percentiles"], "max": latency["maximum"], "mean": latency["mean"]}
            found += [(f"load.{name}.{statistic}.ms", f"{ns / 1e6:.3f}") for statistic, ns in values.items() if ns is not None]
    return found + [(f"load.{name}", str(measured["counts"][name])) for name in COUNTS if measured["counts"][name] is not None]
