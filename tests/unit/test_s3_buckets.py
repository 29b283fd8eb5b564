"""Which bucket a run's outputs are in, and who may write there."""

from __future__ import annotations

import datetime
from itertools import product

import pytest

from _therock_utils._errors import InputError
from _therock_utils._keys import check_external_repo
from _therock_utils.s3_buckets import (
    INVENTORY,
    LEGACY_CUTOVER,
    REGION,
    RELEASE_TYPES,
    BucketChoice,
    Repository,
    iam_role,
    is_external_bucket,
    is_inventory_bucket,
    needs_fork_decision,
    parse_release_type,
    select_bucket,
)

THEROCK = Repository.parse("ROCm/TheRock")
LIBRARIES = Repository.parse("ROCm/rocm-libraries")
AFTER = LEGACY_CUTOVER + datetime.timedelta(seconds=1)


@pytest.mark.parametrize(
    ("release_type", "repository", "is_fork", "updated_at", "expected"),
    [
        ("ci", THEROCK, False, None, ("therock-ci-artifacts", "")),
        ("", THEROCK, False, None, ("therock-ci-artifacts", "")),
        ("ci", THEROCK, True, None, ("therock-ci-artifacts-external", "ROCm-TheRock/")),
        ("ci", LIBRARIES, False, None, ("therock-ci-artifacts-external", "ROCm-rocm-libraries/")),
        ("ci", LIBRARIES, True, None, ("therock-ci-artifacts-external", "ROCm-rocm-libraries/")),
        ("ci", THEROCK, False, AFTER, ("therock-ci-artifacts", "")),
        ("ci", THEROCK, False, LEGACY_CUTOVER, ("therock-artifacts", "")),
        ("ci", THEROCK, True, LEGACY_CUTOVER, ("therock-artifacts-external", "ROCm-TheRock/")),
        ("ci", LIBRARIES, False, LEGACY_CUTOVER, ("therock-artifacts-external", "ROCm-rocm-libraries/")),
        ("dev", THEROCK, False, LEGACY_CUTOVER, ("therock-dev-artifacts", "")),
        ("dev-bkc", THEROCK, True, None, ("therock-dev-artifacts", "")),
        ("nightly", LIBRARIES, False, AFTER, ("therock-nightly-artifacts", "")),
        ("nightly-bkc", LIBRARIES, True, LEGACY_CUTOVER, ("therock-nightly-artifacts", "")),
        ("prerelease", THEROCK, False, None, ("therock-prerelease-artifacts", "")),
    ],
)
def test_the_rule_picks_one_bucket(
    release_type: str,
    repository: Repository,
    is_fork: bool,
    updated_at: datetime.datetime | None,
    expected: tuple[str, str],
) -> None:
    choice = select_bucket(
        release_type=release_type, repository=repository, is_pr_from_fork=is_fork, updated_at=updated_at
    )
    assert choice == BucketChoice(*expected)


def test_the_cutover_is_an_instant_in_every_time_zone() -> None:
    zone = datetime.timezone(datetime.timedelta(hours=-6))
    for updated_at, bucket in ((LEGACY_CUTOVER, "therock-artifacts"), (AFTER, "therock-ci-artifacts")):
        choice = select_bucket(
            release_type="ci", repository=THEROCK, is_pr_from_fork=False, updated_at=updated_at.astimezone(zone)
        )
        assert choice.bucket == bucket


def test_every_choice_is_of_the_inventory_and_only_external_buckets_have_a_prefix() -> None:
    chosen = set()
    for release_type, repository, is_fork, updated_at in product(
        RELEASE_TYPES, (THEROCK, LIBRARIES), (False, True), (None, LEGACY_CUTOVER, AFTER)
    ):
        choice = select_bucket(
            release_type=release_type, repository=repository, is_pr_from_fork=is_fork, updated_at=updated_at
        )
        assert is_external_bucket(choice.bucket) == bool(choice.external_repo)
        chosen.add(choice.bucket)
    assert chosen == set(INVENTORY)


