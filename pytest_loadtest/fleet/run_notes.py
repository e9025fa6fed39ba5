"""The notes of a report about a run's conditions: certificates, clocks, versions of the target.

:func:`~pytest_loadtest.fleet.judge.conclude_run` calls it, in the controller's thread that ends a
run and in the command ``aggregate``. Pure: facts in, sentences out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_loadtest.plan.hosts import clocks_needed
from pytest_loadtest.values.quantities import format_duration
from pytest_loadtest.values.wording import counted, exact, format_value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_loadtest.metrics.measurements import Measurements
    from pytest_loadtest.observe.telemetry import Telemetry
    from pytest_loadtest.pipeline.run_file import RunFile
    from pytest_loadtest.profile import Profile


def unchecked_host_notes(profile: Profile, broker: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a note if the names in the target's certificates were not checked."""
    note = profile.driver.unchecked_host(
        str(broker.get(key) or "") for key in ("url", "subscriberUrl", "adminUrl")
    )
    return () if note is None else (note,)


def route_notes(measurements: Measurements, profile: Profile) -> tuple[str, ...]:
    """Return what the service probably did wrong if nothing came through it."""
    counts = measurements.counts
    if profile.route is None or counts.received or not counts.sent:
        return ()
    route = profile.route.route()
    outputs = ", ".join(route.output)
    note = f"no message came on {outputs}: the service must have subscribed to {route.input}"
    note += " before the load begins"
    astray = (counts.foreign or 0) + (counts.corrupt or 0)
    # Workers keep the first messages without an envelope of this run: what is foreign beside those
    # has one, and came on the output of another topic.
    if astray and not measurements.strays:
        note = f"{counted(astray, 'message')} came on the output of another topic than the input's:"
        note += " the service must send each output to the topic of the same number"
    elif astray:
        note = f"{counted(astray, 'message')} on {outputs} had no envelope of this run:"
        note += " the service must pass it on"
        note += f" unchanged ({route.sent} of inputs, {route.received} of outputs)"
    return (note,)


def clock_notes(measurements: Measurements, run: RunFile, profile: Profile) -> tuple[str, ...]:
    """Return the error of the clocks of other hosts, and the share of deliveries that have none.

    There is nothing to say if all workers ran on the controller's host, or if the run sends nothing
    and so has no latencies between hosts.
    """
    if not measurements.clocks or not measurements.counts.offered:
        return ()
    errors = ", ".join(
        f"{clock.host} ±{format_duration(clock.error)}" for clock in measurements.clocks
    )
    between = f"latencies between hosts are exact to the error of their clocks: {errors}"
    within = measurements.within_hosts
    received = measurements.counts.received
    if within is None or not received:
        return (between,)
    share = format_value(within.deliveries / received, "ratio")
    on_one_host = f"{exact(within.deliveries)} of {exact(received)} deliveries ({share})"
    if within.complete:
        note = (
            f"{on_one_host} are within one host:"
            " their latencies do not depend on the clocks of several hosts"
        )
        if measurements.uneven_hosts:
            uneven = ", ".join(measurements.uneven_hosts)
            note += f"; the clock of host {uneven} was set while load ran"
        return (note,)

    notes = [f"{between}; {on_one_host} are within one host"]
    if profile.pair_consumers is not None:
        hosts = len(set(run.worker_hosts.values()))
        reason = clocks_needed(run.topics, hosts, delayed=profile.delays is not None)
        if reason:
            notes.append(reason)
    return tuple(notes)


def seen_versions(
    broker: Mapping[str, Any], telemetry: Telemetry | None
) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """Return the target's facts with the versions that it reported while load ran, and notes.

    A note says that it was not one version all the time, or not that from before the load.
    Without such reports the version is that from the start of the target, which the facts have.
    """
    if telemetry is None or not telemetry.versions:
        return broker, ()
    prefix = f"{broker['name']} "
    versions = {name.removeprefix(prefix): at for name, at in telemetry.versions.items()}
    first, *later = versions
    notes = []
    if later:
        changes = ", ".join(
            f"{version} from {format_duration(versions[version])} into the phase"
            for version in later
        )
        notes.append(
            f"the target's version changed while load ran: {first} first, {changes}: the results "
            "are those of no single version"
        )
    before = broker["version"]
    if before not in ("unknown", *first.split(" and ")):
        notes.append(
            f"the target's version was {before} before this phase, and its settings are those from "
            "then"
        )
    return {**broker, "version": ", then ".join(versions)}, tuple(notes)
