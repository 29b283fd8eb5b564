"""Searches GitHub's REST API: the runs of a workflow, and the commit that a short SHA means."""

from __future__ import annotations

import functools
import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, TypeGuard
from urllib.parse import quote as percent_encode

from _therock_utils._errors import InputError, NotFoundError
from _therock_utils._github import api_url_of_environment, checked_token
from _therock_utils._github_api import GitHubApi, Question, unreadable, wait_and_log
from _therock_utils._keys import check_segment, key_fault, quote
from _therock_utils.s3_buckets import Repository

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping

    from _therock_utils._github_api import Wait

RUNS_A_PAGE: Final = 100
"""Records a request: the most that GitHub gives."""

MAX_RUNS: Final = 1000
"""Records that GitHub gives of one search (REST API, "List workflow runs for a workflow")."""

_MAX_RUN_ID: Final = 2**63 - 1  # the API's description of a run: a 64-bit integer
_SHA: Final = re.compile(r"[0-9a-f]{40}")
_COMMIT: Final = re.compile(r"[0-9a-f]{4,40}")
_BRANCH_PREFIX: Final = "refs/heads/"


def check_commit(commit: str) -> str:
    """`commit` in lower case. Raises InputError unless it is 4 to 40 hex digits."""
    if _COMMIT.fullmatch(commit.lower()):
        return commit.lower()
    message = f"commit {quote(commit)} cannot be used: it is not 4 to 40 hex digits"
    raise InputError(message, remedy="Give the commit's SHA, in full or short; for a branch there is branch.")


def is_full_sha(text: str) -> bool:
    """Whether `text` is a whole SHA, in lower case."""
    return _SHA.fullmatch(text) is not None


def check_branch(branch: str) -> str:
    """`branch` without `refs/heads/`. Raises InputError for what no branch can be called (git-check-ref-format)."""
    name = branch.removeprefix(_BRANCH_PREFIX)
    fault = key_fault(name) if name else "it is empty"
    if not fault:
        return name
    message = f"branch {quote(branch)} cannot be used: {fault}"
    raise InputError(message, remedy="Give it as GitHub shows it, e.g. main.")


