"""Brokers that ask who connects, and both clients: a real Pulsar for tokens behind TLS, one for passwords, one for certificates."""

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

READY = java.find() is not None and pulsar_jars.PULSAR.version in pulsar_jars.PULSAR.cached_versions()
pytestmark = [pytest.mark.skipif(not READY, reason="no Java, or no jars of Pulsar"), pytest.mark.pulsar, pytest.mark.slow]

MESSAGES = 20
NEITHER = "127.1"  # 127.0.0.1 to the system, and no name that the broker's certificate has
DRIVERS: list[Any] = []


@pytest.fixture(autouse=True, params=[PulsarDriver, NativePulsarDriver], ids=["library", "native"])
def under_test(request: pytest.FixtureRequest) -> Iterator[None]:
    """The driver that connects."""
    DRIVERS.append(request.param)
    yield
    DRIVERS.pop()


@contextmanager
def secured(folder: Path, *, tls: bool = False, auth: Literal["token", "basic", "tls"]) -> Iterator[Broker]:
    security = SecuritySection(tls=tls, auth=auth)
    with running(brokers.BrokerRequest(kind="pulsar", mode="auto", folder=folder, security=security)) as broker:
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
def by_certificate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with secured(tmp_path_factory.mktemp("certificate") / "broker", tls=True, auth="tls") as broker:
        yield broker


def settings_of(broker: Broker, **changes: Any) -> PulsarSettings:
    """What the run would give its clients, and what the user says instead."""
    return PulsarSettings(**{"operation_timeout": 2 * SECOND, **broker.facts.client, **changes})


def carries(broker: Broker, settings: PulsarSettings) -> None:
    """Namespace and topics are made, messages go through, all is deleted again."""
    target = TargetAddress(url=broker.facts.url, admin_url=broker.facts.admin_url, started=True)
    patient = settings.model_copy(update={"operation_timeout": 30 * SECOND})
    with rig(Subject(driver=DRIVERS[-1], target=target, settings=patient)) as r:
        r.send(MESSAGES)
        r.until(lambda: r.acked == r.copies == MESSAGES, "all acknowledged and received")


def refusals(broker: Broker, settings: PulsarSettings, host: str = "127.0.0.1") -> tuple[str, str]:
    """What a user hears with the admin REST, where that is asked first, and without."""
    url, admin = (str(one).replace("127.0.0.1", host) for one in (broker.facts.url, broker.facts.admin_url))
    said = []
    for target in (TargetAddress(url=url, admin_url=admin), TargetAddress(url=url)):
        with pytest.raises(TargetError) as raised, rig(Subject(driver=DRIVERS[-1], target=target, settings=settings)):
            pass
        said.append(str(raised.value))
    assert admin in said[0], "the address that refused"
    assert url in said[1], "the address that refused"
    return said[0], said[1]


def key_of(broker: Broker) -> bytes:
    return Path(broker.facts.client["authentication"].token_file).with_name(TOKEN_KEY).read_bytes()


def token(claims: dict[str, Any], key: bytes) -> Authentication:
    return Authentication(plugin="token", token=signed_token(key, claims))


def reachable(url: str) -> bool:
    """Whether something answers there without TLS."""
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname or "", parts.port or 0), 10) as connection:
        connection.sendall(b"GET /admin/v2/brokers/ready HTTP/1.0\r\n\r\n")
        return connection.recv(12).startswith(b"HTTP/1.1 2")


# tokens, behind TLS


def test_the_broker_says_what_it_asks_for(by_token: Broker) -> None:
    """Addresses, the report's settings, and what clients need, in which no secret is; all ports speak TLS."""
    facts = by_token.facts
    assert (facts.mode, facts.url.partition("://")[0], (facts.admin_url or "").partition("://")[0]) == ("process", "pulsar+ssl", "https")
    assert facts.settings["security"] == "TLS, token authentication"
    assert facts.settings["maxMessageSize"] == "5242880", "its own words, which are for superusers"
    secret = Path(facts.client["authentication"].token_file).read_text()
    assert secret.count(".") == 2
    assert secret not in repr(facts)
    assert not reachable(facts.url)
    assert not reachable(facts.admin_url or "")


