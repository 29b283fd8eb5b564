"""Mode upload-packages: deb or rpm packages join the run's repository, which apt and dnf install from."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from _therock_utils._errors import InputError, OutputsError
from _therock_utils._transfer_types import FailedItem, UploadItem, UploadResult
from _therock_utils.s3_buckets import parse_release_type
from therock_outputs.modes._pages import FolderPage, server_writes_pages, store_page
from therock_outputs.modes._plan import PlannedPart, planned
from therock_outputs.modes._repository import Publisher
from therock_outputs.modes._repository_files import Placed, inspect_files, place_files
from therock_outputs.modes._repository_state import StateReader
from therock_outputs.modes._scratch import make_scratch
from therock_outputs.modes._source import SourceFolder
from therock_outputs.modes._upload import Uploader, upload_in_steps
from therock_outputs.report import Snippet
from therock_outputs.run_target import single_root
from therock_outputs.text_safety import count

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from _therock_utils._files import WalkResult
    from _therock_utils.storage_location import StorageLocation
    from _therock_utils.workflow_outputs import WorkflowOutputRoot
    from therock_outputs.context import Context
    from therock_outputs.modes._repository_files import OwnFile
    from therock_outputs.package_repository import RepositoryKind
    from therock_outputs.report import Report

OUTPUTS: Final[Mapping[str, str]] = {
    "package_repository_url": "What apt's sources.list or dnf's baseurl takes: the repository's folder, for rpm with "
    "/x86_64. Empty where none was published.",
    "packaging_logs_url": "Page of the packaging logs; the server makes it where `index` is not write. Empty where no "
    "log was stored.",
}

PACKAGES: Final = "Packages"
METADATA: Final = "Repository metadata"
LOGS: Final = "Packaging logs"
_LOG_FOLDER: Final = "logs/"
_SHOWN_NAMES: Final = 20


def run(context: Context) -> Report:
    """Store. Raises InputError for settings that this mode cannot use, LocalFileError where `path` cannot be read."""
    settings = context.settings
    root = single_root(context.target)
    if not settings.package_type:
        raise InputError("mode upload-packages needs package_type", remedy="Give package_type: deb or rpm.")
    kind = _kind(root, settings.package_type)
    by_server = settings.index == "auto" and server_writes_pages(context, root)
    writes_pages = not by_server and settings.index != "none"
    page = root.native_linux_packages_index(settings.package_type)
    log_page = root.native_linux_packages_log_index(settings.package_type)
    context = dataclasses.replace(context, open_backend=functools.cache(context.open_backend))
    source = SourceFolder.find(context)
    with contextlib.ExitStack() as stack:
        plan = _Plan(context, kind, source, stack)
        packages = planned(PACKAGES, kind.pool, plan.packages).with_page(page, by_server=by_server)
        logs = plan.logs(log_page.parent).with_page(log_page, by_server=by_server)
        metadata = PlannedPart(METADATA, (UploadItem(b"", kind.commit),) if plan.placed.files else ())
        subject = f"{settings.package_type} packages"

        def store(uploader: Uploader) -> None:
            uploader.result += UploadResult(conflicts=plan.placed.conflicts)
            uploader.store(logs.items)
            if writes_pages and logs.is_stored_in_part(uploader.result) and not logs.brings(log_page):
                store_page(uploader, FolderPage(log_page, f"Logs: {subject}"))
            if plan.placed.files:
                label = parse_release_type(settings.release_type or settings.release_type_environment)
                Publisher(uploader, kind, plan.scratch(), label=label).run(plan.placed.files)
                if writes_pages and metadata.is_stored_in_part(uploader.result):
                    store_page(uploader, FolderPage(page, f"Packages: {subject}"))

        def outputs(opens: AbstractSet[StorageLocation]) -> dict[str, str]:
            has_logs = any(item.destination in opens for item in logs.items)
            return {
                "package_repository_url": kind.url.https_url if kind.commit in opens else "",
                "packaging_logs_url": log_page.https_url if log_page in opens or (by_server and has_logs) else "",
            }

        return upload_in_steps(
            context,
            source.folder,
            (packages, metadata, logs),
            store=store,
            outputs=outputs,
            snippets=lambda opens: _snippets(context, kind, plan.names) if kind.commit in opens else (),
            subject=subject,
        )


def _kind(root: WorkflowOutputRoot, package_type: str) -> RepositoryKind:
    """The kind of repository. Raises InputError where this machine or platform can have none."""
    location = root.native_linux_packages(package_type)
    if package_type == "deb":
        from therock_outputs.deb_repository import DebRepository

        return DebRepository(location)
    from therock_outputs.rpm_repository import RpmRepository

    return RpmRepository(location)


class _Plan:
    """What is to be stored. `placed` and `names` are those of `packages`."""

    def __init__(
        self, context: Context, kind: RepositoryKind, source: SourceFolder, stack: contextlib.ExitStack
    ) -> None:
        """Reads the names in the folder; raises InputError, LocalFileError."""
        self._context = context
        self._kind = kind
        self._source = source
        self._stack = stack
        self._scratch: Path | None = None
        self._walked: WalkResult | None = None
        if not source.absence:
            self._walked = source.walk(context, key_prefix=kind.pool.relative_path)
        self.placed = Placed()

    @property
    def names(self) -> tuple[str, ...]:
        """The packages' names, each once."""
        return tuple(sorted({file.package.identity[0] for file in self.placed.files}))

    def packages(self) -> PlannedPart:
        """Every package is inspected, and given its name in the pool. Raises CancelledError."""
        context, kind = self._context, self._kind
        walked = self._walked.files if self._walked is not None else ()
        paths = [path for path, name in walked if self._is_package(name)]
        deeper = [name for _, name in walked if name.endswith(kind.extension) and "/" in name and not _is_log(name)]
        skipped = self._walked.skipped if self._walked is not None else ()
        part = PlannedPart(
            PACKAGES,
            skipped=tuple(file for file in skipped if self._is_package(file.path)),
            notices=_deeper_notices(deeper),
            absence=self._source.absence or f"there is no file *{kind.extension} in {context.settings.path}",
            if_missing=context.settings.if_no_files_found or "error",
        )
        inspected = inspect_files(context, kind, paths)
        if inspected.failed:
            more = len(paths) - len(inspected.failed)
            warnings = (f"{count(more, 'other package')} of this step not stored, either",) if more else ()
            return dataclasses.replace(part, failed=inspected.failed, warnings=warnings)
        try:
            self.placed = self._place(inspected.files)
        except OutputsError as error:
            context.cancel.check()
            failed = tuple(FailedItem(path.name, kind.pool.child(path.name), error) for path in paths)
            return dataclasses.replace(part, failed=failed)
        return dataclasses.replace(
            part,
            items=tuple(file.item(kind.pool) for file in self.placed.files),
            failed=self.placed.failed,
            warnings=self.placed.warnings,
        )

    def logs(self, destination: StorageLocation) -> PlannedPart:
        """All files of the folder logs."""
        if self._walked is None:
            return PlannedPart(LOGS)
        return PlannedPart(
            LOGS,
            tuple(
                UploadItem(path, destination.child(name.removeprefix(_LOG_FOLDER)))
                for path, name in self._walked.files
                if _is_log(name)
            ),
            tuple(file for file in self._walked.skipped if _is_log(f"{file.path}/")),
            absence="there is no folder logs beside the packages, or nothing in it",
            if_missing="ignore",
        )

    def scratch(self) -> Path:
        """A folder for temporary files, below RUNNER_TEMP where that can be written. Raises LocalFileError."""
        if self._scratch is not None:
            return self._scratch
        runner_temp = self._context.settings.runner_temp
        self._scratch = make_scratch(runner_temp, self._stack, purpose="the repository's metadata")
        return self._scratch

    def _is_package(self, name: str) -> bool:
        return name.endswith(self._kind.extension) and "/" not in name

    def _place(self, files: Sequence[OwnFile]) -> Placed:
        """Names in the pool; the metadata are read only where one of them is taken."""
        context, kind = self._context, self._kind
        if context.settings.dry_run or not files:
            return Placed(tuple(files))
        backend = context.open_backend()
        sizes = {
            listed.location.name: listed.size_bytes for listed in backend.list_folder(kind.pool, cancel=context.cancel)
        }
        named = {}
        if any(file.package.file_name in sizes for file in files):
            with tempfile.TemporaryDirectory(dir=self.scratch(), ignore_cleanup_errors=True) as folder:
                state = StateReader(backend, kind, context.cancel).read(Path(folder))
            named = {package.file_name: package for package in state.packages}
        return place_files(context, kind, files, named=named, sizes=sizes)


