"""Which Pulsar the run starts: PULSAR_VERSION=4.0.0 pytest loadtests/pulsar, and the newest that is known without it."""

import os


def pytest_itemcollected(item):
    version = os.environ.get("PULSAR_VERSION")
    for mark in item.iter_markers("load") if version else ():
        mark.kwargs.setdefault("broker.version", version)
