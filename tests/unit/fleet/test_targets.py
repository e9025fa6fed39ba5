"""The target of a run: its address or image, its keys, and how long it is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from waiting_for import gone

from pytest_loadtest import profile as profiles
from pytest_loadtest.brokers.base import Broker, BrokerFacts
from pytest_loadtest.drivers.base import DriverFacts
from pytest_loadtest.drivers.mqtt.settings import MqttSettings, Tls
from pytest_loadtest.drivers.pulsar.settings import Authentication, PulsarSettings
from pytest_loadtest.errors import UsageError
from pytest_loadtest.fleet.messages import Part, Request
from pytest_loadtest.fleet.options import Options
from pytest_loadtest.fleet.planning import make_plans, plan_lines
from pytest_loadtest.fleet.targets import (
    Targets,
    check_addresses,
    check_broker,
    check_cluster,
    check_security,
    choose_address,
    has_admin,
    subscriber_url,
    unused_address,
    uses_this_machine,
    with_keys,
)
from pytest_loadtest.fleet.workload_run import make_workloads
from pytest_loadtest.kinds import BrokerStart, DriverKind

PROFILE = "name: p\nmessageSize: 64\nproducerRate: 1\ntestDuration: 1s\ndriver: {{name: {driver}}}\n{target}"
URL, IMAGE = "target: {url: 'mqtt://profile:1'}\n", "target: {image: profile/mosquitto}\n"
LOOPBACK = "with driver loopback and broker mode auto the run starts its own relay"
SECURITY = "target: {security: {auth: token}}\n"


def request_with(
    mark: dict[str, Any], options: dict[str, str], target: str = "", driver: str = "mqtt"
) -> tuple[Request, profiles.Profile, Options]:
    profile = profiles.loads(PROFILE.format(driver=driver, target=target), "p.yaml")
    request = Request(
        nodeid="t",
        attempt=1,
        profile=profile,
        parts=(Part(profile=profile),),
        source="p.yaml",
        **mark,
    )
    return request, profile, Options(results=Path("r"), **options)  # type: ignore[arg-type]


def address_of(
    mark: dict[str, str], options: dict[str, str], target: str = "", driver: str = "mqtt"
) -> tuple[str | None, ...]:
    request, profile, made = request_with(mark, options, target, driver)
    assert uses_this_machine(request, profile, made) is (
        choose_address(request, profile, made)[0] is None
    )
    return choose_address(request, profile, made)


@pytest.mark.parametrize(
    ("mark", "options", "target", "expected"),
    [
        ({}, {}, URL, ("mqtt://profile:1", None, None)),
        ({}, {}, IMAGE, (None, None, "profile/mosquitto")),
        ({}, {"image": "line/mosquitto"}, URL, (None, None, "line/mosquitto")),
        ({}, {"image": "line/mosquitto"}, IMAGE, (None, None, "line/mosquitto")),
        ({}, {"target": "mqtt://line:1"}, IMAGE, ("mqtt://line:1", None, None)),
        (
            {"target": "mqtt://mark:1"},
            {"image": "line/mosquitto"},
            "",
            ("mqtt://mark:1", None, None),
        ),
        (
            {},
            {"image": "line/mosquitto", "admin": "http://line:2"},
            "",
            (None, None, "line/mosquitto"),
        ),
        ({}, {"admin": "http://line:2"}, URL, ("mqtt://profile:1", "http://line:2", None)),
    ],
)
def test_the_first_source_with_an_address_or_image_decides(
    mark: dict[str, str], options: dict[str, str], target: str, expected: tuple[str | None, ...]
) -> None:
    """The mark, the command line, then the profile."""
    assert address_of(mark, options, target) == expected


@pytest.mark.parametrize(
    ("options", "target", "expected"),
    [
        ({}, "", True),
        ({}, "target: {url: 'pulsar://profile:1'}\n", False),
        ({}, "target: {url: 'pulsar://profile:1', adminUrl: 'http://profile:2'}\n", True),
        ({"target": "pulsar://line:1"}, "", False),
        ({"target": "pulsar://line:1", "admin": "http://line:2"}, "", True),
        ({"broker": "process"}, "target: {url: 'pulsar://profile:1'}\n", True),
    ],
)
def test_a_plan_counts_on_the_admin_rest_that_the_run_will_have(
    options: dict[str, str], target: str, expected: bool
) -> None:
    """Only at an address without an admin URL is the namespace not applied."""
    request, profile, made = request_with(
        {}, options, target + "seed: 1\n", "pulsar, namespacePrefix: a/b"
    )
    assert has_admin(request, profile, made) is expected
    assert ("needs target.adminUrl" in "\n".join(plan_lines(request, 1, made))) is not expected


def test_loopback_has_neither_address_nor_image() -> None:
    """It brings its own relay, also in a session whose other tests use an image."""
    assert address_of({}, {"image": "line/mosquitto"}, driver="loopback") == (None, None, None)


@pytest.mark.parametrize(
    ("mark", "options", "named"),
    [
        ({}, {"broker": "embedded"}, "--load-broker-mode embedded"),
        ({}, {"broker": "container"}, "--load-broker-mode container"),
        ({"broker": "url"}, {"target": "pulsar://line:1"}, "pulsar://line:1"),
        ({"target": "pulsar://mark:1"}, {}, "pulsar://mark:1"),
        ({}, {"image": "line/pulsar"}, "line/pulsar"),
    ],
)
def test_security_needs_a_broker_that_the_run_starts_as_a_process(
    mark: dict[str, Any], options: dict[str, str], named: str
) -> None:
    """The error names the contradiction, with the line of the profile."""
    wanted = rf"p\.yaml:6: target\.security is for a broker that the run starts as a process, not for {named}: leave it out"
    with pytest.raises(UsageError, match=wanted):
        check_security(*request_with({**mark, "security_line": 6}, options, SECURITY, "pulsar"))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (
            {"target": "mqtt://h"},
            "target 'mqtt://h' is not an address of Pulsar: it begins with pulsar://",
        ),
        (
            {"target": "pulsar://h", "admin": "pulsar://h"},
            "admin URL 'pulsar://h' is not an address of an admin REST: it begins with http:// or https://",
        ),
    ],
)
def test_an_address_of_another_kind_is_a_usage_error_before_anything_is_reached(
    options: dict[str, str], problem: str
) -> None:
    with pytest.raises(UsageError, match=problem):
        check_addresses(*request_with({}, options, "", "pulsar"))


def test_security_of_a_broker_without_it_is_a_usage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan reports it too. Every broker of this package has it; one of a plugin need not."""
    plain = BrokerStart(ways={"process": "somewhere:start"}, label="Plain")
    monkeypatch.setattr(DriverKind, "start_of", lambda _kind, _broker: plain)
    wanted = r"p\.yaml:6: target\.security: Plain is started without TLS and authentication: leave it out$"
    with pytest.raises(UsageError, match=wanted):
        check_security(
            *request_with({"security_line": 6}, {"broker": "process"}, SECURITY, "pulsar")
        )


