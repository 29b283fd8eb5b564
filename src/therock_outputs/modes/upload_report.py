"""Mode upload-report: an HTML report with all that its pages need, and a page to open."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from _therock_utils._errors import IllegalLocationError, InputError
from _therock_utils._keys import check_segment, key_fault, quote
from _therock_utils._transfer_types import UploadItem
from _therock_utils.workflow_outputs import INDEX_NAME
from therock_outputs.modes._build_tree import if_missing
from therock_outputs.modes._pages import FolderPage, is_left_to_server, store_page
from therock_outputs.modes._plan import PlannedPart, planned
from therock_outputs.modes._source import SourceFolder
from therock_outputs.modes._upload import Uploader, upload_in_steps
from therock_outputs.report import Snippet
from therock_outputs.run_target import single_root
from therock_outputs.shell_lines import language, quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from collections.abc import Set as AbstractSet

    from _therock_utils.storage_location import StorageLocation
    from _therock_utils.workflow_outputs import WorkflowOutputRoot
    from therock_outputs.context import Context
    from therock_outputs.report import Report

OUTPUTS: Final[Mapping[str, str]] = {
    "report_url": "Page to open: the HTML file that `path` names; of a folder its own page, or the one that was made "
    "(by the server where it makes pages and `index` is auto), or else its only HTML file. Empty where there is none.",
}

_WHAT: Final = "Report"
_HTML: Final = (".html", ".htm")
_LOGS: Final = "logs"
_PACKAGING: Final = "packaging"
_PORT: Final = 8000
_SUBFOLDER_REMEDY: Final = "Give the folder below logs/, e.g. manifest-diff or tests/gfx1151."


def run(context: Context) -> Report:
    """Store. Raises InputError for settings that this mode cannot use."""
    settings = context.settings
    root = single_root(context.target)
    folder = _destination(root, settings.subfolder)
    own_page = folder.child(_page_name(settings.index_file))
    source = SourceFolder.find(context, file_extensions=_HTML)
    part = planned(_WHAT, folder, lambda: _plan(context, folder, source))
    brings_page = part.brings(own_page)
    wants_page = not brings_page and not source.file_name  # one file is its own page
    by_server = wants_page and is_left_to_server(context, root)
    writes_page = wants_page and not by_server and settings.index != "none"
    only_html = _only_html(part)
    page = folder.child(INDEX_NAME) if by_server else own_page
    if brings_page or by_server or writes_page:
        part = part.with_page(page, by_server=by_server)
    elif only_html is not None:
        part = part.with_page(only_html)
    if part.items and not brings_page and settings.index_file != INDEX_NAME:
        part = dataclasses.replace(part, notices=(*part.notices, *_notices(context, part, is_made=writes_page)))

    def store(uploader: Uploader) -> None:
        uploader.store(part.items)
        if writes_page and part.is_stored_in_part(uploader.result):
            store_page(uploader, FolderPage(own_page, f"Report: {settings.subfolder}"))

    def opened(opens: AbstractSet[StorageLocation]) -> StorageLocation | None:
        is_stored = any(item.destination in opens for item in part.items)
        if page in opens or (by_server and is_stored):
            return page
        return only_html if only_html in opens else None

    def outputs(opens: AbstractSet[StorageLocation]) -> dict[str, str]:
        location = opened(opens)
        return {"report_url": location.https_url if location is not None else ""}

    return upload_in_steps(
        context,
        source.folder,
        (part,),
        store=store,
        outputs=outputs,
        snippets=lambda opens: _snippets(context, folder, opened(opens)),
        subject=settings.subfolder,
    )


def _destination(root: WorkflowOutputRoot, subfolder: str) -> StorageLocation:
    """The folder below logs/. Raises InputError where none is given, and for one that cannot be a report's."""
    if not subfolder:
        raise InputError("mode upload-report needs subfolder", remedy=_SUBFOLDER_REMEDY)
    first, _, rest = subfolder.partition("/")
    fault, remedy = key_fault(subfolder), _SUBFOLDER_REMEDY
    if not fault and first == _LOGS:
        fault = "it is below logs/ already"
        remedy = f"Leave {_LOGS}/ out: give {quote(rest)}." if rest else remedy
    elif not fault and first == _PACKAGING:
        fault = "logs/packaging/ has the logs of native packages"
    if not fault:
        try:
            folder = root.log_dir(first)
            return folder.child(rest) if rest else folder
        except IllegalLocationError as error:  # it names a part of the whole, as what that is elsewhere
            fault = error.what.rpartition(" cannot be used: ")[2]
    raise InputError(f"subfolder {quote(subfolder)} cannot be used: {fault}", remedy=remedy)


def _page_name(name: str) -> str:
    """`name`, the input index_file. Raises InputError where no page can have it."""
    if not name.lower().endswith(_HTML):
        raise InputError(f"index_file {quote(name)} is no page's name", remedy="Give a name that ends in .html.")
    return check_segment(name, "index_file")


def _plan(context: Context, folder: StorageLocation, source: SourceFolder) -> PlannedPart:
    settings = context.settings
    missing = if_missing(settings, "warn")
    if source.absence:
        return PlannedPart(_WHAT, absence=source.absence, if_missing=missing)
    walked = source.walk(context, key_prefix=folder.relative_path, include_hidden=settings.include_hidden)
    return PlannedPart(
        _WHAT,
        tuple(UploadItem(path, folder.child(name)) for path, name in walked.files),
        walked.skipped,
        absence=f"there is no file in {context.workspace.shown(source.folder)}",
        if_missing=missing,
    )


def _only_html(part: PlannedPart) -> StorageLocation | None:
    pages = [item.destination for item in part.items if item.destination.name.lower().endswith(_HTML)]
    return pages[0] if len(pages) == 1 else None


def _notices(context: Context, part: PlannedPart, *, is_made: bool) -> Iterable[str]:
    """Which page report_url is, where index_file names none of the files."""
    if part.page is None:
        which = "empty: there is no page to open"
    else:
        maker = "made here, " if is_made else "made by the server, " if part.page_by_server else ""
        which = f"that of {quote(part.page.name)}, {maker}{'which lists the files' if maker else 'the only HTML file'}"
    verb = "would be" if context.settings.dry_run else "is"
    yield f"index_file {quote(context.settings.index_file)} is not among the files: report_url {verb} {which}"


def _snippets(context: Context, folder: StorageLocation, page: StorageLocation | None) -> tuple[Snippet, ...]:
    """The address to pass on; of a report in a staging folder, how to look at it as a web server shows it."""
    platform = single_root(context.target).platform
    if page is None:
        return ()
    if context.staging_dir is None:
        return (Snippet("The report's address:", "text", (page.https_url,)),)
    path = quoted(context.workspace.shown(folder.local_path(context.staging_dir)), platform)
    python = "python" if platform == "windows" else "python3"
    line = f"{python} -m http.server {_PORT} --bind 127.0.0.1 --directory {path}"
    address = f"http://127.0.0.1:{_PORT}{page.https_url.removeprefix(folder.https_url)}"
    return (
        Snippet("Look at it in a browser: start a server on this machine,", language(platform), (line,)),
        Snippet("and open:", "text", (address,)),
    )
