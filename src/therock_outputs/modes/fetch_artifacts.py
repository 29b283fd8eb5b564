"""Mode fetch-artifacts: artifacts of a run, found, downloaded, verified and extracted."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from _therock_utils._errors import CancelledError, NotFoundError
from _therock_utils._sidecar import sidecar_name
from _therock_utils._transfer_types import FailedItem, StoredObject, UploadResult
from _therock_utils.content_types import infer_content_type
from therock_outputs.artifact_selection import choose
from therock_outputs.modes._archive_cache import ArchiveCache
from therock_outputs.modes._fetch_checks import check_digests, check_space
from therock_outputs.modes._fetch_pipeline import Destination, Outcome, fetch_all
from therock_outputs.modes._fetch_plan import (
    are_producers_done,
    gone_archives,
    lacking_of_stage,
    list_run,
    missing_error,
    read_request,
    stage_words,
    targets_without_archives,
    wanted_archives,
    what_is_lacking,
)
from therock_outputs.modes._other_places import explain_empty_run
from therock_outputs.modes._producers import record_names
from therock_outputs.modes._selectors import artifact_names, is_run_empty, some_of
from therock_outputs.report import Part, Report, error_of
from therock_outputs.run_target import single_root
from therock_outputs.text_safety import count, size, visible
from therock_outputs.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from _therock_utils.artifact_names import ArchiveName
    from _therock_utils.storage_backend import StorageBackend
    from therock_outputs.artifact_selection import Choice
    from therock_outputs.context import Context
    from therock_outputs.modes._fetch_plan import Request, RunContents, Wanted
    from therock_outputs.report import PartState

OUTPUTS: Final[Mapping[str, str]] = {
    "download_path": "output_dir, relative to the workspace.",
    "artifacts": "JSON list of the artifacts fetched, name_component_target, sorted.",
    "missing": "JSON list of what was asked for, or is needed by the stage, and is not in the run.",
}


@dataclass(frozen=True, slots=True)
class _Found:
    """What one look at the run found; `lacking` is what a wait is for, in words."""

    contents: RunContents
    choice: Choice
    lacking: str


def run(context: Context) -> Report:
    """Fetch what the settings ask for.

    Raises InputError for settings that cannot be used, NotFoundError for what is missing (`if_missing: error`) and for
    an empty run, LocalFileError where the disk is too small, and an OutputsError where the run cannot be listed: in all
    these cases nothing was downloaded. What fails for one archive is in the report.
    """
    request = read_request(context)
    output_dir = context.workspace.resolve(context.settings.output_dir, what="output_dir")
    if request.needed == ():
        notice = f"{stage_words(request.stages)} needs no artifacts of other stages: nothing to fetch"
        return _report(context, output_dir, Outcome(notices=(*request.notices, notice)))
    backend = context.open_backend()
    found = _find(context, request, backend)
    if found.contents.is_empty and is_run_empty(backend, single_root(context.target), context.cancel):
        raise explain_empty_run(context, backend)
    warnings = _warnings_of_missing(context, request, found)
    checked = check_digests(
        context, backend, wanted_archives(found.choice, found.contents, single_root(context.target)), found.contents
    )
    gone = tuple(_gone(context, archive) for archive in gone_archives(request, found.contents, found.choice))
    lacking = lacking_of_stage(request, found.choice)
    about_stage = _words_about_stage(request, found.choice, lacking)
    if context.settings.dry_run:
        outcome = _pretend(checked.wanted)
    else:
        lost = artifact_names(item.location.name for item in (*gone, *checked.failed))
        outcome = _fetch(context, backend, checked.wanted, output_dir, lost=lost)
    outcome = dataclasses.replace(
        outcome,
        failed=tuple(sorted((*gone, *checked.failed, *outcome.failed), key=lambda item: item.path)),
        warnings=(*warnings, *about_stage[0], *checked.warnings, *outcome.warnings),
        notices=(*request.notices, *about_stage[1], *outcome.notices),
    )
    return _report(context, output_dir, outcome, missing=(*found.choice.missing, *lacking))


def _gone(context: Context, archive: ArchiveName) -> FailedItem:
    error = NotFoundError(
        f"{archive} is gone",
        why=f"its digest {sidecar_name(str(archive))} is there, and the archive is not",
        remedy="Upload it again; mode verify says what else is gone.",
    )
    return FailedItem(str(archive), single_root(context.target).artifact(str(archive)), error)


def _words_about_stage(
    request: Request, choice: Choice, lacking: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Warnings and notices about what a stage needs and the run does not have: no failure, whatever it is."""
    warnings: list[str] = []
    notices: list[str] = []
    without = targets_without_archives(request, choice)
    if without:
        warnings.append(f"the run has no artifact for {some_of(map(visible, without))}, only generic ones")
    if lacking:
        words = (
            f"{stage_words(request.stages)} also needs {some_of(map(visible, lacking))}: the run has no archive of that"
        )
        (notices if choice.chosen else warnings).append(words)
    return tuple(warnings), tuple(notices)


