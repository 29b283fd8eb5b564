"""The one boundary to GitHub's REST API: asks through PyGithub, waits within bounds, and translates every error."""

from __future__ import annotations

import email.utils
import time
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, Self

from _therock_utils._errors import CredentialsError, GitHubError
from _therock_utils._keys import quote

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from github import GithubException
    from tenacity import RetryCallState

    from _therock_utils._errors import OutputsError

MAX_WAIT_SECONDS: Final = 90
"""Longest time that a lookup or a search waits for rate limits and faults to pass, in all."""

_REQUEST_TIMEOUT_SECONDS: Final = 15
_FIRST_WAIT_SECONDS: Final = 2
_LONGEST_BACKOFF_SECONDS: Final = 20
_UNSAID_LIMIT_SECONDS: Final = 60.0
"""What to wait at a rate limit that does not say (GitHub, "Best practices for using the REST API")."""

_SHOWN_CHARACTERS: Final = 300
_WRONG_SERVER: Final = "Check GITHUB_API_URL: it must be the root of GitHub's REST API."

_UNREADABLE: Final = (ArithmeticError, AssertionError, AttributeError, RuntimeError, TypeError, ValueError)
"""What PyGithub lets through where an answer is not GitHub's: broken JSON, a list in place of an error, limits that are
no numbers, a redirect to another host or in a circle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One GET request, and what its errors say.

    - `what`: what is asked for, in words; what comes from outside is quoted in it already.
    - `path`: below the API's root, percent-encoded; `parameters`: the query.
    - `permission`: what a token needs for it; `checks`: the inputs to look at where there is no such thing.
    - `absent`: the error that a status means when it says so; "there is no such thing" by default is GitHub's failure.
    """

    what: str
    path: str
    permission: str
    checks: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    absent: Mapping[int, type[OutputsError]] = field(default_factory=lambda: {HTTPStatus.NOT_FOUND: GitHubError})

    @property
    def need(self) -> str:
        """What the token needs, for a remedy."""
        return f"the token needs the permission `{self.permission}` in that repository"


class _BusyError(GitHubError):
    """What may pass by itself; `wait_seconds` is how long the server asks to wait, 0 where it does not say."""

    transient = True

    def __init__(self, what: str, *, why: str = "", remedy: str = "", wait_seconds: float = 0.0) -> None:
        super().__init__(what, why=why, remedy=remedy)
        self.wait_seconds = wait_seconds


class GitHubApi:
    """One conversation with the API, a request after the other over one connection.

    Waits for rate limits, server faults and lost connections to pass, MAX_WAIT_SECONDS at most in all, and not at all
    where it would have to wait longer. Memory: one answer.
    """

    def __init__(self, api_url: str, token: str, sleep: Callable[[float], None]) -> None:
        """`api_url` and `token` as `api_url_of_environment` and `checked_token` give them; nothing is asked yet."""
        import github

        self._token = token
        self._sleep = sleep
        self._waited_seconds = 0.0
        self._client = github.Github(
            auth=github.Auth.Token(token) if token else None,
            base_url=api_url,
            timeout=_REQUEST_TIMEOUT_SECONDS,
            retry=None,  # its own retry may sleep until a rate limit resets, up to an hour
            seconds_between_requests=None,  # GitHub wants reads one after the other, which these are, not slowly
            user_agent="therock-outputs",
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def get(self, question: Question) -> object:
        """The answer's JSON, of any shape. Raises GitHubError, CredentialsError or what `question.absent` says."""
        import tenacity

        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(_BusyError),
            wait=_wait_seconds,
            stop=self._is_out_of_time,
            sleep=self._sleep,
            reraise=True,
        )
        try:
            return retrying(self._request, question)
        finally:
            self._waited_seconds += float(retrying.statistics.get("idle_for", 0.0))

    def _is_out_of_time(self, state: RetryCallState) -> bool:
        spent_seconds = self._waited_seconds + max(state.seconds_since_start or 0.0, state.idle_for)
        return spent_seconds + state.upcoming_sleep > MAX_WAIT_SECONDS

    def _request(self, question: Question) -> object:
        import github
        import requests

        try:
            _, answer = self._client.requester.requestJsonAndCheck(
                "GET", question.path, parameters=dict(question.parameters)
            )
        except github.GithubException as error:
            raise _translate(error, question, token=self._token) from None  # its text is the whole answer
        except requests.RequestException as error:
            raise _translate_connection(error, question) from error
        except _UNREADABLE as error:
            raise unreadable(question, f"{type(error).__name__}: {_shown(str(error), self._token)}") from None
        return answer


def unreadable(question: Question, why: str) -> GitHubError:
    """The error of an answer that is not what GitHub answers to `question`."""
    return GitHubError(f"GitHub's answer about {question.what} cannot be read", why=why, remedy=_WRONG_SERVER)


def _wait_seconds(state: RetryCallState) -> float:
    """At least what the server asks for, and more from one try to the next."""
    import tenacity

    error = state.outcome.exception() if state.outcome is not None else None
    asked_seconds = error.wait_seconds if isinstance(error, _BusyError) else 0.0
    backoff = tenacity.wait_random_exponential(multiplier=_FIRST_WAIT_SECONDS, max=_LONGEST_BACKOFF_SECONDS)
    return max(asked_seconds, backoff(state))


def _translate_connection(error: Exception, question: Question) -> GitHubError:
    import requests

    message = f"GitHub's API could not be reached to look up {question.what}"
    why = type(error).__name__
    if isinstance(error, requests.exceptions.SSLError):
        return GitHubError(message, why=why, remedy="Check the certificates (REQUESTS_CA_BUNDLE) and GITHUB_API_URL.")
    remedy = "Check the network, the proxy and GITHUB_API_URL."
    passing = (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError)
    return (_BusyError if isinstance(error, passing) else GitHubError)(message, why=why, remedy=remedy)


def _translate(error: GithubException, question: Question, *, token: str) -> OutputsError:
    status = error.status
    headers = {name.lower(): str(value) for name, value in (error.headers or {}).items()}
    said = error.data.get("message") if isinstance(error.data, dict) else None
    said = said if isinstance(said, str) else ""
    why = f"HTTP {status}: {_shown(said, token)}" if said else f"HTTP {status}"
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        message = f"GitHub's API failed to look up {question.what}"
        return _BusyError(message, why=why, remedy="Try again later.", wait_seconds=_asked_wait(headers) or 0.0)
    if status == HTTPStatus.TOO_MANY_REQUESTS or (status == HTTPStatus.FORBIDDEN and _is_rate_limit(headers, said)):
        return _rate_limit_error(headers, question.what, why, has_token=bool(token))
    if status == HTTPStatus.UNAUTHORIZED:
        message = f"GitHub refused the token when asked for {question.what}"
        return CredentialsError(message, why=why, remedy=f"Pass a valid token as github_token; {question.need}.")
    if status == HTTPStatus.FORBIDDEN:
        message = f"GitHub does not let this token see {question.what}"
        return GitHubError(message, why=why, remedy=f"Give it what it lacks: {question.need}.")
    absent = question.absent.get(status)
    if absent is not None:
        remedy = f"Check {question.checks}; if that repository is private, {question.need}."
        return absent(f"GitHub shows no {question.what}", why=why, remedy=remedy)
    return GitHubError(f"GitHub did not answer the question for {question.what}", why=why)


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
