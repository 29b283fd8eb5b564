"""Temporary folders for what a mode makes before it stores it."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from _therock_utils._errors import LocalFileError
from _therock_utils._folder import local_file_error

if TYPE_CHECKING:
    from collections.abc import Iterator


def make_scratch(runner_temp: str, stack: contextlib.ExitStack, *, purpose: str) -> Path:
    """A folder that lives as long as `stack`: below RUNNER_TEMP, or where the system has them.

    Raises LocalFileError, which says that there is none for `purpose`.
    """
    reason = ""
    for parent in dict.fromkeys((runner_temp or None, None)):
        try:
            folder = tempfile.TemporaryDirectory(prefix="therock-outputs-", dir=parent, ignore_cleanup_errors=True)
        except OSError as error:
            reason = error.strerror or type(error).__name__
        else:
            return Path(stack.enter_context(folder))
    raise LocalFileError(
        f"there can be no temporary folder for {purpose}",
        why=reason,
        remedy="Free some space, or point RUNNER_TEMP or TMPDIR at a folder that can be written.",
    )


@contextlib.contextmanager
def folder_in(scratch: Path) -> Iterator[Path]:
    """A new folder in `scratch`, which goes in the end with what is in it. Raises LocalFileError where none can be."""
    try:
        folder = tempfile.TemporaryDirectory(dir=scratch, ignore_cleanup_errors=True)
    except OSError as error:
        raise local_file_error(scratch, "written", error) from error
    with folder as path:
        yield Path(path)
