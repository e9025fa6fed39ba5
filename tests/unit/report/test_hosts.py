"""The hosts of the generator: what each of them used."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from builders.documents import BOTTLENECK, document
from builders.measurements import MS, made
from builders.telemetry import made_telemetry, with_host

from pytest_loadtest.observe.conclusion import Bottleneck
from pytest_loadtest.observe.telemetry import SampledHost, Telemetry, merge_host
from pytest_loadtest.report.bottleneck import bottleneck_section
from pytest_loadtest.report.hosts import host_use_facts, host_uses
from pytest_loadtest.report.terminal import summary_lines

if TYPE_CHECKING:
    from pytest_loadtest.report.document import RunDocument


def of_hosts(telemetry: Telemetry, **changed: Any) -> RunDocument:
    section = bottleneck_section(Bottleneck(conclusion="generator", evidence="busy"), telemetry)
    return document(parts={"bottleneck": section}, **changed)


def workers(*names: str) -> tuple[Any, ...]:
    return tuple(
        replace(made().workers[0], worker=name, longest_stall=(i + 1) * MS)
        for i, name in enumerate(names)
    )


def test_a_run_on_one_host_has_no_line_about_hosts() -> None:
    assert host_uses(document()) == []
    assert list(host_use_facts(document(parts={"bottleneck": BOTTLENECK}))) == []
    assert not any(
        "hosts " in line for line in summary_lines(document(parts={"bottleneck": BOTTLENECK}))
    )


def test_each_host_has_what_its_workers_used_the_busiest_first() -> None:
    """Also the controller's, if it has workers; its samples have no name of a host."""
    telemetry = with_host(
        with_host(made_telemetry(worker_gw0__cpu=0.6), "h1", unsent=2**20),
        "h2",
        cpu=1.5,
        busiestWanted=1.0,
    )
    run = of_hosts(telemetry, workers=workers("gw0", "h1-1", "h2-1"))
    uses = {use.name: use for use in host_uses(run)}
    assert list(uses) == ["h2", "h1", "controller"]
    assert [(use.usual_cpu, use.usual_busiest, use.cores) for use in uses.values()] == [
        (1.5, 1.0, 4),
        (0.2, 0.4, 4),
        (0.6, 0.4, 2),
    ]
    assert [use.longest_stall for use in uses.values()] == [3 * MS, 2 * MS, 1 * MS]
    assert [use.unsent for use in uses.values()] == [0, 2**20, 0]
    expected = (
        "  hosts      h2 1.50 of 4 cores, busiest thread needed 1.00; h1 0.20 of 4 cores, busiest thread needed 0.40;"
        " controller 0.60 of 2 cores, busiest thread needed 0.40"
    )
    assert expected in summary_lines(run)


def test_a_host_that_was_not_sampled_is_unknown_and_not_idle() -> None:
    """One worker without a value is enough: the sum of the others is not that of the host."""
    host = SampledHost(name="h1", workers=("h1-1", "h1-2"), cores=None, cost=None)
    telemetry = merge_host(
        made_telemetry(), host, Telemetry.of_rows([], [], missing=("sampling of h1-1: it failed",))
    )
    (use,) = host_uses(of_hosts(telemetry, workers=workers("h1-1", "h1-2")))
    assert (use.usual_cpu, use.usual_busiest, use.unsent, use.cost) == (None, None, None, None)
    assert list(host_use_facts(of_hosts(telemetry, workers=workers("h1-1", "h1-2")))) == [
        ("hosts", "h1 not sampled")
    ]
    half = with_host(made_telemetry(), "h1")
    half = merge_host(
        half,
        SampledHost(name="h1", workers=("h1-2",), cores=4, cost=0.1),
        Telemetry.of_rows([], []),
    )
    assert host_uses(of_hosts(half))[0].usual_cpu is None


def test_the_summary_has_the_four_busiest_hosts() -> None:
    telemetry = made_telemetry()
    for number in range(6):
        telemetry = with_host(telemetry, f"h{number}", busiestWanted=number / 10)
    ((_, text),) = host_use_facts(of_hosts(telemetry, workers=workers("h1-1")))
    assert [part.split()[0] for part in text.split("; ")] == ["h5", "h4", "h3", "h2", "and"]
    assert text.endswith("and 2 more")
