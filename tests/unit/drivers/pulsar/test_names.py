"""The names of a run, and what a run creates and deletes at a Pulsar cluster."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from pulsar_library_rig import context
from pulsar_rest import rest

from pytest_loadtest.drivers.base import TargetAddress
from pytest_loadtest.drivers.pulsar.bundle_split import LAST, position
from pytest_loadtest.drivers.pulsar.library.driver import PulsarDriver
from pytest_loadtest.drivers.pulsar.names import RunNames, own_topic
from pytest_loadtest.drivers.pulsar.settings import PulsarSettings
from pytest_loadtest.errors import TargetError, UsageError
from pytest_loadtest.message.route import Route
from pytest_loadtest.profile.omb_driver import read_driver
from pytest_loadtest.schedule.topology import Topology

if TYPE_CHECKING:
    from collections.abc import Sequence


def test_the_partitions_of_an_existing_topic_are_requested_once() -> None:
    """They are valid for the whole run, and 1 for an unpartitioned topic; after an error the next call asks again."""
    name, asked = "persistent://public/default/orders", []
    names = RunNames(context(name=name, partitions=1))
    answers: list[int | TargetError] = [TargetError("no answer"), 3, 5]

    def ask(topic: str) -> int:
        asked.append(topic)
        if isinstance(answer := answers.pop(0), TargetError):
            raise answer
        return answer

    with pytest.raises(TargetError, match="no answer"):
        names.look_up_partitions(ask)
    names.look_up_partitions(ask)
    names.look_up_partitions(ask)
    assert (names.partitions, asked) == (3, [name, name])
    plain = RunNames(context(name=name))
    plain.look_up_partitions(lambda _: 0)
    assert plain.partitions == 1


def test_a_missing_topic_is_an_error_with_a_remedy() -> None:
    """A run with topics of its own does not ask."""
    with pytest.raises(TargetError, match="orders does not exist at .*: create it first"):
        RunNames(context(name="persistent://public/default/orders")).look_up_partitions(
            lambda _: None
        )
    own = RunNames(context(partitions=4))
    own.look_up_partitions(lambda _: None)
    assert own.partitions == 4


def test_the_client_deletes_subscriptions_if_there_is_no_admin_rest() -> None:
    """It deletes those of the run, once, and none before the run could have created any."""
    name, deleted = "persistent://public/default/orders", []
    names = RunNames(context(name=name))

    def unsubscribe(topic: str, subscriptions: Sequence[str]) -> None:
        deleted.append((topic, list(subscriptions)))

    names.clean_up(unsubscribe)
    assert deleted == []
    names.prepare()
    names.clean_up(unsubscribe)
    names.clean_up(unsubscribe)
    assert deleted == [(name, ["loadtest-r-00000007-0", "loadtest-r-00000007-1"])]


def test_a_missing_tenant_is_created_and_deleted() -> None:
    """As OMB does for its namespacePrefix: for all clusters, and only a tenant that the run created is deleted."""
    space, tenant = "/admin/v2/namespaces/bench/ns-r", "/admin/v2/tenants/bench"
    answers: dict[str, tuple[int, object]] = {
        f"PUT {space}": (404, {"reason": "Tenant does not exist"}),
        "GET /admin/v2/clusters": (200, ["global", "one"]),
        f"DELETE {tenant}": (409, {"reason": "The tenant still has active namespaces"}),
    }
    with rest(answers, once={f"PUT {space}"}) as (url, asked):
        driver = PulsarDriver(context(PulsarSettings(namespace_prefix="bench/ns"), admin=url))
        driver.prepare()
        driver.cleanup()
        driver.cleanup()
    assert [what for what, _, _ in asked if "backlogQuota" not in what] == [
        f"PUT {space}", "GET /admin/v2/clusters", f"PUT {tenant}", f"PUT {space}", "PUT /admin/v2/persistent/bench/ns-r/topic-0",
        f"DELETE {space}?force=true", f"DELETE {tenant}",
    ]  # fmt: skip
    assert json.loads(asked[2][2]) == {"adminRoles": [], "allowedClusters": ["one"]}


EXISTING = "persistent://public/default/orders"
ORDERS = "/admin/v2/persistent/public/default/orders"


@pytest.mark.parametrize("partitions", [0, 3])
def test_a_run_on_an_existing_topic_deletes_only_its_own_subscriptions(partitions: int) -> None:
    """Those with its run and nonce; not those of others or of another run. It creates nothing."""
    mine = ["loadtest-r-00000007-0", "loadtest-r-00000007-1"]
    others = ["theirs", "loadtest-r-00000008-0", "loadtest-rr-00000007-0", "loadtest-r-00000007"]
    answers = {
        f"GET {ORDERS}/partitions": (200, {"partitions": partitions}),
        f"GET {ORDERS}/subscriptions": (200, others + mine),
    }
    with rest(answers) as (url, asked):
        driver = PulsarDriver(context(admin=url, name=EXISTING))
        driver.prepare()
        driver.cleanup()
        driver.cleanup()
    assert [what for what, _, _ in asked if not what.startswith("GET")] == [
        f"DELETE {ORDERS}/subscription/{name}?force=true" for name in mine
    ]


@pytest.mark.parametrize("where", ["partitions", "stats"])
def test_a_missing_topic_is_named_and_nothing_is_created_or_deleted(where: str) -> None:
    """Newer brokers report it for the request for partitions, older ones for that of the statistics."""
    answers: dict[str, tuple[int, object]] = {f"GET {ORDERS}/partitions": (200, {"partitions": 0})}
    answers[f"GET {ORDERS}/{where}"] = (404, {"reason": "Topic not found"})
    with rest(answers) as (url, asked):
        driver = PulsarDriver(context(admin=url, name=EXISTING))
        with pytest.raises(
            TargetError,
            match=rf"topic: {EXISTING} does not exist at pulsar://127\.0\.0\.1:1: create it first",
        ):
            driver.prepare()
        driver.cleanup()
    assert {what.partition(" ")[0] for what, _, _ in asked} == {"GET"}


ROUTE = Route(input="persistent://a/b/orders-{topic}", output=("confirmed-{topic}",))
CONFIRMED = "/admin/v2/persistent/public/default/confirmed-0"
INPUT = "/admin/v2/persistent/a/b/orders-0"


def test_the_names_of_a_route_are_full_ones() -> None:
    """A short name is in the default namespace."""
    names = RunNames(context(route=ROUTE))
    assert names.topic(0) == "persistent://a/b/orders-0"
    assert names.outputs(0) == ["persistent://public/default/confirmed-0"]
    assert names.subscription(1) == "loadtest-r-00000007-1"
    assert names.namespace is None
    own = RunNames(context())
    assert own.outputs(0) == [own.topic(0)]
    several = RunNames(context(route=replace(ROUTE, output=("a-{topic}", "b-{topic}"))))
    assert several.topic_names().outputs == (
        "persistent://public/default/a-0",
        "persistent://public/default/b-0",
    )


def test_a_run_deletes_those_topics_of_a_route_that_it_made() -> None:
    answers: dict[str, tuple[int, object]] = {
        f"GET {INPUT}/partitions": (200, {"partitions": 0}),
        f"GET {CONFIRMED}/partitions": (404, {"reason": "Topic not found"}),
        f"GET {CONFIRMED}/subscriptions": (200, ["theirs", "loadtest-r-00000007-0"]),
    }
    with rest(answers) as (url, asked):
        names = RunNames(context(admin=url, route=ROUTE))
        names.prepare()
        names.clean_up(lambda *_: None)
        names.clean_up(lambda *_: None)
    assert [what for what, _, _ in asked if not what.startswith("GET")] == [
        f"PUT {CONFIRMED}",
        f"DELETE {CONFIRMED}/subscription/loadtest-r-00000007-0?force=true",
        f"DELETE {CONFIRMED}?force=true",
    ]


def test_every_output_of_a_route_is_made_and_loses_our_subscriptions() -> None:
    rejected = CONFIRMED.replace("confirmed", "rejected")
    answers: dict[str, tuple[int, object]] = {
        f"GET {INPUT}/partitions": (200, {"partitions": 0}),
        f"GET {CONFIRMED}/partitions": (200, {"partitions": 0}),
        f"GET {rejected}/partitions": (404, {"reason": "Topic not found"}),
        f"GET {CONFIRMED}/subscriptions": (200, ["loadtest-r-00000007-0"]),
        f"GET {rejected}/subscriptions": (200, ["loadtest-r-00000007-0"]),
    }
    with rest(answers) as (url, asked):
        outputs = ("confirmed-{topic}", "rejected-{topic}")
        names = RunNames(context(admin=url, route=replace(ROUTE, output=outputs)))
        names.prepare()
        names.clean_up(lambda *_: None)
    assert [what for what, _, _ in asked if not what.startswith("GET")] == [
        f"PUT {rejected}",
        f"DELETE {CONFIRMED}/subscription/loadtest-r-00000007-0?force=true",
        f"DELETE {rejected}/subscription/loadtest-r-00000007-0?force=true",
        f"DELETE {rejected}?force=true",
    ]


def test_topics_of_a_route_have_no_partitions() -> None:
    answers: dict[str, tuple[int, object]] = {f"GET {INPUT}/partitions": (200, {"partitions": 3})}
    with rest(answers) as (url, _):
        names = RunNames(context(admin=url, route=ROUTE))
        with pytest.raises(UsageError, match="orders-0 has 3 partitions"):
            names.prepare()


def test_a_worker_that_created_nothing_deletes_nothing() -> None:
    """It calls cleanup() without prepare()."""
    with rest({}) as (url, asked):
        PulsarDriver(context(admin=url)).cleanup()
        PulsarDriver(context(admin=url, name=EXISTING)).cleanup()
    assert asked == []


def test_a_namespace_whose_policies_failed_is_deleted() -> None:
    """It was created, although prepare() raised."""
    space = "/admin/v2/namespaces/public/loadtest-r"
    with rest(
        {f"POST {space}/backlogQuota?backlogQuotaType=destination_storage": (403, {"reason": "no"})}
    ) as (url, asked):
        driver = PulsarDriver(context(admin=url))
        with pytest.raises(TargetError, match="403 no"):
            driver.prepare()
        driver.cleanup()
    assert asked[-1][0] == f"DELETE {space}?force=true"


def test_a_namespace_of_others_is_never_deleted() -> None:
    """A namespace that exists already is an error with the broker's reason, and cleanup does not delete it."""
    with rest(
        {
            "PUT /admin/v2/namespaces/public/loadtest-r": (
                409,
                {"reason": "Namespace already exists"},
            )
        }
    ) as (url, asked):
        driver = PulsarDriver(context(admin=url))
        with pytest.raises(TargetError, match="409 Namespace already exists"):
            driver.prepare()
        driver.cleanup()
    assert len(asked) == 1


