"""Plans of small profiles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_loadtest import profile as profiles
from pytest_loadtest.kinds.registry import shipped_costs
from pytest_loadtest.plan.plan import Plan, make_plan, profile_pool
from pytest_loadtest.plan.scaling import Machine, profile_cost

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_loadtest.profile import Profile

HERE = Machine(cores=2, memory=16 << 30)
CLUSTER = Machine(cores=1e6, memory=1 << 50)


def made(
    profile: Profile, *, workers: int = 1, machine: Machine = HERE, scale: float | str | None = None, duration_cap: int | None = None,
    broker_here: bool = True, hosts: Sequence[str] = (), files: Mapping[str, bytes] | None = None,
) -> Plan:  # fmt: skip
    return make_plan(
        profile, profile_pool(profile, files), workers=workers, cost=profile_cost(profile, shipped_costs()), machine=machine, broker_here=broker_here,
        scale=scale, duration_cap=duration_cap, hosts=hosts,
    )  # fmt: skip


def loopback(
    *, rate: float = 1000, topics: int = 1, producers: int = 1, subscriptions: int = 1, consumers: int = 1, scalable: str = "[]", size: int = 64,
    duration: str = "3s",
) -> Profile:  # fmt: skip
    return profiles.loads(
        f"name: p\ntopics: {topics}\nproducersPerTopic: {producers}\nsubscriptionsPerTopic: {subscriptions}\nconsumerPerSubscription: {consumers}\n"
        f"producerRate: {rate}\nmessageSize: {size}\nwarmupDuration: 1s\ntestDuration: {duration}\ndriver: {{name: loopback}}\nscalable: {scalable}\n"
        "slo: {throughput: 99%}\n",
        "p.yaml",
    )
