"""Mode copy-artifacts: artifacts of another run become this run's, inside the storage: no byte passes through here."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import TYPE_CHECKING, Final

from _therock_utils._errors import CancelledError, InputError, NotFoundError
from therock_outputs.modes._copy_plan import (
    RECORD_MODES,
    check_roots,
    choose_archives,
    missing_error,
    names_stage,
    nothing_error,
    read_request,
    stages_by_records,
    stages_by_topology,
)
from therock_outputs.modes._copying import Copied, copy_archives
from therock_outputs.modes._fetch_plan import list_run
from therock_outputs.modes._other_places import explain_empty_run
from therock_outputs.modes._pages import server_writes_pages
from therock_outputs.modes._selectors import DEFAULT_TOPOLOGY, artifact_names, is_run_empty, some_of
from therock_outputs.modes._upload import Uploader, conflict_warnings, leave_record
from therock_outputs.report import Part, Report, error_of
from therock_outputs.rewording import reworded
from therock_outputs.run_records import read_records
from therock_outputs.run_target import resolve_source, single_root, source_settings
from therock_outputs.text_safety import count, visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from _therock_utils.storage_backend import StorageBackend
    from _therock_utils.storage_location import StorageLocation
    from therock_outputs.context import Context
    from therock_outputs.modes._copy_plan import Chosen, Request, StageArchives
    from therock_outputs.modes._fetch_plan import RunContents
    from therock_outputs.report import PartState
    from therock_outputs.run_records import RunRecords
    from therock_outputs.run_target import RunTarget

OUTPUTS: Final[Mapping[str, str]] = {
    "artifacts": "JSON list of the artifacts that are stored now, name_component_target, sorted.",
    "per_stage": "JSON: each stage asked for to the list of its artifacts among them; {} where none was asked for.",
}

_SUBJECT: Final = "artifacts"
_SHOWN_RECORDS: Final = 5
_INPUTS_OF_SOURCE: Final = re.compile(r"\b(run_id|repository|release_type|bucket)\b")


def run(context: Context) -> Report:
    """Copy what the settings ask for.

    Raises InputError for settings that cannot be used, NotFoundError for what is missing (`if_missing: error`), for
    nothing to copy and for an empty source run, and an OutputsError where a run cannot be listed: in all these cases
    nothing was copied. What fails for one archive is in the report. Memory: one entry an object of both runs, and what
    reading records and copying take.
    """
    destination = single_root(context.target)
    request = read_request(context, platform=destination.platform)
    source_target = resolve_source(context.settings, context.cancel, say=context.say)
    source = single_root(source_target)
    check_roots(source, destination, is_staged=context.staging_dir is not None)
    uploader = Uploader(context)
    backend = uploader.backend
    contents = list_run(backend, source, context.cancel)
    if contents.is_empty and is_run_empty(backend, source, context.cancel):
        raise _explain_empty_source(context, backend, source_target)
    stages, warnings = _stages(context, backend, request, contents, source_target)
    chosen = choose_archives(request, contents, stages)
    warnings += _warnings_of_missing(context, chosen, contents)
    copied = Copied()
    if chosen.archives:
        copied = copy_archives(context, backend, chosen.archives, contents, source=source, destination=destination)
    copied = Copied(
        copied.result,
        copied.sound,
        (*request.notices, *chosen.notices, *copied.notices),
        (*warnings, *copied.warnings),
    )
    return leave_record(uploader, _report(context, source_target, chosen, copied))


def _explain_empty_source(context: Context, backend: StorageBackend, source: RunTarget) -> NotFoundError:
    """Where else the source is, in the words of this mode's inputs."""
    as_source = dataclasses.replace(context, settings=source_settings(context.settings), target=source)
    error = explain_empty_run(as_source, backend)
    remedy = _INPUTS_OF_SOURCE.sub(r"source_\1", error.remedy).replace(" (wait_seconds waits)", "")
    return NotFoundError(error.what, why=error.why, remedy=remedy)


def _stages(
    context: Context, backend: StorageBackend, request: Request, contents: RunContents, source: RunTarget
) -> tuple[tuple[StageArchives, ...], tuple[str, ...]]:
    """The archives of each stage asked for: by the topology, else by the source run's records; and warnings of those.

    Raises InputError where there is neither, and the error of a record that cannot be used where no other one names a
    stage.
    """
    root = single_root(source)
    if request.topology is not None:
        found = stages_by_topology(request.topology, request.stages, contents.archives, platform=root.platform)
        return found, ()
    if not request.stages:
        return (), ()
    records = read_records(backend, root, modes=RECORD_MODES, cancel=context.cancel)
    _check_records(records, request.stages)
    incomplete = [record.name for record in records.records if not record.complete]
    warnings = [f"these records say that not all was stored: {some_of(incomplete)}"] if incomplete else []
    found = stages_by_records(records.records, request.stages, contents.archives, prefix=root.prefix)
    return found, (*warnings, *_warnings_of_records(records, request.stages))


