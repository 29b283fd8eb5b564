"""From settings to the root of the run that is meant, and how it was decided."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from _therock_utils._errors import InputError
from _therock_utils._keys import check_run_id, quote
from _therock_utils._run_identity import is_fork_in_environment, read_record
from _therock_utils.s3_buckets import (
    DEFAULT_REPOSITORY,
    Repository,
    is_external_bucket,
    is_inventory_bucket,
    parse_release_type,
)
from _therock_utils.workflow_outputs import WorkflowOutputRoot, choose_bucket, read_event_payload
from therock_outputs.mode_names import Mode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from _therock_utils._cancel import CancelToken
    from _therock_utils.s3_buckets import BucketChoice
    from therock_outputs.settings import Settings

PLATFORMS: Final = ("linux", "windows")


@dataclass(frozen=True, slots=True)
class RunTarget:
    """Roots of the run, one a platform, and whether it is a fork's pull request; no root where a run is looked for."""

    roots: tuple[WorkflowOutputRoot, ...]
    is_pr_from_fork: bool
    notices: tuple[str, ...] = ()

    @property
    def root(self) -> WorkflowOutputRoot:
        """The root of the first platform."""
        return self.roots[0]


def resolve_target(settings: Settings, cancel: CancelToken, *, say: Callable[[str], None]) -> RunTarget:
    """Decide whose outputs are meant, asking GitHub's API where the settings want it; `say` hears what is waited for.

    Raises InputError for values that cannot be used, GitHubError or CredentialsError when a lookup fails.
    """
    if settings.mode is Mode.FIND_ARTIFACTS:
        return RunTarget((), is_pr_from_fork=False)  # which run is meant is what it finds out
    run_id = _run_id(settings)
    platforms = _platforms(settings)
    own_repository = settings.github_repository or DEFAULT_REPOSITORY
    repository = Repository.parse(settings.repository or own_repository)
    in_own_repository = repository.is_same(own_repository)
    is_own_run = run_id == settings.github_run_id and in_own_repository
    release_type = parse_release_type(settings.release_type or settings.release_type_environment)
    record = _record(settings, repository, run_id, cancel, say, is_own_run=is_own_run)
    environment = _job_environment(settings, speaks_of_run=in_own_repository and settings.github_run_id in {"", run_id})
    choice = choose_bucket(repository, release_type=release_type, workflow_run=record, environment=environment)
    bucket = settings.bucket or choice.bucket
    return RunTarget(
        tuple(WorkflowOutputRoot(bucket, choice.external_repo, run_id, platform) for platform in platforms),
        _is_fork(choice, repository, record, environment),
        () if is_own_run else _notices_of_other_run(settings, run_id, release_type, is_looked_up=record is not None),
    )


def resolve_source(settings: Settings, cancel: CancelToken, *, say: Callable[[str], None]) -> RunTarget:
    """Decide whose outputs are copied, as `resolve_target` decides whose are written. Raises as it does."""
    if not settings.source_run_id:
        message = f"mode {settings.mode} needs source_run_id"
        raise InputError(message, remedy="Give the number of the run to copy from.")
    return resolve_target(source_settings(settings), cancel, say=say)


def source_settings(settings: Settings) -> Settings:
    """The settings as if the run that is copied were the one that is meant."""
    source = {
        "run_id": settings.source_run_id,
        "repository": settings.source_repository,
        "release_type": settings.source_release_type or settings.release_type,
        "bucket": settings.source_bucket or settings.bucket,
    }
    return settings.model_copy(update=source)


def root_of_record(
    settings: Settings, repository: Repository, record: Mapping[str, object], *, run_id: str, platform: str
) -> WorkflowOutputRoot:
    """The root of a run of `repository` by the API's record of it. Raises InputError, GitHubError."""
    release_type = parse_release_type(settings.release_type or settings.release_type_environment)
    choice = choose_bucket(repository, release_type=release_type, workflow_run=record, environment={})
    return WorkflowOutputRoot(settings.bucket or choice.bucket, choice.external_repo, run_id, platform)


def single_platform(settings: Settings) -> str:
    """The platform that is meant, where one is wanted. Raises InputError for a list or an unknown one."""
    platforms = _platforms(settings)
    if len(platforms) > 1:
        raise _several_platforms()
    return platforms[0]


