"""The part of the APIs of GitHub and GitLab that a job uses to write one comment."""

from __future__ import annotations

import json
import re
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator

GITHUB = re.compile(r"/repos/shop/orders/issues/(?:7/)?comments(?:/(?P<id>\d+))?")
GITLAB = re.compile(r"/projects/3/merge_requests/7/notes(?:/(?P<id>\d+))?")
ME = 99
TOKEN = "secret"


@dataclass
class Comments:
    """The comments of one pull request. :param denied: answer every write with 403."""

    url: str = ""
    comments: list[dict[str, Any]] = field(default_factory=list)
    writes: list[str] = field(default_factory=list)
    denied: bool = False

    def add(self, body: str, *, author: int = ME) -> dict[str, Any]:
        """Add a comment in the form of both APIs."""
        comment = {
            "id": len(self.comments) + 1000,
            "body": body,
            "user": {"type": "Bot" if author == ME else "User"},
            "author": {"id": author},
        }
        self.comments.append(comment)
        return comment


@contextmanager
def serve_comments() -> Iterator[Comments]:
    """Serve the APIs on a free port of this machine."""
    state = Comments()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Say nothing."""

        def do_GET(self) -> None:
            if self.path == "/user":
                return self._answer(200, {"id": ME})
            query = parse_qs(urlsplit(self.path).query)
            size = int(query["per_page"][0])
            first = (int(query["page"][0]) - 1) * size
            return self._answer(200, state.comments[first : first + size])

        def do_POST(self) -> None:
            self._write("POST")

        def do_PATCH(self) -> None:
            self._write("PATCH")

        def do_PUT(self) -> None:
            self._write("PUT")

        def _write(self, method: str) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["body"]
            found = GITHUB.fullmatch(self.path) or GITLAB.fullmatch(self.path)
            tokens = (self.headers["Authorization"], self.headers["PRIVATE-TOKEN"])
            if state.denied or not {f"Bearer {TOKEN}", TOKEN}.intersection(tokens):
                return self._answer(403, {"message": "forbidden"})
            if found is None:
                return self._answer(404, {"message": self.path})
            state.writes.append(method)
            if found["id"] is None:
                return self._answer(201, state.add(body))
            (comment,) = [one for one in state.comments if one["id"] == int(found["id"])]
            comment["body"] = body
            return self._answer(200, comment)

        def _answer(self, status: int, content: object) -> None:
            text = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
