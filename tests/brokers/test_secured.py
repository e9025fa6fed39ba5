"""Brokers with authentication, and both clients: a real Pulsar with tokens and TLS, one with passwords, a cluster with certificates."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import parse_qs, urlsplit

import pytest
from running import running

from pytest_loadtest import brokers
from pytest_loadtest.brokers import java
from pytest_loadtest.brokers.base import ROLE
from pytest_loadtest.brokers.certificates import KeyPair
from pytest_loadtest.drivers.base import TargetAddress
from pytest_loadtest.drivers.pulsar import broker as pulsar_jars
from pytest_loadtest.drivers.pulsar.connect_errors import NAME_REMEDY, explain_connect_error
from pytest_loadtest.drivers.pulsar.library.driver import PulsarDriver
from pytest_loadtest.drivers.pulsar.native.driver import NativePulsarDriver
from pytest_loadtest.drivers.pulsar.secured import TOKEN_KEY, signed_token
from pytest_loadtest.drivers.pulsar.settings import Authentication, PulsarSettings
from pytest_loadtest.errors import TargetError, UsageError
from pytest_loadtest.profile.sections import SecuritySection
from pytest_loadtest.testing.rig import Subject, context_of, plain_pool, rig
from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from pytest_loadtest.brokers.base import Broker

READY = (
    java.find() is not None and pulsar_jars.PULSAR.version in pulsar_jars.PULSAR.cached_versions()
)
pytestmark = [
    pytest.mark.skipif(not READY, reason="no Java, or no jars of Pulsar"),
    pytest.mark.pulsar,
]

MESSAGES = 20
NEITHER = "127.1"  # resolves to 127.0.0.1, and is not in the broker's certificate
DRIVERS: list[Any] = []


@pytest.fixture(autouse=True, params=[PulsarDriver, NativePulsarDriver], ids=["library", "native"])
def under_test(request: pytest.FixtureRequest) -> Iterator[None]:
    """The driver that connects."""
    DRIVERS.append(request.param)
    yield
    DRIVERS.pop()


@contextmanager
def secured(
    folder: Path,
    *,
    tls: bool = False,
    auth: Literal["token", "basic"],
) -> Iterator[Broker]:
    security = SecuritySection(tls=tls, auth=auth)
    with running(
        brokers.BrokerRequest(kind="pulsar", mode="auto", folder=folder, security=security)
    ) as broker:
        yield broker


@pytest.fixture(scope="module")
def by_token(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with secured(tmp_path_factory.mktemp("token") / "brokér", tls=True, auth="token") as broker:
        yield broker


@pytest.fixture(scope="module")
def by_password(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with secured(tmp_path_factory.mktemp("password") / "broker", auth="basic") as broker:
        yield broker


@pytest.fixture(scope="module")
def by_certificate(pulsar_cluster: Broker) -> Broker:
    """The cluster of test_pulsar_cluster: all its brokers have the same keys."""
    return pulsar_cluster


def settings_of(broker: Broker, **changes: Any) -> PulsarSettings:
    """Return the run's settings for its clients, with the user's changes."""
    return PulsarSettings(**{"operation_timeout": 2 * SECOND, **broker.facts.client, **changes})


def carries(broker: Broker, settings: PulsarSettings) -> None:
    """Assert that namespace and topics can be made, messages arrive, and everything can be deleted."""
    target = TargetAddress(url=broker.facts.url, admin_url=broker.facts.admin_url, started=True)
    patient = settings.model_copy(update={"operation_timeout": 30 * SECOND})
    with rig(Subject(driver=DRIVERS[-1], target=target, settings=patient)) as r:
        r.send(MESSAGES)
        r.until(lambda: r.acked == r.copies == MESSAGES, "all acknowledged and received")


def refusals(broker: Broker, settings: PulsarSettings, host: str = "127.0.0.1") -> tuple[str, str]:
    """Return the errors with the admin REST, which is used first if given, and without."""
    url, admin = (
        str(one).replace("127.0.0.1", host) for one in (broker.facts.url, broker.facts.admin_url)
    )
    said = []
    for target in (TargetAddress(url=url, admin_url=admin), TargetAddress(url=url)):
        with (
            pytest.raises(TargetError) as raised,
            rig(Subject(driver=DRIVERS[-1], target=target, settings=settings)),
        ):
            pass
        said.append(str(raised.value))
    assert admin.partition(",")[0] in said[0], "the address that refused"
    assert url.partition(",")[0] in said[1], "the address that refused"
    return said[0], said[1]


def key_of(broker: Broker) -> bytes:
    return Path(broker.facts.client["authentication"].token_file).with_name(TOKEN_KEY).read_bytes()


def token(claims: dict[str, Any], key: bytes) -> Authentication:
    return Authentication(plugin="token", token=signed_token(key, claims))


def reachable(url: str) -> bool:
    """Return True if a listener at this address answers without TLS."""
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname or "", parts.port or 0), 10) as connection:
        connection.sendall(b"GET /admin/v2/brokers/ready HTTP/1.0\r\n\r\n")
        return connection.recv(12).startswith(b"HTTP/1.1 2")


# tokens, behind TLS


def test_the_facts_of_a_secured_broker_have_no_secret(by_token: Broker) -> None:
    """They have its addresses, settings, and fields for clients; all its ports have TLS."""
    facts = by_token.facts
    assert (
        facts.mode,
        facts.url.partition("://")[0],
        (facts.admin_url or "").partition("://")[0],
    ) == ("process", "pulsar+ssl", "https")
    assert facts.settings["security"] == "TLS, token authentication"
    assert facts.settings["maxMessageSize"] == "5242880", "its own words, which are for superusers"
    secret = Path(facts.client["authentication"].token_file).read_text()
    assert secret.count(".") == 2
    assert secret not in repr(facts)
    assert not reachable(facts.url)
    assert not reachable(facts.admin_url or "")


def test_the_runs_token_is_accepted(by_token: Broker) -> None:
    """The certificate is valid for both of the broker's names."""
    carries(by_token, settings_of(by_token))
    own = PulsarSettings(**by_token.facts.client)
    with rig(
        Subject(
            driver=DRIVERS[-1],
            target=TargetAddress(url=by_token.facts.url.replace("127.0.0.1", "localhost")),
            settings=own,
        )
    ):
        pass


