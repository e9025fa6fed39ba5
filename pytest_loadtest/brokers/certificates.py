"""Certificates for one run: its own authority, which signs for servers and clients.

They have the extensions that strict verifiers require (RFC 5280, 4.2.1; Python's default since
3.13). Imported only for a run with TLS, as importing cryptography is slow.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, Self

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from pytest_loadtest.values.records import immutable, record

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

BITS: Final = 2048
EARLIER: Final = timedelta(days=1)  # clocks differ
LASTS: Final = timedelta(days=365)


@immutable
class KeyPair:
    """The PEM files of a certificate and its private key.

    The key is PKCS #8, unencrypted, and readable by its owner only.
    """

    certificate: Path
    key: Path

    @classmethod
    def below(cls, folder: Path, name: str) -> Self:
        """Return the paths ``NAME.pem`` and ``NAME-key.pem``."""
        return cls(folder / f"{name}.pem", folder / f"{name}-key.pem")


class Authority:
    """A certificate authority; its own key is never written to disk.

    :param name: common name.
    """

    def __init__(self, name: str) -> None:
        self._name = _named(name)
        self._key = _new_key()
        builder = self._builder(self._name, self._key)
        builder = builder.add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        self._certificate = builder.add_extension(_usage(signs=True), critical=True).sign(
            self._key, SHA256()
        )

    def write(self, path: Path) -> Path:
        """Write its own certificate as PEM. :returns: ``path``."""
        path.write_bytes(self._certificate.public_bytes(Encoding.PEM))
        return path

    def server(
        self, files: KeyPair, name: str, hosts: Sequence[str], addresses: Sequence[str]
    ) -> KeyPair:
        """Write a server's certificate.

        :param hosts: DNS names. :param addresses: IP addresses. :returns: ``files``.
        """
        names = [
            *map(x509.DNSName, hosts),
            *(x509.IPAddress(ip_address(address)) for address in addresses),
        ]
        return self._issue(
            files, name, ExtendedKeyUsageOID.SERVER_AUTH, x509.SubjectAlternativeName(names)
        )

    def client(self, files: KeyPair, name: str) -> KeyPair:
        """Write a client's certificate.

        :param name: common name, which is the client's role at a Pulsar broker. :returns:
            ``files``.
        """
        return self._issue(files, name, ExtendedKeyUsageOID.CLIENT_AUTH)

    def _issue(
        self, files: KeyPair, name: str, purpose: x509.ObjectIdentifier, *more: x509.ExtensionType
    ) -> KeyPair:
        key = _new_key()
        builder = self._builder(_named(name), key)
        extensions = (
            x509.BasicConstraints(ca=False, path_length=None),
            _usage(signs=False),
            x509.ExtendedKeyUsage([purpose]),
            *more,
        )
        for extension in extensions:
            builder = builder.add_extension(
                extension, critical=isinstance(extension, x509.BasicConstraints | x509.KeyUsage)
            )
        files.certificate.write_bytes(builder.sign(self._key, SHA256()).public_bytes(Encoding.PEM))
        files.key.touch(mode=0o600)
        files.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return files

    def _builder(self, subject: x509.Name, key: RSAPrivateKey) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - EARLIER)
            .not_valid_after(now + LASTS)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )


@record
class KeysOfRun:
    """The files that a broker and its clients are configured with.

    :param authority: certificate of the authority that signed both.
    """

    authority: Path
    server: KeyPair
    client: KeyPair | None


def keys_of_run(folder: Path, *, client: str | None) -> KeysOfRun:
    """Make the keys for a broker on this machine.

    :param folder: existing folder that other users cannot read.
    :param client: name in the client's certificate; None: no such certificate.
    """
    authority = Authority("pytest-loadtest")
    trusted = authority.write(folder / "ca.pem")
    server = authority.server(
        KeyPair.below(folder, "server"), "pytest-loadtest broker", ["localhost"], ["127.0.0.1"]
    )
    own = None if client is None else authority.client(KeyPair.below(folder, "client"), client)
    return KeysOfRun(authority=trusted, server=server, client=own)


def _new_key() -> RSAPrivateKey:
    return generate_private_key(public_exponent=65537, key_size=BITS)  # every Pulsar reads RSA keys


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=not signs,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )
