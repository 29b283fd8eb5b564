"""Mode find-artifacts: the newest run of a commit or a branch, or the one run, that holds what is asked for."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from _therock_utils._transfer_types import StoredObject, UploadResult
from _therock_utils.content_types import infer_content_type
from _therock_utils.s3_buckets import parse_release_type
from therock_outputs.modes._find_runs import RunSource
from therock_outputs.modes._find_search import RunSearch
from therock_outputs.modes._find_wants import read_wants, some_words
from therock_outputs.modes._pages import server_writes_pages
from therock_outputs.modes._selectors import check_staging_dir
from therock_outputs.report import Part, Report, Table
from therock_outputs.text_safety import count

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from _therock_utils.storage_location import StorageLocation
    from therock_outputs.context import Context
    from therock_outputs.modes._find_search import Findings, Holding, LookedAt

OUTPUTS: Final[Mapping[str, str]] = {
    "found": "true when a run, or the runs of one commit together, hold all that is asked for; else false.",
    "found_run_id": "The newest of these runs; empty where there is none.",
    "runs": "JSON list of these runs, newest first: run_id, repository, head_sha, head_branch, status, conclusion, "
    "attempt, created_at, html_url, bucket, prefix, s3_uri, artifact_index_url, groups (those it holds), missing (what "
    "another run holds), archive_count, archives.",
}

MAX_RUNS_BYTES: Final = 12_000
"""Length of the output `runs` from which on its lists of archives are cut: all outputs must fit into 16,384 bytes."""

_DEFAULT_SERVER_URL: Final = "https://github.com"
_PLAIN_URL: Final = re.compile(r"[A-Za-z0-9:/._\[\]-]+")  # neither query nor fragment nor user
_SHOWN_SHA_CHARACTERS: Final = 12
_SHOWN_UNREADABLE: Final = 20


def run(context: Context) -> Report:
    """Find. That nothing is found is no failure.

    Raises InputError for settings that cannot be used, NotFoundError for a short commit or a staging folder that is
    none, and GitHubError, CredentialsError or another OutputsError where it cannot be told whether a run holds what is
    asked for.
    """
    wants, notices = read_wants(context.settings)
    source = RunSource(context)
    if not context.settings.wait_seconds:
        check_staging_dir(context)
    search = RunSearch(context, source, wants, context.open_backend())
    findings = search.find()
    if not findings.holdings:
        check_staging_dir(context)
    notices = (*notices, *source.notices, *_notices(context, source, findings))
    return _report(context, source, search, findings, notices)


def _report(
    context: Context, source: RunSource, search: RunSearch, findings: Findings, notices: tuple[str, ...]
) -> Report:
    settings, holdings = context.settings, findings.holdings
    runs, is_cut = _runs_output(context, search, holdings)
    outputs = {
        "found": str(bool(holdings)).lower(),
        "found_run_id": holdings[0].run.run_id if holdings else "",
        "runs": runs,
    }
    if is_cut:
        outputs["truncated"] = "true"
    return Report(
        mode=settings.mode,
        subject=source.subject,
        root=holdings[0].run.root if holdings else None,
        parts=tuple(_part(context, search, holding) for holding in holdings),
        result=UploadResult(stored=tuple(item for holding in holdings for item in _objects(holding))),
        outputs=outputs,
        page=_page(context, search, holdings[0]) if holdings else None,
        notices=notices,
        warnings=(*context.warnings, *source.warnings),
        verb="found",
        tables=(_table(search, findings),),
    )


def _notices(context: Context, source: RunSource, findings: Findings) -> Iterator[str]:
    settings = context.settings
    in_another_run = bool(settings.github_run_id) and settings.github_run_id != settings.run_id
    if in_another_run and source.asks_github and settings.release_type_environment and not settings.release_type:
        release_type = parse_release_type(settings.release_type_environment)
        yield (
            f"release_type {release_type} comes from RELEASE_TYPE of this job, and the runs are others: set the input "
            "release_type if their outputs are elsewhere"
        )
    for run in findings.unreadable[:_SHOWN_UNREADABLE]:
        yield f"run {run.run_id} is left out: {run.why}"
    if len(findings.unreadable) > _SHOWN_UNREADABLE:
        yield f"{len(findings.unreadable) - _SHOWN_UNREADABLE:,} more runs are left out: their records cannot be read"
    if not findings.holdings:
        yield f"not found: {findings.lacking} ({count(findings.looked_at_count, 'run')} looked at)"
    elif len(findings.holdings) > 1:
        yield (
            f"{len(findings.holdings)} runs of the commit hold it together: the output runs says which holds what "
            "(require_single_run: true wants it from one)"
        )


def _objects(holding: Holding) -> Iterator[StoredObject]:
    for name, size_bytes in zip(holding.archives, holding.sizes_bytes, strict=True):
        yield StoredObject(holding.run.root.artifact(name), size_bytes, "", infer_content_type(name), "size-only")


def _runs_output(context: Context, search: RunSearch, holdings: Sequence[Holding]) -> tuple[str, bool]:
    """The output `runs`, and whether lists of archives were cut in it."""
    runs = [_run_facts(context, search, holding) for holding in holdings]
    most = shown = max((len(holding.archives) for holding in holdings), default=0)
    while True:
        for facts, holding in zip(runs, holdings, strict=True):
            facts["archives"] = holding.archives[:shown]
        text = json.dumps(runs, separators=(",", ":"))
        if len(text) <= MAX_RUNS_BYTES or not shown:
            return text, shown < most
        shown //= 2


def _run_facts(context: Context, search: RunSearch, holding: Holding) -> dict[str, Any]:
    found, root = holding.run, holding.run.root
    page = _page(context, search, holding)
    return {
        "run_id": found.run_id,
        "repository": found.repository,
        "head_sha": found.head_sha,
        "head_branch": found.head_branch,
        "status": found.status,
        "conclusion": found.conclusion,
        "attempt": found.attempt,
        "created_at": found.created_at,
        "html_url": run_url(context.settings.github_server_url, found.repository, found.run_id),
        "bucket": root.bucket,
        "prefix": root.prefix,
        "s3_uri": root.root().s3_uri,
        "artifact_index_url": page.https_url if page is not None else "",
        "groups": search.words(holding.met, targets_only=True),
        "missing": search.lacks(holding.met),
        "archive_count": len(holding.archives),
    }


def run_url(server_url: str, repository: str, run_id: str) -> str:
    """The run's page on GitHub's `server_url` (GITHUB_SERVER_URL, "" for github.com), or "" where there can be none.

    Made of names that are checked: no address that a server answered is passed on.
    """
    server_url = (server_url or _DEFAULT_SERVER_URL).rstrip("/")
    try:
        parts = urlsplit(server_url)
        is_plain = parts.scheme in {"http", "https"} and bool(parts.hostname)
    except ValueError:
        is_plain = False
    is_plain = is_plain and _PLAIN_URL.fullmatch(server_url) is not None
    return f"{server_url}/{repository}/actions/runs/{run_id}" if is_plain and run_id.isdigit() else ""


def _page(context: Context, search: RunSearch, holding: Holding) -> StorageLocation | None:
    """The page of the run's artifacts: of a group that it holds, or of all; None where there is none."""
    root, groups = holding.run.root, context.settings.artifact_groups
    held = search.words(holding.met, targets_only=True)
    pages = [root.artifact_index(group) for group in groups if group in held]
    stored = next((page for page in (*pages, root.artifact_index()) if page.name in holding.pages), None)
    if stored is None and server_writes_pages(context, root):
        return root.artifact_index()
    return stored


