"""Whose run is it, and is it a fork's pull request? Decided from the environment or from the API's record. Pure.

Both ways name the same place for the same run: what a job uploads is found by the job that looks it up.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from _therock_utils._errors import GitHubError, InputError
from _therock_utils._keys import quote
from _therock_utils.s3_buckets import DEFAULT_REPOSITORY, Repository

if TYPE_CHECKING:
    from collections.abc import Callable

_PULL_REQUEST_EVENTS: Final = frozenset({"pull_request", "pull_request_target"})
_TRUE: Final = frozenset({"true", "1", "yes", "on"})
_FALSE: Final = frozenset({"", "false", "0", "no", "off"})
_PATH_CHARACTERS: Final = 1000
_FORK_REMEDY: Final = "Set IS_PR_FROM_FORK to true if it is a fork's, or give the job its payload (GITHUB_EVENT_PATH)."


@dataclass(frozen=True, slots=True)
class RunRecord:
    """What the API's record of a run decides. `updated_at` is aware, None where the record does not say."""

    repository: Repository
    is_pr_from_fork: bool
    updated_at: datetime.datetime | None


def variable(environment: Mapping[str, str], name: str) -> str:
    """The variable `name` without white space around it: a value made from a YAML block ends in a line end."""
    return environment.get(name, "").strip()


def repository_of_environment(environment: Mapping[str, str]) -> Repository:
    """Repository in which this job runs; ROCm/TheRock where GITHUB_REPOSITORY is unset or empty."""
    return Repository.parse(variable(environment, "GITHUB_REPOSITORY") or DEFAULT_REPOSITORY)


def parse_flag(name: str, value: str) -> bool:
    """Read a boolean environment value; blank is false. Raises InputError that names the variable."""
    word = value.strip().lower()
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    message = f"{name} is {quote(value)}, which is neither true nor false"
    raise InputError(message, remedy=f"Set {name} to true or false.")


def is_fork_in_environment(environment: Mapping[str, str], read_event: Callable[[str], bytes]) -> bool:
    """Whether this job belongs to a pull request from a fork.

    IS_PR_FROM_FORK true decides alone; otherwise the payload of a pull request event does (its head repository is gone,
    or is another one). `read_event` gets GITHUB_EVENT_PATH and is called only where the payload decides.
    Raises InputError where it is needed and cannot be read.
    """
    if parse_flag("IS_PR_FROM_FORK", environment.get("IS_PR_FROM_FORK", "")):
        return True
    if variable(environment, "GITHUB_EVENT_NAME") not in _PULL_REQUEST_EVENTS:
        return False
    path = variable(environment, "GITHUB_EVENT_PATH")
    head_repository = _head_repository(_load_event(path, read_event), path)
    return head_repository is None or not repository_of_environment(environment).is_same(head_repository)


def read_record(record: Mapping[str, object], *, repository: Repository) -> RunRecord:
    """Read a workflow run as GitHub's API gives it ("Get a workflow run").

    The repository is the one that the record names, in its spelling, since keys are case-sensitive; else `repository`.
    Raises GitHubError for a record that cannot be read.
    """
    try:
        named = _full_name(record.get("repository"))
        own = repository if named is None else Repository.parse(named)
        head = _full_name(record.get("head_repository"))
        updated_at = _instant(record.get("updated_at"))
    except ValueError as error:
        message = "the run's record cannot be read"
        raise GitHubError(message, why=str(error).partition("\n")[0]) from error
    return RunRecord(own, head is None or not own.is_same(head), updated_at)


def _load_event(path: str, read_event: Callable[[str], bytes]) -> object:
    if not path:
        message = (
            "GITHUB_EVENT_PATH is not set, and this pull request's payload is needed to tell a fork's from our own"
        )
        raise InputError(message, remedy=_FORK_REMEDY)
    try:
        return json.loads(read_event(path).decode("utf-8-sig"))  # RFC 8259 lets a reader skip a byte order mark
    except (OSError, ValueError, RecursionError) as error:
        message = f"the event payload {_quote_path(path)} cannot be read"
        raise InputError(message, why=f"{type(error).__name__}: {error}"[:300], remedy=_FORK_REMEDY) from error


def _head_repository(event: object, path: str) -> str | None:
    pull_request = event.get("pull_request") if isinstance(event, dict) else None
    head = pull_request.get("head") if isinstance(pull_request, dict) else None
    try:
        if isinstance(head, dict):
            return _full_name(head.get("repo"))
        why = "it has no pull_request.head, and GITHUB_EVENT_NAME says that this is a pull request event"
    except ValueError as error:
        why = f"pull_request.head.repo: {error}"
    message = f"the event payload {_quote_path(path)} does not tell a fork's pull request from our own"
    raise InputError(message, why=why, remedy=_FORK_REMEDY)


def _quote_path(path: str) -> str:
    return quote(path, shown_characters=_PATH_CHARACTERS)


def _full_name(repository: object) -> str | None:
    """Name of a repository object, None where it is null or has none. Raises ValueError for what is no repository."""
    name = repository.get("full_name") if isinstance(repository, Mapping) else repository
    if name is None:
        return None
    if isinstance(name, str) and name is not repository:
        return name or None
    message = f"a {type(name).__name__} is where a repository or its name should be"
    raise ValueError(message)


def _instant(value: object) -> datetime.datetime | None:
    """An instant of the API (RFC 3339), UTC where it does not say. Raises ValueError for anything else."""
    if value is None:
        return None
    try:
        instant = datetime.datetime.fromisoformat(value if isinstance(value, str) else "")
    except ValueError as error:
        message = f"updated_at {quote(value) if isinstance(value, str) else type(value).__name__} is no time"
        raise ValueError(message) from error
    return instant if instant.tzinfo is not None else instant.replace(tzinfo=datetime.UTC)
