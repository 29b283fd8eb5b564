"""The report as Markdown for the job summary: the failed part on top, then a table, then the details. Pure."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from therock_outputs.report import has_one_cause
from therock_outputs.text_safety import code, code_block, count, link, prose, size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from _therock_utils._errors import OutputsError
    from therock_outputs.paths import Workspace
    from therock_outputs.report import Part, Report, Snippet, Table

_Row = TypeVar("_Row")
_SHOWN_ROWS: Final = 50
_CUT_NOTE: Final = "\n\n(cut: the report file has the rest)\n"
_STATES: Final = {
    "stored": "",
    "partly": "incomplete",
    "failed": "failed",
    "nothing": "nothing found",
    "left-out": "left out",
    "located": "",
}
_TROUBLE: Final = ("failed", "partly")


def render_summary(report: Report, *, workspace: Workspace, room_bytes: int) -> str:
    """Markdown of at most `room_bytes` bytes in UTF-8; what does not fit is said, and the report file has it all.

    The details go first, all of them: half a folded list would take in what follows it.
    """
    head = "\n".join(_head(report, workspace))
    details = "\n".join(_details(report, workspace))
    text = f"{head}\n{details}" if details else head
    if len(text.encode()) <= room_bytes:
        return text
    if report.snippets and len(f"{head}{_CUT_NOTE}".encode()) > room_bytes:
        # Half a block of code would take in what follows, too.
        head = "\n".join(_head(dataclasses.replace(report, snippets=()), workspace))
    return _cut(head, room_bytes)


def render_failure(error: OutputsError) -> str:
    """Markdown for an error that left no report."""
    return "\n".join(("### ❌ therock-outputs", "", *_quoted_error(error)))


def _quoted_error(error: OutputsError) -> Iterable[str]:
    yield f"> **{prose(error.what)}**"
    for line in (error.why, error.remedy):
        if line:
            yield ">"
            yield f"> {prose(line)}"


def _head(report: Report, workspace: Workspace) -> Iterable[str]:
    mark = "❌" if report.error is not None else "⚠️" if report.warnings or report.result.skipped else "✅"
    subject = f" · {code(report.subject)}" if report.subject else ""
    yield f"### {mark} {report.mode}{subject}"
    yield ""
    if report.error is not None:
        yield from _quoted_error(report.error)
        yield ""
    if report.staging_dir is not None and report.verb in {"stored", "copied"} and not report.dry_run:
        yield f"Staged, not uploaded: {code(workspace.shown(report.staging_dir))}"
        yield ""
    if report.dry_run:
        yield f"Dry run: nothing was {report.verb}."
        yield ""
    for snippet in report.snippets:
        yield from _copied(snippet)
    if report.parts:
        yield from _table(report, workspace)
        yield ""
    for warning in report.warnings[:_SHOWN_ROWS]:
        yield f"- ⚠️ {prose(warning)}"
    if len(report.warnings) > _SHOWN_ROWS:
        yield f"- ⚠️ {count(len(report.warnings) - _SHOWN_ROWS, 'more warning')} in the report file"
    for notice in report.notices:
        yield f"- {prose(notice)}"


def _copied(snippet: Snippet) -> Iterable[str]:
    yield prose(snippet.title)
    yield ""
    yield code_block(snippet.lines, snippet.language)
    yield ""


def _table(report: Report, workspace: Workspace) -> Iterable[str]:
    located = all(part.state == "located" for part in report.parts)
    yield "| What | Link |" if located else "| What | Files | Size | Link |"
    yield "|---|---|" if located else "|---|--:|--:|---|"
    for part in sorted(report.parts, key=lambda part: part.state not in _TROUBLE):  # stable: trouble first
        cells = [prose(part.what)]
        if not located:
            cells += [
                f"{part.file_count:,}" if part.file_count else "",
                size(part.total_bytes) if part.file_count else "",
            ]
        cells.append(_link_cell(report, part, workspace))
        yield f"| {' | '.join(cells)} |"


def _link_cell(report: Report, part: Part, workspace: Workspace) -> str:
    cells = []
    if part.location is not None:
        text = part.link_text or part.location.name
        path = part.staged_path(report.staging_dir) if report.staging_dir is not None else None
        if path is not None and not report.dry_run:
            cells.append(code(workspace.shown(path)))
        else:  # neither what a dry run did not store nor a folder can be opened
            cells.append(code(text) if report.dry_run or part.is_folder else link(text, part.location.https_url))
    state = f"would be {report.verb}" if report.dry_run and part.state == "stored" else _STATES[part.state]
    words = ": ".join(word for word in (state, part.note) if word)
    if words:
        cells.append(f"**{prose(words)}**" if part.state in _TROUBLE else prose(words))
    return " · ".join(cells)


def _details(report: Report, workspace: Workspace) -> Iterable[str]:
    told_once = has_one_cause(report.result)  # it stands on top
    for table in report.tables:
        yield from _rows(table)
    yield from _list(
        f"Not {report.verb}",
        report.result.failed,
        lambda item: code(workspace.shown(Path(item.path))) + ("" if told_once else f": {prose(item.error.what)}"),
    )
    yield from _list(
        "Conflicts",
        report.result.conflicts,
        lambda item: (
            f"{code(item.location.relative_path)}: {item.action}"
            + (f", written by {code(item.origin)}" if item.origin else "")
            + (" (an earlier attempt of this job)" if item.state == "rerun" else "")
        ),
    )
    yield from _list("Left out", report.result.skipped, lambda item: f"{code(item.path)}: {prose(item.reason)}")


def _rows(table: Table) -> Iterable[str]:
    if not table.rows:
        return
    yield ""
    yield f"<details><summary>{prose(table.title)}: {len(table.rows) + table.more:,}</summary>"
    yield ""
    yield f"| {' | '.join(prose(column) for column in table.columns)} |"
    yield f"|{'---|' * len(table.columns)}"
    for first, *others in table.rows[:_SHOWN_ROWS]:
        yield f"| {' | '.join((code(first), *(prose(cell) for cell in others)))} |"
    more = table.more + max(0, len(table.rows) - _SHOWN_ROWS)
    if more:
        yield ""
        yield f"and {more:,} more"
    yield ""
    yield "</details>"


def _list(title: str, rows: tuple[_Row, ...], line: Callable[[_Row], str]) -> Iterable[str]:
    if not rows:
        return
    yield ""
    yield f"<details><summary>{title}: {len(rows):,}</summary>"
    yield ""
    for row in rows[:_SHOWN_ROWS]:
        yield f"- {line(row)}"
    if len(rows) > _SHOWN_ROWS:
        yield f"- and {len(rows) - _SHOWN_ROWS:,} more in the report file"
    yield ""
    yield "</details>"


def _cut(text: str, room_bytes: int) -> str:
    room_bytes -= len(_CUT_NOTE.encode())
    if room_bytes < 0:
        return ""
    kept = f"{text}\n".encode()[: room_bytes + 1].decode("utf-8", errors="ignore")
    return kept[: kept.rfind("\n")] + _CUT_NOTE if "\n" in kept else _CUT_NOTE.lstrip("\n")
