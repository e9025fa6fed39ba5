"""The certificates of a run, verified with OpenSSL's strictest checks."""

from __future__ import annotations

import socket
import ssl
import threading
from pathlib import Path

import pytest

from pytest_loadtest.brokers.certificates import Authority, KeyPair


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("keys")
    authority = Authority("an authority")
    authority.write(made / "ca.pem")
    authority.server(KeyPair.below(made, "server"), "a broker", ["localhost"], ["127.0.0.1"])
    authority.client(KeyPair.below(made, "client"), "loadtest")
    return made


def greeted(folder: Path, name: str) -> str:
    """Return the client's common name as a server sees it that requires a certificate. :param name: the server's name at the client."""
    server, client = (
        ssl.SSLContext(side) for side in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT)
    )
    for context, who in ((server, "server"), (client, "client")):
        files = KeyPair.below(folder, who)
        context.load_cert_chain(files.certificate, files.key)
        context.load_verify_locations(folder / "ca.pem")
        context.verify_mode = ssl.CERT_REQUIRED
        context.verify_flags |= ssl.VERIFY_X509_STRICT
    here, there = socket.socketpair()
    seen: list[str] = []

    def serve() -> None:
        try:
            with server.wrap_socket(there, server_side=True) as connection:
                seen.append(
                    dict(part[0] for part in (connection.getpeercert() or {})["subject"])[
                        "commonName"
                    ]
                )  # type: ignore[misc]
                connection.sendall(b".")
        except ssl.SSLError:
            pass  # the client says what is wrong

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with client.wrap_socket(here, server_hostname=name) as connection:
            connection.recv(1)
    finally:
        here.close()
        thread.join()
    return seen[0]


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1"])
def test_each_side_accepts_the_others_certificate(folder: Path, name: str) -> None:
    """The client's name is its role."""
    assert greeted(folder, name) == "loadtest"


@pytest.mark.parametrize("name", ["127.0.0.2", "example.org"])
def test_a_certificate_is_valid_for_its_own_names_only(folder: Path, name: str) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        greeted(folder, name)


def test_private_keys_are_readable_by_their_owner_only(folder: Path) -> None:
    """The authority's key is not written at all."""
    assert sorted(path.name for path in folder.iterdir()) == [
        "ca.pem",
        "client-key.pem",
        "client.pem",
        "server-key.pem",
        "server.pem",
    ]
    assert {path.stat().st_mode & 0o777 for path in folder.glob("*-key.pem")} == {0o600}
