"""The credentials of a Pulsar client: for CONNECT, for the admin REST, and for TLS."""

from __future__ import annotations

import base64
import json
import os
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pulsar_rest import rest

from pytest_loadtest.drivers.pulsar.admin import Admin
from pytest_loadtest.drivers.pulsar.auth import admin_headers, credentials, tls_context
from pytest_loadtest.drivers.pulsar.library.client import make_client
from pytest_loadtest.drivers.pulsar.settings import Authentication, PulsarSettings
from pytest_loadtest.errors import TargetError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KEY = (
    "data:application/json;base64,"
    + base64.b64encode(b'{"client_id": "me", "client_secret": "s"}').decode()
)


def given(auth: Authentication | None) -> tuple[str, bytes]:
    method, data = credentials(auth, PulsarSettings())
    return method, data()


def test_connect_has_method_and_data_of_each_plugin() -> None:
    """Under TLS the certificate alone identifies the client."""
    assert given(None) == ("none", b"")
    assert given(Authentication(plugin="token", token="t0")) == ("token", b"t0")
    assert given(Authentication(plugin="basic", user_id="me", password="a:b é")) == (
        "basic",
        "me:a:b é".encode(),
    )
    assert given(Authentication(plugin="tls", cert_file="c", key_file="k")) == ("tls", b"")


def test_the_admin_rest_gets_an_authorization_header() -> None:
    """It is a bearer token, or user and password (RFC 7617); there is none under TLS or without a plugin."""

    def headers_of(auth: Authentication | None) -> dict[str, str]:
        return admin_headers(PulsarSettings(authentication=auth))

    assert headers_of(Authentication(plugin="token", token="t0")) == {"Authorization": "Bearer t0"}
    assert headers_of(
        Authentication(plugin="basic", user_id="Aladdin", password="open sesame")
    ) == {"Authorization": "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="}
    assert (
        headers_of(Authentication(plugin="tls", cert_file="c", key_file="k"))
        == {}
        == headers_of(None)
    )


def test_files_are_read_for_each_connection(tmp_path: Path) -> None:
    """A renewed token or password is used from the next connection on, without the end of line in its file."""
    file = tmp_path / "secret"
    for auth, wanted in (
        (Authentication(plugin="token", token_file=str(file)), b"%s"),
        (Authentication(plugin="basic", user_id="me", password_file=str(file)), b"me:%s"),
    ):
        file.write_text("first\n")
        _, data = credentials(auth, PulsarSettings())
        assert data() == wanted % b"first"
        file.write_text("second\n")
        assert data() == wanted % b"second"


@pytest.mark.parametrize(
    ("auth", "missing"),
    [
        (Authentication(plugin="token"), "token or tokenFile"),
        (Authentication(plugin="token", token_file="/nowhere/token"), "/nowhere/token"),
        (Authentication(plugin="basic", password="p"), "userId"),
        (Authentication(plugin="basic", user_id="me"), "password or passwordFile"),
        (
            Authentication(plugin="basic", user_id="me", password_file="/nowhere/password"),
            "/nowhere/password",
        ),
        (Authentication(plugin="oauth2", private_key=KEY), "issuerUrl"),
        (Authentication(plugin="oauth2", issuer_url="https://issuer"), "privateKey"),
        (
            Authentication(plugin="oauth2", issuer_url="https://issuer", private_key="data:,%%%"),
            "client_id",
        ),
        (
            Authentication(
                plugin="oauth2", issuer_url="https://issuer", private_key="data:;base64,/w=="
            ),
            "client_id",
        ),
    ],
)
def test_incomplete_credentials_are_a_usage_error(auth: Authentication, missing: str) -> None:
    """The error is raised at once, not at the first connection, and names the key or file."""
    with pytest.raises(UsageError, match=missing):
        credentials(auth, PulsarSettings())


