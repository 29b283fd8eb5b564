"""The buckets that hold CI outputs, and the rule that picks one (specification, "Bucket selection"). Pure."""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass
from typing import Final

from _therock_utils._errors import InputError
from _therock_utils._keys import quote

REGION: Final = "us-east-2"
"""Region of every bucket of the inventory."""

DEFAULT_REPOSITORY: Final = "ROCm/TheRock"
DEFAULT_RELEASE_TYPE: Final = "ci"
LEGACY_CUTOVER: Final = datetime.datetime(2025, 11, 11, 16, 18, 48, tzinfo=datetime.UTC)
"""A looked-up ci run last updated at or before this instant lives in a legacy bucket."""

_ROLE_PREFIX: Final = "arn:aws:iam::692859939525:role/"
_RELEASE_BUCKETS: Final = {
    "dev": "therock-dev-artifacts",
    "dev-bkc": "therock-dev-artifacts",
    "nightly": "therock-nightly-artifacts",
    "nightly-bkc": "therock-nightly-artifacts",
    "prerelease": "therock-prerelease-artifacts",
}
RELEASE_TYPES: Final = (DEFAULT_RELEASE_TYPE, *_RELEASE_BUCKETS)
"""Every valid release type, the default first."""

_ROLES: Final = {
    "therock-ci-artifacts": "therock-ci",
    "therock-ci-artifacts-external": "therock-ci-external",
    "therock-dev-artifacts": "therock-dev",
    "therock-nightly-artifacts": "therock-nightly",
    "therock-prerelease-artifacts": "therock-prerelease",
    "therock-artifacts": "therock-artifacts",
    "therock-artifacts-external": "therock-artifacts-external",
}
INVENTORY: Final = tuple(_ROLES)
"""Names of all buckets, current ones first."""

_EXTERNAL: Final = frozenset({"therock-ci-artifacts-external", "therock-artifacts-external"})
_REPOSITORY: Final = re.compile(r"(?P<owner>[A-Za-z0-9][A-Za-z0-9_-]{0,99})/(?P<name>[A-Za-z0-9._-]{1,100})")


@dataclass(frozen=True, slots=True)
class Repository:
    """A GitHub repository. Names compare without case, and keep the spelling they were given in."""

    owner: str
    name: str

    @classmethod
    def parse(cls, full_name: str) -> Repository:
        """Read `owner/name`. Raises InputError for anything else."""
        match = _REPOSITORY.fullmatch(full_name)
        if match is None or match["name"] in {".", ".."}:
            message = f"repository {quote(full_name)} is not of the form owner/name"
            raise InputError(message, remedy="Give it as GitHub shows it, e.g. ROCm/TheRock.")
        return cls(match["owner"], match["name"])

    @property
    def full_name(self) -> str:
        """`owner/name`."""
        return f"{self.owner}/{self.name}"

    def is_same(self, full_name: str) -> bool:
        """Whether `full_name` names this repository."""
        return full_name.isascii() and self.full_name.lower() == full_name.lower()  # a Kelvin sign is no k

    @property
    def key_prefix(self) -> str:
        """`owner-name/`, the first segment of keys in an external bucket."""
        return f"{self.owner}-{self.name}/"


@dataclass(frozen=True, slots=True)
class BucketChoice:
    """A bucket and the key prefix of a repository's runs in it ("" or `owner-name/`)."""

    bucket: str
    external_repo: str


def parse_release_type(value: str) -> str:
    """`value`, or ci where it is empty. Raises InputError, with the valid ones, for any other."""
    release_type = value or DEFAULT_RELEASE_TYPE
    if release_type not in RELEASE_TYPES:
        message = f"release type {quote(value)} is not known"
        raise InputError(message, remedy=f"Use one of: {', '.join(RELEASE_TYPES)}.")
    return release_type


def needs_fork_decision(*, release_type: str, repository: Repository) -> bool:
    """Whether the bucket depends on the run being a fork's pull request: only for ci runs of ROCm/TheRock."""
    return parse_release_type(release_type) == DEFAULT_RELEASE_TYPE and repository.is_same(DEFAULT_REPOSITORY)


def select_bucket(
    *,
    release_type: str,
    repository: Repository,
    is_pr_from_fork: bool,
    updated_at: datetime.datetime | None = None,
) -> BucketChoice:
    """Pick the bucket of a run.

    `updated_at` (aware) is known only for a looked-up run; it decides between the legacy and the current ci buckets.
    Raises InputError for an unknown release type.
    """
    release_type = parse_release_type(release_type)
    if release_type != DEFAULT_RELEASE_TYPE:
        return BucketChoice(_RELEASE_BUCKETS[release_type], "")
    family = "therock-artifacts" if updated_at is not None and updated_at <= LEGACY_CUTOVER else "therock-ci-artifacts"
    if repository.is_same(DEFAULT_REPOSITORY) and not is_pr_from_fork:
        return BucketChoice(family, "")
    return BucketChoice(f"{family}-external", repository.key_prefix)


def is_inventory_bucket(bucket: str) -> bool:
    """Whether `bucket` is one of ours: its region and role are known, and anonymous reads are allowed."""
    return bucket in _ROLES


def is_external_bucket(bucket: str) -> bool:
    """Whether `bucket` holds the runs of forks and of other repositories."""
    return bucket in _EXTERNAL


def iam_role(bucket: str, *, is_pr_from_fork: bool) -> str:
    """ARN of the role that may write to `bucket`.

    "" for a bucket that is not of the inventory, and for a fork's pull request, which GitHub gives no OIDC token.
    """
    role = _ROLES.get(bucket, "")
    return f"{_ROLE_PREFIX}{role}" if role and not is_pr_from_fork else ""