def topology(**more: object) -> Topology:
    return Topology(
        **{"topics": 2, "partitions": 1, "producers": 1, "subscriptions": 1, "consumers": 1} | more
    )  # type: ignore[arg-type]


def test_names_of_topics_have_the_requested_positions() -> None:
    """By twelve more digits; without ``hashes`` the names are unchanged."""
    settings = PulsarSettings(topic_type="non-persistent")
    names = [own_topic(settings, "r", topology(hashes=(7, LAST - 1)), index) for index in (0, 1)]
    assert [position(name) for name in names] == [7, LAST - 1]
    assert [name[:-13] for name in names] == [
        own_topic(settings, "r", topology(), index) for index in (0, 1)
    ]
    assert names[1].startswith("non-persistent://public/loadtest-r/topic-1-")


@pytest.mark.parametrize("admin", [None, "http://127.0.0.1:1"])
def test_every_topic_of_a_run_has_its_full_name(admin: str | None) -> None:
    """The same for producers and consumers, by the topic's number."""
    target = TargetAddress(url="pulsar://h", admin_url=admin)
    made = RunNames(replace(context(), topology=topology(), target=target))
    names = made.topic_names()
    assert names.inputs == names.outputs == (made.topic(0), made.topic(1))
    assert all(name.startswith("persistent://public/") for name in names.inputs)


