"""The layout: where each output of a CI run lives (specification, "S3 Layout" and "WorkflowOutputRoot").

Computing a location does no I/O. Only the factories read the environment, and only a lookup asks GitHub's API.
Segments are checked: an illegal name raises IllegalLocationError, a ValueError.
"""

from __future__ import annotations

import os
import platform as host
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from _therock_utils._errors import IllegalLocationError, InputError
from _therock_utils._keys import (
    check_bucket,
    check_external_repo,
    check_platform,
    check_run_id,
    check_segment,
    quote,
)
from _therock_utils._run_identity import is_fork_in_environment, read_record, repository_of_environment, variable
from _therock_utils.s3_buckets import (
    DEFAULT_REPOSITORY,
    BucketChoice,
    Repository,
    needs_fork_decision,
    parse_release_type,
    select_bucket,
)
from _therock_utils.storage_location import StorageLocation

if TYPE_CHECKING:
    from collections.abc import Mapping

MANIFEST_NAME: Final = "therock_manifest.json"
INDEX_NAME: Final = "index.html"
SIMPLE_NAME: Final = "simple"
PACKAGE_NAMES: Final = "package-names"
PACKAGE_TYPES: Final = ("deb", "rpm")

ALIASES: Final = (
    ("log_file", "log_index", "a log file named index.html"),
    ("build_observability", "log_file", "a log file named build_observability.html"),
    ("artifact", "artifact_index", "an artifact file named index.html or index-{artifact_group}.html"),
    ("log_dir", "log_stage_dir", "a group and a generic stage of one name"),
    ("log_index", "log_stage_index", "a group and a generic stage of one name"),
    ("log_file", "log_stage_dir", "a log file named like a family, in a group named like a stage"),
    ("log_file", "log_stage_index", "a log file index.html or {family}/index.html, in a group named like a stage"),
    ("build_observability", "log_stage_dir", "a family named build_observability.html"),
    ("log_file", "native_linux_packages_log_dir", "a log file deb or rpm of a group named packaging"),
    ("log_stage_dir", "native_linux_packages_log_dir", "a family deb or rpm of a stage named packaging"),
    ("log_file", "native_linux_packages_log_index", "a log file deb/index.html of a group named packaging"),
    ("log_stage_index", "native_linux_packages_log_index", "a family deb or rpm of a stage named packaging"),
)
"""Pairs of location methods (sorted) that may name one key, and when; no others do."""

MAX_EVENT_BYTES: Final = 64 * 2**20
"""Largest event payload that is read; GitHub's documentation caps one at 25 MB ("Webhook events and payloads")."""

_RESERVED_NAMES: Final = frozenset({INDEX_NAME, MANIFEST_NAME})
_RESERVED_FILES: Final = frozenset({"logs", "manifests", "packages", "python", "tarballs", "reports"})