@contextmanager
def issuer(answers: list[dict[str, object] | int]) -> Iterator[str]:
    """An issuer that gives these answers to requests for a token, one by one; a number is an HTTP status."""

    class Answering(BaseHTTPRequestHandler):
        def answer(self, status: int, body: object) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def do_GET(self) -> None:
            self.answer(200, {"token_endpoint": f"http://{self.headers['Host']}/token"})

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            answer = answers.pop(0)
            if isinstance(answer, int):
                self.answer(answer, {"error": "invalid_client", "error_description": "who?"})
            else:
                self.answer(200, answer)

        def log_message(self, *words: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_an_oauth2_token_is_used_as_long_as_it_is_valid() -> None:
    """A token of unknown or no lifetime is fetched for each connection."""
    with issuer(
        [
            {"access_token": "a"},
            {"access_token": "b", "expires_in": 0},
            {"access_token": "c", "expires_in": 3600},
        ]
    ) as url:
        method, data = credentials(
            Authentication(plugin="oauth2", issuer_url=url, private_key=KEY), PulsarSettings()
        )
        assert (method, [data() for _ in range(5)]) == ("token", [b"a", b"b", b"c", b"c", b"c"])


def test_the_error_quotes_the_issuer() -> None:
    """The answer (RFC 6749, 5.2) and the address are in the error, the secret is not."""
    with issuer([401]) as url:
        _, data = credentials(
            Authentication(plugin="oauth2", issuer_url=url, private_key=KEY), PulsarSettings()
        )
        with pytest.raises(TargetError, match=rf"POST {url}/token: 401 invalid_client: who\?$"):
            data()
    with pytest.raises(TargetError, match=f"GET {url}.*issuerUrl"):
        data()


def test_the_error_does_not_quote_the_secrets_of_the_issuers_address() -> None:
    """Somebody may write them there, and the library quotes the address."""
    url = "http://joe:hush@127.0.0.1:9/x?key=hush"
    _, data = credentials(
        Authentication(plugin="oauth2", issuer_url=url, private_key=KEY), PulsarSettings()
    )
    with pytest.raises(TargetError, match=r"GET http://\*\*\*@127.0.0.1:9/.*issuerUrl") as caught:
        data()
    assert "hush" not in str(caught.value)


def test_tls_follows_the_profile() -> None:
    """TLS is 1.2 at least; chain and host name are checked unless the profile says otherwise."""
    plain = tls_context(PulsarSettings())
    assert (plain.minimum_version, plain.verify_mode, plain.check_hostname) == (
        ssl.TLSVersion.TLSv1_2,
        ssl.CERT_REQUIRED,
        True,
    )
    assert not tls_context(PulsarSettings(tls_enable_hostname_verification=False)).check_hostname
    anything = tls_context(PulsarSettings(tls_allow_insecure_connection=True))
    assert (anything.verify_mode, anything.check_hostname) == (ssl.CERT_NONE, False)


@pytest.mark.parametrize(
    ("settings", "files"),
    [
        (PulsarSettings(tls_trust_certs_file_path="/nowhere/ca.pem"), "/nowhere/ca.pem"),
        (
            PulsarSettings(
                authentication=Authentication(plugin="tls", cert_file="/nowhere/c", key_file="/k")
            ),
            "/nowhere/c with /k",
        ),
    ],
)
def test_tls_files_that_cannot_be_read_are_a_usage_error(
    settings: PulsarSettings, files: str
) -> None:
    """The error names the file, before a connection fails. OpenSSL and pulsar-client do not name it."""
    with pytest.raises(UsageError, match=f"TLS cannot use {files}: No such file"):
        tls_context(settings)
    with pytest.raises(UsageError, match=f"TLS cannot use {files}: No such file"):
        make_client("pulsar+ssl://127.0.0.1:1", settings)


def test_credentials_do_not_need_the_client_library() -> None:
    """The native client uses this module without pulsar-client."""
    code = "import sys, pytest_loadtest.drivers.pulsar.auth; sys.exit('pulsar' in sys.modules)"
    subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )


def test_an_oauth2_token_comes_from_the_issuer(tmp_path: Path) -> None:
    """The request goes to the endpoint of the discovery document; the key may be a path, a file URL or a data URL."""
    credentials = json.dumps({"client_id": "me", "client_secret": "s"})
    (tmp_path / "key.json").write_text(credentials)
    answers: dict[str, tuple[int, object]] = {"POST /token": (200, {"access_token": "tt"})}
    with rest({}) as (broker, requests), rest(answers) as (issuer, asked):
        answers["GET /.well-known/openid-configuration"] = (
            200,
            {"token_endpoint": f"{issuer}/token"},
        )
        inline = "data:application/json;base64," + base64.b64encode(credentials.encode()).decode()
        for key in (f"{tmp_path}/key.json", f"file://{tmp_path}/key.json", inline):
            auth = Authentication(plugin="oauth2", issuer_url=issuer, private_key=key, audience="a")
            Admin(broker, PulsarSettings(authentication=auth)).create_topic(
                "persistent://public/x/b", 1
            )
    assert [authorization for _, authorization, _ in requests] == ["Bearer tt"] * 3
    assert asked[1][2] == b"grant_type=client_credentials&client_id=me&client_secret=s&audience=a"


def test_an_issuer_without_a_token_is_named() -> None:
    """An answer without a token is an error of the target, an invalid key file one of the user."""
    inline = (
        "data:application/json;base64,"
        + base64.b64encode(b'{"client_id": "me", "client_secret": "s"}').decode()
    )
    with rest({"GET /.well-known/openid-configuration": (200, {})}) as (issuer, _):
        with pytest.raises(TargetError, match=f"{issuer} answered without a token"):
            Admin(
                issuer,
                PulsarSettings(
                    authentication=Authentication(
                        plugin="oauth2", issuer_url=issuer, private_key=inline
                    )
                ),
            )
        with pytest.raises(UsageError, match="client_id"):
            Admin(
                issuer,
                PulsarSettings(
                    authentication=Authentication(
                        plugin="oauth2", issuer_url=issuer, private_key="data:,e30="
                    )
                ),
            )