def test_a_token_signed_by_another_key_is_rejected(by_token: Broker) -> None:
    wrong = settings_of(
        by_token, authentication=token({"sub": ROLE}, b"another key of thirty-two bytes!")
    )
    by_admin, by_client = refusals(by_token, wrong)
    assert by_admin.endswith(
        "401 Unauthorized: is the token of driver.authentication one of this broker's?"
    )
    assert by_client.endswith(
        "the broker says 'Failed to authenticate': is the token of driver.authentication one of this broker's?"
    )


def test_an_expired_token_is_rejected_with_its_time(by_token: Broker) -> None:
    expired = settings_of(
        by_token, authentication=token({"sub": ROLE, "exp": 1_000_000_000}, key_of(by_token))
    )
    for said in refusals(by_token, expired):
        assert said.endswith(
            "the token of driver.authentication expired at 2001-09-09T01:46:40+00:00"
        )


def test_missing_credentials_are_an_error_of_the_profile(by_token: Broker) -> None:
    for said in refusals(by_token, settings_of(by_token, authentication=None)):
        assert said.endswith("the broker requires authentication: write driver.authentication")


def test_a_role_without_permission_is_not_an_unknown_one(by_token: Broker) -> None:
    """Its error is another one."""
    by_admin, by_client = refusals(
        by_token, settings_of(by_token, authentication=token({"sub": "nobody"}, key_of(by_token)))
    )
    assert "[nobody]" in by_admin
    assert by_client.endswith(
        "the broker knows the client but forbids it: grant its role produce and consume there"
    )