def _deeper_notices(names: Sequence[str]) -> tuple[str, ...]:
    if not names:
        return ()
    found = count(len(names), "package")
    return (f"in sub-folders of path, whose packages are not stored: {found}, the first is {names[0]}",)


def _is_log(name: str) -> bool:
    return name.startswith(_LOG_FOLDER)


def _snippets(context: Context, kind: RepositoryKind, names: Sequence[str]) -> tuple[Snippet, ...]:
    """What a person runs to install the packages. A URL has no character that acts in double quotes."""
    url = kind.url.https_url
    if context.staging_dir is not None:
        shown = quote(context.workspace.shown(kind.url.local_path(context.staging_dir)), safe="/~")
        url = f"file:{shown}" if shown.startswith("/") else f"file:$PWD/{shown}"
    chosen = [shlex.quote(name) for name in names[:_SHOWN_NAMES]]
    more = [f"# and {len(names) - _SHOWN_NAMES:,} more packages"] if len(names) > _SHOWN_NAMES else []
    if kind.extension == ".deb":
        lines = [
            f'echo "deb [trusted=yes] {url} stable main" | sudo tee /etc/apt/sources.list.d/rocm.list',
            "sudo apt-get update",
            f"sudo apt-get install {' '.join(chosen)}",
        ]
    else:
        lines = [
            "sudo tee /etc/yum.repos.d/rocm.repo <<EOF",
            "[rocm]",
            "name=ROCm packages",
            f"baseurl={url.replace('file:', 'file://')}",
            "enabled=1",
            "gpgcheck=0",
            "EOF",
            f"sudo dnf install {' '.join(chosen)}",
        ]
    return (Snippet("Install the packages:", "sh", (*lines, *more)),)