def workflow_runs(
    repository: Repository,
    workflow: str,
    *,
    head_sha: str = "",
    branch: str = "",
    token: str | None = None,
    wait: Wait = wait_and_log,
    notice: Callable[[str], None] = lambda _text: None,
) -> Generator[Mapping[str, object], None, None]:
    """The API's records of the runs of a workflow, newest first, streamed: a page is asked for when it is needed.

    `workflow` is its file's name; `head_sha` (in full) and `branch` narrow. GitHub gives MAX_RUNS at most; `notice`
    hears where there are more, and where a record was left out because it has no usable id. A run is given once, also
    where new ones move the pages. Memory: one page, some 2 MB.

    `token` and waiting as in `fetch_workflow_run`. Raises InputError for values that cannot be used, at once; while it
    is read CredentialsError or GitHubError, also for a page that is none of GitHub's.
    """
    check_segment(workflow, "workflow")
    parameters = {"per_page": str(RUNS_A_PAGE), "exclude_pull_requests": "true"}
    wanted = ""
    if head_sha:
        parameters["head_sha"] = check_commit(head_sha)
        wanted += f" of commit {head_sha}"
    if branch:
        parameters["branch"] = check_branch(branch)
        wanted += f" on branch {quote(branch)}"
    api_url, token = api_url_of_environment(), checked_token(token)

    def questions() -> Iterator[Question]:
        full_name = _present_name(api_url, repository.full_name, token, wait)
        for page in range(1, MAX_RUNS // RUNS_A_PAGE + 1):
            yield Question(
                what=f"runs of workflow {quote(workflow)}{wanted} in {full_name}",
                path=f"/repos/{full_name}/actions/workflows/{percent_encode(workflow, safe='')}/runs",
                parameters={**parameters, "page": str(page)},  # counted here: no link of an answer is followed
                permission="actions: read",
                checks="workflow and repository",
            )

    return _read_runs(questions(), api_url, token, wait, notice)


def _read_runs(
    questions: Iterator[Question],
    api_url: str,
    token: str,
    wait: Wait,
    notice: Callable[[str], None],
) -> Generator[Mapping[str, object], None, None]:
    seen: set[int] = set()
    read = total = unusable = 0
    with GitHubApi(api_url, token, wait) as api:
        for question in questions:
            total, records = _read_page(question, api.get(question))
            for record in records:
                run_id = record.get("id") if isinstance(record, dict) else None
                if not isinstance(record, dict) or not _is_run_id(run_id):
                    unusable += 1
                    if unusable == 1:
                        notice(f"GitHub's list of {question.what} has a record without a run's number: it is left out")
                elif run_id not in seen:
                    seen.add(run_id)
                    yield record
            read += len(records)
            if not records or read >= total:
                return
    notice(f"GitHub tells of {MAX_RUNS:,} runs at most, and there are {total:,}: the oldest were not looked at")


def _is_run_id(run_id: object) -> TypeGuard[int]:
    return isinstance(run_id, int) and not isinstance(run_id, bool) and 0 < run_id <= _MAX_RUN_ID


def _read_page(question: Question, answer: object) -> tuple[int, list[object]]:
    """How many there are in all, and this page's records, whatever they are."""
    total = answer.get("total_count") if isinstance(answer, dict) else None
    records = answer.get("workflow_runs") if isinstance(answer, dict) else None
    if not isinstance(total, int) or isinstance(total, bool) or not isinstance(records, list):
        raise unreadable(question, "it is no list of runs")
    return total, records


def resolve_commit(
    repository: Repository,
    commit: str,
    *,
    token: str | None = None,
    wait: Wait = wait_and_log,
) -> str:
    """The full SHA of the commit that `commit` (4 to 40 hex digits) begins (GitHub REST API, "Get a commit").

    Raises InputError for what is no SHA, NotFoundError where there is no such commit or where there are several, else
    as `workflow_runs`.
    """
    commit = check_commit(commit)
    question = Question(
        what=f"commit {commit} in {repository.full_name}, or more than one",
        path=f"/repos/{repository.full_name}/commits/{commit}",
        parameters={"per_page": "1"},  # of its changed files
        permission="contents: read",
        checks="commit (a full SHA is never ambiguous) and repository",
        absent={HTTPStatus.NOT_FOUND: NotFoundError, HTTPStatus.UNPROCESSABLE_ENTITY: NotFoundError},
    )
    with GitHubApi(api_url_of_environment(), checked_token(token), wait) as api:
        answer = api.get(question)
    sha = answer.get("sha") if isinstance(answer, dict) else None
    if not isinstance(sha, str) or not is_full_sha(sha):
        raise unreadable(question, "it is no commit")
    if not sha.startswith(commit):  # it prefers a branch or tag of that name
        message = f"GitHub shows no commit {commit} in {repository.full_name}, but a branch or tag of that name"
        raise NotFoundError(message, remedy="Give the commit's full SHA, or the branch as branch.")
    return sha


@functools.lru_cache(maxsize=64)
def _present_name(api_url: str, full_name: str, token: str, wait: Wait) -> str:
    """What GitHub calls the repository today.

    A renamed one answers with a redirect, on which PyGithub loses the query: every run would be taken for the commit's.
    """
    question = Question(
        what=f"repository {full_name}", path=f"/repos/{full_name}", permission="actions: read", checks="repository"
    )
    with GitHubApi(api_url, token, wait) as api:
        answer = api.get(question)
    name = answer.get("full_name") if isinstance(answer, dict) else None
    try:
        return Repository.parse(name if isinstance(name, str) else "").full_name
    except InputError:
        raise unreadable(question, "it is no repository") from None
