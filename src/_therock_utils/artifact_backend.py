"""Artifacts of one run: list, fetch, store and copy archives (specification, "artifact_backend").

Both backends are thin: a StorageBackend of the same kind does all the I/O. A key is the name of a file directly under
the run's prefix; any other raises IllegalLocationError, a ValueError.
"""

from __future__ import annotations

import os
import platform as host
import tempfile
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, TypeGuard

from _therock_utils._errors import IntegrityError
from _therock_utils._keys import quote
from _therock_utils._run_identity import repository_of_environment, variable
from _therock_utils._sidecar import parse_sidecar, sidecar_name
from _therock_utils._transfer_types import DownloadItem
from _therock_utils.artifact_names import SIDECAR_EXTENSION, ArchiveName
from _therock_utils.storage_backend import LocalStorageBackend, S3StorageBackend
from _therock_utils.workflow_outputs import WorkflowOutputRoot

if TYPE_CHECKING:
    from collections.abc import Mapping

    from _therock_utils.storage_backend import StorageBackend
    from _therock_utils.storage_location import StorageLocation

__all__ = ["ArtifactBackend", "LocalDirectoryBackend", "S3Backend", "create_backend_from_env"]


class ArtifactBackend(ABC):
    """Where the artifacts of one run are."""

    @abstractmethod
    def list_artifacts(self, name_filter: str | None = None) -> list[str]:
        """File names of the run's archives, sorted; with `name_filter` (neither None nor "") those of that artifact.

        Sidecars, logs and other runs' archives are none. [] only where the listing says that there is nothing: raises
        an OutputsError where it is refused or the service cannot be reached.
        """

    @abstractmethod
    def download_artifact(self, key: str, dest_path: Path) -> None:
        """Fetch one file to `dest_path`, which appears whole or not at all, checked against its sidecar if it has one.

        Raises IntegrityError with both digests where they differ, NotFoundError where there is no such file, and other
        OutputsErrors, also where the sidecar cannot be read.
        """

    @abstractmethod
    def upload_artifact(self, source: Path, key: str) -> None:
        """Store one file; what lies there is replaced. Raises an OutputsError."""

    @abstractmethod
    def copy_artifact(self, key: str, source_backend: ArtifactBackend) -> None:
        """Copy one file from another run, then its sidecar if it has one; by the service itself where it can.

        Raises NotFoundError where there is no such file, and other OutputsErrors.
        """

    @abstractmethod
    def artifact_exists(self, key: str) -> bool:
        """Whether there is such a file; False only where the service says that there is none, else an OutputsError."""

    @property
    @abstractmethod
    def base_uri(self) -> str:
        """The folder of the artifacts: an `s3://` URI, or a path."""


class _StorageArtifacts(ArtifactBackend):
    """Artifacts in a storage."""

    def __init__(self, output_root: WorkflowOutputRoot, storage: StorageBackend) -> None:
        self.output_root = output_root
        self.storage = storage

    def list_artifacts(self, name_filter: str | None = None) -> list[str]:
        """See ArtifactBackend."""
        names = (listed.location.name for listed in self.storage.list_folder(self.output_root.root()))
        archives = ((name, ArchiveName.parse(name)) for name in names)
        return sorted(
            name
            for name, archive in archives
            if archive is not None and (not name_filter or archive.artifact.name == name_filter)
        )

    def download_artifact(self, key: str, dest_path: Path) -> None:
        """See ArtifactBackend."""
        location = self.output_root.artifact(key)
        result = self.storage.download([DownloadItem(location, Path(dest_path), self._digest(key))])
        for failed in result.failed:
            raise failed.error

    def upload_artifact(self, source: Path, key: str) -> None:
        """See ArtifactBackend."""
        self.storage.upload_file(Path(source), self.output_root.artifact(key))

    def copy_artifact(self, key: str, source_backend: ArtifactBackend) -> None:
        """See ArtifactBackend. Between storages it goes through a temporary file, checked against the sidecar."""
        source_has_sidecar = not _is_sidecar(key) and source_backend.artifact_exists(sidecar_name(key))
        for name in (key, sidecar_name(key)) if source_has_sidecar else (key,):
            destination = self.output_root.artifact(name)
            if self._shares_storage_with(source_backend):
                self.storage.copy_file(source_backend.output_root.artifact(name), destination)
                continue
            with tempfile.TemporaryDirectory(prefix="therock-outputs-") as folder:
                path = Path(folder, "artifact")
                source_backend.download_artifact(name, path)
                self.storage.upload_file(path, destination)

    def artifact_exists(self, key: str) -> bool:
        """See ArtifactBackend."""
        return self.storage.find(self.output_root.artifact(key)) is not None

    def _digest(self, key: str) -> str:
        """The digest that the sidecar of `key` gives, "" where there is no sidecar.

        Raises IntegrityError for a sidecar without one.
        """
        if _is_sidecar(key):
            return ""
        sidecar = self.output_root.artifact(sidecar_name(key))
        stored = self.storage.read_small(sidecar)
        if stored is None:
            return ""
        digest = parse_sidecar(stored.data, name=key)
        if not digest:
            raise IntegrityError(
                f"{self._shown(sidecar)} holds no SHA-256 of {quote(key)}",
                why="so the artifact cannot be checked",
                remedy="Store the artifact and its sidecar again.",
            )
        return digest

    @abstractmethod
    def _shares_storage_with(self, other: ArtifactBackend) -> TypeGuard[_StorageArtifacts]:
        """Whether one request to this storage can read the other's artifacts too."""

    def _shown(self, location: StorageLocation) -> str:
        return location.s3_uri