def test_right_token(by_token: Broker) -> None:
    """A run's clients get in with what the broker says goes with it, by either of the names in its certificate."""
    carries(by_token, settings_of(by_token))
    own = PulsarSettings(**by_token.facts.client)
    with rig(Subject(driver=DRIVERS[-1], target=TargetAddress(url=by_token.facts.url.replace("127.0.0.1", "localhost")), settings=own)):
        pass


def test_wrong_token(by_token: Broker) -> None:
    """Signed by another key."""
    wrong = settings_of(by_token, authentication=token({"sub": ROLE}, b"another key of thirty-two bytes!"))
    by_admin, by_client = refusals(by_token, wrong)
    assert by_admin.endswith("401 Unauthorized: is the token of driver.authentication one of this broker's?")
    assert by_client.endswith("the broker says 'Failed to authenticate': is the token of driver.authentication one of this broker's?")


def test_expired_token(by_token: Broker) -> None:
    """The message says when."""
    expired = settings_of(by_token, authentication=token({"sub": ROLE, "exp": 1_000_000_000}, key_of(by_token)))
    for said in refusals(by_token, expired):
        assert said.endswith("the token of driver.authentication expired at 2001-09-09T01:46:40+00:00")


def test_no_credentials(by_token: Broker) -> None:
    """The profile is what lacks something."""
    for said in refusals(by_token, settings_of(by_token, authentication=None)):
        assert said.endswith("the broker wants to know who connects: write driver.authentication")


def test_a_role_without_rights(by_token: Broker) -> None:
    """Known, and not let: another message than that of somebody unknown."""
    by_admin, by_client = refusals(by_token, settings_of(by_token, authentication=token({"sub": "nobody"}, key_of(by_token))))
    assert "[nobody]" in by_admin
    assert by_client.endswith("the broker knows the client and does not let it: grant its role produce and consume there")


def test_wrong_authority(by_token: Broker, stranger: Path) -> None:
    """The client does not trust the broker: the file that should hold the authority is named."""
    for said in refusals(by_token, settings_of(by_token, tls_trust_certs_file_path=f"{stranger}/ca.pem")):
        assert said.endswith(f"driver.tlsTrustCertsFilePath ({stranger}/ca.pem) must hold the authority that signed it")


def test_wrong_host_name(by_token: Broker) -> None:
    """A name that the certificate has not is refused, and taken where the profile does not ask for names to be checked."""
    for said in refusals(by_token, settings_of(by_token), host=NEITHER):
        assert f"certificate is not valid for '{NEITHER}', its names are localhost, 127.0.0.1: {NAME_REMEDY}" in said
    lax, target = settings_of(by_token, tls_enable_hostname_verification=False, operation_timeout=30 * SECOND), by_token.facts.url
    with rig(Subject(driver=DRIVERS[-1], target=TargetAddress(url=target.replace("127.0.0.1", NEITHER)), settings=lax)):
        pass


def test_plain_client(by_token: Broker) -> None:
    """pulsar:// where the port speaks TLS."""
    with pytest.raises(TargetError, match=r"does the port speak TLS\? write pulsar\+ssl:// and https://") as raised:
        target = TargetAddress(url=by_token.facts.url.replace("+ssl", ""))
        with rig(Subject(driver=DRIVERS[-1], target=target, settings=settings_of(by_token))):
            pass
    assert "pulsar://127.0.0.1" in str(raised.value)


def test_files_that_are_not_there(by_token: Broker) -> None:
    """A file is named before anybody connects, also where pulsar-client would go on without it."""
    for admin in (by_token.facts.admin_url, None):
        target = TargetAddress(url=by_token.facts.url, admin_url=admin)
        lacking = settings_of(by_token, tls_trust_certs_file_path="/nowhere/ca.pem")
        driver = DRIVERS[-1](context_of(Subject(driver=DRIVERS[-1], target=target, settings=lacking), plain_pool()))
        with pytest.raises(UsageError, match="TLS cannot use /nowhere/ca.pem: No such file"):
            driver.prepare()
            driver.open_consumers([0])
        driver.close()


# OAuth2: tokens of an issuer that the broker trusts


