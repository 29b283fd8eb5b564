"""Where a run's outputs are, when they are not where they were looked for; and what to set to get them."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest

from _therock_utils._cancel import CancelToken
from _therock_utils._errors import CancelledError, NotPermittedError, OutputsError, ServiceUnavailableError
from _therock_utils.s3_buckets import INVENTORY
from _therock_utils.storage_backend import LocalStorageBackend
from fakes.contexts import make_context
from fakes.trees import write_tree
from therock_outputs.mode_names import Mode
from therock_outputs.modes import _other_places
from therock_outputs.modes._other_places import explain_empty_run, other_places

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from _therock_utils._transfer_types import ListedObject
    from _therock_utils.storage_location import StorageLocation
    from therock_outputs.context import Context

pytestmark = pytest.mark.usefixtures("no_job")


class Buckets(LocalStorageBackend):
    """Buckets as folders; `trouble(bucket)` may raise before one is listed."""

    def __init__(self, folder: Path, trouble: Callable[[str], None] = lambda _bucket: None) -> None:
        super().__init__(folder)
        self._folder, self._trouble = folder, trouble

    def list_objects(self, location: StorageLocation, **options: Any) -> Iterator[ListedObject]:  # noqa: ANN401 - as LocalStorageBackend's
        self._trouble(location.bucket)
        return LocalStorageBackend(self._folder / location.bucket).list_objects(location, **options)


def context(workspace: Path, **inputs: Any) -> Context:  # noqa: ANN401 - make_context's
    made = make_context(workspace, Mode.FETCH_ARTIFACTS, lookup="false", output_dir="o", **inputs)
    return dataclasses.replace(made, staging_dir=None)


def explain(workspace: Path, key: str = "", **inputs: Any) -> tuple[str, str]:  # noqa: ANN401 - make_context's
    if key:
        write_tree(workspace / "s3", {key: "x"})
    error = explain_empty_run(context(workspace, **inputs), Buckets(workspace / "s3"))
    return error.why, error.remedy


@pytest.mark.parametrize(
    ("key", "inputs", "remedy"),
    [
        ("therock-nightly-artifacts/100-linux/a", {}, "Set release_type: nightly."),
        ("therock-dev-artifacts/100-linux/a", {}, "Set release_type: dev."),
        ("therock-ci-artifacts/100-windows/a", {}, "Set platform: windows."),
        ("therock-prerelease-artifacts/100-windows/a", {}, "Set release_type: prerelease and platform: windows."),
        ("therock-ci-artifacts/100-linux/a", {"release_type": "nightly"}, "Set release_type: ci."),
        ("therock-ci-artifacts-external/ROCm-TheRock/100-linux/a", {}, "Set lookup: true."),
        ("therock-artifacts/100-linux/a", {}, "Set lookup: true."),
        ("therock-artifacts-external/ROCm-TheRock/100-linux/a", {}, "Set lookup: true."),
        (
            "therock-ci-artifacts/100-linux/a",
            {"repository": "ROCm/rocm-libraries"},
            "Set repository: ROCm/TheRock.",
        ),
        ("therock-ci-artifacts/100-linux/a", {"bucket": "mine"}, "Leave out bucket."),
        ("therock-dev-artifacts/100-linux/a", {"bucket": "mine"}, "Leave out bucket and set release_type: dev."),
        ("mine/100-windows/a", {"bucket": "mine"}, "Set platform: windows."),
    ],
)
def test_a_run_that_is_elsewhere_is_found_with_what_to_set(
    tmp_path: Path, key: str, inputs: dict[str, str], remedy: str
) -> None:
    why, told = explain(tmp_path, key, **inputs)
    assert (why, told) == (f"found in s3://{key.removesuffix('/a')}", remedy)


def test_another_repository_s_job_finds_its_own_run(tmp_path: Path) -> None:
    key = "therock-ci-artifacts-external/ROCm-rocm-libraries/100-linux/a"
    inputs = {"repository": "ROCm/TheRock", "environment": {"GITHUB_REPOSITORY": "ROCm/rocm-libraries"}}
    assert explain(tmp_path, key, **inputs)[1] == "Set repository: ROCm/rocm-libraries."


def test_a_run_that_is_nowhere_is_told_with_the_number_of_places(tmp_path: Path) -> None:
    why, remedy = explain(tmp_path)
    places = other_places(context(tmp_path).target.root, context(tmp_path).settings, only_platforms=False)
    assert why == f"it has none in {len(places)} other places either (other buckets, other platform)"
    assert "Check run_id" in remedy


def test_every_bucket_of_the_inventory_is_looked_at_for_both_platforms(tmp_path: Path) -> None:
    made = context(tmp_path)
    places = other_places(made.target.root, made.settings, only_platforms=False)
    looked_at = {(place.root.bucket, place.root.platform) for place in places}
    expected = {(bucket, platform) for bucket in INVENTORY for platform in ("linux", "windows")}
    assert looked_at == expected - {("therock-ci-artifacts", "linux")}
    assert len(places) == len({place.root for place in places})
    assert all(place.settings for place in places)


def test_what_runs_of_like_names_have_does_not_count(tmp_path: Path) -> None:
    why, _ = explain(tmp_path, "therock-nightly-artifacts/100-linux2/a")
    assert why.startswith("it has none")


@pytest.mark.parametrize("error", [NotPermittedError("denied"), ServiceUnavailableError("unreachable")])
def test_an_error_of_a_look_does_not_hide_what_another_finds(tmp_path: Path, error: OutputsError) -> None:
    write_tree(tmp_path / "s3", {"therock-nightly-artifacts/100-linux/a": "x"})

    def trouble(bucket: str) -> None:
        if bucket != "therock-nightly-artifacts":
            raise error

    told = explain_empty_run(context(tmp_path), Buckets(tmp_path / "s3", trouble))
    assert told.remedy == "Set release_type: nightly."


def test_places_that_cannot_be_looked_at_are_counted(tmp_path: Path) -> None:
    def trouble(bucket: str) -> None:
        if bucket.startswith("therock-artifacts"):
            raise NotPermittedError("denied")

    told = explain_empty_run(context(tmp_path), Buckets(tmp_path / "s3", trouble))
    assert told.exit_code == 3
    assert "4 more could not be looked at" in told.why


def test_a_service_that_does_not_answer_is_not_asked_for_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent(LocalStorageBackend):
        def list_objects(
            self, location: StorageLocation, *, cancel: CancelToken | None = None
        ) -> Iterator[ListedObject]:
            assert cancel is not None
            cancel.sleep(600)
            return super().list_objects(location)

    monkeypatch.setattr(_other_places, "LOOK_SECONDS", 0.1)
    told = explain_empty_run(context(tmp_path), Silent(tmp_path))
    assert told.why.startswith("it has none in 0 other places")


def test_a_cancel_ends_the_looks(tmp_path: Path) -> None:
    cancel = CancelToken()
    backend = Buckets(tmp_path, lambda _: cancel.cancel(15))
    with pytest.raises(CancelledError) as caught:
        explain_empty_run(dataclasses.replace(context(tmp_path), cancel=cancel), backend)
    assert caught.value.exit_code == 143
