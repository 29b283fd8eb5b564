"""The report as step outputs, as a JSON document and as console lines. Pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from therock_outputs import VERSION
from therock_outputs.report import has_one_cause
from therock_outputs.text_safety import count, size

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from _therock_utils._errors import OutputsError
    from therock_outputs.report import Part, Report

MAX_OUTPUTS_BYTES: Final = 16_384
"""All outputs of a step together: later steps may put them into one environment variable."""

COMMON_OUTPUTS: Final = {
    "bucket": "Bucket of the run's outputs.",
    "prefix": "Key prefix of the run, with no trailing slash.",
    "s3_uri": "s3:// address of the run's folder.",
    "url": "The page that a person should open.",
    "file_count": "Objects stored, fetched, copied or found.",
    "total_bytes": "Their size.",
    "report": "JSON file, relative to the workspace, with every object: key, size_bytes, sha256, content type, url.",
    "truncated": "true when a list in an output was shortened; the report file has all.",
}

_SHOWN_LINES: Final = 20
_EMPTY: Final = {"[": "[]", "{": "{}"}
_CONDITIONAL: Final = {"stored": "would store", "fetched": "would fetch", "copied": "would copy"}


def render_outputs(report: Report, *, report_path: str) -> dict[str, str]:
    """All outputs of the step, common ones first, within MAX_OUTPUTS_BYTES in UTF-8.

    A value that would go past the bound is left empty, the longest first, and `truncated` is true. What is JSON stays
    JSON: an empty list or object.
    """
    outputs = {
        "bucket": report.root.bucket if report.root is not None else "",
        "prefix": report.root.prefix if report.root is not None else "",
        "s3_uri": report.root.root().s3_uri if report.root is not None else "",
        "url": report.page.https_url if report.page is not None else "",
        "file_count": str(len(report.result.stored)),
        "total_bytes": str(report.result.total_bytes),
        "report": report_path,
        "truncated": "false",
        **report.outputs,
    }
    while _outputs_bytes(outputs) > MAX_OUTPUTS_BYTES:
        longest = max(outputs, key=lambda name: (len(outputs[name].encode()), name))
        outputs |= {longest: _EMPTY.get(outputs[longest][:1], ""), "truncated": "true"}
    return outputs


def _outputs_bytes(outputs: Mapping[str, str]) -> int:
    return sum(len(name) + len(value.encode()) for name, value in outputs.items())


def render_document(report: Report) -> bytes:
    """The report as JSON in UTF-8, keys and lists in a fixed order: the report file, and the run's record."""
    result = report.result
    document: dict[str, Any] = {
        "format": "therock-outputs/report/1",
        "version": VERSION,
        "mode": str(report.mode),
        "subject": report.subject,
        "bucket": report.root.bucket if report.root is not None else "",
        "prefix": report.root.prefix if report.root is not None else "",
        "run_id": report.root.run_id if report.root is not None else "",
        "platform": report.root.platform if report.root is not None else "",
        "complete": report.complete,
        "dry_run": report.dry_run,
        "file_count": len(result.stored),
        "total_bytes": result.total_bytes,
        "objects": [
            {
                "key": item.location.relative_path,
                "size_bytes": item.size_bytes,
                "sha256": item.sha256,
                "content_type": item.content_type,
                "verified": item.verified,
                "url": item.location.https_url,
            }
            for item in result.stored
        ],
        "failed": [
            {"path": item.path, "key": item.location.relative_path, "error": str(item.error)} for item in result.failed
        ],
        "skipped": [{"path": item.path, "reason": item.reason} for item in result.skipped],
        "conflicts": [
            {
                "key": item.location.relative_path,
                "state": item.state,
                "origin": item.origin,
                "action": item.action,
            }
            for item in result.conflicts
        ],
        "tables": [
            {"title": table.title, "columns": table.columns, "rows": table.rows, "more": table.more}
            for table in report.tables
        ],
        "outputs": dict(report.outputs),
        "snippets": [
            {"title": snippet.title, "language": snippet.language, "lines": snippet.lines}
            for snippet in report.snippets
        ],
        "notices": list(report.notices),
        "warnings": list(report.warnings),
        "error": str(report.error) if report.error is not None else "",
    }
    text = json.dumps(document, indent=1, ensure_ascii=False)
    return text.encode("utf-8", errors="backslashreplace") + b"\n"


def render_console(report: Report) -> Iterable[str]:
    """A few lines for the log. Text from outside is made harmless where lines are printed."""
    result = report.result
    staged = report.staging_dir is not None and report.verb in {"stored", "copied"}
    if report.root is not None and (result.stored or result.failed):
        verb = _CONDITIONAL.get(report.verb, report.verb) if report.dry_run else "staged" if staged else report.verb
        number, place = count(len(result.stored), "object"), report.root.root().s3_uri
        yield f"{verb} {number} ({size(result.total_bytes)}) under {place}"
    if report.staging_dir is not None and staged and not report.dry_run:
        yield f"staged, not uploaded: {report.staging_dir}"
    for part in report.parts:
        yield from _part_lines(report, part)
    for snippet in report.snippets:
        yield f"  {snippet.title}"
        yield from (f"    {line}" for line in snippet.lines)
    for table in report.tables:
        yield from _first_few(table.title, ["  ".join(row) for row in table.rows], more=table.more)
    yield from _first_few("left out", [f"{item.path}: {item.reason}" for item in result.skipped])
    told_once = has_one_cause(result)  # the error itself follows
    yield from _first_few(
        f"NOT {report.verb}",
        [item.path if told_once else f"{item.path}: {_reason(item.error)}" for item in result.failed],
    )


def _part_lines(report: Report, part: Part) -> Iterable[str]:
    words = f"  {part.what}: {_state_words(report, part)}"
    if part.file_count:
        words += f", {count(part.file_count, 'file')}, {size(part.total_bytes)}"
    yield words + (f" ({part.note})" if part.note else "")
    if part.location is None or report.dry_run:
        return
    if report.staging_dir is not None:
        yield f"    {part.staged_path(report.staging_dir)}"
    else:
        yield f"    {part.location.s3_uri if part.is_folder else part.location.https_url}"


def _reason(error: OutputsError) -> str:
    return f"{error.what} ({error.why})" if error.why else error.what


def _state_words(report: Report, part: Part) -> str:
    if part.state not in {"stored", "partly"}:
        return part.state
    words = report.verb if part.state == "stored" else f"{report.verb} in part" if report.dry_run else part.state
    return f"would be {words}" if report.dry_run else words


def _first_few(title: str, lines: list[str], *, more: int = 0) -> Iterable[str]:
    yield from (f"  {title} {line}" for line in lines[:_SHOWN_LINES])
    more += max(0, len(lines) - _SHOWN_LINES)
    if more:
        yield f"  {title}: {more:,} more"
