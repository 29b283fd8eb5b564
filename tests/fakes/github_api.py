"""A double of GitHub's REST API on 127.0.0.1: workflow runs, scripted answers, and a log of what was asked.

`with FakeGitHub() as github: github.add_run("ROCm/TheRock", {"id": 1}); ...; github.requests`.
"""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_LIMIT = 5000
_DOCUMENTATION = "https://docs.github.com/rest"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One answer. `body` is bytes to send as they are, or what is sent as JSON; `headers` come beside GitHub's own."""

    status: int = 200
    body: object = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Request:
    """One request as it arrived; header names in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]


class FakeGitHub:
    """The server. `prefix` is the path of its root: "" as on api.github.com, "/api/v3" on GitHub Enterprise Server."""

    def __init__(self, *, prefix: str = "") -> None:
        self._prefix = prefix
        self._scripts: dict[str, list[Answer]] = {}
        self._lock = threading.Lock()
        self._requests: list[Request] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def url(self) -> str:
        """What GITHUB_API_URL says."""
        return f"http://127.0.0.1:{self._server.server_port}{self._prefix}"

    @property
    def requests(self) -> Sequence[Request]:
        """Everything that was asked so far, in order."""
        with self._lock:
            return tuple(self._requests)

    def add_run(self, full_name: str, record: Mapping[str, Any]) -> None:
        """Answer for a run with its record."""
        self.script(run_path(full_name, record["id"]), Answer(body=record))

    def script(self, path: str, *answers: Answer) -> None:
        """Answer for `path` (without prefix) with these, one a request; the last one holds from then on."""
        with self._lock:
            self._scripts[path.lower()] = list(answers)

    def _answer(self, request: Request) -> Answer:
        path = request.path.lower()  # owners and repositories compare without case
        with self._lock:
            self._requests.append(request)
            script = self._scripts.get(path.removeprefix(self._prefix)) if path.startswith(self._prefix) else None
            if not script:
                return refusal(404, "Not Found")
            return script.pop(0) if len(script) > 1 else script[0]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                headers = {name.lower(): value for name, value in self.headers.items()}
                answer = fake._answer(Request(method=self.command, path=self.path, headers=headers))
                body = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
                usual = {
                    "content-type": "application/json; charset=utf-8",
                    "content-length": str(len(body)),
                    "x-ratelimit-limit": str(_LIMIT),
                    "x-ratelimit-remaining": str(_LIMIT - len(fake.requests)),
                    "x-ratelimit-reset": str(int(time.time()) + 3600),
                }
                self.send_response(answer.status)
                for name, value in (usual | {name.lower(): value for name, value in answer.headers.items()}).items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it
                pass

        return Handler


def run_path(full_name: str, run_id: int) -> str:
    """The path of "Get a workflow run"."""
    return f"/repos/{full_name}/actions/runs/{run_id}"


def refusal(status: int, message: str, headers: Mapping[str, str] | None = None) -> Answer:
    """An error as GitHub words it."""
    body = {"message": message, "documentation_url": _DOCUMENTATION, "status": str(status)}
    return Answer(status=status, body=body, headers=headers or {})


def primary_rate_limit(*, reset_in_seconds: int) -> Answer:
    """The hour's requests are used up."""
    headers = {"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(int(time.time()) + reset_in_seconds)}
    return refusal(403, "API rate limit exceeded for installation ID 7.", headers)


def secondary_rate_limit(*, status: int = 403, retry_after: str | None = None) -> Answer:
    """Too much at once."""
    message = "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."
    return refusal(status, message, {} if retry_after is None else {"retry-after": retry_after})
