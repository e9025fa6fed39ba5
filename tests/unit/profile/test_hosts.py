"""The file of hosts: what it may say, and what its errors say."""

from __future__ import annotations

import pytest

from pytest_loadtest.errors import ProfileError
from pytest_loadtest.profile.hosts import read_hosts

ISSUE = """\
# hosts.yaml, for --load-hosts hosts.yaml
- {name: h1, command: "ssh -F ssh_config h1", workers: 4, python: /opt/venv/bin/python, directory: /srv/loadtests}
- {name: gen-0, command: "kubectl exec -i gen-0 --", workers: 8, bandwidth: 10Gbit/s}
"""


def test_a_file_lists_hosts_with_defaults() -> None:
    """Workers, Python and directory may be left out."""
    h1, gen = read_hosts(ISSUE, "hosts.yaml")
    assert (h1.name, h1.command, h1.workers, h1.python, h1.directory) == (
        "h1", "ssh -F ssh_config h1", 4, "/opt/venv/bin/python", "/srv/loadtests",
    )  # fmt: skip
    assert (gen.name, gen.workers, gen.python, gen.directory) == ("gen-0", 8, "python3", None)
    assert (h1.bits_per_second, gen.bits_per_second) == (None, 10e9)
    assert h1.source_addresses == ()


def test_source_addresses_are_a_list_in_the_order_of_use() -> None:
    """In their usual spelling."""
    (h1,) = read_hosts(
        "- {name: h1, command: ssh h1, sourceAddresses: [10.0.0.6, 10.0.0.5]}", "h.yaml"
    )
    assert h1.source_addresses == ("10.0.0.6", "10.0.0.5")
    (h1,) = read_hosts("- {name: h1, command: ssh h1, sourceAddresses: ['FD00:0:0::1']}", "h.yaml")
    assert h1.source_addresses == ("fd00::1",)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- {name: h1}", "h.yaml:1:3: 0.command is missing"),
        ("- {name: h1, command: ssh h1, worker: 2}", "h.yaml:1:31: unknown key 'worker'"),
        ("- {name: h1, command: ssh h1, workers: 0}", "h.yaml:1:40: 0.workers: 0"),
        ("- {name: h 1, command: ssh h1}", "'h 1' is not a name of a host"),
        ('- {name: h1, command: "ssh \'h1"}', "cannot be split into words"),
        (
            "- {name: h1, command: ssh h1, directory: /srv/load tests}",
            "has characters that a shell on the host could change",
        ),
        (
            "- {name: h1, command: ssh h1}\n- {name: h1, command: ssh h2}",
            "h.yaml:2:10: 1.name: there are several hosts with the name h1",
        ),
        (
            "- {name: h1, command: ssh h1}\n- {name: h2, command: ssh h1, workers: 2}",
            "h.yaml:2:23: 1.command: it reaches the same host as h1 (give h1 more workers",
        ),
        (
            "- {name: h1, command: ssh h1, bandwidth: 10Gb}",
            "h.yaml:1:42: 0.bandwidth: '10Gb' is not a bandwidth (write a number and a unit",
        ),
        (
            "- {name: h1, command: ssh h1, sourceAddresses: [10.0.0.5, 10.0.0.x]}",
            "h.yaml:1:59: 0.sourceAddresses.1: '10.0.0.x' is not an IP address",
        ),
        (
            "- {name: h1, command: ssh h1, sourceAddresses: [10.0.0.5, '::1']}",
            "IPv4 and IPv6 are mixed",
        ),
        (
            "- {name: h1, command: ssh h1, sourceAddresses: ['fd00::1', 'fd00:0::1']}",
            "fd00::1 is repeated (write each address once)",
        ),
        (
            "- {name: h1, command: ssh h1, sourceAddresses: [0.0.0.0]}",
            "no connection can come from 0.0.0.0",
        ),
        ("name: h1", "the file is a list of entries, not"),
        ("", "the file is a list of entries, not empty"),
        ("[]", "the file has no hosts"),
        ("- h1", "h.yaml:1:3:"),
    ],
)
def test_a_wrong_file_is_an_error_with_its_place(text: str, said: str) -> None:
    """Each names file, line and column."""
    with pytest.raises(ProfileError) as raised:
        read_hosts(text, "h.yaml")
    assert said in str(raised.value)
