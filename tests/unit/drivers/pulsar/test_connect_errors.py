"""The error for a broker whose certificate has another name, with a real TLS handshake."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from typing import TYPE_CHECKING

import pytest

from pytest_loadtest.brokers.certificates import Authority, KeyPair
from pytest_loadtest.drivers.pulsar.admin import Admin
from pytest_loadtest.drivers.pulsar.connect_errors import explain_connect_error
from pytest_loadtest.drivers.pulsar.settings import PulsarSettings
from pytest_loadtest.errors import TargetError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

REMEDY = "connect by a name that the certificate has, give the broker one with this name, or write driver.tlsEnableHostnameVerification: false"


class Server:
    """A server that does the TLS handshake with each client, and closes the connection."""

    def __init__(self, folder: Path, hosts: list[str], addresses: list[str]) -> None:
        authority = Authority("authority")
        files = authority.server(KeyPair.below(folder, "server"), "server", hosts, addresses)
        self.settings = PulsarSettings(
            tls_trust_certs_file_path=str(authority.write(folder / "ca.pem"))
        )
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(files.certificate, files.key)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with (
                contextlib.suppress(OSError),
                self._context.wrap_socket(client, server_side=True) as encrypted,
            ):
                encrypted.recv(1)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server whose certificate has two names, neither of which is 127.0.0.1."""
    made = Server(tmp_path, ["broker.example", "other.example"], [])
    yield made
    made.close()


def test_the_names_of_a_rejected_certificate_are_in_the_error(server: Server) -> None:
    """There are three remedies."""
    reason = explain_connect_error(f"pulsar+ssl://127.0.0.1:{server.port}", server.settings)
    assert reason == (
        "IP address mismatch, certificate is not valid for '127.0.0.1', its names are broker.example, other.example: " + REMEDY
    )  # fmt: skip


def test_the_admin_rest_has_the_same_error(server: Server) -> None:
    with pytest.raises(TargetError) as raised:
        Admin(f"https://127.0.0.1:{server.port}", server.settings).partitions("persistent://a/b/c")
    assert (
        f"certificate is not valid for '127.0.0.1', its names are broker.example, other.example: {REMEDY}"
        in str(raised.value)
    )


def test_names_are_not_checked_if_the_profile_says_so(server: Server) -> None:
    """The handshake succeeds, and the error has nothing about certificates."""
    lax = server.settings.model_copy(update={"tls_enable_hostname_verification": False})
    assert "certificate" not in str(
        explain_connect_error(f"pulsar+ssl://127.0.0.1:{server.port}", lax)
    )
