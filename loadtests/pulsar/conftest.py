"""The version of Pulsar (PULSAR_VERSION=4.0.0 pytest loadtests/pulsar.

By default the newest supported one), and the topic of a run.
"""

import json
import os
import time
import urllib.request

import pytest

PATIENCE = 150  # s: limit of the wait until the broker is at rest


def pytest_itemcollected(item):
    version = os.environ.get("PULSAR_VERSION")
    for mark in item.iter_markers("load") if version else ():
        mark.kwargs.setdefault("broker.version", version)


class Topic:
    """The only topic of a run, as seen by the broker.

    ``last``: its statistics after all clients were closed.
    """

    def __init__(self, load):
        self._load = load
        load.before_cleanup(self._look)

    def _look(self):
        self.last = self.stats()

    @property
    def namespace(self):
        return f"public/loadtest-{self._load.run_name}"

    @property
    def name(self):
        return f"persistent://{self.namespace}/topic-0"

    def ask(self, path, method="GET"):
        return json.loads(self._read(path, method) or "null")

    def _read(self, path, method):
        url = f"{self._load.target.admin_url}/admin/v2/{path}"
        with urllib.request.urlopen(
            urllib.request.Request(url, method=method), timeout=30
        ) as answer:
            return answer.read()

    @property
    def path(self):
        return f"persistent/{self.namespace}/topic-0"

    def stats(self):
        return self.ask(f"{self.path}/stats?getPreciseBacklog=true")

    def backlog(self, stats=None):
        return self.subscription(stats)["msgBacklog"]

    def consumers(self):
        return len(self.subscription()["consumers"])

    def subscription(self, stats=None):
        """The statistics of the only subscription."""
        (found,) = (stats or self.stats())["subscriptions"].values()
        return found

    def until_read(self, patience=PATIENCE):
        """Wait until everything is acknowledged."""
        end = time.monotonic() + patience
        while self.backlog():
            assert time.monotonic() < end, (
                f"{self.backlog()} entries are still there after {patience} s"
            )
            time.sleep(0.2)

    def until_at_rest(self):
        """Wait until nothing arrives and nothing is acknowledged.

        :returns: the number of remaining entries.
        """
        end, seen, since = time.monotonic() + PATIENCE, None, 0.0
        while time.monotonic() < since + 5 or seen is None:
            assert time.monotonic() < end, f"no rest after {PATIENCE} s: {seen}"
            stats = self.stats()
            now = stats["msgInCounter"], self.backlog(stats)
            if now != seen:
                seen, since = now, time.monotonic()
            time.sleep(0.2)
        return seen[1]


@pytest.fixture
def topic(load):
    return Topic(load)
