"""The ``tls`` section of an MQTT driver: whom to trust, who the client is, which versions and ciphers."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pytest_loadtest.profile.fields import Section


class Tls(Section):
    """TLS of an MQTT client, for mqtts:// targets."""

    ca_file: str | None = None
    """Certificates to trust; the system's when absent."""
    cert_file: str | None = None
    """The client's certificate."""
    key_file: str | None = None
    """The client's private key."""
    insecure: bool = False
    """Do not check that the certificate names the host."""
    version: Literal["TLSv1.2", "TLSv1.3"] | None = None
    """Exactly this one; left out, the newest that both sides have. A broker that the run starts is told too."""
    ciphers: str | None = Field(default=None, pattern=r"^[A-Z0-9_-]+(:[A-Z0-9_-]+)*$")
    """Only these, by OpenSSL's names with colons between. A broker that the run starts is told too; what another one chooses is checked."""

    def with_files(self, given: Tls) -> Tls:
        """These settings, with the files of ``given`` where they name none; certificate and key belong together."""
        pairs = (("ca_file",), ("cert_file", "key_file"))
        missing = [name for pair in pairs if not any(getattr(self, one) for one in pair) for name in pair]
        return self.model_copy(update={name: getattr(given, name) for name in missing})

    @property
    def of_tls13(self) -> tuple[str, ...]:
        """Those ciphers that TLS 1.3 has; OpenSSL sets them apart from all others."""
        return tuple(name for name in self._each if name.startswith("TLS_"))

    @property
    def of_tls12(self) -> tuple[str, ...]:
        """Those ciphers that TLS 1.2 has."""
        return tuple(name for name in self._each if not name.startswith("TLS_"))

    @property
    def versions(self) -> tuple[str, ...]:
        """Versions that may be agreed on, the oldest first: ciphers of one version alone leave only that."""
        if self.version is not None:
            return (self.version,)
        has = {"TLSv1.2": self.of_tls12, "TLSv1.3": self.of_tls13}
        return tuple(version for version, ciphers in has.items() if ciphers or self.ciphers is None)

    @property
    def _each(self) -> list[str]:
        return self.ciphers.split(":") if self.ciphers else []