def test_an_untrusted_broker_certificate_names_the_authoritys_file(
    by_token: Broker, stranger: Path
) -> None:
    for said in refusals(
        by_token, settings_of(by_token, tls_trust_certs_file_path=f"{stranger}/ca.pem")
    ):
        assert said.endswith(
            f"driver.tlsTrustCertsFilePath ({stranger}/ca.pem) must hold the authority that signed it"
        )


def test_a_name_that_is_not_in_the_certificate_is_rejected(by_token: Broker) -> None:
    """It is accepted if the profile switches the check of names off."""
    for said in refusals(by_token, settings_of(by_token), host=NEITHER):
        assert (
            f"certificate is not valid for '{NEITHER}', its names are localhost, 127.0.0.1: {NAME_REMEDY}"
            in said
        )
    lax, target = (
        settings_of(
            by_token, tls_enable_hostname_verification=False, operation_timeout=30 * SECOND
        ),
        by_token.facts.url,
    )
    with rig(
        Subject(
            driver=DRIVERS[-1],
            target=TargetAddress(url=target.replace("127.0.0.1", NEITHER)),
            settings=lax,
        )
    ):
        pass


def test_a_plain_address_of_a_tls_port_is_an_error(by_token: Broker) -> None:
    with pytest.raises(
        TargetError, match=r"does the port speak TLS\? write pulsar\+ssl:// and https://"
    ) as raised:
        target = TargetAddress(url=by_token.facts.url.replace("+ssl", ""))
        with rig(Subject(driver=DRIVERS[-1], target=target, settings=settings_of(by_token))):
            pass
    assert "pulsar://127.0.0.1" in str(raised.value)


def test_missing_files_are_named_before_connecting(by_token: Broker) -> None:
    """pulsar-client itself would continue without them."""
    for admin in (by_token.facts.admin_url, None):
        target = TargetAddress(url=by_token.facts.url, admin_url=admin)
        lacking = settings_of(by_token, tls_trust_certs_file_path="/nowhere/ca.pem")
        driver = DRIVERS[-1](
            context_of(Subject(driver=DRIVERS[-1], target=target, settings=lacking), plain_pool())
        )
        with pytest.raises(UsageError, match="TLS cannot use /nowhere/ca.pem: No such file"):
            driver.prepare()
            driver.open_consumers([0])
        driver.close()


# OAuth2: tokens of an issuer that the broker trusts


class Issuer(ThreadingHTTPServer):
    """An OAuth2 issuer with the client credentials flow: it returns tokens signed by the broker's key to clients with the secret."""

    def __init__(self, key: bytes) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self.key, self.given = key, 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Answering(BaseHTTPRequestHandler):
    server: Issuer

    def do_GET(self) -> None:
        known = self.path == "/.well-known/openid-configuration"
        self.answer(
            200 if known else 404,
            {"issuer": self.server.url, "token_endpoint": f"{self.server.url}/token"},
        )

    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        wanted = {
            "grant_type": ["client_credentials"],
            "client_id": ["me"],
            "client_secret": ["s"],
            "audience": ["pulsar"],
        }
        if form != wanted:
            return self.answer(401, {"error": "invalid_client", "error_description": "unknown"})
        self.server.given += 1
        claims = {"sub": ROLE, "exp": time.time() + 3600}
        return self.answer(
            200,
            {
                "access_token": signed_token(self.server.key, claims),
                "expires_in": 3600,
                "token_type": "Bearer",
            },
        )

    def answer(self, status: int, body: object) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *words: object) -> None:
        pass


@pytest.fixture
def issuer(by_token: Broker) -> Iterator[Issuer]:
    with Issuer(key_of(by_token)) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def oauth2(issuer: Issuer, folder: Path, secret: str = "s") -> Authentication:
    file = folder / "client.json"
    file.write_text(
        json.dumps({"type": "client_credentials", "client_id": "me", "client_secret": secret})
    )
    return Authentication(
        plugin="oauth2", issuer_url=issuer.url, private_key=f"file://{file}", audience="pulsar"
    )


