"""GitHub's REST API through PyGithub: the one boundary at which its errors are translated."""

from __future__ import annotations

import email.utils
import functools
import os
import re
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from _therock_utils._errors import CredentialsError, GitHubError, InputError
from _therock_utils._keys import quote

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from github import Github, GithubException
    from tenacity import RetryCallState

    from _therock_utils.s3_buckets import Repository

DEFAULT_API_URL: Final = "https://api.github.com"
MAX_WAIT_SECONDS: Final = 90
"""Longest time that a lookup waits for a rate limit or a fault to pass, in all."""

_REQUEST_TIMEOUT_SECONDS: Final = 15
_FIRST_WAIT_SECONDS: Final = 2
_LONGEST_BACKOFF_SECONDS: Final = 20
_UNSAID_LIMIT_SECONDS: Final = 60.0
"""What to wait at a rate limit that does not say (GitHub, "Best practices for using the REST API")."""

_RUN_ID: Final = re.compile(r"[1-9][0-9]{0,19}")
_TOKEN: Final = re.compile(r"[!-~]+")  # visible ASCII: what a header can carry
_SHOWN_CHARACTERS: Final = 300
_PERMISSION: Final = "the token needs the permission `actions: read` in that repository"
_WRONG_SERVER: Final = "Check GITHUB_API_URL: it must be the root of GitHub's REST API."

_UNREADABLE: Final = (ArithmeticError, AssertionError, AttributeError, RuntimeError, TypeError, ValueError)
"""What PyGithub lets through where an answer is not GitHub's: broken JSON, a list in place of an error, limits that are
no numbers, a redirect to another host or in a circle."""


