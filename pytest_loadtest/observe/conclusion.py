"""Which side was the bottleneck of a run, and what that rests on. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pytest_loadtest.observe.rules import QUEUES, RULES, Sampled
from pytest_loadtest.values.quantities import MILLISECOND, SECOND, format_duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_loadtest.metrics.measurements import Measurements
    from pytest_loadtest.observe.telemetry import Telemetry

NOTHING: Final = "nothing saturated"
LEAST_SAMPLES: Final = 2
LEAST_SHARE: Final = 0.1
"""Share of the samples, and at least :data:`LEAST_SAMPLES`, in which a side must have been saturated to be told."""
MOSTLY: Final = 0.5
"""Share from which on it explains a full publisher window, which is what the slowness of any other side looks like to a publisher."""
WINDOW_SHARE: Final = 0.5
WINDOW_LEAST: Final = MILLISECOND


@dataclass(frozen=True, kw_only=True)
class Saturation:
    """One side that was saturated, and the evidence in a sentence. :param share: of the samples in which it was."""

    conclusion: str
    evidence: str
    share: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Bottleneck:
    """What limited a run.

    :param conclusion: one of the rules' names, ``publisher window`` or :data:`NOTHING`; None: too little was sampled to tell, or a source
        was lost.
    :param also: other sides that were saturated. :param missing: what was not sampled, in sentences.
    """

    conclusion: str | None
    evidence: str
    also: tuple[Saturation, ...] = ()
    missing: tuple[str, ...] = ()


def conclude(telemetry: Telemetry, measurements: Measurements | None, *, generator: Sequence[str] = (), cores: int) -> Bottleneck:
    """The side that was saturated most of the time.

    :param telemetry: of the phase. :param measurements: of the run; None where it broke. :param cores: of the machine.
    :param generator: why the verdict says that the generator set the pace; empty where it does not.
    """
    sampled = _sampled(telemetry, measurements, cores)
    found = _saturated(sampled)
    window = None if measurements is None else _window(measurements, sampled)
    ranked = [one for one in found if one.share >= MOSTLY]
    ranked += [] if window is None else [window]
    ranked += [one for one in found if one not in ranked]
    if generator:
        evidence = [*generator, *(one.evidence for one in ranked if one.conclusion == "generator")]
        said = Saturation(conclusion="generator", evidence="; ".join(evidence))
        ranked = [said, *(one for one in ranked if one.conclusion != "generator")]
    missing = telemetry.missing
    if ranked:
        return Bottleneck(conclusion=ranked[0].conclusion, evidence=ranked[0].evidence, also=tuple(ranked[1:]), missing=missing)
    if len(sampled.telemetry) < LEAST_SAMPLES:
        told = f"{len(sampled.telemetry)} samples of the measured phase are too few to tell"
        return Bottleneck(conclusion=None, evidence=told, missing=missing)
    if telemetry.lost:
        told = f"{NOTHING} as far as it was sampled, which was not to the end: {'; '.join(dict.fromkeys(telemetry.lost.values()))}"
        return Bottleneck(conclusion=None, evidence=told, missing=missing)
    return Bottleneck(conclusion=NOTHING, evidence=_rests_on(sampled), missing=missing)


def _sampled(telemetry: Telemetry, measurements: Measurements | None, cores: int) -> Sampled:
    if measurements is None:
        return Sampled(telemetry=telemetry, sent_rate=0.0, received_rate=0.0, cores=cores)
    sent = measurements.bytes_sent / (measurements.duration / SECOND)
    counts = measurements.counts
    copies = counts.received / counts.sent if counts.sent else 1.0
    return Sampled(telemetry=telemetry.until(measurements.duration), sent_rate=sent, received_rate=sent * copies, cores=cores)


def _saturated(sampled: Sampled) -> list[Saturation]:
    """Most samples first, of as many in the order of the rules."""
    found = []
    for rule in RULES:
        held = rule.holds(sampled)
        known = held | (sampled.known(*rule.needs) if rule.needs else True)
        times, of = int(held.sum()), int(known.sum())
        if times >= max(LEAST_SAMPLES, LEAST_SHARE * of):
            evidence = f"{rule.tell(sampled, held)}, in {times} of {of} samples"
            found.append(Saturation(conclusion=rule.conclusion, evidence=evidence, share=times / of))
    return sorted(found, key=lambda one: -one.share)


def _window(measurements: Measurements, sampled: Sampled) -> Saturation | None:
    """Messages waited for their stream's window for most of what publishing took."""
    latencies = measurements.latencies
    sent, latency = measurements.counts.sent, latencies.get("publish") or latencies.get("send_delay")
    if not sent or latency is None:
        return None
    blocked = measurements.blocked / sent
    if blocked < max(WINDOW_LEAST, WINDOW_SHARE * latency.mean):
        return None
    what = "publish latency" if "publish" in latencies else "send delay"
    told = f"messages waited {format_duration(blocked)} before a full window, of a mean {what} of {format_duration(latency.mean)}"
    return Saturation(conclusion="publisher window", evidence="; ".join(filter(None, [told, _rests_on(sampled)])))


def _rests_on(sampled: Sampled) -> str:
    """What the broker and the queues were like, and which rules had nothing to look at."""
    blind = [rule.conclusion for rule in RULES if rule.everywhere and rule.needs and not sampled.known(*rule.needs).any()]
    known = sampled.known("broker.busiest")
    busy = sampled.thread("broker", sampled.broker, known) if known.any() else ""
    standing = any(sampled.stands(name).any() for name in QUEUES)
    queues = "no queue stood" if sampled.telemetry.knows("workers.unsent") and not standing else ""
    not_known = f"of {', '.join(blind)} nothing is known" if blind else ""
    return ", ".join(filter(None, [busy, queues, not_known]))
