"""Looking up a run: whom it asks, how long it waits, and what it says when GitHub does not answer."""

from __future__ import annotations

import json
import socket
import threading
import time
import traceback
from email.utils import formatdate
from typing import TYPE_CHECKING

import pytest

from _therock_utils import _github
from _therock_utils._errors import CredentialsError, GitHubError, InputError, OutputsError
from _therock_utils._github import MAX_WAIT_SECONDS, fetch_workflow_run
from _therock_utils._github_api import OUT_OF_REACH_SECONDS
from _therock_utils.s3_buckets import Repository
from _therock_utils.workflow_outputs import WorkflowOutputRoot
from fakes.github_api import (
    Answer,
    FakeGitHub,
    primary_rate_limit,
    refusal,
    run_path,
    secondary_rate_limit,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

NAME = "ROCm/TheRock"
REPOSITORY = Repository.parse(NAME)
PATH = run_path(NAME, 12345)
RECORD = {
    "id": 12345,
    "url": "https://api.github.com/repos/ROCm/TheRock/actions/runs/12345",
    "repository": {"full_name": NAME},
    "head_repository": {"full_name": NAME},
    "updated_at": "2026-06-09T00:00:00Z",
}
TOKEN = "ghs_made0up1token2that3must4not5leak"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "GITHUB_TOKEN",
        "GH_TOKEN",
        "GITHUB_REPOSITORY",
        "GITHUB_EVENT_NAME",
        "IS_PR_FROM_FORK",
        "RELEASE_TYPE",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    _github._fetch.cache_clear()  # a port may be used again


@pytest.fixture
def github(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGitHub]:
    with FakeGitHub() as server:
        monkeypatch.setenv("GITHUB_API_URL", server.url)
        server.add_run(NAME, RECORD)
        yield server


class Sleeps:
    """Stands for a wait: it does not sleep, and keeps what was asked and why."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.causes: list[str] = []

    def __call__(self, seconds: float, cause: str) -> None:
        self.seconds.append(seconds)
        self.causes.append(cause)


@pytest.fixture
def sleeps() -> Sleeps:
    return Sleeps()


def failure_of(sleeps: Sleeps, *, token: str | None = TOKEN, run_id: str = "12345") -> OutputsError:
    """The error of a lookup, after a look at everything that a log could show of it."""
    with pytest.raises(OutputsError) as caught:
        fetch_workflow_run(REPOSITORY, run_id, token=token, wait=sleeps)
    shown = [str(caught.value), repr(caught.value), *traceback.format_exception(caught.value)]
    assert TOKEN not in "".join(shown)
    return caught.value


# Whom it asks, and as whom


@pytest.mark.parametrize("prefix", ["", "/api/v3"])
@pytest.mark.parametrize("tail", ["", "/"])
def test_the_api_at_github_api_url_is_asked(monkeypatch: pytest.MonkeyPatch, prefix: str, tail: str) -> None:
    with FakeGitHub(prefix=prefix) as github:
        github.add_run(NAME, RECORD)
        monkeypatch.setenv("GITHUB_API_URL", github.url + tail)
        assert fetch_workflow_run(REPOSITORY, "12345") == RECORD
        assert [(request.method, request.path) for request in github.requests] == [("GET", prefix + PATH)]


@pytest.mark.parametrize(
    "url",
    [
        "api.github.com",
        "ftp://127.0.0.1",
        "file:///etc/passwd",
        "http://",
        "http://127.0.0.1:port",
        "http://[::1",
        f"http://user:{TOKEN}@127.0.0.1",
        f"http://127.0.0.1/?token={TOKEN}",
        "http://127.0.0.1/#root",
    ],
)
def test_what_is_no_api_url_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, sleeps: Sleeps, url: str) -> None:
    monkeypatch.setenv("GITHUB_API_URL", url)
    error = failure_of(sleeps)
    assert isinstance(error, InputError)
    assert "GITHUB_API_URL" in error.what
    assert not sleeps.seconds


def test_an_empty_api_url_is_github_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_API_URL", "")
    monkeypatch.setattr(_github, "_fetch", lambda url, *_: {"asked": url})
    assert fetch_workflow_run(REPOSITORY, "12345") == {"asked": "https://api.github.com"}


@pytest.mark.parametrize(
    ("environment", "given", "sent"),
    [
        ({"GITHUB_TOKEN": TOKEN}, None, TOKEN),
        ({"GH_TOKEN": TOKEN}, None, TOKEN),
        ({"GITHUB_TOKEN": TOKEN, "GH_TOKEN": "other"}, None, TOKEN),
        ({"GITHUB_TOKEN": "", "GH_TOKEN": TOKEN}, None, TOKEN),
        ({"GITHUB_TOKEN": "other"}, TOKEN, TOKEN),
        ({"GITHUB_TOKEN": TOKEN}, "", TOKEN),
        ({"GITHUB_TOKEN": f"{TOKEN}\n"}, None, TOKEN),
        ({}, None, None),
        ({"GITHUB_TOKEN": "", "GH_TOKEN": ""}, "", None),
    ],
)
def test_the_token_is_sent_in_the_authorization_header(
    github: FakeGitHub,
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    given: str | None,
    sent: str | None,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    fetch_workflow_run(REPOSITORY, "12345", token=given)
    (request,) = github.requests
    assert request.headers.get("authorization", "").split() == ([] if sent is None else ["token", sent])
    assert TOKEN not in request.path


@pytest.mark.parametrize("tail", ["\nX-Other: 1", "\r\n\r\nGET /", " b", "\x00", "é", "\ud800"])
def test_a_token_that_no_header_can_carry_is_refused_before_a_request(
    github: FakeGitHub, sleeps: Sleeps, tail: str
) -> None:
    error = failure_of(sleeps, token=f"{TOKEN}{tail}")
    assert isinstance(error, CredentialsError)
    assert not github.requests


@pytest.mark.parametrize(
    "run_id",
    ["", "local", "12345\n", "0", "007", "-1", "1.5", "1e3", "١٢٣", "²", "1/../2", "9" * 21, "9" * 5000],
)
def test_a_run_id_that_is_no_number_of_github_is_never_asked_for(
    github: FakeGitHub, sleeps: Sleeps, run_id: str
) -> None:
    assert isinstance(failure_of(sleeps, run_id=run_id), InputError)
    assert not github.requests


# How often it asks


def test_one_run_costs_one_request(github: FakeGitHub) -> None:
    other = RECORD | {"id": 7}
    github.add_run(NAME, other)
    for _ in range(3):
        assert fetch_workflow_run(REPOSITORY, "12345") == RECORD
        assert fetch_workflow_run(REPOSITORY, "7") == other
    assert [request.path for request in github.requests] == [PATH, run_path(NAME, 7)]


def test_roots_of_all_platforms_of_a_run_cost_one_request(github: FakeGitHub) -> None:
    roots = [
        WorkflowOutputRoot.from_workflow_run("12345", platform, github_repository=NAME, lookup_workflow_run=True)
        for platform in ("linux", "windows", "linux")
    ]
    assert [root.bucket for root in roots] == ["therock-ci-artifacts"] * 3
    assert len(github.requests) == 1


def test_a_root_of_a_given_record_or_of_the_environment_costs_no_request(github: FakeGitHub) -> None:
    WorkflowOutputRoot.from_workflow_run("12345", "linux", workflow_run=RECORD, lookup_workflow_run=True)
    WorkflowOutputRoot.from_workflow_run("12345", "linux")
    assert not github.requests


def test_a_failed_lookup_is_asked_again(github: FakeGitHub, sleeps: Sleeps) -> None:
    github.script(PATH, refusal(404, "Not Found"), Answer(body=RECORD))
    failure_of(sleeps, token="")
    assert fetch_workflow_run(REPOSITORY, "12345", token="", wait=sleeps) == RECORD


@pytest.mark.parametrize("extra", [{}, {"head_repository": None}])
def test_a_record_without_a_head_repository_is_a_deleted_forks(github: FakeGitHub, extra: dict[str, None]) -> None:
    record = {name: value for name, value in RECORD.items() if name != "head_repository"} | extra
    github.add_run(NAME, record)
    root = WorkflowOutputRoot.from_workflow_run("12345", "linux", github_repository=NAME, lookup_workflow_run=True)
    assert (root.bucket, root.external_repo) == ("therock-ci-artifacts-external", "ROCm-TheRock/")


# What passes by itself


@pytest.mark.parametrize(
    "busy",
    [
        secondary_rate_limit(status=429, retry_after="1"),
        secondary_rate_limit(status=403, retry_after="1"),
        refusal(403, "Wait.", {"retry-after": "1"}),
        refusal(503, "Unavailable", {"retry-after": "1"}),
        refusal(500, "Server Error"),
        Answer(status=502, body=b"<html>Bad Gateway</html>", headers={"content-type": "text/html"}),
        Answer(status=504, body=b""),
        primary_rate_limit(reset_in_seconds=5),
    ],
    ids=lambda answer: str(answer.status),
)
def test_a_lookup_waits_for_what_passes_and_then_succeeds(github: FakeGitHub, sleeps: Sleeps, busy: Answer) -> None:
    github.script(PATH, busy, busy, Answer(body=RECORD))
    assert fetch_workflow_run(REPOSITORY, "12345", wait=sleeps) == RECORD
    assert len(github.requests) == 3
    assert len(sleeps.seconds) == 2
    assert sum(sleeps.seconds) <= MAX_WAIT_SECONDS
    if "retry-after" in busy.headers:
        assert min(sleeps.seconds) >= 1


def test_retry_after_may_be_a_date(github: FakeGitHub, sleeps: Sleeps, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1_000_000.0)
    github.script(PATH, secondary_rate_limit(retry_after=formatdate(1_000_030, usegmt=True)), Answer(body=RECORD))
    fetch_workflow_run(REPOSITORY, "12345", wait=sleeps)
    assert sleeps.seconds == [30.0]


@pytest.mark.parametrize(
    "retry_after",
    ["soon", "", "-1", "1.5", "²", "Mon, 01 Jan 99999999999 00:00:00 GMT", "Mon, 01 Jan 2024 00:00:00 GMT"],
)
def test_a_retry_after_that_says_nothing_is_survived(github: FakeGitHub, sleeps: Sleeps, retry_after: str) -> None:
    github.script(PATH, secondary_rate_limit(status=429, retry_after=retry_after), Answer(body=RECORD))
    assert fetch_workflow_run(REPOSITORY, "12345", wait=sleeps) == RECORD


def test_a_rate_limit_that_does_not_say_how_long_is_given_a_minute(github: FakeGitHub, sleeps: Sleeps) -> None:
    github.script(PATH, secondary_rate_limit(), Answer(body=RECORD))
    fetch_workflow_run(REPOSITORY, "12345", wait=sleeps)
    assert sleeps.seconds == [60.0]


@pytest.mark.parametrize(
    "answer",
    [
        primary_rate_limit(reset_in_seconds=3600),
        secondary_rate_limit(status=429, retry_after="3600"),
        secondary_rate_limit(status=403, retry_after="9" * 400),
    ],
    ids=["primary", "retry-after", "for-ever"],
)
def test_a_limit_that_lasts_longer_is_told_at_once(github: FakeGitHub, sleeps: Sleeps, answer: Answer) -> None:
    github.script(PATH, answer)
    error = failure_of(sleeps)
    assert isinstance(error, GitHubError)
    assert "rate limit" in error.what
    assert "asks to wait" in error.what
    assert "again later" in error.remedy
    assert not sleeps.seconds
    assert len(github.requests) == 1


def test_a_limit_met_without_a_token_is_answered_with_the_remedy(github: FakeGitHub, sleeps: Sleeps) -> None:
    github.script(PATH, primary_rate_limit(reset_in_seconds=3600))
    assert "github_token" in failure_of(sleeps, token="").remedy


@pytest.mark.parametrize(
    "answer",
    [refusal(500, "Server Error"), secondary_rate_limit(status=429, retry_after="0"), secondary_rate_limit()],
    ids=["500", "retry-at-once", "no-header"],
)
def test_the_wait_has_an_end(github: FakeGitHub, sleeps: Sleeps, answer: Answer) -> None:
    github.script(PATH, answer)
    error = failure_of(sleeps)
    assert isinstance(error, GitHubError)
    assert sleeps.seconds
    assert sum(sleeps.seconds) <= MAX_WAIT_SECONDS
    assert len(github.requests) == len(sleeps.seconds) + 1


def test_a_refused_connection_is_tried_again_and_then_told(sleeps: Sleeps, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        monkeypatch.setenv("GITHUB_API_URL", f"http://127.0.0.1:{taken.getsockname()[1]}")
        error = failure_of(sleeps)
    assert isinstance(error, GitHubError)
    assert "could not be reached" in error.what
    assert error.why == "the connection was refused"
    assert "GITHUB_API_URL" in error.remedy
    assert 0 < sum(sleeps.seconds) <= OUT_OF_REACH_SECONDS
    assert set(sleeps.causes) == {"the connection was refused"}


def test_a_host_that_does_not_exist_is_not_waited_for_long(sleeps: Sleeps, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    monkeypatch.setenv("GITHUB_API_URL", "http://api.example.invalid")
    error = failure_of(sleeps)
    assert error.why == "the host's name could not be resolved"
    assert 0 < sum(sleeps.seconds) <= OUT_OF_REACH_SECONDS
    assert set(sleeps.causes) == {error.why}


@pytest.mark.parametrize(
    ("busy", "cause"),
    [
        (refusal(502, "Bad Gateway"), "the server failed (HTTP 502)"),
        (secondary_rate_limit(retry_after="1"), "its rate limit is reached"),
    ],
)
def test_every_wait_is_told_with_its_cause(github: FakeGitHub, sleeps: Sleeps, busy: Answer, cause: str) -> None:
    github.script(PATH, busy, busy, Answer(body=RECORD))
    fetch_workflow_run(REPOSITORY, "12345", wait=sleeps)
    assert sleeps.causes == [cause, cause]


def test_a_server_that_hangs_up_is_waited_for_as_long_as_a_busy_one(
    sleeps: Sleeps, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def hang_up() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:  # the test is over
                    return
                connection.recv(100)
                connection.close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        monkeypatch.setenv("GITHUB_API_URL", f"http://127.0.0.1:{server.getsockname()[1]}")
        error = failure_of(sleeps)
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
    assert error.why == "the connection was broken off"
    assert OUT_OF_REACH_SECONDS < sum(sleeps.seconds) <= MAX_WAIT_SECONDS


def test_the_library_waits_with_a_warning_in_the_log(
    github: FakeGitHub, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    github.script(PATH, refusal(502, "Bad Gateway", {"retry-after": "7"}), Answer(body=RECORD))
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    fetch_workflow_run(REPOSITORY, "12345")
    assert [f"GitHub's API: the server failed (HTTP 502): asking again in {slept[0]:.1f} s"] == caplog.messages
    assert slept[0] >= 7


def test_a_certificate_that_is_not_trusted_is_told_at_once(
    github: FakeGitHub, sleeps: Sleeps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_API_URL", github.url.replace("http:", "https:"))  # a server without TLS fails alike
    error = failure_of(sleeps)
    assert "certificates" in error.remedy
    assert not sleeps.seconds


# What does not pass


@pytest.mark.parametrize(
    ("answer", "kind", "what"),
    [
        (refusal(401, "Bad credentials"), CredentialsError, "refused the token"),
        (refusal(403, "Resource not accessible by integration"), GitHubError, "does not let this token see"),
        (refusal(404, "Not Found"), GitHubError, "shows no run 12345 of ROCm/TheRock"),
    ],
)
def test_a_refusal_is_told_at_once_and_names_the_permission(
    github: FakeGitHub, sleeps: Sleeps, answer: Answer, kind: type[OutputsError], what: str
) -> None:
    github.script(PATH, answer)
    error = failure_of(sleeps)
    assert type(error) is kind
    assert error.exit_code == {CredentialsError: 4, GitHubError: 7}[kind]
    assert what in error.what
    assert f"HTTP {answer.status}" in error.why
    assert "actions: read" in error.remedy
    assert not sleeps.seconds
    assert len(github.requests) == 1


@pytest.mark.parametrize(
    "answer",
    [
        Answer(status=410, body=b""),
        refusal(422, "Validation Failed"),
        Answer(status=404, body=b"nothing here"),
        Answer(status=404, body=["a list"]),
        Answer(status=403, body={"message": ["no", "text"]}),
        Answer(status=403, body={"message": None}),
        Answer(body=b""),
        Answer(body=b"<html>a login page</html>", headers={"content-type": "text/html"}),
        Answer(body=b'{"id": 12345, '),
        Answer(body=b"[" * 200_000),
        Answer(body=b'{"id": ' + b"9" * 5000 + b"}"),
        Answer(body=b"\xff\xfe\x00"),
        Answer(body=[RECORD]),
        Answer(body="12345"),
        Answer(body=12345),
        Answer(body=None),
        Answer(body={}),
        Answer(status=204, body=b""),
        Answer(body=RECORD, headers={"x-ratelimit-remaining": "many", "x-ratelimit-limit": "more"}),
        Answer(body=RECORD, headers={"x-ratelimit-reset": "inf"}),
        Answer(status=302, body={"message": "Found"}, headers={"location": "/elsewhere"}),
        Answer(status=307, body={"message": "Moved", "url": "x"}, headers={"location": "/elsewhere"}),
        Answer(status=301, headers={"location": f"https://127.0.0.2/{TOKEN}"}),
        Answer(status=301, headers={"location": "/relative"}),
        Answer(status=301, headers={"location": "http://127.0.0.1" + PATH}),
        Answer(status=301, headers={"location": "http://[broken"}),
    ],
)
def test_an_answer_that_is_none_of_githubs_is_one_clear_error(
    github: FakeGitHub, sleeps: Sleeps, answer: Answer
) -> None:
    github.script(PATH, answer)
    error = failure_of(sleeps)
    assert type(error) is GitHubError
    assert "run 12345 of ROCm/TheRock" in error.what
    assert not sleeps.seconds


def test_a_server_that_echoes_the_token_does_not_get_it_into_the_message(github: FakeGitHub, sleeps: Sleeps) -> None:
    github.script(PATH, refusal(404, f"Not Found for {TOKEN}"))
    assert "***" in failure_of(sleeps).why


def test_what_a_server_says_is_shown_escaped_and_cut(github: FakeGitHub, sleeps: Sleeps) -> None:
    github.script(PATH, refusal(404, "a\n::error::b\x1b[31m" + "c" * 10_000))
    why = failure_of(sleeps).why
    assert why.isprintable()
    assert why.isascii()
    assert len(why) < 500


def test_a_moved_repository_is_followed_with_the_token(github: FakeGitHub) -> None:
    moved = "/repositories/7/actions/runs/12345"
    github.script(PATH, Answer(status=301, body={}, headers={"location": github.url + moved}))
    github.script(moved, Answer(body=RECORD))
    assert fetch_workflow_run(REPOSITORY, "12345", token=TOKEN) == RECORD
    first, second = github.requests
    assert (first.path, second.path) == (PATH, moved)
    assert second.headers["authorization"] == first.headers["authorization"]


def test_a_record_of_another_alphabet_arrives_as_it_is(github: FakeGitHub) -> None:
    record = RECORD | {"display_title": "Größe \u2028 \U0001f680"}
    github.script(PATH, Answer(body=json.dumps(record, ensure_ascii=False).encode()))
    assert fetch_workflow_run(REPOSITORY, "12345") == record