def _part(context: Context, search: RunSearch, holding: Holding) -> Part:
    root, page = holding.run.root, _page(context, search, holding)
    lacks = search.lacks(holding.met)
    notes = [f"without {some_words(lacks)}"] if lacks else []
    location: StorageLocation | None = page or root.root()
    if context.staging_dir is not None:
        notes.insert(0, f"in {context.workspace.shown(root.root().local_path(context.staging_dir))}")
        location = None
    return Part(
        f"Run {holding.run.run_id}",
        "stored",
        len(holding.archives),
        sum(holding.sizes_bytes),
        location,
        link_text=root.prefix,
        note="; ".join(notes),
        by_server=page is not None and page.name not in holding.pages,
        is_folder=page is None,
    )


def _table(search: RunSearch, findings: Findings) -> Table:
    rows = tuple(_row(search, one) for one in findings.looked_at)
    return Table(
        "Runs looked at",
        ("Run", "Commit", "Created", "Holds", "Lacks"),
        rows,
        more=findings.looked_at_count - len(rows),
    )


def _row(search: RunSearch, one: LookedAt) -> tuple[str, ...]:
    if one.passed_over:
        holds, lacks = "", f"passed over: {one.passed_over}"
    else:
        holds, lacks = count(one.archive_count, "archive"), some_words(search.lacks(one.met))
        if one.met:
            holds += f": {some_words(search.words(one.met))}"
    return one.run.run_id, one.run.head_sha[:_SHOWN_SHA_CHARACTERS], one.run.created_at, holds, lacks