@dataclass(frozen=True)
class WorkflowOutputRoot:
    """Root of one run's outputs: `s3://{bucket}/{external_repo}{run_id}-{platform}/`.

    `external_repo` is "" or `owner-name/`. Each method returns a StorageLocation.
    Raises IllegalLocationError for a field that cannot be part of a key.
    """

    bucket: str
    external_repo: str
    run_id: str
    platform: str

    def __post_init__(self) -> None:
        """Refuse what would put the run's outputs anywhere else."""
        check_bucket(self.bucket)
        check_external_repo(self.external_repo)
        check_run_id(self.run_id)
        check_platform(self.platform)

    @property
    def prefix(self) -> str:
        """Key prefix of the run, with no trailing slash."""
        return f"{self.external_repo}{self.run_id}-{self.platform}"

    def root(self) -> StorageLocation:
        """The run's folder."""
        return StorageLocation(self.bucket, self.prefix)

    # Artifacts

    def artifact(self, filename: str) -> StorageLocation:
        """An artifact archive, or the sidecar with its digest."""
        if filename in _RESERVED_FILES:
            message = f"artifact file name {quote(filename)} cannot be used: it is a folder of the layout"
            raise IllegalLocationError(message)
        return self._below(check_segment(filename, "artifact file name"))

    def artifact_index(self, artifact_group: str = "") -> StorageLocation:
        """The page that lists the artifacts: of one group (single-stage), or of the run (multi-arch)."""
        if not artifact_group:
            return self._below(INDEX_NAME)
        group = _name(artifact_group, "artifact_group")
        return self._below(f"index-{group}.html")

    # Logs

    def log_dir(self, artifact_group: str) -> StorageLocation:
        """Folder of a group's logs (single-stage)."""
        return self._below("logs", _name(artifact_group, "artifact_group"))

    def log_stage_dir(self, stage_name: str, amdgpu_family: str = "") -> StorageLocation:
        """Folder of a stage's logs (multi-arch); a per-arch stage has one a family, a generic stage no family."""
        family = [_name(amdgpu_family, "family")] if amdgpu_family else []
        return self._below("logs", _name(stage_name, "stage"), *family)

    def log_stage_index(self, stage_name: str, amdgpu_family: str = "") -> StorageLocation:
        """The page that lists a stage's logs; the server writes it."""
        return self.log_stage_dir(stage_name, amdgpu_family).child(INDEX_NAME)

    def log_file(self, artifact_group: str, filename: str) -> StorageLocation:
        """One file below a group's log folder; `filename` may have several segments."""
        return self.log_dir(artifact_group).child(filename)

    def log_index(self, artifact_group: str) -> StorageLocation:
        """The page that lists a group's logs."""
        return self.log_dir(artifact_group).child(INDEX_NAME)

    def log_root_index(self) -> StorageLocation:
        """The page that lists all log folders of the run."""
        return self._below("logs", INDEX_NAME)

    def build_observability(self, artifact_group: str) -> StorageLocation:
        """The build's resource report."""
        return self.log_dir(artifact_group).child("build_observability.html")

    # Manifests

    def manifest_dir(self, artifact_group: str) -> StorageLocation:
        """Folder of a group's manifests (single-stage)."""
        return self._below("manifests", _name(artifact_group, "artifact_group"))

    def manifest(self, artifact_group: str) -> StorageLocation:
        """A group's manifest (single-stage)."""
        return self.manifest_dir(artifact_group).child(MANIFEST_NAME)

    def manifest_root(self) -> StorageLocation:
        """The run's manifest (multi-arch)."""
        return self._below("manifests", MANIFEST_NAME)

    def framework_manifest(self, artifact_group: str, filename: str) -> StorageLocation:
        """A manifest of a PyTorch or JAX build: `therock-manifest_{torch,jax}_py{x.y}_{ref}.json`."""
        return self.manifest_dir(artifact_group).child(_name(filename, "manifest file name"))

    def manifest_dir_index(self, artifact_group: str) -> StorageLocation:
        """The page that lists a group's manifests."""
        return self.manifest_dir(artifact_group).child(INDEX_NAME)

    def manifests_index(self) -> StorageLocation:
        """The page that lists the run's manifests."""
        return self._below("manifests", INDEX_NAME)

    # Packages

    def native_linux_packages(self, pkg_type: str) -> StorageLocation:
        """Root of the APT (`deb`) or DNF/Zypper (`rpm`) repository. Raises InputError but for a linux run."""
        return self._below("packages", self._package_type(pkg_type))

    def native_linux_packages_index(self, pkg_type: str) -> StorageLocation:
        """The page that lists a repository's files."""
        return self.native_linux_packages(pkg_type).child(INDEX_NAME)

    def native_linux_packages_log_dir(self, pkg_type: str) -> StorageLocation:
        """Folder of the packaging logs."""
        return self._below("logs", "packaging", self._package_type(pkg_type))

    def native_linux_packages_log_index(self, pkg_type: str) -> StorageLocation:
        """The page that lists the packaging logs."""
        return self.native_linux_packages_log_dir(pkg_type).child(INDEX_NAME)

    def python_packages(self, artifact_group: str = "") -> StorageLocation:
        """Folder of wheels and sdists: of a group or family, or of the run."""
        if artifact_group == SIMPLE_NAME:
            message = f"artifact_group {SIMPLE_NAME} cannot be used for packages: their simple repository has that name"
            raise IllegalLocationError(message)
        return self._below("python", *([_name(artifact_group, "artifact_group")] if artifact_group else []))

    def python_packages_index(self, artifact_group: str = "") -> StorageLocation:
        """The page for `pip --find-links` that lists those packages."""
        return self.python_packages(artifact_group).child(INDEX_NAME)

    def python_simple(self, artifact_group: str = "") -> StorageLocation:
        """Root of the simple repository for `pip --index-url` (PEP 503) of those packages."""
        return self.python_packages(artifact_group).child(SIMPLE_NAME)

    def tarballs(self) -> StorageLocation:
        """Folder of the install tarballs."""
        return self._below("tarballs")

    def tarballs_index(self) -> StorageLocation:
        """The page that lists the install tarballs."""
        return self.tarballs().child(INDEX_NAME)

    def tarball(self, filename: str) -> StorageLocation:
        """One install tarball."""
        return self._below("tarballs", _name(filename, "tarball file name"))

    # Run records

    def run_record(self, mode: str, name: str) -> StorageLocation:
        """The record that an uploading mode leaves of what it stored."""
        return self._below("reports", check_segment(mode, "mode"), check_segment(name, "record name"))

    def package_name_record(self, pkg_type: str, filename: str) -> StorageLocation:
        """The record of which bytes a repository's file name stands for, made before the package is stored."""
        name = check_segment(filename, "package file name")
        return self._below("reports", PACKAGE_NAMES, self._package_type(pkg_type), name)

    # Factories

    @classmethod
    def from_workflow_run(  # noqa: PLR0917 - the specification's signature
        cls,
        run_id: str,
        platform: str,
        github_repository: str | None = None,
        workflow_run: Mapping[str, object] | None = None,
        lookup_workflow_run: bool = False,  # noqa: FBT001, FBT002 - the specification's signature
        release_type: str | None = None,
    ) -> WorkflowOutputRoot:
        """Root of a run's outputs, with bucket and key prefix chosen by the rule of the layout.

        `github_repository` is `owner/name`, GITHUB_REPOSITORY by default. `workflow_run` is the API's record of the
        run; `lookup_workflow_run` fetches it (one request a run and process). Without a record this job's environment
        decides (IS_PR_FROM_FORK, the event payload). `release_type` is RELEASE_TYPE by default, else ci.

        Raises InputError for values that cannot be used, GitHubError when the lookup fails.
        """
        check_run_id(run_id)
        check_platform(platform)
        environment = os.environ
        repository = (
            Repository.parse(github_repository) if github_repository else repository_of_environment(environment)
        )
        chosen_type = parse_release_type(release_type or variable(environment, "RELEASE_TYPE"))
        if workflow_run is None and lookup_workflow_run:
            from _therock_utils._github import fetch_workflow_run

            workflow_run = fetch_workflow_run(repository, run_id)
        choice = choose_bucket(repository, release_type=chosen_type, workflow_run=workflow_run, environment=environment)
        return cls(choice.bucket, choice.external_repo, run_id, platform)

    @classmethod
    def for_local(cls, run_id: str = "local", platform: str | None = None, bucket: str = "local") -> WorkflowOutputRoot:
        """Root for local work: no API, no environment. `platform` is this machine's by default."""
        return cls(bucket, "", run_id, platform if platform is not None else host.system().lower())

    def _below(self, *segments: str) -> StorageLocation:
        return StorageLocation(self.bucket, "/".join((self.prefix, *segments)))

    def _package_type(self, pkg_type: str) -> Literal["deb", "rpm"]:
        if self.platform != "linux":
            message = f"native packages exist for linux only, not for {quote(self.platform)}"
            raise InputError(message)
        if pkg_type == "deb":
            return "deb"
        if pkg_type == "rpm":
            return "rpm"
        message = f"package type {quote(pkg_type)} is not known"
        raise InputError(message, remedy=f"Use one of: {', '.join(PACKAGE_TYPES)}.")


