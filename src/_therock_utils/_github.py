"""Looks up runs by GitHub's REST API, as the environment says whom to ask and as whom."""

from __future__ import annotations

import functools
import os
import re
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from _therock_utils._errors import CredentialsError, InputError
from _therock_utils._github_api import MAX_WAIT_SECONDS, GitHubApi, Question, unreadable, wait_and_log
from _therock_utils._keys import quote

if TYPE_CHECKING:
    from collections.abc import Mapping

    from _therock_utils._github_api import Wait
    from _therock_utils.s3_buckets import Repository

__all__ = [
    "DEFAULT_API_URL",
    "MAX_WAIT_SECONDS",
    "api_url_of_environment",
    "checked_token",
    "fetch_workflow_run",
    "token_of_environment",
]

DEFAULT_API_URL: Final = "https://api.github.com"
_RUN_ID: Final = re.compile(r"[1-9][0-9]{0,19}")
_TOKEN: Final = re.compile(r"[!-~]+")  # visible ASCII: what a header can carry


def token_of_environment(environment: Mapping[str, str]) -> str:
    """GITHUB_TOKEN, else GH_TOKEN, else ""."""
    return environment.get("GITHUB_TOKEN", "") or environment.get("GH_TOKEN", "")


def fetch_workflow_run(
    repository: Repository,
    run_id: str,
    *,
    token: str | None = None,
    wait: Wait = wait_and_log,
    cached: bool = True,
) -> Mapping[str, object]:
    """Fetch the API's record of one workflow run (GitHub REST API, "Get a workflow run").

    It is asked for once a run and process, or without `cached` anew: a run that is under way changes.

    `token` is GITHUB_TOKEN or GH_TOKEN by default; GITHUB_API_URL is honoured. Waits, by `wait`, for rate limits,
    server faults and lost connections to pass, as GitHubApi has it.
    Raises InputError for a run_id that is no number or an API URL that is none, else CredentialsError or GitHubError.
    """
    if not _RUN_ID.fullmatch(run_id):
        message = f"run_id {quote(run_id)} cannot be looked up: GitHub's run ids are numbers"
        raise InputError(message, remedy="Give the number in the run's URL, or lookup: false.")
    look = _fetch if cached else _fetch.__wrapped__
    return look(api_url_of_environment(), repository.full_name, int(run_id), checked_token(token), wait)


def api_url_of_environment() -> str:
    """GITHUB_API_URL without a trailing slash, else GitHub's own. Raises InputError for what is no API's URL."""
    return _check_api_url(os.environ.get("GITHUB_API_URL", "") or DEFAULT_API_URL)


def checked_token(token: str | None) -> str:
    """`token`, by default that of the environment. Raises CredentialsError for what no header can carry."""
    token = (token or token_of_environment(os.environ)).strip()  # a secret pasted with its line's end is common
    if token and not _TOKEN.fullmatch(token):
        message = "the GitHub token cannot be sent: it has characters that no token has"
        raise CredentialsError(message, remedy="Check the secret behind github_token, GITHUB_TOKEN or GH_TOKEN.")
    return token


def _check_api_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        fault = "" if parts.scheme in {"http", "https"} and parts.hostname else "it is no http(s) URL"
        if parts.username is not None or parts.query or parts.fragment:
            fault = "it has more than a host and a path"
        _ = parts.port  # raises ValueError
    except ValueError:
        fault = "it is no URL"
    if not fault:
        return url.rstrip("/")
    message = f"GITHUB_API_URL cannot be used: {fault}"  # not shown: it may hold a password
    raise InputError(message, remedy=f"Set it to the root of the REST API, e.g. {DEFAULT_API_URL}.")


@functools.lru_cache(maxsize=64)
def _fetch(api_url: str, full_name: str, run_id: int, token: str, wait: Wait) -> Mapping[str, object]:
    question = Question(
        what=f"run {run_id} of {full_name}",
        path=f"/repos/{full_name}/actions/runs/{run_id}",
        permission="actions: read",
        checks="run_id and repository",
    )
    with GitHubApi(api_url, token, wait) as api:
        record = api.get(question)
    if isinstance(record, dict) and ("id" in record or "head_repository" in record):
        return record
    raise unreadable(question, "it is no record of a run")
