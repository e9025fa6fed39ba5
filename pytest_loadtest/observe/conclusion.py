"""The bottleneck of a run: the side that was saturated, with the evidence. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pytest_loadtest.observe.rules import RULES, Sampled
from pytest_loadtest.values.quantities import MILLISECOND, SECOND, format_duration
from pytest_loadtest.values.wording import counted
from pytest_loadtest.verdict.observations import name_full_windows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_loadtest.metrics.measurements import Measurements
    from pytest_loadtest.observe.telemetry import Telemetry

NOTHING: Final = "nothing saturated"
LEAST_SAMPLES: Final = 2
LEAST_SHARE: Final = 0.1
"""The least share of samples in which a side must be saturated to be reported.

They are at least :data:`LEAST_SAMPLES`.
"""
MOSTLY: Final = 0.5
"""The least share of samples at which a saturated side explains a full publisher window.

To a publisher, every slow side looks like one.
"""
WINDOW_SHARE: Final = 0.5
WINDOW_LEAST: Final = MILLISECOND


@dataclass(frozen=True, kw_only=True)
class Saturation:
    """A saturated side.

    :param evidence: a sentence. :param share: share of the samples in which it was saturated.
    """

    conclusion: str
    evidence: str
    share: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Bottleneck:
    """The limit of a run.

    :param conclusion: one of the rules' names, ``publisher window`` or :data:`NOTHING`; None:
        unknown, for there are too few samples or a source was lost.
    :param also: other saturated sides. :param missing: sentences about what was not sampled.
    """

    conclusion: str | None
    evidence: str
    also: tuple[Saturation, ...] = ()
    missing: tuple[str, ...] = ()


def conclude(
    telemetry: Telemetry,
    measurements: Measurements | None,
    *,
    generator: Sequence[str] = (),
    cores: int,
) -> Bottleneck:
    """Return the side that was saturated most of the time.

    :param telemetry: samples of the phase.
    :param measurements: the run's measurements; None if it broke.
    :param cores: number of cores of this machine.
    :param generator: the verdict's reasons why the generator limited the run; empty if it did not.
    """
    sampled = _sampled(telemetry, measurements, cores)
    saturated = _saturated(sampled)
    ranked = [side for side in saturated if side.share >= MOSTLY]
    if measurements is not None:
        # Messages that were dropped before full windows are the target's doing, also on a machine
        # where the worker waits for a core.
        if measurements.full_windows is not None:
            ranked = [side for side in ranked if side.conclusion != "generator"]
        ranked += _window(measurements, sampled)
    ranked += [side for side in saturated if side not in ranked]
    if generator:
        own = [side.evidence for side in ranked if side.conclusion == "generator"]
        others = [side for side in ranked if side.conclusion != "generator"]
        first = Saturation(conclusion="generator", evidence="; ".join((*generator, *own)))
        ranked = [first, *others]
    conclusion = None
    if ranked:
        conclusion = ranked[0].conclusion
        evidence = ranked[0].evidence
    elif len(sampled.telemetry) < LEAST_SAMPLES:
        number = counted(len(sampled.telemetry), "sample")
        evidence = f"too few samples to tell: {number} of the measured phase"
    elif telemetry.lost:
        evidence = (
            f"{NOTHING} in the samples, which end before the phase does:"
            f" {'; '.join(dict.fromkeys(telemetry.lost.values()))}"
        )
    else:
        conclusion = NOTHING
        evidence = _background(sampled)
    return Bottleneck(
        conclusion=conclusion,
        evidence=evidence,
        also=tuple(ranked[1:]),
        missing=telemetry.missing,
    )


def _sampled(telemetry: Telemetry, measurements: Measurements | None, cores: int) -> Sampled:
    if measurements is None:
        return Sampled(telemetry=telemetry, sent_rate=0.0, received_rate=0.0, cores=cores)
    seconds = measurements.duration / SECOND
    sent = measurements.bytes_sent / seconds
    counts = measurements.counts
    copies = counts.received / counts.sent if counts.sent else 1.0
    return Sampled(
        telemetry=telemetry.until(measurements.duration),
        sent_rate=sent,
        received_rate=sent * copies,
        cores=cores,
        input_rate=counts.sent / seconds,
    )


def _saturated(sampled: Sampled) -> list[Saturation]:
    """Return the saturated sides, those with the most samples first.

    Ties are in the order of the rules.
    """
    sides = []
    for rule in RULES:
        mask = rule.saturated(sampled)
        times = int(mask.sum())
        of = len(mask)
        with_value = sampled.has_value(*rule.needs)
        # A rule may read more columns than it needs, as of the broker's end of a connection: then
        # its share is of all samples.
        if with_value.any():
            of = int((mask | with_value).sum())
        if times >= max(LEAST_SAMPLES, LEAST_SHARE * of):
            evidence = f"{rule.describe(sampled, mask)}, in {times} of {of} samples"
            sides.append(
                Saturation(conclusion=rule.conclusion, evidence=evidence, share=times / of)
            )
    return sorted(sides, key=lambda side: -side.share)


def _window(measurements: Measurements, sampled: Sampled) -> list[Saturation]:
    """Return a full publisher window if it is the limit, else nothing."""
    waited = _waited(measurements)
    if not waited:
        return []
    evidence = "; ".join(filter(None, [waited, _background(sampled)]))
    return [Saturation(conclusion="publisher window", evidence=evidence)]


def _waited(measurements: Measurements) -> str:
    """Return text about full windows; "" if they are not the limit.

    They are if messages were dropped, or waited for them for at least half of their publish
    latency.
    """
    if measurements.full_windows is not None:
        return name_full_windows(measurements.full_windows)
    latencies = measurements.latencies
    kind = "publish latency" if "publish" in latencies else "send delay"
    latency = latencies.get("publish") or latencies.get("send_delay")
    sent = measurements.counts.sent
    if not sent or latency is None:
        return ""
    blocked = measurements.blocked / sent
    if blocked < max(WINDOW_LEAST, WINDOW_SHARE * latency.mean):
        return ""
    return (
        f"messages waited {format_duration(blocked)} for a full window,"
        f" of a mean {kind} of {format_duration(latency.mean)}"
    )


def _background(sampled: Sampled) -> str:
    """Return text about the broker's CPU, the queues, and the rules without samples."""
    facts = []
    with_value = sampled.has_value("broker.busiest")
    if with_value.any():
        facts.append(sampled.thread("broker", sampled.broker, with_value))
    queued = any(sampled.is_queued(name).any() for name in sampled.queues)
    if sampled.has_value("workers.unsent").any() and not queued:
        facts.append("no queue built up")
    unsampled = [
        rule.conclusion
        for rule in RULES
        if rule.everywhere and rule.needs and not sampled.has_value(*rule.needs).any()
    ]
    if unsampled:
        facts.append(f"no samples of {', '.join(unsampled)}")
    return ", ".join(facts)