@pytest.mark.parametrize("mode", ["auto", "process"])
def test_security_of_a_broker_started_by_the_run_is_accepted(mode: str) -> None:
    """With ``--load-broker-mode process`` or auto; without target.security every mode is accepted."""
    check_security(*request_with({}, {"broker": mode}, SECURITY, "pulsar"))
    check_security(*request_with({}, {"broker": "embedded"}, "", "pulsar"))


def test_keys_of_the_run_fill_only_settings_missing_in_the_profile() -> None:
    """The user's authentication is kept as a whole; the profile object is not changed."""
    ours = {
        "tls_trust_certs_file_path": "/ca",
        "authentication": Authentication(plugin="token", token_file="/t"),
    }
    facts = BrokerFacts(
        name="Pulsar", version="1", mode="process", url="pulsar+ssl://h", client=ours
    )
    _, profile, _ = request_with(
        {}, {}, SECURITY, "pulsar, authentication: {plugin: token, token: mine}"
    )
    driver = with_keys(profile, facts).driver
    assert isinstance(driver, PulsarSettings)
    assert isinstance(profile.driver, PulsarSettings)
    assert driver.authentication == profile.driver.authentication
    assert (driver.tls_trust_certs_file_path, profile.driver.tls_trust_certs_file_path) == (
        "/ca",
        None,
    )
    assert "tls_trust_certs_file_path" in driver.model_fields_set


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("", ("/ca", "/cert", "/key")),
        ("version: TLSv1.3", ("/ca", "/cert", "/key")),
        ("caFile: mine", ("mine", "/cert", "/key")),
        ("certFile: mine", ("/ca", "mine", None)),
    ],
)
def test_key_files_of_the_run_are_added_to_tls_settings_of_the_profile(
    said: str, expected: tuple[str | None, ...]
) -> None:
    """The certificate of the client and its key always come from the same source."""
    ours = {"tls": Tls(ca_file="/ca", cert_file="/cert", key_file="/key")}
    facts = BrokerFacts(name="mosquitto", version="2", mode="process", url="mqtts://h", client=ours)
    _, profile, _ = request_with({}, {}, "", f"mqtt, tls: {{{said}}}" if said else "mqtt")
    driver = with_keys(profile, facts).driver
    assert isinstance(driver, MqttSettings)
    assert driver.tls is not None
    assert (driver.tls.ca_file, driver.tls.cert_file, driver.tls.key_file) == expected
    assert driver.tls.version == ("TLSv1.3" if "TLSv1.3" in said else None)


