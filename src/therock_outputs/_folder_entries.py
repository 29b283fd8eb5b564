"""What a tree of files needs of open folders beyond single files: child folders, links, moves. All raise OSError."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

    from _therock_utils._folder import Folder

FOLDER_MODE: Final = 0o755


def enter(parent: Folder, name: str, *, create: bool = False) -> Folder:
    """Open the folder `name` in `parent`, never through a link; one that is made here gets FOLDER_MODE.

    Raises BlockedPathError where a file or link is there, FileNotFoundError where nothing is and `create` is false.
    """
    is_new = create and _make_folder(parent, name)
    folder = parent.enter(name)
    if is_new:
        target = folder.path if folder.descriptor is None else folder.descriptor
        os.chmod(target, FOLDER_MODE)  # noqa: PTH101 - by descriptor, whatever the umask took away
    return folder


def names(folder: Folder) -> list[str]:
    """The names in `folder`, sorted."""
    with os.scandir(folder.path if folder.descriptor is None else folder.descriptor) as entries:
        return sorted(entry.name for entry in entries)


def make_link(folder: Folder, name: str, target: str) -> None:
    """Make the symbolic link `name`. Raises FileExistsError."""
    os.symlink(target, _at(folder, name), dir_fd=folder.descriptor)


def read_link(folder: Folder, name: str) -> str:
    """Where the symbolic link `name` leads."""
    return os.readlink(_at(folder, name), dir_fd=folder.descriptor)


def hard_link(source: Folder, name: str, target: Folder, new_name: str) -> None:
    """Give the file `name` in `source` another name in `target`. Raises FileExistsError."""
    source_at, target_at = _at(source, name), _at(target, new_name)
    os.link(source_at, target_at, src_dir_fd=source.descriptor, dst_dir_fd=target.descriptor)


def move(source: Folder, name: str, target: Folder, new_name: str) -> None:
    """Rename within one file system; a file or link replaces a file or link, a folder what is not there."""
    source_at, target_at = _at(source, name), _at(target, new_name)
    os.replace(source_at, target_at, src_dir_fd=source.descriptor, dst_dir_fd=target.descriptor)


def _make_folder(parent: Folder, name: str) -> bool:
    try:
        os.mkdir(_at(parent, name), FOLDER_MODE, dir_fd=parent.descriptor)
    except FileExistsError:
        return False
    return True


def _at(folder: Folder, name: str) -> str | Path:
    return name if folder.descriptor is not None else folder.path / name
