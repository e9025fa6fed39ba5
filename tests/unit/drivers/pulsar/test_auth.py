"""Who a Pulsar client says it is: what goes into CONNECT, into the admin's requests, and into TLS."""

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

KEY = "data:application/json;base64," + base64.b64encode(b'{"client_id": "me", "client_secret": "s"}').decode()


def given(auth: Authentication | None) -> tuple[str, bytes]:
    method, data = credentials(auth, PulsarSettings())
    return method, data()


def test_what_connect_says() -> None:
    """Method and data of each plugin that needs no file; under TLS the certificate says it all."""
    assert given(None) == ("none", b"")
    assert given(Authentication(plugin="token", token="t0")) == ("token", b"t0")
    assert given(Authentication(plugin="basic", user_id="me", password="a:b é")) == ("basic", "me:a:b é".encode())
    assert given(Authentication(plugin="tls", cert_file="c", key_file="k")) == ("tls", b"")


def test_what_the_admin_is_told() -> None:
    """A bearer token, or user and password (RFC 7617); nothing under TLS or without a plugin."""

    def told(auth: Authentication | None) -> dict[str, str]:
        return admin_headers(PulsarSettings(authentication=auth))

    assert told(Authentication(plugin="token", token="t0")) == {"Authorization": "Bearer t0"}
    assert told(Authentication(plugin="basic", user_id="Aladdin", password="open sesame")) == {
        "Authorization": "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="
    }
    assert told(Authentication(plugin="tls", cert_file="c", key_file="k")) == {} == told(None)


def test_files_are_read_for_each_connection(tmp_path: Path) -> None:
    """A token or password that somebody renews is used from the next connection on; what ends the line is none of it."""
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
        (Authentication(plugin="basic", user_id="me", password_file="/nowhere/password"), "/nowhere/password"),
        (Authentication(plugin="oauth2", private_key=KEY), "issuerUrl"),
        (Authentication(plugin="oauth2", issuer_url="https://issuer"), "privateKey"),
        (Authentication(plugin="oauth2", issuer_url="https://issuer", private_key="data:,%%%"), "client_id"),
        (Authentication(plugin="oauth2", issuer_url="https://issuer", private_key="data:;base64,/w=="), "client_id"),
    ],
)
def test_incomplete_credentials_are_a_usage_error(auth: Authentication, missing: str) -> None:
    """Said at once, not at the first connection; the key or file is named."""
    with pytest.raises(UsageError, match=missing):
        credentials(auth, PulsarSettings())


@contextmanager
def issuer(answers: list[dict[str, object] | int]) -> Iterator[str]:
    """Answers one request for a token after the other; a number is an HTTP status."""

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


def test_oauth2_tokens_are_kept_as_long_as_they_hold() -> None:
    """One whose issuer does not say how long it holds, or that it holds for no time, is fetched anew for each connection."""
    with issuer([{"access_token": "a"}, {"access_token": "b", "expires_in": 0}, {"access_token": "c", "expires_in": 3600}]) as url:
        method, data = credentials(Authentication(plugin="oauth2", issuer_url=url, private_key=KEY), PulsarSettings())
        assert (method, [data() for _ in range(5)]) == ("token", [b"a", b"b", b"c", b"c", b"c"])


def test_an_issuer_that_refuses_is_quoted() -> None:
    """Its own words (RFC 6749, 5.2), with the address; the secret is not shown."""
    with issuer([401]) as url:
        _, data = credentials(Authentication(plugin="oauth2", issuer_url=url, private_key=KEY), PulsarSettings())
        with pytest.raises(TargetError, match=rf"POST {url}/token: 401 invalid_client: who\?$"):
            data()
    with pytest.raises(TargetError, match=f"GET {url}.*issuerUrl"):
        data()


def test_tls_follows_the_profile() -> None:
    """TLS 1.2 at least; chain and host's name are checked unless the profile says otherwise."""
    plain = tls_context(PulsarSettings())
    assert (plain.minimum_version, plain.verify_mode, plain.check_hostname) == (ssl.TLSVersion.TLSv1_2, ssl.CERT_REQUIRED, True)
    assert not tls_context(PulsarSettings(tls_enable_hostname_verification=False)).check_hostname
    anything = tls_context(PulsarSettings(tls_allow_insecure_connection=True))
    assert (anything.verify_mode, anything.check_hostname) == (ssl.CERT_NONE, False)


@pytest.mark.parametrize(
    ("settings", "files"),
    [
        (PulsarSettings(tls_trust_certs_file_path="/nowhere/ca.pem"), "/nowhere/ca.pem"),
        (PulsarSettings(authentication=Authentication(plugin="tls", cert_file="/nowhere/c", key_file="/k")), "/nowhere/c with /k"),
    ],
)
def test_tls_files_that_cannot_be_read_are_a_usage_error(settings: PulsarSettings, files: str) -> None:
    """Said before a connection fails for it, with the name of the file, which OpenSSL keeps to itself; the client's own words say no more."""
    with pytest.raises(UsageError, match=f"TLS cannot use {files}: No such file"):
        tls_context(settings)
    with pytest.raises(UsageError, match=f"TLS cannot use {files}: No such file"):
        make_client("pulsar+ssl://127.0.0.1:1", settings)


def test_nothing_of_it_imports_the_client_library() -> None:
    """Whoever speaks the binary protocol himself takes credentials and TLS from here, with or without pulsar-client."""
    code = "import sys, pytest_loadtest.drivers.pulsar.auth; sys.exit('pulsar' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))})


def test_oauth2_fetches_its_token_from_the_issuer(tmp_path: Path) -> None:
    """Client credentials go to the endpoint of the discovery document; path, file URL and data URL hold them alike."""
    credentials = json.dumps({"client_id": "me", "client_secret": "s"})
    (tmp_path / "key.json").write_text(credentials)
    answers: dict[str, tuple[int, object]] = {"POST /token": (200, {"access_token": "tt"})}
    with rest({}) as (broker, requests), rest(answers) as (issuer, asked):
        answers["GET /.well-known/openid-configuration"] = (200, {"token_endpoint": f"{issuer}/token"})
        inline = "data:application/json;base64," + base64.b64encode(credentials.encode()).decode()
        for key in (f"{tmp_path}/key.json", f"file://{tmp_path}/key.json", inline):
            auth = Authentication(plugin="oauth2", issuer_url=issuer, private_key=key, audience="a")
            Admin(broker, PulsarSettings(authentication=auth)).create_topic("persistent://public/x/b", 1)
    assert [authorization for _, authorization, _ in requests] == ["Bearer tt"] * 3
    assert asked[1][2] == b"grant_type=client_credentials&client_id=me&client_secret=s&audience=a"


def test_issuer_without_a_token_is_named() -> None:
    """An answer that is not what an issuer says is the target's fault; a key file that is none is the user's."""
    inline = "data:application/json;base64," + base64.b64encode(b'{"client_id": "me", "client_secret": "s"}').decode()
    with rest({"GET /.well-known/openid-configuration": (200, {})}) as (issuer, _):
        with pytest.raises(TargetError, match=f"{issuer} answered without a token"):
            Admin(issuer, PulsarSettings(authentication=Authentication(plugin="oauth2", issuer_url=issuer, private_key=inline)))
        with pytest.raises(UsageError, match="client_id"):
            Admin(issuer, PulsarSettings(authentication=Authentication(plugin="oauth2", issuer_url=issuer, private_key="data:,e30=")))
