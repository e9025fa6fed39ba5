"""A run's document as JUnit properties: numbers with their unit in the name, so that tools need not parse them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_loadtest.metrics.catalogue import COUNTS, LATENCIES
from pytest_loadtest.report import bottleneck
from pytest_loadtest.report.bottleneck import bottleneck_text
from pytest_loadtest.report.sections import answer, only_connects, scale_of
from pytest_loadtest.values.wording import with_version

if TYPE_CHECKING:
    from pytest_loadtest.report.document import Document


def junit_properties(document: Document) -> list[tuple[str, str]]:
    """For ``record_property``. What was not measured is left out."""
    broker, scale, measured = document["broker"], document["scale"], document["measurements"]
    found = [
        ("load.outcome", document["verdict"]["outcome"]),
        ("load.profile", document["profile"]["name"]),
        ("load.seed", str(document["seed"])),
        ("load.scaled", "no" if scale is None else f"{scale_of(document).removeprefix('scaled ')}: says nothing about the full load"),
    ]
    if document["workload"] is not None:
        found.append(("load.workload", document["workload"]))
    if broker:
        found.append(("load.broker", f"{with_version(str(broker.get('name')), str(broker.get('version')))} ({broker.get('mode')})"))
    found += [("load.reason", reason) for reason in document["verdict"]["reasons"]]
    findings = document["verdict"]["findings"]
    explicit = {finding["name"] for finding in findings if not finding["implicit"]}
    for finding in findings:  # an implicit share of throughput may stand beside an explicit rate
        name = f"{finding['name']}.implicit" if finding["implicit"] and finding["name"] in explicit else finding["name"]
        found.append((f"load.objective.{name}", f"{finding['outcome']}: {finding['text']}"))
    if document["bottleneck"] is not None:
        found.append(("load.bottleneck", bottleneck_text(document["bottleneck"])))
    found += bottleneck.broker_properties(document["bottleneck"])
    if (lost := document["driver"].get("losses")) is not None:
        found.append(("load.connections.lost", str(lost)))
    found += _parts(document)
    if measured is not None:
        found += _numbers(measured)
    return [*found, ("load.results", document["results"])]


def _parts(document: Document) -> list[tuple[str, str]]:
    """The peak, the stages and the backlog."""
    found = []
    peak, backlog = document["peak"], document["backlog"]
    if peak is not None:
        unit = "bytes_per_s" if peak["unit"] == "B/s" else "msg_per_s"
        found += [("load.peak", f"{answer(peak)} (limit: {peak['limit']})"), ("load.peak.at_least", str(peak["atLeast"]).lower())]
        ends = {"": peak["rate"], ".high": peak["high"]}
        found += [(f"load.peak{end}.{unit}", f"{rate:.1f}") for end, rate in ends.items() if rate is not None]
        found += [("load.peak.broke_first", peak["brokeFirst"])] if peak["brokeFirst"] is not None else []
    for stage in document["stages"]:
        missed = [finding["text"] for finding in stage["verdict"]["findings"] if finding["outcome"] == "missed"]
        found.append((f"load.stage.{stage['name']}", ": ".join([stage["verdict"]["outcome"], *filter(None, ["; ".join(missed)])])))
    if backlog is not None:
        times = {"build": backlog["build"], "drain": backlog["drain"]}
        found += [(f"load.backlog.{name}.s", f"{ns / 1e9:.3f}") for name, ns in times.items() if ns is not None]
        found += [("load.backlog.drained", str(backlog["drained"]).lower())] if backlog["drained"] is not None else []
        rate = backlog["drainRate"]
        found += [("load.backlog.drain_rate.msg_per_s", f"{rate:.1f}")] if rate is not None else []
    return found


def _numbers(measured: Document) -> list[tuple[str, str]]:
    opening, silent = measured.get("opening"), only_connects(measured)
    found = [] if silent else [("load.rate.msg_per_s", f"{measured['rate']:.1f}")]
    if opening is not None:
        rates = {"asked": opening["rate"], "achieved": opening["achieved"]}
        found += [("load.connections", str(opening["connections"]))]
        found += [(f"load.connections.{name}.per_s", f"{rate:.1f}") for name, rate in rates.items() if rate is not None]
    if measured["throughput"] is not None:
        found.append(("load.throughput.msg_per_s", f"{measured['throughput']:.1f}"))
    for name, metric in LATENCIES.items():
        latency = measured["latencies"].get(metric.key) if metric.exported else None
        if latency is not None:
            values = {**latency["percentiles"], "max": latency["maximum"], "mean": latency["mean"]}
            found += [(f"load.{name}.{statistic}.ms", f"{ns / 1e6:.3f}") for statistic, ns in values.items() if ns is not None]
    for name, custom in measured["custom"].items():
        ending, factor = {"ns": (".ms", 1e6), "msg/s": (".msg_per_s", 1)}.get(custom["unit"], ("", 1))
        found += [(f"load.custom.{name}{ending}", f"{custom['value'] / factor:.6g}")] if custom["value"] is not None else []
    if silent:
        return found
    if (index := measured.get("delayedIndex")) is not None:
        found.append(("load.delayed_index.bytes_per_message", f"{index['bytesPerMessage']:.3f}"))
    counts = measured["counts"]
    shown = [row.key for row in COUNTS if row.exported] + (["resent", "duplicatesOfResent"] if counts["resent"] else []) + ["outOfDueOrder"]
    return found + [(f"load.{name}", str(counts[name])) for name in shown if counts.get(name) is not None]