def test_tokens_of_an_oauth2_issuer_are_accepted(
    by_token: Broker, issuer: Issuer, tmp_path: Path
) -> None:
    """Client and admin REST fetch them; so does the native client."""
    settings = settings_of(by_token, authentication=oauth2(issuer, tmp_path))
    carries(by_token, settings)
    assert issuer.given >= 2
    assert explain_connect_error(by_token.facts.url, settings) is None


def test_the_error_for_a_wrong_oauth2_secret_has_the_issuers_text(
    by_token: Broker, issuer: Issuer, tmp_path: Path
) -> None:
    """It names the issuer's address, too."""
    settings = settings_of(by_token, authentication=oauth2(issuer, tmp_path, "x"))
    for target in (by_token.facts.admin_url, None):
        address = TargetAddress(url=by_token.facts.url, admin_url=target)
        subject = Subject(driver=DRIVERS[-1], target=address, settings=settings)
        with (
            pytest.raises(
                TargetError, match=f"POST {issuer.url}/token: 401 invalid_client: unknown"
            ),
            rig(subject),
        ):
            pass


# user and password


@pytest.mark.slow
def test_the_right_password_is_accepted(by_password: Broker) -> None:
    """Client and admin REST use it; without TLS in the profile the ports are plain."""
    assert by_password.facts.url.startswith("pulsar://")
    assert by_password.facts.settings["security"] == "basic authentication"
    carries(by_password, settings_of(by_password))


@pytest.mark.slow
@pytest.mark.parametrize("user", [ROLE, "nobody"])
def test_a_wrong_password_is_rejected(by_password: Broker, user: str) -> None:
    """The broker does not tell whether the user exists."""
    wrong = settings_of(
        by_password,
        authentication=Authentication(plugin="basic", user_id=user, password="open sesame"),
    )
    for said in refusals(by_password, wrong):
        assert said.endswith("are userId and password of driver.authentication right?")
        assert "sesame" not in said


# certificates of clients


@pytest.mark.slow
def test_the_right_certificate_is_accepted(by_certificate: Broker) -> None:
    """The name in it is the client's role."""
    assert by_certificate.facts.settings["security"] == "TLS, tls authentication"
    carries(by_certificate, settings_of(by_certificate))


@pytest.mark.slow
def test_a_client_without_certificate_is_rejected(by_certificate: Broker) -> None:
    """The broker ends the handshake, and the error tells which certificate is required."""
    for said in refusals(by_certificate, settings_of(by_certificate, authentication=None)):
        assert said.endswith("write driver.authentication: {plugin: tls, certFile: …, keyFile: …}")


@pytest.mark.slow
def test_a_certificate_of_another_authority_is_rejected(
    by_certificate: Broker, stranger: Path
) -> None:
    """It has the right name."""
    files = KeyPair.below(stranger, "client")
    theirs = Authentication(plugin="tls", cert_file=str(files.certificate), key_file=str(files.key))
    for said in refusals(by_certificate, settings_of(by_certificate, authentication=theirs)):
        assert f"rejects the client's certificate {files.certificate}" in said


# what else holds


@pytest.mark.slow
@pytest.mark.parametrize("under_test", [NativePulsarDriver], indirect=True)
def test_keys_are_private_and_removed_with_the_broker(
    by_certificate: Broker, tmp_path: Path
) -> None:
    """They are also removed if the broker did not start."""
    auth = by_certificate.facts.client["authentication"]
    assert Path(auth.key_file).stat().st_mode & 0o077 == 0
    assert Path(auth.key_file).parent.stat().st_mode & 0o077 == 0
    asked = brokers.BrokerRequest(
        kind="pulsar",
        mode="process",
        folder=tmp_path,
        security=SecuritySection(auth="token"),
        settings={"numIOThreads": "none"},
    )
    with pytest.raises(TargetError, match="did not start"):
        brokers.start(asked, lambda _: None)
    assert not (tmp_path / "data").exists()
    assert (tmp_path / "broker.log").exists()