QUOTA = (
    "POST /admin/v2/namespaces/public/loadtest-r/backlogQuota?backlogQuotaType=destination_storage"
)


@pytest.mark.parametrize(
    "key",
    [
        "backlogQuotaDefaultLimitBytes",
        "backlogQuotaDefaultLimitGB",
        "backlogQuotaDefaultRetentionPolicy",
    ],
)
def test_a_backlog_quota_of_the_profile_stays_in_force(key: str) -> None:
    with rest({}) as (url, asked):
        names = RunNames(context(admin=url, broker={key: "1000"}))
        names.prepare()
    assert QUOTA not in [what for what, _, _ in asked]
    assert names.facts == {"namespace": "public/loadtest-r"}


def test_a_removed_backlog_quota_is_reported() -> None:
    with rest({}) as (url, asked):
        names = RunNames(context(admin=url, broker={"maxMessageSize": "1000"}))
        names.prepare()
    assert QUOTA in [what for what, _, _ in asked]
    assert (
        names.facts["backlogQuota"]
        == "none, in place of the broker's backlogQuotaDefaultLimitBytes"
    )


def test_more_copies_than_the_target_has_bookies_are_an_error_before_load() -> None:
    """It has the remedy for a profile and for a driver file of OMB, whose default is three copies; nothing was created."""
    driver = read_driver(
        "driverClass: a.PulsarBenchmarkDriver\nclient: {persistence: {ensembleSize: 2}}\n", "d.yaml"
    ).driver
    settings = PulsarSettings.model_validate(driver, by_alias=True, by_name=False)
    answers: dict[str, tuple[int, object]] = {
        "GET /admin/v2/bookies/all": (200, {"bookies": [{"bookieId": "one:3181"}]})
    }
    with rest(answers) as (url, asked), pytest.raises(UsageError) as error:
        PulsarDriver(context(settings, admin=url)).prepare()
    assert str(error.value) == (
        f"driver.persistence: ensembleSize 2, writeQuorum 3, ackQuorum 2, but {url} has 1 bookie, so no message could be stored: write"
        " persistence: {ensembleSize: 1, writeQuorum: 1, ackQuorum: 1} under driver, or under client in a driver file of OMB, whose default"
        " is 3, 3 and 2"
    )
    assert [what for what, _, _ in asked] == ["GET /admin/v2/bookies/all"]