def _find(context: Context, request: Request, backend: StorageBackend) -> _Found:
    """List the run and choose; again and again, for `wait_seconds`, while something is lacking.

    Of an artifact some archives may be there and others not yet, so where no record says that the producers are done,
    a wait ends only when two looks found the same.
    """
    root, cancel = single_root(context.target), context.cancel
    waits = context.settings.wait_seconds > 0
    seen: list[tuple[ArchiveName, ...]] = []

    def look() -> tuple[_Found, str]:
        contents = list_run(backend, root, cancel)
        choice = choose(request.selection, contents.archives)
        lacking = unsettled = ""
        if waits:
            records = record_names(backend, root, cancel=cancel) if request.needed is not None else ()
            lacking = what_is_lacking(request, contents, choice, records)
            if choice.chosen not in seen[-1:] and not are_producers_done(request, records):
                unsettled = "all is there, and no record says that no more comes"
            seen.append(choice.chosen)
        return _Found(contents, choice, lacking), lacking or unsettled

    return wait_for(look, wait_seconds=context.settings.wait_seconds, cancel=cancel, say=context.say)


def _warnings_of_missing(context: Context, request: Request, found: _Found) -> tuple[str, ...]:
    """What is not there, for a person. Raises NotFoundError where that is an error."""
    error = missing_error(request, found.contents, found.choice, found.lacking)
    if error is not None:
        if context.settings.if_missing == "error":
            raise error
        return (f"{error.what} ({error.why})",) if context.settings.if_missing == "warn" else ()
    if found.lacking:
        return (f"wait_seconds are over, and still lacking: {found.lacking}",)
    return ()


def _pretend(wanted: Iterable[Wanted]) -> Outcome:
    return Outcome(
        tuple(
            StoredObject(item.location, item.size_bytes, item.sha256, infer_content_type(item.name), "dry-run")
            for item in wanted
        )
    )


def _fetch(
    context: Context, backend: StorageBackend, wanted: Sequence[Wanted], output_dir: Path, *, lost: Sequence[str]
) -> Outcome:
    settings = context.settings
    cache_dir = context.workspace.resolve(settings.cache_dir, what="cache_dir") if settings.cache_dir else None
    destination = Destination(
        output_dir=output_dir,
        extract=settings.extract,
        cache=ArchiveCache(cache_dir) if cache_dir is not None else None,
        max_extracted_bytes=settings.max_extracted_bytes,
        lost=tuple(lost),
    )
    destination = dataclasses.replace(destination, no_room_in_cache=check_space(wanted, destination))
    root = single_root(context.target).root()
    total = size(sum(item.size_bytes for item in wanted))
    if wanted:
        place = (
            root.s3_uri
            if context.staging_dir is None
            else context.workspace.shown(root.local_path(context.staging_dir))
        )
        context.say(f"fetching {count(len(wanted), 'archive')} ({total}) from {place}")
    outcome = fetch_all(wanted, destination, backend, context.cancel)
    if outcome.cached_count:
        notice = f"{outcome.cached_count:,} of {count(len(wanted), 'archive')} came from cache_dir"
        outcome = dataclasses.replace(outcome, notices=(*outcome.notices, notice))
    return outcome


def _report(context: Context, output_dir: Path, outcome: Outcome, *, missing: Sequence[str] = ()) -> Report:
    settings, workspace = context.settings, context.workspace
    result = UploadResult(stored=outcome.fetched, failed=outcome.failed)
    names = artifact_names(item.location.name for item in outcome.fetched)
    cancelled = CancelledError(context.cancel.signal_number) if context.cancel.cancelled else None
    shown = workspace.shown(output_dir)
    warnings = (*context.warnings, *outcome.warnings)
    if not workspace.is_seen_by_job(output_dir, runner_temp=settings.runner_temp):
        warnings = (
            *warnings,
            f"output_dir {shown} is outside the workspace and RUNNER_TEMP: it is gone after this step",
        )
    return Report(
        mode=settings.mode,
        subject=", ".join(settings.stages) or settings.artifact_group,
        root=single_root(context.target),
        parts=(_part(result, shown, missing),),
        result=result,
        outputs={"download_path": shown, "artifacts": json.dumps(names), "missing": json.dumps(missing)},
        notices=(*context.target.notices, *outcome.notices),
        warnings=warnings,
        error=cancelled or error_of(result, verb="fetched"),
        dry_run=settings.dry_run,
        verb="fetched",
        made=outcome.made,
    )


def _part(result: UploadResult, shown: str, missing: Sequence[str]) -> Part:
    stored, failed = len(result.stored), len(result.failed)
    state: PartState = "stored"
    note = f"in {shown}"
    if failed:
        state = "partly" if stored else "failed"
        note = f"{failed:,} of {stored + failed:,} not fetched"
    elif not stored:
        state, note = "nothing", "the run has nothing of it" if missing else "nothing had to be fetched"
    return Part("Artifacts", state, stored, result.total_bytes, note=note)
