"""The modes' names: the keys of the registry, of the command line and of the documentation."""

from __future__ import annotations

import enum


class Mode(enum.StrEnum):
    """What the action is asked to do."""

    LOCATE = "locate"
    UPLOAD_BUILD = "upload-build"
    UPLOAD_STAGE = "upload-stage"

    @property
    def purpose(self) -> str:
        """One line for help and documentation."""
        return _PURPOSES[self]


_PURPOSES = {
    Mode.LOCATE: "computes where a run's outputs live; stores nothing",
    Mode.UPLOAD_BUILD: "stores the logs, manifest and artifact archives of a single-stage build",
    Mode.UPLOAD_STAGE: "stores the logs (and manifest) of one stage of a multi-arch build",
}
UPLOAD_MODES = (Mode.UPLOAD_BUILD, Mode.UPLOAD_STAGE)
