"""One module a mode; each has `run(context) -> Report` and `OUTPUTS`, its outputs beside the common ones."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Protocol, cast

from therock_outputs.mode_names import Mode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from therock_outputs.context import Context
    from therock_outputs.report import Report

_MODULES = {
    Mode.LOCATE: "locate",
    Mode.UPLOAD_BUILD: "upload_build",
    Mode.UPLOAD_STAGE: "upload_stage",
    Mode.UPLOAD_ARTIFACTS: "upload_artifacts",
    Mode.UPLOAD_PYTHON: "upload_python",
    Mode.UPLOAD_TARBALLS: "upload_tarballs",
    Mode.UPLOAD_PACKAGES: "upload_packages",
    Mode.UPLOAD_MANIFEST: "upload_manifest",
    Mode.UPLOAD_REPORT: "upload_report",
    Mode.FETCH_ARTIFACTS: "fetch_artifacts",
    Mode.FIND_ARTIFACTS: "find_artifacts",
    Mode.COPY_ARTIFACTS: "copy_artifacts",
    Mode.INDEX: "index",
    Mode.VERIFY: "verify",
}


class ModeModule(Protocol):
    """What a mode's module offers."""

    OUTPUTS: Mapping[str, str]

    def run(self, context: Context) -> Report:
        """Do it. Raises OutputsError for what stops the mode before anything is stored."""


def load_mode(mode: Mode) -> ModeModule:
    """The module of `mode`; only the one that runs is imported."""
    return cast("ModeModule", importlib.import_module(f"therock_outputs.modes.{_MODULES[mode]}"))
