"""The report as a file in the workspace, where later steps read it."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final

from _therock_utils._folder import Folder, NewFile, local_file_error
from therock_outputs.ownership import Adoption

if TYPE_CHECKING:
    from therock_outputs.mode_names import Mode
    from therock_outputs.paths import Workspace

REPORT_FOLDER: Final = ".therock-outputs"


def write_report_file(workspace: Workspace, mode: Mode, document: bytes) -> str:
    """Write `document` to a new file; its path relative to the workspace, which must be there. Raises LocalFileError.

    Through no symbolic link: the checkout could have put one there, and this process may be root.
    """
    name = f"{mode}-{secrets.token_hex(8)}.json"
    path = workspace.folder / REPORT_FOLDER
    adoption = Adoption(workspace.folder, path)
    try:
        with Folder.open(workspace.folder):
            pass  # it is not made here: a report where nobody looks would be lost
        with Folder.open_below(workspace.folder, [REPORT_FOLDER], create=True) as folder, NewFile(folder) as file:
            file.write(document)
            file.publish(name)
        adoption.adopt([path / name])
    except OSError as error:
        raise local_file_error(path, "written", error) from error
    return f"{REPORT_FOLDER}/{name}"
