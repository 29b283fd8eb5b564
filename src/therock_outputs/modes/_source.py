"""The folder (or file) that the input `path` names, and the files that a mode stores of it."""

from __future__ import annotations

import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from _therock_utils._errors import InputError
from _therock_utils._files import WalkResult, kind_fault, walk_files
from _therock_utils._folder import local_file_error
from _therock_utils._globs import compile_filter
from _therock_utils._keys import key_fault, quote
from _therock_utils._transfer_types import SkippedFile
from therock_outputs.report_file import REPORT_FOLDER

if TYPE_CHECKING:
    from pathlib import Path

    from therock_outputs.context import Context

_BELOW_SUB_FOLDERS: Final = "*/**"  # as an exclusion: no sub-folder is read


@dataclass(frozen=True, slots=True)
class SourceFolder:
    """The folder, and why there is none, or "". `file_name` is the one file in it that `path` names, or ""."""

    folder: Path
    absence: str = ""
    file_name: str = ""

    @classmethod
    def find(cls, context: Context, *, file_extensions: tuple[str, ...] = ()) -> SourceFolder:
        """Resolve `path`. A missing one is a finding: `if_no_files_found` decides.

        A single file will do where its name ends in one of `file_extensions`, in any case. Raises InputError where
        `path` is not given or is neither, LocalFileError where it cannot be looked at.
        """
        settings, workspace = context.settings, context.workspace
        wanted = f"a folder or a file {' or '.join(f'*{extension}' for extension in file_extensions)}"
        wanted = wanted if file_extensions else "a folder"
        if not settings.path:
            raise InputError(f"mode {settings.mode} needs path", remedy=f"Give {wanted}: what is to be stored.")
        folder = workspace.resolve(settings.path, what="path")
        try:
            found = folder.lstat()
            if stat.S_ISDIR(found.st_mode) or folder.is_dir():
                return cls(folder)
        except (FileNotFoundError, NotADirectoryError):
            hint = workspace.hint(settings.path, folder)
            kind = "file" if file_extensions and folder.name.lower().endswith(file_extensions) else "folder"
            return cls(folder, f"there is no {kind} {workspace.shown(folder)}" + (f". {hint}" if hint else ""))
        except OSError as error:
            raise local_file_error(folder, "looked at", error) from error
        kind = kind_fault(found.st_mode)
        if kind or not folder.name.lower().endswith(file_extensions):
            raise InputError(f"path {quote(workspace.shown(folder))} is {kind or 'a file'}, not {wanted}")
        return cls(folder.parent, file_name=folder.name)

    def walk(
        self, context: Context, *, key_prefix: str, include_hidden: bool = False, top_level_only: bool = False
    ) -> WalkResult:
        """The files that `include` and `exclude` leave, and what was left out and why.

        What this program wrote itself, staged objects and report files, is no source. `top_level_only` reads no
        sub-folder. Memory: about 0.5 KB a file. Raises InputError for a bad pattern, LocalFileError where the folder
        cannot be read.
        """
        settings = context.settings
        if self.file_name:
            return self._only_file(context, key_prefix)
        walked = walk_files(
            self.folder,
            include=settings.include,
            exclude=[*settings.exclude, *([_BELOW_SUB_FOLDERS] if top_level_only else [])],
            include_hidden=include_hidden,
            key_prefix=key_prefix,
        )
        own = tuple(
            f"{folder.relative_to(self.folder).as_posix()}/"
            for folder in (context.staging_dir, context.workspace.folder / REPORT_FOLDER)
            if folder is not None and self.folder in folder.parents
        )
        return WalkResult(
            tuple((path, name) for path, name in walked.files if not name.startswith(own)),
            tuple(file for file in walked.skipped if not file.path.startswith(own)),
        )

    def _only_file(self, context: Context, key_prefix: str) -> WalkResult:
        """The one file, as far as the patterns and the rules for keys leave it."""
        name = self.file_name
        if not compile_filter(context.settings.include, context.settings.exclude).selects(name):
            return WalkResult((), ())
        fault = key_fault(f"{key_prefix}/{name}" if key_prefix else name)
        if fault:
            return WalkResult((), (SkippedFile(ascii(name), f"its name cannot be part of an object key: {fault}"),))
        return WalkResult(((self.folder / name, name),), ())