class Issuer(ThreadingHTTPServer):
    """Client credentials flow: hands out tokens signed by the broker's key, to who knows the secret."""

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
        self.answer(200 if known else 404, {"issuer": self.server.url, "token_endpoint": f"{self.server.url}/token"})

    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        wanted = {"grant_type": ["client_credentials"], "client_id": ["me"], "client_secret": ["s"], "audience": ["pulsar"]}
        if form != wanted:
            return self.answer(401, {"error": "invalid_client", "error_description": "unknown"})
        self.server.given += 1
        claims = {"sub": ROLE, "exp": time.time() + 3600}
        return self.answer(200, {"access_token": signed_token(self.server.key, claims), "expires_in": 3600, "token_type": "Bearer"})

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
    file.write_text(json.dumps({"type": "client_credentials", "client_id": "me", "client_secret": secret}))
    return Authentication(plugin="oauth2", issuer_url=issuer.url, private_key=f"file://{file}", audience="pulsar")


def test_oauth2(by_token: Broker, issuer: Issuer, tmp_path: Path) -> None:
    """Client and admin REST fetch tokens from the issuer, and the broker takes them; so it does for who speaks the protocol himself."""
    settings = settings_of(by_token, authentication=oauth2(issuer, tmp_path))
    carries(by_token, settings)
    assert issuer.given >= 2
    assert explain_connect_error(by_token.facts.url, settings) is None


def test_oauth2_with_a_wrong_secret(by_token: Broker, issuer: Issuer, tmp_path: Path) -> None:
    """The issuer's words, with its address."""
    settings = settings_of(by_token, authentication=oauth2(issuer, tmp_path, "x"))
    for target in (by_token.facts.admin_url, None):
        address = TargetAddress(url=by_token.facts.url, admin_url=target)
        subject = Subject(driver=DRIVERS[-1], target=address, settings=settings)
        with pytest.raises(TargetError, match=f"POST {issuer.url}/token: 401 invalid_client: unknown"), rig(subject):
            pass


# user and password


def test_right_password(by_password: Broker) -> None:
    """Client and admin REST get in; ports are plain where no TLS is asked for."""
    assert by_password.facts.url.startswith("pulsar://")
    assert by_password.facts.settings["security"] == "basic authentication"
    carries(by_password, settings_of(by_password))


@pytest.mark.parametrize("user", [ROLE, "nobody"])
def test_wrong_password(by_password: Broker, user: str) -> None:
    """A broker does not tell whether the user is known."""
    wrong = settings_of(by_password, authentication=Authentication(plugin="basic", user_id=user, password="open sesame"))
    for said in refusals(by_password, wrong):
        assert said.endswith("are userId and password of driver.authentication right?")
        assert "sesame" not in said


# certificates of clients


def test_right_certificate(by_certificate: Broker) -> None:
    """The certificate's name is the client's role."""
    assert by_certificate.facts.settings["security"] == "TLS, tls authentication"
    carries(by_certificate, settings_of(by_certificate))


def test_missing_certificate(by_certificate: Broker) -> None:
    """The broker ends the handshake, and the message says what it wants."""
    for said in refusals(by_certificate, settings_of(by_certificate, authentication=None)):
        assert said.endswith("write driver.authentication: {plugin: tls, certFile: …, keyFile: …}")


def test_certificate_of_a_stranger(by_certificate: Broker, stranger: Path) -> None:
    """The right name, signed by somebody whom the broker does not trust."""
    files = KeyPair.below(stranger, "client")
    theirs = Authentication(plugin="tls", cert_file=str(files.certificate), key_file=str(files.key))
    for said in refusals(by_certificate, settings_of(by_certificate, authentication=theirs)):
        assert f"does not take the client's certificate {files.certificate}" in said


# what else holds


def test_keys_go_with_the_broker(by_certificate: Broker, tmp_path: Path) -> None:
    """Nobody else can read them while it runs, and none is left where a broker did not even come up."""
    auth = by_certificate.facts.client["authentication"]
    assert Path(auth.key_file).stat().st_mode & 0o077 == 0
    assert Path(auth.key_file).parent.stat().st_mode & 0o077 == 0
    asked = brokers.BrokerRequest(
        kind="pulsar", mode="process", folder=tmp_path, security=SecuritySection(auth="token"), settings={"numIOThreads": "none"}
    )
    with pytest.raises(TargetError, match="did not start"):
        brokers.start(asked, lambda _: None)
    assert not (tmp_path / "data").exists()
    assert (tmp_path / "broker.log").exists()
