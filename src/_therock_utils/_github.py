"""GitHub's REST API through PyGithub: the one boundary at which its errors are translated."""

from __future__ import annotations

import email.utils
import functools
import os
import time
from typing import TYPE_CHECKING, Final

from _therock_utils._errors import CredentialsError, GitHubError, InputError
from _therock_utils._keys import quote

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from github import Github, GithubException
    from tenacity import RetryCallState

    from _therock_utils.s3_buckets import Repository

DEFAULT_API_URL: Final = "https://api.github.com"
MAX_WAIT_SECONDS: Final = 90
"""Longest time that a lookup waits for a rate limit or a server fault to pass, in all."""

_REQUEST_TIMEOUT_SECONDS: Final = 15
_SERVER_FAULTS: Final = range(500, 600)
_FALLBACK_WAIT_SECONDS: Final = 2.0


class _BusyError(GitHubError):
    """A rate limit or a server fault; `wait_seconds` is what the server asks for, None where it does not say."""

    transient = True

    def __init__(self, what: str, *, why: str = "", remedy: str = "", wait_seconds: float | None = None) -> None:
        super().__init__(what, why=why, remedy=remedy)
        self.wait_seconds = wait_seconds


def token_of_environment(environment: Mapping[str, str]) -> str:
    """GITHUB_TOKEN, else GH_TOKEN, else ""."""
    return environment.get("GITHUB_TOKEN", "") or environment.get("GH_TOKEN", "")


def fetch_workflow_run(
    repository: Repository,
    run_id: str,
    *,
    token: str | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Mapping[str, object]:
    """Fetch the API's record of one workflow run, once a run and process (GitHub REST API, "Get a workflow run").

    `token` is GITHUB_TOKEN or GH_TOKEN by default; GITHUB_API_URL is honoured. Waits for rate limits and server faults
    to pass, MAX_WAIT_SECONDS at most. Raises InputError for a run_id that is no number, else CredentialsError or
    GitHubError.
    """
    if not (run_id.isascii() and run_id.isdigit()):
        message = f"run_id {quote(run_id)} cannot be looked up: GitHub's run ids are numbers"
        raise InputError(message, remedy="Give the number in the run's URL, or lookup: false.")
    api_url = os.environ.get("GITHUB_API_URL", "") or DEFAULT_API_URL
    return _fetch(api_url, repository.full_name, int(run_id), token or token_of_environment(os.environ), sleep)


@functools.lru_cache(maxsize=64)
def _fetch(
    api_url: str, full_name: str, run_id: int, token: str, sleep: Callable[[float], None]
) -> Mapping[str, object]:
    import github
    import tenacity

    client = github.Github(
        auth=github.Auth.Token(token) if token else None,
        base_url=api_url.rstrip("/"),
        timeout=_REQUEST_TIMEOUT_SECONDS,
        retry=None,  # its own retry may sleep until a rate limit resets, up to an hour
        user_agent="therock-outputs",
    )
    deadline = time.monotonic() + MAX_WAIT_SECONDS
    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception(lambda error: isinstance(error, _BusyError) and _fits(error, deadline)),
        wait=_wait_seconds,
        stop=tenacity.stop_after_delay(MAX_WAIT_SECONDS),
        sleep=sleep,
        reraise=True,
    )
    try:
        return retrying(_request, client, full_name, run_id, has_token=bool(token))
    finally:
        client.close()


def _fits(error: _BusyError, deadline: float) -> bool:
    return time.monotonic() + (error.wait_seconds or 0) < deadline


def _wait_seconds(state: RetryCallState) -> float:
    import tenacity

    error = state.outcome.exception() if state.outcome is not None else None
    asked = error.wait_seconds if isinstance(error, _BusyError) else None
    return asked if asked is not None else tenacity.wait_random_exponential(multiplier=_FALLBACK_WAIT_SECONDS)(state)


def _request(client: Github, full_name: str, run_id: int, *, has_token: bool) -> Mapping[str, object]:
    import github
    import requests

    asked_for = f"run {run_id} of {full_name}"
    try:
        run = client.get_repo(full_name, lazy=True).get_workflow_run(run_id)
        record: Mapping[str, object] = run.raw_data
    except github.GithubException as error:
        raise _translate(error, asked_for, has_token=has_token) from error
    except (requests.RequestException, OSError) as error:
        message = f"GitHub's API could not be reached to look up {asked_for}"
        raise _BusyError(message, why=type(error).__name__, remedy="Check the network and GITHUB_API_URL.") from error
    return record


def _translate(error: GithubException, asked_for: str, *, has_token: bool) -> GitHubError | CredentialsError:
    status = error.status
    headers = {name.lower(): value for name, value in (error.headers or {}).items()}
    said = error.data.get("message") if isinstance(error.data, dict) else None
    why = f"HTTP {status}: {quote(str(said or error.message or 'no message'))}"
    wait_seconds = _asked_wait(headers, time.time())
    if status in _SERVER_FAULTS:
        message = f"GitHub's API failed to look up {asked_for}"
        return _BusyError(message, why=why, remedy="Try again later.", wait_seconds=wait_seconds)
    if status == 429 or (status == 403 and _is_rate_limit(headers, why)):  # noqa: PLR2004 - HTTP status codes
        until = f" (it asks to wait {wait_seconds:.0f} s)" if wait_seconds is not None else ""
        remedy = "Try again later" if has_token else "Pass github_token: without one GitHub allows 60 requests an hour"
        return _BusyError(
            f"GitHub's rate limit stops the lookup of {asked_for}{until}",
            why=why,
            remedy=f"{remedy}.",
            wait_seconds=wait_seconds,
        )
    if status == 401:  # noqa: PLR2004 - HTTP status code
        message = f"GitHub refused the token when asked for {asked_for}"
        return CredentialsError(message, why=why, remedy="Pass a token that is valid: github_token or GITHUB_TOKEN.")
    permission = "The token needs the permission actions: read in that repository."
    if status == 403:  # noqa: PLR2004 - HTTP status code
        return GitHubError(f"GitHub does not let this token see {asked_for}", why=why, remedy=permission)
    if status == 404:  # noqa: PLR2004 - HTTP status code
        remedy = f"Check run_id and repository. If that repository is private: {permission[0].lower()}{permission[1:]}"
        return GitHubError(f"GitHub shows no {asked_for}", why=why, remedy=remedy)
    return GitHubError(f"GitHub did not answer the question for {asked_for}", why=why)


def _is_rate_limit(headers: Mapping[str, object], why: str) -> bool:
    exhausted = headers.get("x-ratelimit-remaining") == "0" or "retry-after" in headers
    return exhausted or "rate limit" in why.lower()


def _asked_wait(headers: Mapping[str, object], now: float) -> float | None:
    """Seconds that the server asks to wait (RFC 9110 Retry-After; GitHub's X-RateLimit-Reset), None if it does not."""
    retry_after = headers.get("retry-after")
    if retry_after is not None:
        if str(retry_after).isdigit():
            return float(str(retry_after))
        try:
            return max(0.0, email.utils.parsedate_to_datetime(str(retry_after)).timestamp() - now)
        except ValueError:
            return None
    reset = str(headers.get("x-ratelimit-reset", ""))
    if headers.get("x-ratelimit-remaining") == "0" and reset.isdigit():
        return max(0.0, float(reset) - now) + 1  # its clock and ours may differ by a second
    return None
