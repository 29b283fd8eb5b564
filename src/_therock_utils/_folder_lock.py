"""One process (and thread) at a time in a folder, among those who ask for that."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from functools import partial
from typing import TYPE_CHECKING, Final

from _therock_utils._errors import LocalFileError
from _therock_utils._folder import LOCK_NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from _therock_utils._cancel import CancelToken
    from _therock_utils._folder import Folder

_POLL_SECONDS: Final = 0.02
_LONGEST_WAIT_SECONDS: Final = 60.0
_NO_FLOCK: Final = {errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP}


@contextlib.contextmanager
def exclusive(folder: Folder, cancel: CancelToken) -> Iterator[None]:
    """Hold `folder` for the length of a block: by flock, which ends with the process and leaves no file.

    Where a folder cannot be locked so (Windows, some network file systems) by a file that only one can make; a process
    that dies leaves it behind. Raises LocalFileError after a minute of waiting, CancelledError, and OSError.
    """
    deadline = time.monotonic() + _LONGEST_WAIT_SECONDS
    while (release := _try_to_hold(folder)) is None:
        if time.monotonic() >= deadline:
            raise _held_for_long(folder)
        cancel.sleep(_POLL_SECONDS)
    try:
        yield
    finally:
        release()


def _try_to_hold(folder: Folder) -> Callable[[], None] | None:
    """What lets the folder go again; None while another holds it."""
    if folder.descriptor is not None:
        import fcntl

        try:
            fcntl.flock(folder.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno not in _NO_FLOCK:
                raise
        else:
            return partial(fcntl.flock, folder.descriptor, fcntl.LOCK_UN)
    try:
        os.close(folder.open_new(LOCK_NAME))
    except FileExistsError:
        return None
    return partial(folder.remove, LOCK_NAME)


def _held_for_long(folder: Folder) -> LocalFileError:
    return LocalFileError(
        f"the folder {str(folder.path)!a} cannot be written",
        why=f"another process has held it for {_LONGEST_WAIT_SECONDS:.0f} seconds",
        remedy=f"Wait for that process, or remove the file {LOCK_NAME} there if it is gone.",
    )
