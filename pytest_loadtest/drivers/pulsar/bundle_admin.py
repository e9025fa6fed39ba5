"""The bundles of a namespace by Pulsar's admin REST.

Boundaries, rates of topics, splits, unloads, dynamic settings.

The paths are those of Pulsar 4.2: ``Namespaces``, ``PersistentTopics``, ``TopicLookup`` and
``Brokers`` of pulsar-broker.
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
_NOT_FOUND = 404
_NOT_OWNED = 412
_UNLOADING = "is being unloaded"
# s that a split waits for the unload that an earlier split began: a
# broker answers before the unload is done.
_UNLOADED_WITHIN: Final = 30.0
_AGAIN_AFTER: Final = 0.2
_LIMITS: Final = {
    "rate": "loadBalancerNamespaceBundleMaxMsgRate",
    "megabytes": "loadBalancerNamespaceBundleMaxBandwidthMbytes",
    "threshold": "flowOrQpsDifferenceThresholdPercentage",
}


def split_settings_of(limits: SplitLimits) -> dict[str, str]:
    """Return the broker's settings for a split by flow or QPS with these limits, by key."""
    settings = {key: str(getattr(limits, name)) for name, key in _LIMITS.items()}
    return {**settings, DEFAULT_ALGORITHM: FLOW_OR_QPS}