def _check_records(records: RunRecords, stages: Sequence[str]) -> None:
    """Raise what `_stages` raises."""
    unknown = [stage for stage in stages if not any(names_stage(record, stage) for record in records.records)]
    what = f"it is not known which artifacts stage {', '.join(map(visible, unknown))} makes"
    remedy = f"Set topology to the build's {DEFAULT_TOPOLOGY}, or choose by artifacts, families or targets."
    if unknown and records.failed:
        item, more = records.failed[0], len(records.failed) - 1
        raise reworded(
            item.error,
            what,
            why=f"no record that can be used names it, and the record {visible(item.path)} cannot be used "
            f"({item.error.why or item.error.what})" + (f", nor can {more:,} more" if more else ""),
            remedy=f"{remedy} Or remove the record, and run the step that it is named after again.",
        )
    if not records.records:
        raise InputError(
            what,
            why=f"there is no topology {DEFAULT_TOPOLOGY} in the workspace, and the source run has no record of "
            f"{' or '.join(RECORD_MODES)}",
            remedy=remedy,
        )


def _warnings_of_records(records: RunRecords, stages: Sequence[str]) -> Iterable[str]:
    """One warning a record that cannot be used, the first few."""
    lists = f"the list{'' if len(stages) == 1 else 's'} of stage {some_of(map(visible, stages))} may lack archives"
    for item in records.failed[:_SHOWN_RECORDS]:
        yield f"the record {visible(item.path)} cannot be used ({item.error.why or item.error.what}): {lists}"
    more = len(records.failed) - _SHOWN_RECORDS
    if more > 0:
        yield f"{count(more, 'more record')} cannot be used: {lists}"


def _warnings_of_missing(context: Context, chosen: Chosen, contents: RunContents) -> tuple[str, ...]:
    """What is not there, for a person. Raises NotFoundError where that is an error."""
    settings = context.settings
    warnings: list[str] = []
    for error, told in (
        (missing_error(chosen, contents), settings.if_missing),
        (nothing_error(chosen, contents), settings.if_no_files_found or "error"),
    ):
        if error is not None and told == "error":
            raise error
        if error is not None and told == "warn":
            warnings.append(f"{error.what} ({error.why})")
    return tuple(warnings)


def _report(context: Context, source: RunTarget, chosen: Chosen, copied: Copied) -> Report:
    settings, root, target = context.settings, single_root(context.target), context.target
    stored = sorted(copied.result.stored, key=lambda item: item.location.relative_path.encode())
    result = dataclasses.replace(copied.result, stored=tuple(stored))
    per_stage = {
        stage: artifact_names(name for name in names if name in copied.sound)
        for stage, names in chosen.per_stage.items()
    }
    cancelled = CancelledError(context.cancel.signal_number) if context.cancel.cancelled else None
    part = _part(context, source, chosen, copied)
    return Report(
        mode=settings.mode,
        subject=",".join(dict.fromkeys(settings.stages)) or _SUBJECT,
        root=root,
        parts=(part,),
        result=result,
        outputs={"artifacts": json.dumps(artifact_names(copied.sound)), "per_stage": json.dumps(per_stage)},
        page=None if settings.dry_run or part.is_folder else part.location,
        notices=(*dict.fromkeys((*target.notices, *source.notices)), *copied.notices),
        warnings=(*context.warnings, *copied.warnings, *conflict_warnings(result), *result.notices),
        error=cancelled or error_of(result, verb="copied"),
        staging_dir=context.staging_dir,
        dry_run=settings.dry_run,
        verb="copied",
    )


def _place(context: Context, location: StorageLocation) -> str:
    """Where a folder is, in words: in a staging folder it is no object of a bucket."""
    if context.staging_dir is None:
        return location.s3_uri
    return context.workspace.shown(location.local_path(context.staging_dir))


def _part(context: Context, source: RunTarget, chosen: Chosen, copied: Copied) -> Part:
    root, result = single_root(context.target), copied.result
    number, failures = len(result.stored), len(result.failed)
    state: PartState = "stored"
    note = f"from {_place(context, single_root(source).root())}"
    if failures:
        state = "partly" if number else "failed"
        note = f"{failures:,} of {failures + number:,} not copied"
    elif not chosen.archives:
        state, note = "nothing", "the selectors leave no archive to copy"
    elif not number:
        state, note = "left-out", "nothing had to be copied"
    by_server = bool(number) and server_writes_pages(context, root)
    if by_server:
        note += "; the server makes this page"
    page = root.artifact_index() if by_server else None
    is_folder = bool(number) and bool(
        context.settings.staging_dir
    )  # it is told where they lie; mode index makes a page
    location = root.root() if is_folder else page
    return Part(
        "Artifacts",
        state,
        number,
        result.total_bytes,
        location,
        note=note,
        by_server=by_server,
        is_folder=is_folder,
    )