@pytest.mark.parametrize(
    ("url", "beside"),
    [("mqtt://profile:1", "mqtts://profile:2"), ("mqtt://line:1", None), (None, None)],
)
def test_the_subscriber_address_applies_only_to_the_url_of_the_profile(
    url: str | None, beside: str | None
) -> None:
    """Another target, or a started one, is for all clients."""
    _, profile, _ = request_with(
        {}, {}, "target: {url: 'mqtt://profile:1', subscriberUrl: 'mqtts://profile:2'}"
    )
    assert subscriber_url(url, profile) == beside


ARTEMIS = "mqtt, broker: artemis"


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"target": "mqtt://line:1"}, "mqtt://line:1"),
        ({"image": "line/mosquitto"}, "line/mosquitto"),
        ({"broker": "container"}, "--load-broker-mode container"),
    ],
)
def test_a_profile_that_names_its_broker_rejects_another_one(
    options: dict[str, str], named: str
) -> None:
    """Unless the profile is changed."""
    wanted = rf"p\.yaml:5: driver\.broker: artemis is a process that the run starts, but the run is to use {named}: leave one of the two out"
    with pytest.raises(UsageError, match=wanted):
        check_broker(*request_with({"broker_line": 5}, options, driver=ARTEMIS))


def test_a_named_broker_may_be_started_in_its_own_ways() -> None:
    """Mosquitto may be a container; without a name every way is accepted."""
    for mode in ("auto", "process"):
        check_broker(*request_with({}, {"broker": mode}, driver=ARTEMIS))
    check_broker(*request_with({}, {"broker": "container"}, driver="mqtt, broker: mosquitto"))
    check_broker(*request_with({}, {"target": "mqtt://line:1"}))


@pytest.fixture
def relay(tmp_path: Path) -> Iterator[Callable[[str, str], Broker]]:
    """Return a function that gets a relay with this delay for a test."""
    _, _, options = request_with({}, {}, driver="loopback")
    targets = Targets(options, tmp_path, lambda *_, **__: None)

    def get(test: str, delay: str) -> Broker:
        request, profile, _ = request_with({}, {}, driver=f"loopback, delay: {delay}")
        return targets.get(replace(request, nodeid=test), profile)

    yield get
    targets.close()


