"""The file {subtree}.prebuilt: the build looks only whether it is there; a fetch reads in it what made the subtree."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Self

from _therock_utils._folder import NewFile
from _therock_utils.artifact_names import ArtifactName

if TYPE_CHECKING:
    from _therock_utils._folder import Folder

MARKER_SUFFIX: Final = ".prebuilt"

_MAX_MARKER_BYTES: Final = 1024 * 1024
_OTHER_CONTENT: Final = "# and other content, which no fetch may remove"


@dataclass(frozen=True, slots=True)
class Marker:
    """What made a subtree: these artifacts (name_component_target), and perhaps something else.

    As a file: an artifact a line, sorted, and a comment first where there is other content.
    """

    artifacts: frozenset[str] = frozenset()
    has_other_content: bool = False

    @classmethod
    def read(cls, folder: Folder, subtree: str) -> Self | None:
        """That of `subtree` in `folder`, never followed as a link; None where there is none that a fetch wrote."""
        name = subtree + MARKER_SUFFIX
        try:
            status = folder.lookup(name)
            if status is None or not stat.S_ISREG(status.st_mode):
                return None
            with os.fdopen(folder.open_to_read(name), "rb") as file:
                data = file.read(_MAX_MARKER_BYTES + 1)
            lines = data.decode().split("\n")
        except (OSError, UnicodeDecodeError):
            return None
        has_other_content = lines[0] == _OTHER_CONTENT
        artifacts = lines[int(has_other_content) : -1]
        is_whole = lines[-1] == "" and len(data) <= _MAX_MARKER_BYTES
        if not artifacts or not is_whole or not all(map(ArtifactName.parse, artifacts)):
            return None
        return cls(frozenset(artifacts), has_other_content)

    def with_artifact(self, name: str) -> Self:
        """It, and one artifact more."""
        return replace(self, artifacts=self.artifacts | {name})

    def write(self, folder: Folder, subtree: str) -> None:
        """Write it whole or not at all, with what another fetch wrote meanwhile. Raises OSError."""
        meanwhile = type(self).read(folder, subtree) or type(self)()
        comment = [_OTHER_CONTENT] if self.has_other_content or meanwhile.has_other_content else []
        lines = [*comment, *sorted(self.artifacts | meanwhile.artifacts)]
        with NewFile(folder) as file:
            file.write("".join(f"{line}\n" for line in lines).encode())
            file.publish(subtree + MARKER_SUFFIX)
