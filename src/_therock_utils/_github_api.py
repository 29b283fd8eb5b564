"""The one boundary to GitHub's REST API: asks through PyGithub, waits within bounds, and translates every error."""

from __future__ import annotations

import email.utils
import logging
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, Self

from _therock_utils._errors import CredentialsError, GitHubError
from _therock_utils._keys import quote

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from github import GithubException
    from tenacity import RetryCallState

    from _therock_utils._errors import OutputsError

MAX_WAIT_SECONDS: Final = 90
"""Longest time that a lookup or a search waits for rate limits and faults to pass, in all."""

OUT_OF_REACH_SECONDS: Final = 30
"""Longest time that one question waits for a server that refuses connections, or whose name no one can resolve."""

Wait = Callable[[float, str], None]
"""Waits so many seconds, and hears why in words."""

_logger: Final = logging.getLogger(__name__)

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
    """What may pass by itself.

    - `cause`: why, in a few words of ours.
    - `wait_seconds`: how long the server asks to wait, 0 where it does not say.
    - `patience_seconds`: how long it is worth waiting for in all.
    """

    transient = True

    def __init__(
        self,
        what: str,
        *,
        why: str,
        remedy: str,
        cause: str,
        wait_seconds: float = 0.0,
        patience_seconds: float = MAX_WAIT_SECONDS,
    ) -> None:
        super().__init__(what, why=why, remedy=remedy)
        self.cause = cause
        self.wait_seconds = wait_seconds
        self.patience_seconds = patience_seconds


def waiting_line(seconds: float, cause: str) -> str:
    """What a person is told before a wait."""
    return f"GitHub's API: {cause}: asking again in {seconds:.1f} s"


def wait_and_log(seconds: float, cause: str) -> None:
    """Wait as the library does where nobody says how: with a warning in the log."""
    _logger.warning("%s", waiting_line(seconds, cause))
    time.sleep(seconds)


class GitHubApi:
    """One conversation with the API, a request after the other over one connection.

    Waits for rate limits, server faults and lost connections to pass, MAX_WAIT_SECONDS at most in all, and not at all
    where it would have to wait longer; for a server that cannot be reached, OUT_OF_REACH_SECONDS. Memory: one answer.
    """

    def __init__(self, api_url: str, token: str, wait: Wait) -> None:
        """`api_url` and `token` as `api_url_of_environment` and `checked_token` give them; nothing is asked yet."""
        import github

        self._token = token
        self._wait = wait
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
            before_sleep=self._wait_before,
            sleep=_no_more,
            reraise=True,
        )
        try:
            return retrying(self._request, question)
        finally:
            self._waited_seconds += float(retrying.statistics.get("idle_for", 0.0))

    def _is_out_of_time(self, state: RetryCallState) -> bool:
        needed_seconds = max(state.seconds_since_start or 0.0, state.idle_for) + state.upcoming_sleep
        error = _busy_error(state)
        impatient = error is not None and needed_seconds > error.patience_seconds
        return impatient or self._waited_seconds + needed_seconds > MAX_WAIT_SECONDS

    def _wait_before(self, state: RetryCallState) -> None:
        error = _busy_error(state)
        self._wait(state.upcoming_sleep, error.cause if error is not None else "")

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


def _no_more(_seconds: float) -> None:
    """Stands for tenacity's sleep, which does not hear what it is for: `_wait_before` has waited."""


def _busy_error(state: RetryCallState) -> _BusyError | None:
    error = state.outcome.exception() if state.outcome is not None else None
    return error if isinstance(error, _BusyError) else None


def _wait_seconds(state: RetryCallState) -> float:
    """At least what the server asks for, and more from one try to the next."""
    import tenacity

    error = _busy_error(state)
    asked_seconds = error.wait_seconds if error is not None else 0.0
    backoff = tenacity.wait_random_exponential(multiplier=_FIRST_WAIT_SECONDS, max=_LONGEST_BACKOFF_SECONDS)
    return max(asked_seconds, backoff(state))


def _translate_connection(error: Exception, question: Question) -> GitHubError:
    import requests

    message = f"GitHub's API could not be reached to look up {question.what}"
    if isinstance(error, requests.exceptions.SSLError):
        remedy = "Check the certificates (REQUESTS_CA_BUNDLE) and GITHUB_API_URL."
        return GitHubError(message, why=type(error).__name__, remedy=remedy)
    remedy = "Check the network, the proxy and GITHUB_API_URL; lookup: false takes the run for a recent one of no fork."
    passing = (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError)
    if not isinstance(error, passing):
        return GitHubError(message, why=type(error).__name__, remedy=remedy)
    cause, is_out_of_reach = _connection_failure(error)
    patience_seconds = OUT_OF_REACH_SECONDS if is_out_of_reach else MAX_WAIT_SECONDS
    return _BusyError(message, why=cause, remedy=remedy, cause=cause, patience_seconds=patience_seconds)


def _connection_failure(error: Exception) -> tuple[str, bool]:
    """How a connection failed, in words, and whether there was none at all to begin with."""
    import requests

    kinds = [type(one) for one in _chain(error)]
    through = " by the proxy" if isinstance(error, requests.exceptions.ProxyError) else ""
    if any(issubclass(kind, ConnectionRefusedError) for kind in kinds):
        return f"the connection was refused{through}", True
    if any(issubclass(kind, socket.gaierror) for kind in kinds):
        return f"the {'proxy' if through else 'host'}'s name could not be resolved", True
    if isinstance(error, requests.Timeout):
        return "no answer came in time", False
    return f"the connection was broken off{through}", False


def _chain(error: BaseException) -> Iterator[BaseException]:
    """`error` and what it was made of: requests and urllib3 wrap each other's, as causes, arguments and reasons."""
    waiting, seen = [error], set[int]()
    while waiting:
        one = waiting.pop()
        if id(one) not in seen:
            seen.add(id(one))
            yield one
            within = (one.__cause__, one.__context__, getattr(one, "reason", None), *one.args)
            waiting += [other for other in within if isinstance(other, BaseException)]


def _translate(error: GithubException, question: Question, *, token: str) -> OutputsError:
    status = error.status
    headers = {name.lower(): str(value) for name, value in (error.headers or {}).items()}
    said = error.data.get("message") if isinstance(error.data, dict) else None
    said = said if isinstance(said, str) else ""
    why = f"HTTP {status}: {_shown(said, token)}" if said else f"HTTP {status}"
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        message = f"GitHub's API failed to look up {question.what}"
        asked_seconds = _asked_wait(headers) or 0.0
        cause = f"the server failed (HTTP {status})"
        return _BusyError(message, why=why, remedy="Try again later.", cause=cause, wait_seconds=asked_seconds)
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
    return _BusyError(message, why=why, remedy=remedy, cause="its rate limit is reached", wait_seconds=wait_seconds)


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
