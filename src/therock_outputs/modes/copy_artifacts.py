"""Mode copy-artifacts: artifacts of another run become this run's, inside the storage: no byte passes through here."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import TYPE_CHECKING, Final

from _therock_utils._errors import CancelledError, InputError, NotFoundError
from _therock_utils._transfer_types import UploadResult
from therock_outputs.modes._copy_plan import (
    RECORD_MODES,
    check_roots,
    choose_archives,
    missing_error,
    nothing_error,
    read_request,
    stages_by_records,
    stages_by_topology,
)
from therock_outputs.modes._copying import Copied, copy_archives, list_run
from therock_outputs.modes._other_places import explain_empty_run
from therock_outputs.modes._pages import server_writes_pages
from therock_outputs.modes._selectors import DEFAULT_TOPOLOGY, is_run_empty, some_of
from therock_outputs.modes._upload import Uploader, conflict_warnings, leave_record
from therock_outputs.report import Part, Report, error_of
from therock_outputs.run_records import read_records
from therock_outputs.run_target import resolve_source, single_root, source_settings
from therock_outputs.text_safety import visible

if TYPE_CHECKING:
    from collections.abc import Mapping

    from _therock_utils.storage_backend import StorageBackend
    from therock_outputs.context import Context
    from therock_outputs.modes._copy_plan import Chosen, Request, StageArchives
    from therock_outputs.modes._fetch_plan import RunContents
    from therock_outputs.report import PartState
    from therock_outputs.run_target import RunTarget

OUTPUTS: Final[Mapping[str, str]] = {
    "artifacts": "JSON list of the archives that are stored now, with the digests that the source has, sorted.",
    "per_stage": "JSON: each stage asked for to the list of its archives among them; {} where none was asked for.",
}

_SUBJECT: Final = "artifacts"
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
    contents = list_run(context, backend, source)
    if contents.is_empty and is_run_empty(backend, source, context.cancel):
        raise _explain_empty_source(context, backend, source_target)
    stages, found = _stages(context, backend, request, contents, source_target)
    chosen = choose_archives(request, contents, stages)
    found = dataclasses.replace(found, warnings=(*found.warnings, *_warnings_of_missing(context, chosen, contents)))
    copied = Copied()
    if chosen.archives:
        copied = copy_archives(context, backend, chosen.archives, contents, source=source, destination=destination)
    copied = Copied(
        found.result + copied.result,
        copied.sound,
        (*request.notices, *chosen.notices, *copied.notices),
        (*found.warnings, *copied.warnings),
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
) -> tuple[tuple[StageArchives, ...], Copied]:
    """The archives of each stage asked for: by the topology, else by the source run's records, which may have faults.

    Raises InputError where there is neither.
    """
    root = single_root(source)
    if request.topology is not None:
        found = stages_by_topology(request.topology, request.stages, contents.archives, platform=root.platform)
        return found, Copied()
    if not request.stages:
        return (), Copied()
    records = read_records(backend, root, modes=RECORD_MODES, cancel=context.cancel)
    if not records.records:
        if records.failed:
            raise records.failed[0].error
        raise InputError(
            f"it is not known which artifacts stage {', '.join(map(visible, request.stages))} makes",
            why=f"there is no topology {DEFAULT_TOPOLOGY} in the workspace, and the source run has no record of "
            f"{' or '.join(RECORD_MODES)}",
            remedy="Set topology to the build's BUILD_TOPOLOGY.toml, or choose by artifacts, families or targets.",
        )
    incomplete = [record.name for record in records.records if not record.complete]
    warnings = (f"these records say that not all was stored: {some_of(incomplete)}",) if incomplete else ()
    found = stages_by_records(records.records, request.stages, contents.archives, prefix=root.prefix)
    return found, Copied(UploadResult(failed=records.failed), warnings=warnings)


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
    per_stage = {stage: [name for name in names if name in copied.sound] for stage, names in chosen.per_stage.items()}
    cancelled = CancelledError(context.cancel.signal_number) if context.cancel.cancelled else None
    part = _part(context, source, chosen, copied)
    return Report(
        mode=settings.mode,
        subject=",".join(dict.fromkeys(settings.stages)) or _SUBJECT,
        root=root,
        parts=(part,),
        result=result,
        outputs={"artifacts": json.dumps(sorted(copied.sound)), "per_stage": json.dumps(per_stage)},
        page=None if settings.dry_run else part.location,
        notices=(*dict.fromkeys((*target.notices, *source.notices)), *copied.notices),
        warnings=(*context.warnings, *copied.warnings, *conflict_warnings(result), *result.notices),
        error=cancelled or error_of(result, verb="copied"),
        staging_dir=context.staging_dir,
        dry_run=settings.dry_run,
        verb="copied",
    )


def _part(context: Context, source: RunTarget, chosen: Chosen, copied: Copied) -> Part:
    root, result = single_root(context.target), copied.result
    number, failures = len(result.stored), len(result.failed)
    state: PartState = "stored"
    note = f"from {single_root(source).root().s3_uri}"
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
    return Part("Artifacts", state, number, result.total_bytes, page, note=note, by_server=by_server)