def read_event_payload(path: str) -> bytes:
    """The bytes of the event payload at `path`, at most MAX_EVENT_BYTES in memory. Raises OSError or ValueError."""
    with Path(path).open("rb") as file:
        payload = file.read(MAX_EVENT_BYTES + 1)
    if len(payload) > MAX_EVENT_BYTES:
        message = f"it has more than {MAX_EVENT_BYTES} bytes"
        raise ValueError(message)
    return payload


def choose_bucket(
    repository: Repository,
    *,
    release_type: str,
    workflow_run: Mapping[str, object] | None,
    environment: Mapping[str, str],
) -> BucketChoice:
    """The bucket of a run of `repository`: by the API's record of it, else as far as the job's `environment` knows.

    Raises InputError for an environment that cannot be used, GitHubError for a record that cannot be read.
    """
    if workflow_run is not None:
        record = read_record(workflow_run, repository=repository)
        return select_bucket(
            release_type=release_type,
            repository=record.repository,
            is_pr_from_fork=record.is_pr_from_fork,
            updated_at=record.updated_at,
        )
    is_fork = False
    if repository.is_same(variable(environment, "GITHUB_REPOSITORY") or DEFAULT_REPOSITORY):
        repository = repository_of_environment(environment)  # spelled by GitHub, as the job that uploads spells it
        is_fork = needs_fork_decision(release_type=release_type, repository=repository) and is_fork_in_environment(
            environment, read_event_payload
        )
    return select_bucket(release_type=release_type, repository=repository, is_pr_from_fork=is_fork)


def _name(value: str, what: str) -> str:
    """One segment that names a folder; the files that lie beside such folders keep their names for themselves."""
    if value in _RESERVED_NAMES:
        message = f"{what} {quote(value)} cannot be used: a file of the layout has that name"
        raise IllegalLocationError(message)
    return check_segment(value, what)