class S3Backend(_StorageArtifacts):
    """Artifacts in S3. Credentials and endpoint are those of S3StorageBackend; nothing is asked before a call."""

    def __init__(self, output_root: WorkflowOutputRoot, *, storage: StorageBackend | None = None) -> None:
        """`storage`: the S3StorageBackend to use, where it is to be another than a default one."""
        super().__init__(output_root, storage or S3StorageBackend())
        self._is_default = storage is None

    @property
    def base_uri(self) -> str:
        """`s3://bucket/prefix`."""
        return self.output_root.root().s3_uri

    @property
    def bucket(self) -> str:
        """The run's bucket."""
        return self.output_root.bucket

    @property
    def s3_prefix(self) -> str:
        """The run's key prefix, without a trailing slash."""
        return self.output_root.prefix

    def _shares_storage_with(self, other: ArtifactBackend) -> TypeGuard[_StorageArtifacts]:
        if not isinstance(other, S3Backend):
            return False
        return self.storage is other.storage or (self._is_default and other._is_default)  # noqa: SLF001 - its own class


class LocalDirectoryBackend(_StorageArtifacts):
    """Artifacts in a staging directory, laid out as the bucket: `staging_dir/{prefix}/{file name}`."""

    def __init__(self, staging_dir: Path, output_root: WorkflowOutputRoot) -> None:
        """Nothing is made or looked at before a call."""
        super().__init__(output_root, LocalStorageBackend(Path(staging_dir)))
        self.staging_dir = Path(staging_dir)

    @property
    def base_path(self) -> Path:
        """The folder of the artifacts; it exists once something is stored."""
        return self.output_root.root().local_path(self.staging_dir)

    @property
    def base_uri(self) -> str:
        """`base_path` as text."""
        return str(self.base_path)

    def _shares_storage_with(self, other: ArtifactBackend) -> TypeGuard[_StorageArtifacts]:
        return isinstance(other, LocalDirectoryBackend) and self.staging_dir == other.staging_dir

    def _shown(self, location: StorageLocation) -> str:
        return ascii(str(location.local_path(self.staging_dir)))


def create_backend_from_env(
    run_id: str | int | None = None, github_repository: str | None = None, platform: str | None = None
) -> ArtifactBackend:
    """The backend of a run that the environment names.

    THEROCK_LOCAL_STAGING_DIR: a staging directory instead of S3. `run_id`: by default THEROCK_RUN_ID, GITHUB_RUN_ID,
    then `local`; GitHub's API gives it as a number. `platform`: by default THEROCK_PLATFORM, then this machine's, in
    any case, as `platform.system()` writes it. The bucket is that of
    `WorkflowOutputRoot.from_workflow_run`, which asks GitHub's API about the run where it is another one than the job's
    (GITHUB_RUN_ID), or another repository's.
    Raises as `from_workflow_run` does.
    """
    environment = os.environ
    given = "" if run_id is None else str(run_id)
    run_id = given or variable(environment, "THEROCK_RUN_ID") or variable(environment, "GITHUB_RUN_ID") or "local"
    platform = (platform or variable(environment, "THEROCK_PLATFORM") or host.system()).lower()
    staging_dir = variable(environment, "THEROCK_LOCAL_STAGING_DIR")
    if staging_dir:
        return LocalDirectoryBackend(Path(staging_dir), WorkflowOutputRoot.for_local(run_id, platform))
    return S3Backend(
        WorkflowOutputRoot.from_workflow_run(
            run_id,
            platform,
            github_repository or None,
            lookup_workflow_run=_is_another_run(run_id, github_repository or None, environment),
        )
    )


def _is_another_run(run_id: str, github_repository: str | None, environment: Mapping[str, str]) -> bool:
    """Whether only GitHub knows the run. It knows none whose id is no number, as those of local builds are."""
    if not (run_id.isascii() and run_id.isdigit()):
        return False
    own = variable(environment, "GITHUB_RUN_ID")
    if own and run_id != own:
        return True
    return not (github_repository is None or repository_of_environment(environment).is_same(github_repository))


def _is_sidecar(key: str) -> bool:
    return key.endswith(SIDECAR_EXTENSION)