class Bundles(Admin):
    """The bundles of one namespace.

    Every method raises :class:`TargetError` as :class:`Admin` does.

    :ivar settings: the client's settings.
    :ivar namespace: ``tenant/namespace``.
    """

    def __init__(self, url: str, settings: PulsarSettings, namespace: str) -> None:
        super().__init__(url, settings)
        self.settings = settings
        self.namespace = namespace

    @classmethod
    def of_run(cls, target: TargetAddress, settings: Any, topology: Topology, run: str) -> Bundles:
        """Return the bundles of the namespace that a run created.

        :param settings: the profile's ``driver`` section.
        :param run: its name.
        :raises UsageError: the run is not Pulsar's, has no admin REST, or made no namespace.
        """
        if not isinstance(settings, PulsarSettings):
            raise UsageError(
                f"load.bundles: only Pulsar has bundles, not the driver {settings.name}"
            )
        if target.admin_url is None:
            remedy = "write target: {adminUrl: http://host:8080}, or pytest --load-admin-url"
            raise UsageError(
                f"load.bundles needs the admin REST, and {target.url} has none: {remedy}"
            )
        if topology.name is not None:
            raise UsageError(
                f"load.bundles: {topology.name} is in a namespace that is not the run's: leave"
                " topic out"
            )
        return cls(target.admin_url, settings, own_namespace(settings, run))

    # --- reading

    def ring(self) -> Ring:
        """Return the current bundles."""
        answer = self._request("GET", f"namespaces/{self.namespace}/bundles")
        return Ring(tuple(int(boundary, 16) for boundary in answer["boundaries"]))

    def positions(self) -> dict[str, int]:
        """Return the position of each topic, by full name, as computed by the broker.

        System topics included.

        A bundle that no broker owns is left out. One that is owned again, by the lookup of any of
        its topics, has all its topics at once.
        """
        positions: dict[str, int] = {}
        for bundle in self.ring().bundles:
            answer = self._of_loaded(f"namespaces/{self.namespace}/{bundle}/topicHashPositions")
            positions |= answer["topicHashPositions"] if answer else {}
        return positions

    def rates(self) -> dict[str, TopicRate]:
        """Return the rates that the broker reports for each loaded topic, by full name.

        Messages and bytes per second, in and out together.

        The broker updates them every ``statsUpdateFrequencyInSecs``; they are 0 before the first
        update and after an unload.
        """
        rates = {topic: self._rate(topic, where) for topic, where in self.positions().items()}
        return {topic: rate for topic, rate in rates.items() if rate is not None}

    def _rate(self, topic: str, where: int) -> TopicRate | None:
        stats = self._of_loaded(f"{path_of(topic)}/stats")
        if stats is None:
            return None
        rate, throughput = (
            float(stats[f"{what}In"]) + float(stats[f"{what}Out"])
            for what in ("msgRate", "msgThroughput")
        )
        return TopicRate(where, rate, throughput)

    def _of_loaded(self, path: str) -> Any:
        """Return the answer; None if the bundle or topic is not loaded.

        It was never loaded, was unloaded, or is being unloaded.
        """
        try:
            return self._request("GET", path)
        except RefusedError as refused:
            if refused.status in (_NOT_FOUND, _NOT_OWNED) or _UNLOADING in str(refused):
                return None
            raise

    def bundle_of(self, topic: str) -> Bundle:
        """Return the bundle in which a client's lookup finds the topic. :param topic: full name."""
        answer = self._ask("GET", f"lookup/v2/topic/{path_of(topic)}/bundle")  # plain text
        low, high = (int(end, 16) for end in answer.text.split("_"))
        return Bundle(low, high)

    # --- splitting

    def split(
        self, bundle: Bundle, algorithm: str = FLOW_OR_QPS, *, at: Sequence[int] = ()
    ) -> tuple[int, ...]:
        """Split a bundle and unload the new bundles, so that clients look up their owners again.

        :param at: the positions for ``specified_positions_divide``.
        :returns: the new boundaries; empty if the algorithm finds none,
            which the broker answers as a success.
        :raises TargetError: the broker refuses.
        """
        # The broker does not return the boundaries, so they are compared before and after.
        before = set(self.ring().boundaries)
        path = (
            f"namespaces/{self.namespace}/{bundle}/split?unload=true&splitAlgorithmName={algorithm}"
        )
        self._once_unloaded(bundle, path, list(at) or None)
        return tuple(sorted(set(self.ring().boundaries) - before))

    def _once_unloaded(self, bundle: Bundle, path: str, body: Any) -> None:
        """PUT, and repeat while this bundle is being unloaded.

        The broker has then not done anything.
        """
        end = time.monotonic() + _UNLOADED_WITHIN
        while True:
            try:
                self._request("PUT", path, body)
                return
            except RefusedError as refused:
                if (
                    f"{self.namespace}/{bundle} {_UNLOADING}" not in str(refused)
                    or time.monotonic() > end
                ):
                    raise
            time.sleep(_AGAIN_AFTER)

    def unload(self, bundle: Bundle) -> None:
        """Close the topics of a bundle; clients look them up again."""
        self._request("PUT", f"namespaces/{self.namespace}/{bundle}/unload")

    # --- dynamic settings of the broker

    def split_settings(self) -> dict[str, str]:
        """Return the running broker's settings on which a split by flow or QPS depends, by key."""
        runtime = self._request("GET", "brokers/configuration/runtime")
        if not isinstance(runtime, dict):
            raise TargetError(
                f"{self.urls[0]}: the broker does not report its settings: {runtime!r}"
            )
        return {key: str(runtime[key]) for key in (*_LIMITS.values(), DEFAULT_ALGORITHM)}

    def limits(self) -> SplitLimits:
        """Return the limits by which the running broker splits."""
        settings = self.split_settings()
        return SplitLimits(**{name: int(float(settings[key])) for name, key in _LIMITS.items()})

    def set_limits(self, limits: SplitLimits) -> None:
        """Set the limits, and make the split by flow or QPS the broker's default.

        A split by REST that names this algorithm uses its limits only if it is the broker's default
        too (apache/pulsar#17872).

        :raises TargetError: the broker refuses a setting.
        """
        self.set(split_settings_of(limits))

    def set(self, settings: Mapping[str, str]) -> None:
        """Change dynamic settings of all brokers, by key."""
        for key, value in settings.items():
            self._request("POST", f"brokers/configuration/{key}/{value}")

    def settled(self, limits: SplitLimits) -> bool:
        """Return whether the broker uses these limits.

        It applies settings a moment after it has answered.
        """
        return self.limits() == limits and self.split_settings()[DEFAULT_ALGORITHM] == FLOW_OR_QPS
