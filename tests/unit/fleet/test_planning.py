"""Checks of a plan against this machine, before any load."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from builders.plans import loopback, made

from pytest_loadtest import profile as profiles
from pytest_loadtest.errors import GeneratorLimited, UsageError
from pytest_loadtest.fleet import planning
from pytest_loadtest.fleet.messages import Part, Request
from pytest_loadtest.fleet.options import Options
from pytest_loadtest.plan.hosts import CONTROLLER, HostShare
from pytest_loadtest.plan.scaling import Machine

if TYPE_CHECKING:
    from pathlib import Path


def test_a_plan_whose_samples_exceed_the_disk_is_rejected(tmp_path: Path) -> None:
    """With both sizes; ``--load-force`` tries it."""
    profile = loopback(rate=100_000, duration="87000h")
    options = Options(results=tmp_path / "not" / "there" / "yet")
    request = Request(
        nodeid="t", attempt=1, profile=profile, source="p.yaml", parts=(Part(profile=profile),)
    )
    with pytest.raises(
        GeneratorLimited, match=r"samples and results need 461 TiB below .*yet, \S+ .iB are free"
    ):
        planning.check_capacity(request, [made(profile)], options)
    planning.check_capacity(request, [made(profile)], replace(options, force=True))
    planning.check_capacity(request, [made(loopback())], options)


def test_a_folder_for_results_that_cannot_be_written_is_an_error_before_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with --load-force; a folder that does not exist yet is made."""
    profile = loopback()
    request = Request(
        nodeid="t", attempt=1, profile=profile, source="p.yaml", parts=(Part(profile=profile),)
    )
    (tmp_path / "file").write_text("")
    with pytest.raises(
        UsageError,
        match=r"load_results .*file/results: .*file is not a folder: name a folder that can be written",
    ):
        planning.check_capacity(
            request, [made(profile)], Options(results=tmp_path / "file" / "results", force=True)
        )
    monkeypatch.setattr(
        planning.os, "access", lambda path, mode: path != tmp_path
    )  # root may write everywhere
    with pytest.raises(
        UsageError, match=r"load_results .*results: .* is not writable: name a folder"
    ):
        planning.check_capacity(
            request, [made(profile)], Options(results=tmp_path / "results", force=True)
        )


def test_samples_that_other_hosts_store_elsewhere_need_no_disk_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Samples of this host's own workers still do: they are recorded here before they are stored. So does the aggregation, 5.5 TiB."""
    profile, machine = (
        loopback(rate=100_000, duration="87000h"),
        Machine(cores=64, memory=1 << 50, files=1 << 20, ports=1 << 15),
    )
    shares = [
        HostShare(name=name, workers=1, of=2, machine=machine) for name in (CONTROLLER, "h1", "h2")
    ]
    request = Request(
        nodeid="t", attempt=1, profile=profile, source="p.yaml", parts=(Part(profile=profile),)
    )
    options = Options(results=tmp_path, samples="s3://bucket", hosts=tuple(shares[1:]))
    monkeypatch.setattr(planning, "machine", lambda: machine)
    monkeypatch.setattr(planning.shutil, "disk_usage", lambda path: SimpleNamespace(free=10 << 40))
    planning.check_capacity(request, [made(profile)], options)
    for changed, need in (
        (replace(options, hosts=tuple(shares[:2])), 233),
        (replace(options, hosts=()), 461),
        (replace(options, samples=None), 461),
    ):
        with pytest.raises(GeneratorLimited, match=rf"samples and results need {need} TiB below "):
            planning.check_capacity(request, [made(profile)], changed)


def test_a_plan_that_needs_too_many_open_files_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With both numbers; fewer subscribers are accepted."""
    here = Machine(cores=64, memory=1 << 40, files=1100)
    monkeypatch.setattr(planning, "machine", lambda: here)
    text = "name: p\nproducerRate: 1\nmessageSize: 64\ntestDuration: 1s\nsubscriptionsPerTopic: 2000\ndriver: {name: mqtt}\nslo: {loss: 0}\n"
    profile = profiles.loads(text, "p.yaml")
    options = Options(results=tmp_path)
    request = Request(
        nodeid="t", attempt=1, profile=profile, source="p.yaml", parts=(Part(profile=profile),)
    )
    with pytest.raises(
        GeneratorLimited, match=r"the broker would have 2,101 files open, a process may have 1,100"
    ):
        planning.check_capacity(request, [made(profile, workers=3, machine=here)], options)
    planning.check_capacity(request, [made(profile, workers=3, machine=here, scale=0.4)], options)


@pytest.mark.parametrize(("driver", "remedy"), [
    ("{name: pulsar, client: library}", "the library client of Pulsar cannot choose its source address: write driver: {client: native}, or leave"),
    ("{name: pulsar, client: native}", None),
    ("{name: mqtt, client: library}", None),
])  # fmt: skip
def test_a_client_that_cannot_choose_its_source_address_is_an_error_before_load(
    driver: str, remedy: str | None, tmp_path: Path
) -> None:
    profile = profiles.loads(
        f"name: p\nproducerRate: 1\nmessageSize: 64\ntestDuration: 1s\ndriver: {driver}\nslo: {{loss: 0}}\n",
        "p.yaml",
    )
    request = Request(
        nodeid="t", attempt=1, profile=profile, source="p.yaml", parts=(Part(profile=profile),)
    )
    host = HostShare(
        name="h1", workers=1, of=1, machine=Machine(cores=64, memory=1 << 50), sources=("10.0.0.5",)
    )
    options = Options(results=tmp_path, target=f"{profile.driver.name}://broker:1", hosts=(host,))
    planning.make_plans(request, [CONTROLLER], replace(options, hosts=(replace(host, sources=()),)))
    if remedy is None:
        planning.make_plans(request, [CONTROLLER], options)
        return
    with pytest.raises(UsageError, match="sourceAddresses of h1: ") as raised:
        planning.make_plans(request, [CONTROLLER], options)
    assert remedy in str(raised.value)


def test_installed_versions_have_this_package_and_none_that_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(planning, "_PACKAGES", ("numpy", "no-such-package"))
    versions = planning.installed_versions()
    assert {"python", "numpy"} <= set(versions)
    assert "no-such-package" not in versions


def test_auto_plans_several_workloads_that_this_machine_carries_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has its share of cores, of a worker and of the network."""
    machine = Machine(cores=2, memory=1 << 40, bandwidth=1e9)
    monkeypatch.setattr(planning, "machine", lambda: machine)
    profile = loopback(rate=1_000_000, duration="1s")
    parts = tuple(Part(profile=profile) for _ in range(8))
    request = Request(nodeid="t", attempt=1, profile=profile, source="p.yaml", parts=parts)
    options = Options(results=tmp_path, scale="auto")
    hosts = [CONTROLLER] * 2
    plans = planning.make_plans(request, hosts, options)
    planning.check_capacity(request, plans, options)
    (alone,) = planning.make_plans(replace(request, parts=parts[:1]), hosts, options)
    together = sum(plan.rate for plan in plans)
    assert alone.rate / 2 < together <= 1.05 * alone.rate