class _BusyError(GitHubError):
    """What may pass by itself; `wait_seconds` is how long the server asks to wait, 0 where it does not say."""

    transient = True

    def __init__(self, what: str, *, why: str = "", remedy: str = "", wait_seconds: float = 0.0) -> None:
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

    `token` is GITHUB_TOKEN or GH_TOKEN by default; GITHUB_API_URL is honoured. Waits for rate limits, server faults and
    lost connections to pass, MAX_WAIT_SECONDS at most in all, and not at all where it would have to wait longer.
    Raises InputError for a run_id that is no number or an API URL that is none, else CredentialsError or GitHubError.
    """
    if not _RUN_ID.fullmatch(run_id):
        message = f"run_id {quote(run_id)} cannot be looked up: GitHub's run ids are numbers"
        raise InputError(message, remedy="Give the number in the run's URL, or lookup: false.")
    api_url = _check_api_url(os.environ.get("GITHUB_API_URL", "") or DEFAULT_API_URL)
    token = (token or token_of_environment(os.environ)).strip()  # a secret pasted with its line's end is common
    if token and not _TOKEN.fullmatch(token):
        message = "the GitHub token cannot be sent: it has characters that no token has"
        raise CredentialsError(message, remedy="Check the secret behind github_token, GITHUB_TOKEN or GH_TOKEN.")
    return _fetch(api_url, repository.full_name, int(run_id), token, sleep)


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
def _fetch(
    api_url: str, full_name: str, run_id: int, token: str, sleep: Callable[[float], None]
) -> Mapping[str, object]:
    import github
    import tenacity

    client = github.Github(
        auth=github.Auth.Token(token) if token else None,
        base_url=api_url,
        timeout=_REQUEST_TIMEOUT_SECONDS,
        retry=None,  # its own retry may sleep until a rate limit resets, up to an hour
        user_agent="therock-outputs",
    )
    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(_BusyError),
        wait=_wait_seconds,
        stop=_is_out_of_time,
        sleep=sleep,
        reraise=True,
    )
    try:
        return retrying(_request, client, full_name, run_id, token=token)
    finally:
        client.close()


def _is_out_of_time(state: RetryCallState) -> bool:
    spent_seconds = max(state.seconds_since_start or 0.0, state.idle_for)
    return spent_seconds + state.upcoming_sleep > MAX_WAIT_SECONDS


def _wait_seconds(state: RetryCallState) -> float:
    """At least what the server asks for, and more from one try to the next."""
    import tenacity

    error = state.outcome.exception() if state.outcome is not None else None
    asked_seconds = error.wait_seconds if isinstance(error, _BusyError) else 0.0
    backoff = tenacity.wait_random_exponential(multiplier=_FIRST_WAIT_SECONDS, max=_LONGEST_BACKOFF_SECONDS)
    return max(asked_seconds, backoff(state))


def _request(client: Github, full_name: str, run_id: int, *, token: str) -> Mapping[str, object]:
    import github
    import requests

    asked_for = f"run {run_id} of {full_name}"
    try:
        _, record = client.requester.requestJsonAndCheck("GET", f"/repos/{full_name}/actions/runs/{run_id}")
    except github.GithubException as error:
        raise _translate(error, asked_for, token=token) from None  # its text is the whole answer
    except requests.RequestException as error:
        raise _translate_connection(error, asked_for) from error
    except _UNREADABLE as error:
        message = f"GitHub's answer about {asked_for} cannot be read"
        raise GitHubError(
            message, why=f"{type(error).__name__}: {_shown(str(error), token)}", remedy=_WRONG_SERVER
        ) from None
    if isinstance(record, dict) and ("id" in record or "head_repository" in record):
        return record
    message = f"GitHub's answer about {asked_for} is no record of a run"
    raise GitHubError(message, remedy=_WRONG_SERVER)


def _translate_connection(error: Exception, asked_for: str) -> GitHubError:
    import requests

    message = f"GitHub's API could not be reached to look up {asked_for}"
    why = type(error).__name__
    if isinstance(error, requests.exceptions.SSLError):
        return GitHubError(message, why=why, remedy="Check the certificates (REQUESTS_CA_BUNDLE) and GITHUB_API_URL.")
    remedy = "Check the network, the proxy and GITHUB_API_URL."
    passing = (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError)
    return (_BusyError if isinstance(error, passing) else GitHubError)(message, why=why, remedy=remedy)


def _translate(error: GithubException, asked_for: str, *, token: str) -> GitHubError | CredentialsError:
    status = error.status
    headers = {name.lower(): str(value) for name, value in (error.headers or {}).items()}
    said = error.data.get("message") if isinstance(error.data, dict) else None
    said = said if isinstance(said, str) else ""
    why = f"HTTP {status}: {_shown(said, token)}" if said else f"HTTP {status}"
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        message = f"GitHub's API failed to look up {asked_for}"
        return _BusyError(message, why=why, remedy="Try again later.", wait_seconds=_asked_wait(headers) or 0.0)
    if status == HTTPStatus.TOO_MANY_REQUESTS or (status == HTTPStatus.FORBIDDEN and _is_rate_limit(headers, said)):
        return _rate_limit_error(headers, asked_for, why, has_token=bool(token))
    if status == HTTPStatus.UNAUTHORIZED:
        message = f"GitHub refused the token when asked for {asked_for}"
        return CredentialsError(message, why=why, remedy=f"Pass a valid token as github_token; {_PERMISSION}.")
    if status == HTTPStatus.FORBIDDEN:
        message = f"GitHub does not let this token see {asked_for}"
        return GitHubError(message, why=why, remedy=f"Give it what it lacks: {_PERMISSION}.")
    if status == HTTPStatus.NOT_FOUND:
        remedy = f"Check run_id and repository; if that repository is private, {_PERMISSION}."
        return GitHubError(f"GitHub shows no {asked_for}", why=why, remedy=remedy)
    return GitHubError(f"GitHub did not answer the question for {asked_for}", why=why)


def _rate_limit_error(headers: Mapping[str, str], asked_for: str, why: str, *, has_token: bool) -> _BusyError:
    asked_seconds = _asked_wait(headers)
    wait_seconds = _UNSAID_LIMIT_SECONDS if asked_seconds is None else asked_seconds
    until = "" if asked_seconds is None else f" (it asks to wait {asked_seconds:.0f} s)"
    remedy = "Try again later." if has_token else "Pass github_token: without one GitHub allows 60 requests an hour."
    message = f"GitHub's rate limit stops the lookup of {asked_for}{until}"
    return _BusyError(message, why=why, remedy=remedy, wait_seconds=wait_seconds)


def _is_rate_limit(headers: Mapping[str, str], said: str) -> bool:
    exhausted = headers.get("x-ratelimit-remaining") == "0" or "retry-after" in headers
    return exhausted or "rate limit" in said.lower()


def _asked_wait(headers: Mapping[str, str]) -> float | None:
    """Seconds that the server asks to wait (RFC 9110 Retry-After; GitHub's X-RateLimit-Reset), None if it does not."""
    retry_after = headers.get("retry-after", "")
    if _is_number(retry_after):
        return float(retry_after)
    if retry_after:
        try:
            return max(0.0, email.utils.parsedate_to_datetime(retry_after).timestamp() - time.time())
        except (OverflowError, ValueError):
            return None
    reset = headers.get("x-ratelimit-reset", "")
    if headers.get("x-ratelimit-remaining") == "0" and _is_number(reset):
        return max(0.0, float(reset) - time.time()) + 1  # its clock and ours may differ by a second
    return None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _shown(text: str, token: str) -> str:
    return quote(text.replace(token, "***") if token else text, shown_characters=_SHOWN_CHARACTERS)
