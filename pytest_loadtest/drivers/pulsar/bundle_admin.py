"""Bundles of a namespace by Pulsar's admin REST: how it is cut, what the broker sees of its topics, splits, unloads, dynamic settings.

Paths: Pulsar 4.2, ``Namespaces``, ``PersistentTopics``, ``TopicLookup`` and ``Brokers`` of pulsar-broker.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from pytest_loadtest.drivers.pulsar.admin import Admin, RefusedError, path_of
from pytest_loadtest.drivers.pulsar.bundle_split import Bundle, Ring, SplitLimits, TopicRate
from pytest_loadtest.drivers.pulsar.names import own_namespace
from pytest_loadtest.drivers.pulsar.settings import PulsarSettings
from pytest_loadtest.errors import TargetError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_loadtest.drivers.base import TargetAddress
    from pytest_loadtest.schedule.topology import Topology

FLOW_OR_QPS: Final = "flow_or_qps_equally_divide"
DEFAULT_ALGORITHM: Final = "defaultNamespaceBundleSplitAlgorithm"
_NOT_FOUND, _NOT_OWNED, _UNLOADING = 404, 412, "is being unloaded"
_UNLOADED_WITHIN: Final = 30.0
"""s, for which a split waits for the unload that another one began: a broker answers before that is done."""
_AGAIN_AFTER: Final = 0.2
_LIMITS: Final = {
    "rate": "loadBalancerNamespaceBundleMaxMsgRate",
    "megabytes": "loadBalancerNamespaceBundleMaxBandwidthMbytes",
    "threshold": "flowOrQpsDifferenceThresholdPercentage",
}


class Bundles(Admin):
    """The bundles of one namespace; every method raises :class:`TargetError` as :class:`Admin` does.

    :ivar settings: of the client. :ivar namespace: ``tenant/namespace``.
    """

    def __init__(self, url: str, settings: PulsarSettings, namespace: str) -> None:
        super().__init__(url, settings)
        self.settings, self.namespace = settings, namespace

    @classmethod
    def of_run(cls, target: TargetAddress, settings: Any, topology: Topology, run: str) -> Bundles:
        """Of the namespace that a run made. :param settings: the profile's ``driver`` section. :param run: its name.

        :raises UsageError: the run is not Pulsar's, has no admin REST, or made no namespace.
        """
        if not isinstance(settings, PulsarSettings):
            raise UsageError(f"load.bundles: only Pulsar has bundles, not the driver {settings.name}")
        if target.admin_url is None:
            remedy = "write target: {adminUrl: http://host:8080}, or pytest --load-admin-url"
            raise UsageError(f"load.bundles: bundles are seen and split by the admin REST, and {target.url} comes without one: {remedy}")
        if topology.name is not None:
            raise UsageError(f"load.bundles: {topology.name} is in a namespace that is not the run's: leave topic out")
        return cls(target.admin_url, settings, own_namespace(settings, run))

    # --- what there is

    def ring(self) -> Ring:
        """How the namespace is cut now."""
        found = self._request("GET", f"namespaces/{self.namespace}/bundles")
        return Ring(tuple(int(boundary, 16) for boundary in found["boundaries"]))

    def positions(self) -> dict[str, int]:
        """Where each loaded topic falls, by full name, as the broker reckons it; the broker's own topics included."""
        found: dict[str, int] = {}
        for bundle in self.ring().bundles:
            answer = self._of_loaded(f"namespaces/{self.namespace}/{bundle}/topicHashPositions")
            found |= answer["topicHashPositions"] if answer else {}
        return found

    def rates(self) -> dict[str, TopicRate]:
        """What the broker sees of each loaded topic, by full name: messages and bytes a second, in and out together.

        The broker works them out every ``statsUpdateFrequencyInSecs``, and has 0 before the first time and after an unload.
        """
        found = {topic: self._rate(topic, where) for topic, where in self.positions().items()}
        return {topic: rate for topic, rate in found.items() if rate is not None}

    def _rate(self, topic: str, where: int) -> TopicRate | None:
        stats = self._of_loaded(f"{path_of(topic)}/stats")
        if stats is None:
            return None
        rate, throughput = (float(stats[f"{what}In"]) + float(stats[f"{what}Out"]) for what in ("msgRate", "msgThroughput"))
        return TopicRate(where, rate, throughput)

    def _of_loaded(self, path: str) -> Any:
        """The answer; None where nothing is there to be asked: never loaded, unloaded, or just going."""
        try:
            return self._request("GET", path)
        except RefusedError as refused:
            if refused.status in (_NOT_FOUND, _NOT_OWNED) or _UNLOADING in str(refused):
                return None
            raise

    def bundle_of(self, topic: str) -> Bundle:
        """The bundle that a client's lookup of the topic is answered from. :param topic: full name."""
        answer = self._ask("GET", f"lookup/v2/topic/{path_of(topic)}/bundle")  # plain text
        low, high = (int(end, 16) for end in answer.text.split("_"))
        return Bundle(low, high)

    # --- what is done

    def split(self, bundle: Bundle, algorithm: str = FLOW_OR_QPS, *, at: Sequence[int] = ()) -> tuple[int, ...]:
        """Split a bundle and unload what comes of it, so that clients find its new owner.

        :param at: of ``specified_positions_divide``, where.
        :returns: the boundaries that are new. None are where the algorithm finds no place: that is a success to the broker, too.
        :raises TargetError: the broker refuses.
        """
        before = set(self.ring().boundaries)
        path = f"namespaces/{self.namespace}/{bundle}/split?unload=true&splitAlgorithmName={algorithm}"
        self._once_unloaded(bundle, path, list(at) or None)
        return tuple(sorted(set(self.ring().boundaries) - before))

    def _once_unloaded(self, bundle: Bundle, path: str, body: Any) -> None:
        """PUT, and again while the broker says that this very bundle is on its way: it has done nothing then."""
        end = time.monotonic() + _UNLOADED_WITHIN
        while True:
            try:
                self._request("PUT", path, body)
                return
            except RefusedError as refused:
                if f"{self.namespace}/{bundle} {_UNLOADING}" not in str(refused) or time.monotonic() > end:
                    raise
            time.sleep(_AGAIN_AFTER)

    def unload(self, bundle: Bundle) -> None:
        """Have its topics closed; clients look them up again."""
        self._request("PUT", f"namespaces/{self.namespace}/{bundle}/unload")

    # --- dynamic settings of the broker

    def split_settings(self) -> dict[str, str]:
        """By key, all that a split by flow or QPS depends on, as the running broker has it."""
        runtime = self._runtime()
        return {key: str(runtime[key]) for key in (*_LIMITS.values(), DEFAULT_ALGORITHM)}

    def limits(self) -> SplitLimits:
        """By which the running broker splits."""
        settings = self.split_settings()
        return SplitLimits(**{name: int(float(settings[key])) for name, key in _LIMITS.items()})

    def set_limits(self, limits: SplitLimits) -> None:
        """Have the broker split by these, and by flow or QPS at all.

        A split by REST that names this algorithm gets its limits only where it is the broker's default too (apache/pulsar#17872).

        :raises TargetError: the broker refuses a setting.
        """
        self.set({key: str(getattr(limits, name)) for name, key in _LIMITS.items()} | {DEFAULT_ALGORITHM: FLOW_OR_QPS})

    def set(self, settings: Mapping[str, str]) -> None:
        """Change dynamic settings of all brokers, by key."""
        for key, value in settings.items():
            self._request("POST", f"brokers/configuration/{key}/{value}")

    def settled(self, limits: SplitLimits) -> bool:
        """Whether the broker has taken them: it does so a moment after it has answered."""
        return self.limits() == limits and self.split_settings()[DEFAULT_ALGORITHM] == FLOW_OR_QPS

    def _runtime(self) -> Mapping[str, str]:
        runtime = self._request("GET", "brokers/configuration/runtime")
        if not isinstance(runtime, dict):
            raise TargetError(f"{self._url}: the broker does not tell its settings: {runtime!r}")
        return runtime
