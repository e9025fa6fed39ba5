"""Which broker has a topic: questions that go from broker to broker."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from pytest_loadtest.drivers.pulsar.native.link import Address, Refused
from pytest_loadtest.wire.pulsar import api_pb2 as api

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_loadtest.drivers.pulsar.native.link import BrokerLink

    Done = Callable[[Any], None]

_REDIRECTS: Final = 20  # that one lookup may take, as in Pulsar's Java client
_REDIRECT, _FAILED = 0, 2  # LookupResponse.response


class Lookups:
    """Who asks for the same topic at the same time shares the question.

    :param service: a connection to begin at. :param link: a connection to a broker. :param ask: sends a request there.
    """

    def __init__(
        self, service: Callable[[], BrokerLink], link: Callable[[Address], BrokerLink],
        ask: Callable[[BrokerLink, Callable[[int], api.Command], Done], None],
    ) -> None:  # fmt: skip
        self._service, self._link, self._ask = service, link, ask
        self._waiting: defaultdict[str, list[Done]] = defaultdict(list)

    def begin(self, topic: str, done: Done) -> None:
        """:param done: told ``(address, proxy_to)`` of the broker that has the topic, or what went wrong (:class:`Refused`)."""
        self._waiting[topic].append(done)
        if len(self._waiting[topic]) == 1:
            self._at(topic, self._service(), authoritative=False, left=_REDIRECTS)

    def _at(self, topic: str, link: BrokerLink, authoritative: bool, left: int) -> None:
        def answer(found: Any) -> None:
            where = found if isinstance(found, Refused) else _where(found, link.address)
            if isinstance(where, Refused) or found.response != _REDIRECT:
                return self._found(topic, where)
            if not left:
                return self._found(topic, Refused("redirected without end", api.UnknownError))
            return self._at(topic, self._link(where[0]), found.authoritative, left - 1)

        def question(number: int) -> api.Command:
            return api.Command(type=api.Command.LOOKUP, lookup=api.Lookup(topic=topic, request_id=number, authoritative=authoritative))

        self._ask(link, question, answer)

    def _found(self, topic: str, found: Any) -> None:
        for done in self._waiting.pop(topic, ()):
            done(found)


def _where(found: api.LookupResponse, asked: Address) -> tuple[Address, str | None] | Refused:
    """The broker that an answer names: its address and None, or that of its proxy and the broker's ``host:port``."""
    if found.response == _FAILED:
        return Refused(found.message, found.error)
    url = found.broker_service_url_tls if asked.tls else found.broker_service_url
    address = Address.said(url)
    if address is None:
        return Refused(f"the broker of the topic has no {'TLS' if asked.tls else 'plain'} address: {url!r}", api.UnknownError)
    if found.response != _REDIRECT and found.proxy_through_service_url:
        return asked, url.partition("://")[2]
    return address, None