def single_root(target: RunTarget) -> WorkflowOutputRoot:
    """The root, where one platform is wanted. Raises InputError for a list."""
    if len(target.roots) > 1:
        raise _several_platforms()
    return target.root


def _several_platforms() -> InputError:
    return InputError("platform is a list, and this mode takes one", remedy="Give linux or windows.")


def _run_id(settings: Settings) -> str:
    if settings.run_id or settings.github_run_id:
        return check_run_id(settings.run_id or settings.github_run_id)
    if settings.staging_dir:
        return "local"
    message = "no run_id was given, and GITHUB_RUN_ID is not set"
    raise InputError(message, remedy="Give run_id, or staging_dir to store into a folder.")


def _platforms(settings: Settings) -> tuple[str, ...]:
    given = settings.platform or ((settings.runner_os,) if settings.runner_os else ())
    platforms = tuple(dict.fromkeys(platform.lower() for platform in given))
    if not platforms:
        return ("windows",) if sys.platform == "win32" else ("linux",)
    for platform in platforms:
        if platform not in PLATFORMS:
            message = f"platform {quote(platform)} is not known"
            raise InputError(message, remedy=f"Use one of: {', '.join(PLATFORMS)}.")
    return platforms


def _record(
    settings: Settings,
    repository: Repository,
    run_id: str,
    cancel: CancelToken,
    say: Callable[[str], None],
    *,
    is_own_run: bool,
) -> Mapping[str, object] | None:
    if not _looks_up(settings, run_id, is_own_run=is_own_run):
        return None
    from _therock_utils._github import fetch_workflow_run
    from _therock_utils._github_api import waiting_line

    def wait(seconds: float, cause: str) -> None:
        say(waiting_line(seconds, cause))
        cancel.sleep(seconds)

    say(f"asking GitHub about run {run_id} of {repository.full_name}")
    return fetch_workflow_run(repository, run_id, token=settings.github_token.get_secret_value(), wait=wait)


def _looks_up(settings: Settings, run_id: str, *, is_own_run: bool) -> bool:
    if settings.lookup != "auto":
        return settings.lookup == "true"
    if settings.mode is Mode.LOCATE or settings.staging_dir or is_own_run:
        return False  # locate does no I/O unless it is told to; staging needs no network
    return run_id.isdigit()


def _job_environment(settings: Settings, *, speaks_of_run: bool) -> dict[str, str]:
    """The variables of this job that the layout's rule reads; its pull request says nothing about another run."""
    repository = {"GITHUB_REPOSITORY": settings.github_repository}
    if not speaks_of_run:
        return repository
    return repository | {
        "IS_PR_FROM_FORK": settings.is_pr_from_fork,
        "GITHUB_EVENT_NAME": settings.github_event_name,
        "GITHUB_EVENT_PATH": settings.github_event_path,
    }


def _is_fork(
    choice: BucketChoice,
    repository: Repository,
    record: Mapping[str, object] | None,
    environment: Mapping[str, str],
) -> bool:
    """Whether the run is a fork's pull request; an unreadable payload is an error only where the answer decides."""
    if record is not None:
        return read_record(record, repository=repository).is_pr_from_fork
    try:
        return is_fork_in_environment(environment, read_event_payload)
    except InputError:
        if is_inventory_bucket(choice.bucket) and not is_external_bucket(choice.bucket):
            return False
        raise


def _notices_of_other_run(settings: Settings, run_id: str, release_type: str, *, is_looked_up: bool) -> tuple[str, ...]:
    """What was taken for granted about a run that is not this job's."""
    notices = []
    if settings.github_run_id and not settings.release_type and settings.release_type_environment:
        notices.append(
            f"release_type {release_type} comes from RELEASE_TYPE of this job, and run {run_id} is another run: "
            "set the input release_type if its outputs are elsewhere"
        )
    if settings.lookup == "auto" and not is_looked_up and run_id.isdigit() and not settings.staging_dir:
        notices.append(
            f"run {run_id} is not this job's, and GitHub was not asked about it: it is taken for a recent run and for "
            "no fork's pull request (lookup: true asks)"
        )
    return tuple(notices)