def test_only_ci_runs_of_therock_depend_on_the_fork() -> None:
    for release_type, repository in product(("", *RELEASE_TYPES), (THEROCK, LIBRARIES)):
        own, fork = (
            select_bucket(release_type=release_type, repository=repository, is_pr_from_fork=is_fork)
            for is_fork in (False, True)
        )
        assert needs_fork_decision(release_type=release_type, repository=repository) == (own != fork)


@pytest.mark.parametrize("value", ["CI", "ci ", " ", "ci\n", "release", "stable", "dev-", "\ud800", "x" * 1000])
def test_an_unknown_release_type_is_answered_with_the_valid_ones(value: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_release_type(value)
    assert all(valid in caught.value.remedy for valid in RELEASE_TYPES)
    assert str(caught.value).isascii()
    with pytest.raises(InputError):
        select_bucket(release_type=value, repository=THEROCK, is_pr_from_fork=False)


def test_an_empty_release_type_is_ci() -> None:
    assert parse_release_type("") == "ci"
    assert RELEASE_TYPES == ("ci", "dev", "dev-bkc", "nightly", "nightly-bkc", "prerelease")


@pytest.mark.parametrize(
    ("bucket", "role"),
    [
        ("therock-ci-artifacts", "therock-ci"),
        ("therock-ci-artifacts-external", "therock-ci-external"),
        ("therock-dev-artifacts", "therock-dev"),
        ("therock-nightly-artifacts", "therock-nightly"),
        ("therock-prerelease-artifacts", "therock-prerelease"),
        ("therock-artifacts", "therock-artifacts"),
        ("therock-artifacts-external", "therock-artifacts-external"),
    ],
)
def test_each_bucket_has_its_role_but_a_fork_has_none(bucket: str, role: str) -> None:
    assert iam_role(bucket, is_pr_from_fork=False) == f"arn:aws:iam::692859939525:role/{role}"
    assert iam_role(bucket, is_pr_from_fork=True) == ""
    assert is_inventory_bucket(bucket)
    assert is_external_bucket(bucket) == bucket.endswith("-external")
    assert REGION == "us-east-2"


def test_another_bucket_has_no_role() -> None:
    assert iam_role("mine", is_pr_from_fork=False) == ""
    assert not is_inventory_bucket("mine")
    assert not is_external_bucket("mine-external")


@pytest.mark.parametrize(
    "full_name", ["ROCm/TheRock", "rocm/therock", "a/b", "a/.github", "a-b/c.d_e-f", "some_corp/x", "a/..."]
)
def test_a_repository_keeps_its_spelling_and_makes_a_legal_prefix(full_name: str) -> None:
    repository = Repository.parse(full_name)
    assert repository.full_name == full_name
    assert check_external_repo(repository.key_prefix) == full_name.replace("/", "-") + "/"


@pytest.mark.parametrize(
    "full_name",
    [
        "",
        "TheRock",
        "/TheRock",
        "ROCm/",
        "ROCm/TheRock/x",
        "ROCm/..",
        "ROCm/.",
        "../TheRock",
        "-a/b",
        "ROCm/TheRock\n",
        "\nROCm/TheRock",
        "ROCm /TheRock",
        "ROCm/The Rock",
        "ROCm/TheRock?x",
        "ROCm/TheRoc\u212a",
        "ROCm\\TheRock",
        "a" * 101 + "/b",
        "a/" + "b" * 101,
        "https://github.com/ROCm/TheRock",
    ],
)
def test_what_is_no_repository_is_refused(full_name: str) -> None:
    with pytest.raises(InputError, match="owner/name"):
        Repository.parse(full_name)


@pytest.mark.parametrize(
    ("full_name", "is_same"),
    [
        ("ROCm/TheRock", True),
        ("rocm/THEROCK", True),
        ("ROCm/TheRock2", False),
        ("other/TheRock", False),
        ("ROCm/TheRock ", False),
        ("ROCm/TheRoc\u212a", False),
        ("", False),
    ],
)
def test_names_compare_without_case_and_in_ascii(full_name: str, is_same: bool) -> None:
    assert THEROCK.is_same(full_name) is is_same
