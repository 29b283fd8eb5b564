"""From settings to the root of the run that is meant, and how it was decided."""

from __future__ import annotations

import dataclasses
import os
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
from _therock_utils.workflow_outputs import WorkflowOutputRoot, read_event_payload
from therock_outputs.mode_names import Mode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from _therock_utils._cancel import CancelToken
    from therock_outputs.settings import Settings

PLATFORMS: Final = ("linux", "windows")


@dataclass(frozen=True, slots=True)
class RunTarget:
    """Roots of the run, one a platform, and whether it is a fork's pull request."""

    roots: tuple[WorkflowOutputRoot, ...]
    is_pr_from_fork: bool
    notices: tuple[str, ...] = ()

    @property
    def root(self) -> WorkflowOutputRoot:
        """The root of the first platform."""
        return self.roots[0]


def resolve_target(settings: Settings, cancel: CancelToken) -> RunTarget:
    """Decide whose outputs are meant, asking GitHub's API where the settings want it.

    Raises InputError for values that cannot be used, GitHubError or CredentialsError when a lookup fails.
    """
    run_id = _run_id(settings)
    platforms = _platforms(settings)
    repository = Repository.parse(settings.repository or settings.github_repository or DEFAULT_REPOSITORY)
    own_repository = repository.is_same(settings.github_repository or DEFAULT_REPOSITORY)
    is_own_run = run_id == settings.github_run_id and own_repository
    release_type = parse_release_type(settings.release_type or settings.release_type_environment)
    notices = []
    if not is_own_run and settings.github_run_id and not settings.release_type and settings.release_type_environment:
        notices.append(
            f"release_type {release_type} comes from RELEASE_TYPE of this job, and run {run_id} is another run: "
            "set the input release_type if its outputs are elsewhere"
        )
    record = _record(settings, repository, run_id, cancel, is_own_run=is_own_run)
    roots = tuple(
        WorkflowOutputRoot.from_workflow_run(
            run_id=run_id,
            platform=platform,
            github_repository=repository.full_name,
            workflow_run=record,
            release_type=release_type,
        )
        for platform in platforms
    )
    is_fork = _is_fork(roots[0], repository, record, own_repository=own_repository)
    if settings.bucket:
        roots = tuple(dataclasses.replace(root, bucket=settings.bucket) for root in roots)
    return RunTarget(roots, is_fork, tuple(notices))


def single_root(target: RunTarget) -> WorkflowOutputRoot:
    """The root, where one platform is wanted. Raises InputError for a list."""
    if len(target.roots) > 1:
        message = "platform is a list, and this mode takes one"
        raise InputError(message, remedy="Give linux or windows.")
    return target.root


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
    settings: Settings, repository: Repository, run_id: str, cancel: CancelToken, *, is_own_run: bool
) -> Mapping[str, object] | None:
    if not _looks_up(settings, run_id, is_own_run=is_own_run):
        return None
    from _therock_utils._github import fetch_workflow_run, token_of_environment

    token = settings.github_token.get_secret_value() or token_of_environment(os.environ)
    return fetch_workflow_run(repository, run_id, token=token, sleep=cancel.sleep)


def _looks_up(settings: Settings, run_id: str, *, is_own_run: bool) -> bool:
    if settings.lookup != "auto":
        return settings.lookup == "true"
    if settings.mode is Mode.LOCATE or settings.staging_dir or is_own_run:
        return False  # locate does no I/O unless it is told to; staging needs no network
    return run_id.isdigit()


def _is_fork(
    root: WorkflowOutputRoot,
    repository: Repository,
    record: Mapping[str, object] | None,
    *,
    own_repository: bool,
) -> bool:
    """Whether the run is a fork's pull request; an unreadable payload is an error only where the answer decides."""
    if record is not None:
        return read_record(record, repository=repository).is_pr_from_fork
    if not own_repository:
        return False
    try:
        return is_fork_in_environment(os.environ, read_event_payload)
    except InputError:
        if is_inventory_bucket(root.bucket) and not is_external_bucket(root.bucket):
            return False
        raise