def test_only_one_idle_broker_is_kept(relay: Callable[[str, str], Broker]) -> None:
    """So a matrix of settings does not fill the machine."""
    first, second = relay("a", "1ms"), relay("b", "2ms")
    assert relay("c", "1ms") is first
    third = relay("d", "3ms")
    assert [gone(broker.facts.pid) for broker in (first, second, third)] == [False, True, False]
    assert relay("e", "1ms") is first
    assert relay("f", "2ms") is not second


def test_all_brokers_of_one_test_keep_running(relay: Callable[[str, str], Broker]) -> None:
    """However many its workloads need."""
    assert not any(
        gone(broker.facts.pid) for broker in [relay("a", f"{ms}ms") for ms in range(1, 5)]
    )


def test_a_cluster_is_only_for_processes_that_the_run_starts() -> None:
    cluster = "broker: {brokers: 2, bookies: 3}\n"
    check_cluster(*request_with({}, {"broker": "process"}, cluster, driver="pulsar"))
    with pytest.raises(
        UsageError,
        match=r"^p\.yaml:5: broker\.brokers and bookies .*, not for --load-broker-mode container: leave one of the two out$",
    ):
        check_cluster(
            *request_with({"cluster_line": 5}, {"broker": "container"}, cluster, driver="pulsar")
        )
    with pytest.raises(UsageError, match="not for pulsar://line:1"):
        check_cluster(*request_with({}, {"target": "pulsar://line:1"}, cluster, driver="pulsar"))
    check_cluster(*request_with({}, {"broker": "container"}, driver="pulsar"))


def test_the_address_of_a_profile_does_not_keep_a_cluster_from_starting_as_processes() -> None:
    """As with a single broker: a driver file of OMB always has an address. Otherwise the error names both, and the option."""
    text = "broker: {bookies: 3}\ntarget: {url: 'pulsar://h:1', adminUrl: 'http://h'}\n"
    check_cluster(*request_with({}, {"broker": "process"}, text, driver="pulsar"))
    check_cluster(*request_with({"broker": "process"}, {}, text, driver="pulsar"))
    wanted = (
        "not for pulsar://h:1: leave one of the two out, or run with --load-broker-mode process$"
    )
    with pytest.raises(UsageError, match=wanted):
        check_cluster(*request_with({}, {}, text, driver="pulsar"))


@pytest.mark.parametrize(
    ("mark", "options", "driver", "expected"),
    [
        ({}, {"target": "mqtt://line:1"}, "mqtt", {}),
        ({}, {"target": "mqtt://line:1", "broker": "url"}, "mqtt", {}),
        ({}, {}, "loopback", {}),
        (
            {},
            {"target": "mqtt://line:1"},
            "loopback",
            {"target": f"mqtt://line:1 is not tested: {LOOPBACK}"},
        ),
        (
            {"target": "mqtt://mark:1"},
            {"target": "mqtt://line:1"},
            "loopback",
            {"target": f"mqtt://mark:1 is not tested: {LOOPBACK}"},
        ),
        (
            {"broker": "process"},
            {"target": "mqtt://line:1"},
            "mqtt",
            {
                "target": "mqtt://line:1 is not tested: with driver mqtt and broker mode process the"
                " run starts its own broker"
            },
        ),
    ],
)
def test_an_address_that_is_not_tested_is_named_in_plan_and_run(
    mark: dict[str, str],
    options: dict[str, str],
    driver: str,
    expected: dict[str, str],
    tmp_path: Path,
) -> None:
    """Otherwise a met run would seem to be one of the broker at that address."""
    request, profile, made = request_with(mark, options, "", driver)
    assert unused_address(request, profile, made) == expected
    made = replace(made, results=tmp_path)
    plan = "\n".join(plan_lines(request, 1, made))
    plans = make_plans(request, ["here"], made)
    (workload,) = make_workloads(request, plans, ["gw0"], tmp_path, made)
    workload.set_driver_facts(DriverFacts(client="c", version="1"))
    assert workload.run_file().facts.driver["not_applied"] == expected
    for text in expected.values():
        assert f"  target     not applied: {text}" in plan
