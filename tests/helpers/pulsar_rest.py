"""A local server in place of the admin REST."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator


@contextmanager
def rest(
    answers: dict[str, tuple[int, object]], once: Collection[str] = ()
) -> Iterator[tuple[str, list[tuple[str, str | None, bytes]]]]:
    """A server with these answers ("METHOD path" → status, JSON), 204 for the rest: its URL and what was asked, authorization, body.

    The content of a 307 is the address to go to. ``once``: answers that are given the first time.
    """
    asked: list[tuple[str, str | None, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            asked.append((f"{self.command} {self.path}", self.headers.get("Authorization"), body))
            what = asked[-1][0]
            answered = what in once and [one[0] for one in asked].count(what) > 1
            status, content = (204, None) if answered else answers.get(what, (204, None))
            self.send_response(status)
            if status == 307:
                self.send_header("Location", str(content))
            text = b"" if content is None else json.dumps(content).encode()
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_PUT = do_POST = do_DELETE = answer  # noqa: N815

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()
        thread.join()
