"""A server on 127.0.0.1 between a client and a real S3 server, which does to chosen requests what networks do.

Faults happen at the socket: an answer of one's own, a reset after some bytes of the body, silence, an answer cut short.
"""

from __future__ import annotations

import contextlib
import datetime
import http.client
import re
import socket
import struct
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_CHUNK_BYTES = 65536
_UPLOAD = re.compile(r"<Upload>.*?</Upload>", re.DOTALL)
_UPLOAD_ID = re.compile(r"<UploadId>(.*?)</UploadId>")
_INITIATED = re.compile(r"<Initiated>.*?</Initiated>")
_NOT_FORWARDED = {"connection", "transfer-encoding", "content-length", "keep-alive"}


@dataclass(frozen=True)
class Request:
    """One request as it arrived; `number` counts the matching requests of the same method and path from 1."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    number: int

    @property
    def is_write(self) -> bool:
        return self.method in {"PUT", "POST"}

    @property
    def is_listing(self) -> bool:
        return self.method == "GET" and "list-type" in self.query

    @property
    def is_part(self) -> bool:
        return self.method == "PUT" and "partNumber" in self.query


@dataclass(frozen=True)
class Answer:
    """Answer by itself, and do not ask the real server."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Reset:
    """Reset the connection after `after_bytes` of the request's body."""

    after_bytes: int = 0


@dataclass(frozen=True)
class Stall:
    """Take the request and stay silent until the proxy ends."""


@dataclass(frozen=True)
class CutShort:
    """Ask the real server, and close the connection after `after_bytes` of its answer's body."""

    after_bytes: int


@dataclass(frozen=True)
class HoldUp:
    """Ask the real server when `event` is set (or the proxy ends)."""

    event: threading.Event


@dataclass(frozen=True)
class LostAnswer:
    """Ask the real server, and reset the connection in place of its answer."""


Fault = Answer | Reset | Stall | CutShort | HoldUp | LostAnswer | None


def s3_error(status: int, code: str, *, message: str = "told by the test", region: str = "") -> Answer:
    """An error as S3 words it."""
    extra = f"<Region>{region}</Region>" if region else ""
    body = f'<?xml version="1.0"?>\n<Error><Code>{code}</Code><Message>{message}</Message>{extra}</Error>'
    return Answer(status, body.encode(), {"Content-Type": "application/xml"})


class FaultProxy:
    """`rule(request)` says what happens to a request; None forwards it. `requests` keeps them all, in order."""

    def __init__(self, upstream: str) -> None:
        self.upstream = urlsplit(upstream)
        self.rule: Callable[[Request], Fault] = lambda _: None
        self.requests: list[Request] = []
        self.ended = threading.Event()
        self._lock = threading.Lock()
        self._counts: dict[tuple[str, str, bool], int] = {}
        self._begun: dict[str, str] = {}
        self.url = ""

    def note(self, method: str, target: str, headers: dict[str, str]) -> Request:
        parts = urlsplit(target)
        query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        with self._lock:
            counted = (method, parts.path, "list-type" in query)
            self._counts[counted] = self._counts.get(counted, 0) + 1
            request = Request(method, parts.path, query, headers, self._counts[counted])
            self.requests.append(request)
        return request

    def with_times(self, request: Request, body: bytes) -> bytes:
        """The answer with the times at which multipart uploads began through here: moto says 2010 of every one."""
        if "uploads" not in request.query:
            return body
        text = body.decode()
        if request.method == "POST":
            for upload_id in _UPLOAD_ID.findall(text):
                self._begun[upload_id] = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
            return body
        for upload in _UPLOAD.findall(text):
            begun = self._begun.get("".join(_UPLOAD_ID.findall(upload)), "2010-11-10T20:48:33.000Z")
            text = text.replace(upload, _INITIATED.sub(f"<Initiated>{begun}</Initiated>", upload))
        return text.encode()

    def count(self, matches: Callable[[Request], bool]) -> int:
        """How many requests `matches` holds for."""
        with self._lock:
            return sum(map(matches, self.requests))


@contextmanager
def fault_proxy(upstream: str) -> Iterator[FaultProxy]:
    """A running proxy in front of `upstream`."""
    proxy = FaultProxy(upstream)

    class Handler(_Handler):
        owner = proxy

    server = _Server(("127.0.0.1", 0), Handler)
    proxy.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.ended.set()
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 256

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away is part of the tests."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    owner: FaultProxy

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
        """Say nothing."""

    def _serve(self) -> None:
        request = self.owner.note(
            self.command, self.path, {name.lower(): value for name, value in self.headers.items()}
        )
        fault = self.owner.rule(request)
        length = int(self.headers.get("content-length") or 0)
        if isinstance(fault, Reset):
            self._read(min(fault.after_bytes, length))
            self._reset()
            return
        body = self._read(length)
        if isinstance(fault, Stall):
            self.owner.ended.wait()
            self.close_connection = True
        elif isinstance(fault, Answer):
            self._answer(fault.status, fault.headers, fault.body)
        else:
            if isinstance(fault, HoldUp):
                while not fault.event.wait(0.05) and not self.owner.ended.is_set():
                    pass
            self._forward(request, body, fault)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _serve  # noqa: N815 - http.server calls them so

    def _read(self, length: int) -> bytes:
        return self.rfile.read(length) if length else b""

    def _reset(self) -> None:
        """Close so that the peer sees a reset, not an end."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()

    def _forward(self, request: Request, body: bytes, fault: Fault) -> None:
        upstream = http.client.HTTPConnection(self.owner.upstream.hostname or "", self.owner.upstream.port)
        with contextlib.closing(upstream):
            upstream.request(self.command, self.path, body=body, headers=dict(self.headers.items()))
            response = upstream.getresponse()
            data = self.owner.with_times(request, response.read())
            if isinstance(fault, LostAnswer):
                self._reset()
                return
            headers = {name: value for name, value in response.getheaders() if name.lower() not in _NOT_FORWARDED}
            length = response.getheader("content-length") if self.command == "HEAD" else None
        cut_after_bytes = fault.after_bytes if isinstance(fault, CutShort) else None
        self._answer(response.status, headers, data, cut_after_bytes=cut_after_bytes, length=length)

    def _answer(
        self,
        status: int,
        headers: dict[str, str],
        body: bytes,
        *,
        cut_after_bytes: int | None = None,
        length: str | None = None,
    ) -> None:
        self.send_response_only(status)
        for name, value in {"Content-Length": length or str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[:cut_after_bytes])
        if cut_after_bytes is not None:
            self.wfile.flush()
            self.close_connection = True
