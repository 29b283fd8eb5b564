"""Lists the files below a staging directory as S3 would list them: by key, in key order, links left out."""

from __future__ import annotations

import datetime
import os
import stat
from contextlib import suppress
from operator import itemgetter
from typing import TYPE_CHECKING

from _therock_utils._files import is_junction
from _therock_utils._folder import TEMPORARY_NAME
from _therock_utils._keys import key_fault
from _therock_utils._transfer_types import ListedObject
from _therock_utils.storage_location import StorageLocation

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def list_below(staging_dir: Path, location: StorageLocation) -> Iterator[ListedObject]:
    """Everything below `location`, in the order of the keys' UTF-8 bytes. Memory: one folder's entries a level.

    Raises OSError.
    """
    levels = [iter(_entries(staging_dir, location.relative_path))]
    while levels:
        key, status = next(levels[-1], ("", None))
        if not key:
            levels.pop()
        elif status is None:
            levels.append(iter(_entries(staging_dir, key)))
        else:
            yield listed_object(StorageLocation(location.bucket, key), status)


def list_directly_in(staging_dir: Path, location: StorageLocation) -> Iterator[ListedObject]:
    """The files directly in `location`, in the same order. Memory: the folder's entries. Raises OSError."""
    for key, status in _entries(staging_dir, location.relative_path):
        if status is not None:
            yield listed_object(StorageLocation(location.bucket, key), status)


def listed_object(location: StorageLocation, status: os.stat_result) -> ListedObject:
    """The object that a file of this status is."""
    return ListedObject(location, status.st_size, "", datetime.datetime.fromtimestamp(status.st_mtime, datetime.UTC))


def _entries(staging_dir: Path, folder_key: str) -> list[tuple[str, os.stat_result | None]]:
    """One folder's objects as (key, status) and its folders as (key, None), in key order."""
    found: list[tuple[str, str, os.stat_result | None]] = []
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(staging_dir / folder_key) as entries:
        for entry in entries:
            key = f"{folder_key}/{entry.name}" if folder_key else entry.name
            if key_fault(key) or TEMPORARY_NAME.fullmatch(entry.name):
                continue
            with suppress(FileNotFoundError):  # it vanished
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(status.st_mode):
                    found.append((key, key, status))
                elif stat.S_ISDIR(status.st_mode) and not is_junction(status):
                    found.append((f"{key}/", key, None))  # "a-b" comes before "a/b"
    return [(key, status) for _, key, status in sorted(found, key=itemgetter(0))]
