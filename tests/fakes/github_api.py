"""A double of GitHub's REST API on 127.0.0.1: repositories, runs, commits, scripted answers, and what was asked.

`with FakeGitHub() as github: github.add_run("ROCm/TheRock", {"id": 1}); ...; github.requests`.
"""

from __future__ import annotations

import json
import re
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import parse_qs, unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_LIMIT = 5000
_DOCUMENTATION = "https://docs.github.com/rest"
_MOST_RESULTS = 1000
_RUNS = re.compile(r"(/repos/[^/]+/[^/]+)/actions/workflows/([^/]+)/runs")
_COMMIT = re.compile(r"(/repos/[^/]+/[^/]+)/commits/([^/]+)")


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

    @property
    def query(self) -> dict[str, str]:
        """The query's parameters."""
        return {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}


_FILTERS = {"head_sha": "head_sha", "branch": "head_branch"}


class FakeGitHub:
    """The server. `prefix` is the path of its root: "" as on api.github.com, "/api/v3" on GitHub Enterprise Server."""

    def __init__(self, *, prefix: str = "") -> None:
        self._prefix = prefix
        self._scripts: dict[str, list[Answer]] = {}
        self._runs: dict[tuple[str, str], list[Any]] = {}
        self._commits: dict[str, list[str]] = {}
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

    def set_runs(self, full_name: str, workflow: str, records: Sequence[Any]) -> None:
        """Answer for the repository, and for a search with those of `records` (newest first) that it is about."""
        self.script(f"/repos/{full_name}", Answer(body={"full_name": full_name}))
        with self._lock:
            self._runs[f"/repos/{full_name}".lower(), workflow] = list(records)

    def add_commit(self, full_name: str, sha: str) -> None:
        """Answer for a commit, and for the beginning of its SHA where no other one has it."""
        with self._lock:
            self._commits.setdefault(f"/repos/{full_name}".lower(), []).append(sha)

    def script(self, path: str, *answers: Answer) -> None:
        """Answer for `path` (without prefix) with these, one a request; the last one holds from then on.

        A path without a query is about every query.
        """
        with self._lock:
            self._scripts[path.lower()] = list(answers)

    def _answer(self, request: Request) -> Answer:
        with self._lock:
            self._requests.append(request)
            if not request.path.startswith(self._prefix):
                return refusal(404, "Not Found")
            path = request.path.removeprefix(self._prefix)
            bare = path.partition("?")[0]
            # Owners and repositories compare without case.
            script = self._scripts.get(path.lower()) or self._scripts.get(bare.lower())
            if script:
                return script.pop(0) if len(script) > 1 else script[0]
            if (asked := _RUNS.fullmatch(bare)) is not None:
                return self._search(asked[1].lower(), unquote(asked[2]), request.query)
            if (asked := _COMMIT.fullmatch(bare)) is not None:
                return self._commit(asked[1].lower(), asked[2])
            return refusal(404, "Not Found")

    def _search(self, repository: str, workflow: str, query: Mapping[str, str]) -> Answer:
        records = self._runs.get((repository, workflow))
        if records is None:
            return refusal(404, "Not Found")
        found = [
            record
            for record in records
            if not isinstance(record, dict)
            or all(record.get(of) == query.get(name, record.get(of)) for name, of in _FILTERS.items())
        ]
        size, page = int(query.get("per_page", "30")), int(query.get("page", "1"))
        given = found[:_MOST_RESULTS][(page - 1) * size : page * size]
        return Answer(body={"total_count": len(found), "workflow_runs": given})

    def _commit(self, repository: str, start: str) -> Answer:
        found = [sha for sha in self._commits.get(repository, []) if sha.startswith(start)]
        if len(found) != 1:
            return refusal(422, f"No commit found for SHA: {start}")
        return Answer(body={"sha": found[0]})

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


def runs_path(full_name: str, workflow: str) -> str:
    """The path of "List workflow runs for a workflow"."""
    return f"/repos/{full_name}/actions/workflows/{workflow}/runs"


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
