"""Searching runs and commits: which pages are asked for, how long it waits, and what is no answer of GitHub's."""

from __future__ import annotations

import itertools
import traceback
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from _therock_utils import _github_runs
from _therock_utils._errors import CredentialsError, GitHubError, InputError, NotFoundError, OutputsError
from _therock_utils._github import MAX_WAIT_SECONDS
from _therock_utils._github_runs import MAX_RUNS, resolve_commit, workflow_runs
from _therock_utils.s3_buckets import Repository
from fakes.github_api import (
    Answer,
    FakeGitHub,
    primary_rate_limit,
    refusal,
    runs_path,
    secondary_rate_limit,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

NAME = "ROCm/TheRock"
REPOSITORY = Repository.parse(NAME)
WORKFLOW = "multi_arch_ci.yml"
PATH = runs_path(NAME, WORKFLOW)
SHA = "0123456789abcdef0123456789abcdef01234567"
COMMIT_PATH = f"/repos/{NAME}/commits/01234567"
TOKEN = "ghs_made0up1token2that3must4not5leak"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GITHUB_TOKEN", "GH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    _github_runs._present_name.cache_clear()  # a port may be used again


@pytest.fixture
def github(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGitHub]:
    with FakeGitHub() as server:
        monkeypatch.setenv("GITHUB_API_URL", server.url)
        server.set_runs(NAME, WORKFLOW, [record(1)])
        yield server


def record(run_id: object, *, head_sha: str = SHA, head_branch: str = "main") -> dict[str, Any]:
    return {"id": run_id, "head_sha": head_sha, "head_branch": head_branch}


def newest_first(count: int, **changes: str) -> list[dict[str, Any]]:
    return [record(run_id, **changes) for run_id in range(count, 0, -1)]


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


def ids(**options: Any) -> list[object]:  # noqa: ANN401 - workflow_runs'
    return [run["id"] for run in workflow_runs(REPOSITORY, WORKFLOW, **({"head_sha": SHA} | options))]


def pages(github: FakeGitHub) -> list[str]:
    return [request.query["page"] for request in github.requests if "page" in request.query]


def failure_of(sleeps: Sleeps, **options: Any) -> OutputsError:  # noqa: ANN401 - workflow_runs'
    """The error of a search, after a look at everything that a log could show of it."""
    with pytest.raises(OutputsError) as caught:
        ids(token=TOKEN, wait=sleeps, **options)
    shown = [str(caught.value), repr(caught.value), *traceback.format_exception(caught.value)]
    assert TOKEN not in "".join(shown)
    return caught.value


# Pages


def test_250_runs_are_three_pages_of_a_hundred(github: FakeGitHub) -> None:
    github.set_runs(NAME, WORKFLOW, newest_first(250))
    assert ids() == list(range(250, 0, -1))
    assert pages(github) == ["1", "2", "3"]
    assert {request.query.get("per_page") for request in github.requests} == {None, "100"}


def test_no_page_is_asked_for_before_it_is_needed(github: FakeGitHub) -> None:
    github.set_runs(NAME, WORKFLOW, newest_first(250))
    with closing(workflow_runs(REPOSITORY, WORKFLOW, head_sha=SHA)) as runs:
        assert github.requests == ()
        assert len(list(itertools.islice(runs, 100))) == 100
        assert pages(github) == ["1"]
        next(runs)
        assert pages(github) == ["1", "2"]


def test_a_full_last_page_is_the_last(github: FakeGitHub) -> None:
    github.set_runs(NAME, WORKFLOW, newest_first(200))
    assert len(ids()) == 200
    assert pages(github) == ["1", "2"]


def test_no_runs_are_one_page(github: FakeGitHub) -> None:
    github.set_runs(NAME, WORKFLOW, [])
    assert ids() == []
    assert pages(github) == ["1"]


def test_github_gives_a_thousand_and_the_rest_is_told(github: FakeGitHub) -> None:
    github.set_runs(NAME, WORKFLOW, newest_first(1001))
    notices: list[str] = []
    assert len(ids(notice=notices.append)) == MAX_RUNS
    assert len(pages(github)) == 10
    assert notices == ["GitHub tells of 1,000 runs at most, and there are 1,001: the oldest were not looked at"]
    github.set_runs(NAME, WORKFLOW, newest_first(1000))
    assert len(ids(notice=notices.append)) == MAX_RUNS
    assert len(notices) == 1


def test_a_run_that_moves_to_the_next_page_is_given_once(github: FakeGitHub) -> None:
    github.set_runs(NAME, WORKFLOW, newest_first(150))
    with closing(workflow_runs(REPOSITORY, WORKFLOW, head_sha=SHA)) as runs:
        first = [next(runs)["id"] for _ in range(100)]
        github.set_runs(NAME, WORKFLOW, newest_first(152))  # two were started meanwhile
        assert [*first, *(run["id"] for run in runs)] == list(range(150, 0, -1))


def test_the_search_is_narrowed_by_commit_or_branch(github: FakeGitHub) -> None:
    other = "f" * 40
    github.set_runs(NAME, WORKFLOW, [record(3, head_sha=other), record(2, head_branch="users/x & y=z"), record(1)])
    assert ids(head_sha=SHA.upper()) == [2, 1]
    assert ids(head_sha="", branch="refs/heads/users/x & y=z") == [2]
    assert ids(head_sha="", branch="main") == [3, 1]


def test_the_workflows_name_is_one_segment_of_the_path(github: FakeGitHub) -> None:
    odd = "a b?c#d%2f.yml"
    github.set_runs(NAME, odd, [record(7)])
    assert [run["id"] for run in workflow_runs(REPOSITORY, odd, head_sha=SHA)] == [7]


@pytest.mark.parametrize(
    ("workflow", "options"),
    [
        ("", {}),
        ("a/b.yml", {}),
        ("..", {}),
        ("a\nb", {}),
        ("a\\b", {}),
        ("x" * 3 + "\ud800", {}),
        (WORKFLOW, {"head_sha": "main"}),
        (WORKFLOW, {"head_sha": "abc"}),
        (WORKFLOW, {"head_sha": f"{SHA}\n"}),
        (WORKFLOW, {"branch": "a\r\nHost: x"}),
        (WORKFLOW, {"branch": "a/../b"}),
        (WORKFLOW, {"branch": "/a"}),
        (WORKFLOW, {"branch": "\u2028"}),
    ],
)
def test_what_cannot_be_searched_for_is_refused_before_a_request(
    github: FakeGitHub, workflow: str, options: dict[str, str]
) -> None:
    with pytest.raises(InputError):
        workflow_runs(REPOSITORY, workflow, **options)
    assert github.requests == ()


@pytest.mark.parametrize("unusable", ["1", None, 0, -1, True, 1.5, [1], 2**63, int("1" * 70)])
def test_a_record_without_an_id_is_left_out_and_told_once(github: FakeGitHub, unusable: object) -> None:
    nameless = {"head_sha": SHA}
    github.set_runs(NAME, WORKFLOW, [record(2), record(unusable), nameless, "no record", record(1)])
    notices: list[str] = []
    assert ids(notice=notices.append) == [2, 1]
    assert len(notices) == 1
    assert "without a run's number" in notices[0]


def test_a_pages_link_is_never_followed(github: FakeGitHub) -> None:
    link = f'<{github.url}/elsewhere?page=2>; rel="next", <http://127.0.0.2/?page=2>; rel="last"'
    page = {"total_count": 101, "workflow_runs": newest_first(100)}
    rest = {"total_count": 101, "workflow_runs": [record(101)]}
    github.script(PATH, Answer(body=page, headers={"link": link}), Answer(body=rest, headers={"link": link}))
    assert len(ids()) == 101
    assert [request.path.partition("?")[0] for request in github.requests] == [f"/repos/{NAME}", PATH, PATH]


# Whom it asks


@pytest.mark.parametrize("prefix", ["", "/api/v3"])
def test_the_api_at_github_api_url_is_asked_with_the_token(monkeypatch: pytest.MonkeyPatch, prefix: str) -> None:
    with FakeGitHub(prefix=prefix) as github:
        monkeypatch.setenv("GITHUB_API_URL", github.url)
        github.set_runs(NAME, WORKFLOW, [record(1)])
        github.add_commit(NAME, SHA)
        assert ids(token=TOKEN) == [1]
        assert resolve_commit(REPOSITORY, "01234567", token=TOKEN) == SHA
        assert [request.path.partition("?")[0] for request in github.requests] == [
            f"{prefix}{path}" for path in (f"/repos/{NAME}", PATH, COMMIT_PATH)
        ]
        assert {request.headers["authorization"] for request in github.requests} == {f"token {TOKEN}"}
        assert TOKEN not in "".join(request.path for request in github.requests)


def test_a_renamed_repository_is_searched_under_its_present_name(github: FakeGitHub) -> None:
    """A redirect would lose the query, and with it what was searched for."""
    other = "f" * 40
    github.script("/repos/ROCm/Old", Answer(status=301, body={}, headers={"location": f"{github.url}/repositories/7"}))
    github.script("/repositories/7", Answer(body={"full_name": NAME}))
    github.script(
        runs_path("ROCm/Old", WORKFLOW), Answer(status=301, body={}, headers={"location": f"{github.url}{PATH}"})
    )
    github.set_runs(NAME, WORKFLOW, [record(2, head_sha=other), record(1)])
    old = Repository.parse("ROCm/Old")
    assert [run["id"] for run in workflow_runs(old, WORKFLOW, head_sha=SHA)] == [1]


def test_the_name_is_asked_for_once(github: FakeGitHub, sleeps: Sleeps) -> None:
    for _ in range(3):
        ids(wait=sleeps)
    assert [request.path for request in github.requests].count(f"/repos/{NAME}") == 1


# What passes by itself


@pytest.mark.parametrize(
    "busy",
    [
        secondary_rate_limit(status=403, retry_after="7"),
        secondary_rate_limit(status=429, retry_after="7"),
        refusal(502, "Bad Gateway", {"retry-after": "7"}),
    ],
    ids=["403", "429", "502"],
)
def test_a_later_page_waits_as_long_as_it_is_asked_to(github: FakeGitHub, sleeps: Sleeps, busy: Answer) -> None:
    first = {"total_count": 101, "workflow_runs": newest_first(100)}
    second = {"total_count": 101, "workflow_runs": [record(101)]}
    github.script(PATH, Answer(body=first), busy, Answer(body=second))
    assert len(ids(wait=sleeps)) == 101
    assert len(sleeps.seconds) == 1
    assert sleeps.seconds[0] >= 7
    assert pages(github) == ["1", "2", "2"]


def test_all_pages_together_wait_no_longer_than_one_lookup(github: FakeGitHub, sleeps: Sleeps) -> None:
    answers: list[Answer] = []
    for page in range(10):
        records = [record(run_id) for run_id in range(page * 100 + 1, page * 100 + 101)]
        answers += [
            secondary_rate_limit(retry_after="30"),
            Answer(body={"total_count": 1000, "workflow_runs": records}),
        ]
    github.script(PATH, *answers)
    error = failure_of(sleeps)
    assert isinstance(error, GitHubError)
    assert "rate limit" in error.what
    assert 0 < sum(sleeps.seconds) <= MAX_WAIT_SECONDS


def test_a_limit_that_lasts_an_hour_is_told_at_once(github: FakeGitHub, sleeps: Sleeps) -> None:
    github.script(PATH, primary_rate_limit(reset_in_seconds=3600))
    error = failure_of(sleeps)
    assert isinstance(error, GitHubError)
    assert error.exit_code == 7
    assert "rate limit" in error.what
    assert "asks to wait" in error.what
    assert f"runs of workflow '{WORKFLOW}' of commit {SHA} in {NAME}" in error.what
    assert not sleeps.seconds
    assert pages(github) == ["1"]


# What does not pass


@pytest.mark.parametrize(
    ("answer", "kind", "what"),
    [
        (refusal(401, "Bad credentials"), CredentialsError, "refused the token"),
        (refusal(403, "Resource not accessible by integration"), GitHubError, "does not let this token see"),
        (refusal(404, "Not Found"), GitHubError, "GitHub shows no"),
    ],
)
@pytest.mark.parametrize("path", [f"/repos/{NAME}", PATH], ids=["repository", "runs"])
def test_a_refusal_is_told_at_once_and_names_the_permission(
    github: FakeGitHub, sleeps: Sleeps, *, path: str, answer: Answer, kind: type[OutputsError], what: str
) -> None:
    github.script(path, answer)
    error = failure_of(sleeps)
    assert type(error) is kind
    assert what in error.what
    assert NAME in error.what
    assert "actions: read" in error.remedy
    assert not sleeps.seconds


@pytest.mark.parametrize(
    "answer",
    [
        Answer(body=b"<html>a login page</html>", headers={"content-type": "text/html"}),
        Answer(body=b""),
        Answer(body=b'{"total_count": 1, '),
        Answer(body=[record(1)]),
        Answer(body=None),
        Answer(body={}),
        Answer(body={"total_count": 1}),
        Answer(body={"total_count": "1", "workflow_runs": []}),
        Answer(body={"total_count": True, "workflow_runs": []}),
        Answer(body={"total_count": 1, "workflow_runs": {"1": record(1)}}),
        Answer(body={"workflow_runs": [record(1)]}),
        Answer(status=302, body={"message": "Found"}, headers={"location": "/elsewhere"}),
        Answer(status=301, headers={"location": f"https://127.0.0.2/{TOKEN}"}),
        Answer(status=422, body={"message": "Validation Failed"}),
    ],
)
def test_a_page_that_is_none_of_githubs_is_one_clear_error(github: FakeGitHub, sleeps: Sleeps, answer: Answer) -> None:
    github.script(PATH, answer)
    error = failure_of(sleeps)
    assert type(error) is GitHubError
    assert "runs of workflow" in error.what
    assert not sleeps.seconds


@pytest.mark.parametrize("body", [b"<html></html>", {}, {"full_name": 7}, {"full_name": "no name"}, ["x"], None])
def test_a_repository_that_is_none_is_one_clear_error(github: FakeGitHub, sleeps: Sleeps, body: object) -> None:
    github.script(f"/repos/{NAME}", Answer(body=body))
    error = failure_of(sleeps)
    assert type(error) is GitHubError
    assert "repository ROCm/TheRock" in error.what


# Commits


def test_a_short_commit_is_resolved_to_its_full_sha(github: FakeGitHub) -> None:
    github.add_commit(NAME, SHA)
    github.add_commit(NAME, "0123aaaa" * 5)
    assert resolve_commit(REPOSITORY, "01234567") == SHA
    assert resolve_commit(REPOSITORY, SHA.upper()) == SHA


@pytest.mark.parametrize("status", [404, 422])
def test_a_commit_that_is_not_there_or_ambiguous_is_not_found(github: FakeGitHub, sleeps: Sleeps, status: int) -> None:
    github.script(COMMIT_PATH, refusal(status, "No commit found for SHA: 01234567"))
    with pytest.raises(NotFoundError) as caught:
        resolve_commit(REPOSITORY, "01234567", wait=sleeps)
    assert caught.value.exit_code == 3
    assert caught.value.what == f"GitHub shows no commit 01234567 in {NAME}, or more than one"
    assert "contents: read" in caught.value.remedy
    assert not sleeps.seconds


def test_a_sha_that_begins_two_commits_is_not_found(github: FakeGitHub) -> None:
    for tail in "ab":
        github.add_commit(NAME, "01234567" + tail * 32)
    with pytest.raises(NotFoundError):
        resolve_commit(REPOSITORY, "01234567")


def test_a_branch_that_is_called_like_a_sha_is_no_commit(github: FakeGitHub) -> None:
    github.script(COMMIT_PATH, Answer(body={"sha": "f" * 40}))
    with pytest.raises(NotFoundError) as caught:
        resolve_commit(REPOSITORY, "01234567")
    assert "branch or tag of that name" in caught.value.what


@pytest.mark.parametrize(
    "body", [b"<html>a login page</html>", b"", {}, {"sha": None}, {"sha": "01234567"}, {"sha": f"{SHA}\n"}, [SHA]]
)
def test_an_answer_without_a_full_sha_is_one_clear_error(github: FakeGitHub, body: object) -> None:
    github.script(COMMIT_PATH, Answer(body=body))
    with pytest.raises(GitHubError) as caught:
        resolve_commit(REPOSITORY, "01234567")
    assert "commit 01234567" in caught.value.what


@pytest.mark.parametrize("commit", ["", "abc", "main", "0" * 41, "0123/../..", f"{SHA}\n", "٠١٢٣"])
def test_what_is_no_sha_is_never_asked_for(github: FakeGitHub, commit: str) -> None:
    with pytest.raises(InputError):
        resolve_commit(REPOSITORY, commit)
    assert github.requests == ()


def test_a_commit_waits_for_a_limit_to_pass(github: FakeGitHub, sleeps: Sleeps) -> None:
    github.script(COMMIT_PATH, secondary_rate_limit(retry_after="5"), Answer(body={"sha": SHA}))
    assert resolve_commit(REPOSITORY, "01234567", wait=sleeps) == SHA
    assert len(sleeps.seconds) == 1
