"""Mode upload-tarballs: install tarballs, and the URL of each for whoever installs from it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from _therock_utils._errors import InputError, IntegrityError, LocalFileError
from _therock_utils._keys import quote
from _therock_utils._source_file import SkipFileError, SourceFile
from _therock_utils._transfer_types import UploadItem
from therock_outputs.modes._build_tree import if_missing
from therock_outputs.modes._pages import FolderPage, is_left_to_server, store_page
from therock_outputs.modes._plan import PlannedPart, planned
from therock_outputs.modes._source import SourceFolder
from therock_outputs.modes._upload import Uploader, upload_in_steps
from therock_outputs.report import Snippet
from therock_outputs.run_target import single_root
from therock_outputs.shell_lines import download_line, language, unpack_lines
from therock_outputs.tarball_names import TARBALL_EXTENSION, TarballName, tarball_pattern
from therock_outputs.text_safety import count

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    from _therock_utils._cancel import CancelToken
    from _therock_utils.storage_location import StorageLocation
    from _therock_utils.workflow_outputs import WorkflowOutputRoot
    from therock_outputs.context import Context
    from therock_outputs.report import Report

OUTPUTS: Final[Mapping[str, str]] = {
    "tarball_urls": "JSON: family or multiarch, with -tests behind it for a tarball of tests, to the URL of the "
    "tarball that is there: this step's, or with `on_conflict: skip` the one that was there before.",
}

_WHAT: Final = "Tarballs"
_SHOWN_NAMES: Final = 10
_SHOWN_SNIPPETS: Final = 3
_GZIP_START: Final = b"\x1f\x8b"
"""The first bytes of a gzip file (RFC 1952, section 2.3.1)."""


def run(context: Context) -> Report:
    """Store.

    Raises InputError for settings that this mode cannot use, and for names that are no tarball's; IntegrityError for
    files that are no gzip. In these cases nothing is stored.
    """
    root = single_root(context.target)
    source = SourceFolder.find(context)
    page = root.tarballs_index()
    by_server = is_left_to_server(context, root)
    part = planned(_WHAT, root.tarballs(), lambda: _plan(context, root, source)).with_page(page, by_server=by_server)
    left: set[StorageLocation] = set()  # where other bytes lay, and stay

    def store(uploader: Uploader) -> None:
        result = uploader.store(part.items)
        left.update(conflict.location for conflict in result.conflicts if conflict.action == "skipped")
        writes_page = not by_server and context.settings.index != "none"
        if writes_page and part.is_stored_in_part(uploader.result):
            store_page(uploader, FolderPage(page, _WHAT))

    def present(opens: AbstractSet[StorageLocation]) -> list[UploadItem]:
        there = opens if context.settings.dry_run else opens | left
        return [item for item in part.items if item.destination in there]

    def urls(opens: AbstractSet[StorageLocation]) -> dict[str, str]:
        named = _by_key(present(opens))
        return {"tarball_urls": json.dumps({key: item.destination.https_url for key, item in named.items()})}

    return upload_in_steps(
        context,
        source.folder,
        (part,),
        store=store,
        outputs=urls,
        snippets=lambda opens: _snippets(context, root, present(opens)),
        subject=_WHAT.lower(),
    )


def _plan(context: Context, root: WorkflowOutputRoot, source: SourceFolder) -> PlannedPart:
    missing = if_missing(context.settings, "error")
    if source.absence:
        return PlannedPart(_WHAT, absence=source.absence, if_missing=missing)
    walked = source.walk(context, key_prefix=root.tarballs().relative_path)
    tarballs = {name: path for path, name in walked.files if name.lower().endswith(TARBALL_EXTENSION)}
    found = {name: path for name, path in tarballs.items() if "/" not in name}
    names = _checked(found, root.platform)
    _check_bytes(found, context.cancel)
    shown = context.workspace.shown(source.folder)
    return PlannedPart(
        _WHAT,
        tuple(UploadItem(found[name], root.tarball(name)) for name in found),
        tuple(file for file in walked.skipped if TARBALL_EXTENSION in file.path.lower() and "/" not in file.path),
        notices=_notices(
            names,
            others=[name for _, name in walked.files if name not in tarballs and "/" not in name],
            deeper=[name for name in tarballs if "/" in name],
        ),
        absence=f"there is no *{TARBALL_EXTENSION} at the top of {shown}",
        if_missing=missing,
    )


def _checked(filenames: Iterable[str], platform: str) -> tuple[TarballName, ...]:
    """The names, read. Raises InputError for any that is not of `platform`, and for two of which one URL is wanted."""
    names, bad = [], []
    for filename in filenames:
        name = TarballName.parse(filename)
        if name is None or name.platform != platform:
            bad.append(filename)
        else:
            names.append(name)
    if bad:
        raise InputError(
            f"nothing was stored: {count(len(bad), 'name')} cannot be a tarball's of a {platform} run: {_listed(bad)}",
            why=f"the form is {tarball_pattern(platform)}",
            remedy="Rename them, or leave them out with exclude.",
        )
    by_key: dict[str, list[str]] = {}
    for name in names:
        by_key.setdefault(name.key, []).append(str(name))
    for key, versions in by_key.items():
        if len(versions) > 1:
            raise InputError(
                f"nothing was stored: there are {len(versions)} tarballs of {key}: {_listed(versions)}",
                why="tarball_urls has one URL for each",
                remedy="Leave all but one out with exclude, or store them in runs of their own.",
            )
    return tuple(names)


def _check_bytes(found: Mapping[str, Path], cancel: CancelToken) -> None:
    """Raise IntegrityError for files that can be no gzip. One that cannot be opened is told when it is to be stored.

    Memory: 1 MB. Raises CancelledError.
    """
    faults: dict[str, list[str]] = {}
    for name, path in found.items():
        try:
            with SourceFile.open(path) as file:
                start = next(iter(file.chunks(cancel)), b"")[: len(_GZIP_START)]
        except (SkipFileError, LocalFileError):
            continue
        if start != _GZIP_START:
            faults.setdefault("has other first bytes" if start else "is empty", []).append(name)
    if faults:
        number = sum(map(len, faults.values()))
        raise IntegrityError(
            f"nothing was stored: {count(number, 'file')} cannot be a tarball: a gzip begins with 1f 8b",
            why="; ".join(f"{fault}: {_listed(names)}" for fault, names in sorted(faults.items())),
            remedy="Make them again, or leave them out with exclude.",
        )


def _notices(names: Iterable[TarballName], *, others: list[str], deeper: list[str]) -> tuple[str, ...]:
    unknown = sorted({name.family for name in names if not name.is_known})
    told = (
        (unknown, "not among the known GPU families"),
        (others, f"{count(len(others), 'other file')} left out, not *{TARBALL_EXTENSION}"),
        (deeper, f"{count(len(deeper), 'tarball')} in sub-folders left out: only the top of path is stored"),
    )
    return tuple(f"{what}: {_listed(found)}" for found, what in told if found)


def _listed(names: list[str]) -> str:
    more = len(names) - _SHOWN_NAMES
    return ", ".join(map(quote, names[:_SHOWN_NAMES])) + (f" and {more:,} more" if more > 0 else "")


def _by_key(items: Iterable[UploadItem]) -> dict[str, UploadItem]:
    """The items by the key of their name, sorted by it."""
    named = {TarballName.parse(item.destination.name): item for item in items}
    return dict(sorted((name.key, item) for name, item in named.items() if name is not None))


def _snippets(context: Context, root: WorkflowOutputRoot, items: list[UploadItem]) -> tuple[Snippet, ...]:
    """How each of the first few is fetched (or found in the staging folder) and unpacked."""
    lines: list[str] = []
    for key, item in list(_by_key(items).items())[:_SHOWN_SNIPPETS]:
        archive, location = item.destination.name, item.destination
        if context.staging_dir is not None:
            archive = context.workspace.shown(location.local_path(context.staging_dir))
        else:
            lines.append(download_line(location.https_url, archive, root.platform))
        lines += unpack_lines(archive, f"therock-{key}", root.platform)
    if not lines:
        return ()
    which = "" if len(items) <= _SHOWN_SNIPPETS else f" the first {_SHOWN_SNIPPETS} of {len(items):,}"
    verb = "Unpack" if context.staging_dir is not None else "Fetch and unpack"
    return (Snippet(f"{verb}{which}:", language(root.platform), tuple(lines)),)
