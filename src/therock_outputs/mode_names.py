"""The modes' names: the keys of the registry, of the command line and of the documentation."""

from __future__ import annotations

import enum


class Mode(enum.StrEnum):
    """What the action is asked to do."""

    LOCATE = "locate"
    UPLOAD_BUILD = "upload-build"
    UPLOAD_STAGE = "upload-stage"
    UPLOAD_ARTIFACTS = "upload-artifacts"
    UPLOAD_PYTHON = "upload-python"
    UPLOAD_TARBALLS = "upload-tarballs"
    UPLOAD_PACKAGES = "upload-packages"
    UPLOAD_MANIFEST = "upload-manifest"
    UPLOAD_REPORT = "upload-report"
    FETCH_ARTIFACTS = "fetch-artifacts"
    FIND_ARTIFACTS = "find-artifacts"
    COPY_ARTIFACTS = "copy-artifacts"
    INDEX = "index"
    VERIFY = "verify"

    @property
    def purpose(self) -> str:
        """One line for help and documentation."""
        return _PURPOSES[self]


_PURPOSES = {
    Mode.LOCATE: "computes where a run's outputs live; stores nothing",
    Mode.UPLOAD_BUILD: "stores the logs, manifest and artifact archives of a single-stage build",
    Mode.UPLOAD_STAGE: "stores the logs (and manifest) of one stage of a multi-arch build",
    Mode.UPLOAD_ARTIFACTS: "archives artifact directories reproducibly and stores the archives with their digests",
    Mode.UPLOAD_PYTHON: "stores wheels and sdists with pages that pip installs from",
    Mode.UPLOAD_TARBALLS: "stores install tarballs and gives the URL of each",
    Mode.UPLOAD_PACKAGES: "adds deb or rpm packages to the run's repository, which apt and dnf install from",
    Mode.UPLOAD_MANIFEST: "stores manifests of PyTorch and JAX builds",
    Mode.UPLOAD_REPORT: "stores an HTML report with a page to open",
    Mode.FETCH_ARTIFACTS: "finds, downloads, verifies and extracts artifacts of a run",
    Mode.FIND_ARTIFACTS: "finds the newest run of a commit or branch that holds the artifacts asked for",
    Mode.COPY_ARTIFACTS: "copies artifacts of another run to this one, without a download",
    Mode.INDEX: "writes the pages, and their JSON, that list every folder of a run",
    Mode.VERIFY: "compares what is stored with the run's records and digests",
}

LOG_MODES = (Mode.UPLOAD_BUILD, Mode.UPLOAD_STAGE)
"""Modes that store a build's logs."""

BUILD_MODES = (*LOG_MODES, Mode.UPLOAD_ARTIFACTS)
"""Modes that store parts of a build tree."""

PATH_MODES = (
    Mode.UPLOAD_PYTHON,
    Mode.UPLOAD_TARBALLS,
    Mode.UPLOAD_PACKAGES,
    Mode.UPLOAD_MANIFEST,
    Mode.UPLOAD_REPORT,
)
"""Modes that store what lies in the folder `path`."""

UPLOAD_MODES = (*BUILD_MODES, *PATH_MODES)
"""Modes that store files of this machine."""

STORING_MODES = (*UPLOAD_MODES, Mode.COPY_ARTIFACTS)
"""Modes that store outputs of a run."""

SELECTING_MODES = (Mode.UPLOAD_ARTIFACTS, Mode.FETCH_ARTIFACTS, Mode.FIND_ARTIFACTS, Mode.COPY_ARTIFACTS)
"""Modes that take some of a run's artifacts."""
