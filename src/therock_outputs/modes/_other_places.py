"""Where else a run's outputs can be, when there is nothing where they were looked for, and what to set to get them.

The places are those that the layout's rule gives for other settings, so that each comes with the settings it needs.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from _therock_utils._cancel import CancelToken
from _therock_utils._errors import NotFoundError, OutputsError
from _therock_utils._s3_workers import lane, run_lanes
from _therock_utils.s3_buckets import (
    DEFAULT_REPOSITORY,
    LEGACY_CUTOVER,
    RELEASE_TYPES,
    Repository,
    parse_release_type,
    select_bucket,
)
from _therock_utils.workflow_outputs import WorkflowOutputRoot
from therock_outputs.modes._selectors import check_staging_dir
from therock_outputs.run_target import PLATFORMS, single_root
from therock_outputs.text_safety import count

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from _therock_utils.storage_backend import StorageBackend
    from therock_outputs.context import Context
    from therock_outputs.settings import Settings

LOOK_SECONDS: Final = 20.0
"""How long all looks together may take: they only make an error's remedy better."""

_AT_ONCE: Final = 12
_SHOWN_PLACES: Final = 3


@dataclass(frozen=True, slots=True)
class Place:
    """A root of the run, and the settings that lead there: `release_type: nightly`, ..."""

    root: WorkflowOutputRoot
    settings: tuple[str, ...]


def explain_empty_run(context: Context, backend: StorageBackend) -> NotFoundError:
    """The error of a run that has nothing at its root: where it is, or that it is nowhere.

    Looks at every other place, one listing request each. Raises CancelledError; no other error of a look hides the
    answer.
    """
    check_staging_dir(context)
    root = single_root(context.target)
    staged = context.staging_dir is not None
    places = other_places(root, context.settings, only_platforms=staged)
    context.say(f"there is nothing under {root.root().s3_uri}: looking for the run elsewhere")
    found, unknown = _look(places, backend, context.cancel)
    where = str(root.root().local_path(context.staging_dir)) if context.staging_dir is not None else root.root().s3_uri
    return empty_run_error(root.run_id, where, found, looked_at=len(places), unknown=unknown)


def other_places(root: WorkflowOutputRoot, settings: Settings, *, only_platforms: bool) -> tuple[Place, ...]:
    """Where the run of `root` can be instead, the likeliest first. Pure.

    With `only_platforms` (in a staging folder) the same place for the other platforms, else also every bucket of the
    inventory, for the run's repository, the job's and ROCm/TheRock.
    """
    places = {root: Place(root, ())}
    for platform in PLATFORMS:
        elsewhere = WorkflowOutputRoot(root.bucket, root.external_repo, root.run_id, platform)
        places.setdefault(elsewhere, Place(elsewhere, (f"platform: {platform}",)))
    if not only_platforms:
        for bucket, external_repo, needed in _choices(settings):
            for platform in (root.platform, *PLATFORMS):
                elsewhere = WorkflowOutputRoot(bucket, external_repo, root.run_id, platform)
                platforms = () if platform == root.platform else (f"platform: {platform}",)
                places.setdefault(elsewhere, Place(elsewhere, (*needed, *platforms)))
    del places[root]
    return tuple(places.values())


def _choices(settings: Settings) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Bucket, key prefix and the settings they need: for every release type, repository, fork or not, legacy or not."""
    current_type = parse_release_type(settings.release_type or settings.release_type_environment)
    current = settings.repository or settings.github_repository or DEFAULT_REPOSITORY
    no_bucket = ("no bucket",) if settings.bucket else ()
    names = dict.fromkeys((current, settings.github_repository or current, DEFAULT_REPOSITORY))
    for release_type in dict.fromkeys((current_type, *RELEASE_TYPES)):
        for repository in map(Repository.parse, names):
            for is_fork, updated_at in ((False, None), (True, None), (False, LEGACY_CUTOVER), (True, LEGACY_CUTOVER)):
                choice = select_bucket(
                    release_type=release_type, repository=repository, is_pr_from_fork=is_fork, updated_at=updated_at
                )
                needed = (
                    *no_bucket,
                    *(() if release_type == current_type else (f"release_type: {release_type}",)),
                    *(() if repository.is_same(current) else (f"repository: {repository.full_name}",)),
                    # Only GitHub's record says that a run is a fork's, or old.
                    *(("lookup: true",) if is_fork or updated_at is not None else ()),
                )
                yield choice.bucket, choice.external_repo, needed


def _look(places: Sequence[Place], backend: StorageBackend, cancel: CancelToken) -> tuple[list[Place], int]:
    """The places at which there is something, in their order, and the number of those that cannot be looked at."""
    answers: dict[int, bool] = {}
    ended = CancelToken()  # a service that does not answer is asked no longer than LOOK_SECONDS

    def look(number: int, place: Place) -> None:
        try:
            answers[number] = next(iter(backend.list_objects(place.root.root(), cancel=ended)), None) is not None
        except OutputsError:
            return  # denied, unreachable, too slow: it is not known

    timer = threading.Timer(LOOK_SECONDS, ended.cancel)
    timer.daemon = True
    timer.start()
    try:
        jobs = [partial(look, number, place) for number, place in enumerate(places)]
        run_lanes([lane(jobs, _AT_ONCE)], cancel=cancel, grace_seconds=0)
    finally:
        timer.cancel()
        ended.cancel()
    cancel.check()
    return [place for number, place in enumerate(places) if answers.get(number)], len(places) - len(answers)


def empty_run_error(run_id: str, where: str, found: Iterable[Place], *, looked_at: int, unknown: int) -> NotFoundError:
    """The error itself. Pure."""
    what = f"run {run_id} has no outputs under {where}"
    found = list(found)[:_SHOWN_PLACES]
    if found:
        places = "; ".join(f"found in {place.root.root().s3_uri}" for place in found)
        remedy = "; or ".join(_in_words(place.settings) for place in found)
        return NotFoundError(what, why=places, remedy=f"{remedy[:1].upper()}{remedy[1:]}.")
    why = f"it has none in {count(looked_at - unknown, 'other place')} either (other buckets, other platform)"
    if unknown:
        why += f"; {unknown} more could not be looked at"
    return NotFoundError(
        what,
        why=why,
        remedy="Check run_id, repository and release_type; a run that is under way has stored nothing yet "
        "(wait_seconds waits), and outputs of old runs are removed.",
    )


def _in_words(settings: Sequence[str]) -> str:
    left_out = [setting.removeprefix("no ") for setting in settings if setting.startswith("no ")]
    needed = [setting for setting in settings if not setting.startswith("no ")]
    words = [f"leave out {name}" for name in left_out] + ([f"set {' and '.join(needed)}"] if needed else [])
    return " and ".join(words)
