"""Mode upload-python: which packages go where, what is on the pages, and what happens when storage or files fail."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from _therock_utils._cancel import CancelToken
from _therock_utils._errors import (
    CancelledError,
    InputError,
    IntegrityError,
    LocalFileError,
    NotFoundError,
    NotPermittedError,
    ServiceError,
)
from _therock_utils._transfer_types import FailedItem, ObjectFacts, StoredBytes, UploadResult
from _therock_utils.storage_backend import LocalStorageBackend
from fakes.contexts import STAGED, TroubledBackend, make_context
from fakes.trees import digest, read_tree, write_tree
from fakes.wheels import make_sdist, make_wheel
from therock_outputs.mode_names import Mode
from therock_outputs.modes import upload_python
from therock_outputs.simple_pages import read_entries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from _therock_utils._errors import OutputsError
    from _therock_utils._transfer_types import ListedObject, UploadItem
    from _therock_utils.storage_location import StorageLocation
    from therock_outputs.report import Report
    from therock_outputs.simple_pages import PackageEntry

P = "100-linux"
OWN = "my-own-bucket"
TORCH = "torch-1.0-py3-none-any.whl"
APEX = "apex-1.0-py3-none-any.whl"


def upload(workspace: Path, **options: Any) -> Report:  # noqa: ANN401 - as make_context's
    return upload_python.run(
        make_context(workspace, Mode.UPLOAD_PYTHON, **({"path": "packages", "bucket": OWN} | options))
    )


def staged(workspace: Path) -> dict[str, bytes]:
    """What is below P/python/."""
    tree = read_tree(workspace / STAGED / P)
    return {key.removeprefix("python/"): data for key, data in tree.items() if key.startswith("python/")}


def entries(workspace: Path, key: str) -> dict[str, PackageEntry]:
    """What a document names, by file name."""
    found = read_entries(staged(workspace)[key])
    assert found is not None
    return {entry.file_name: entry for entry in found}


def packages_in(workspace: Path) -> set[str]:
    return {key for key in staged(workspace) if key.endswith((".whl", ".tar.gz"))}


# Layouts


def test_packages_of_a_group_go_to_its_folder(tmp_path: Path) -> None:
    make_wheel(tmp_path / "packages", "torch")
    report = upload(tmp_path, artifact_group="gfx94X-dcgpu")
    assert report.error is None
    assert set(staged(tmp_path)) == {
        f"gfx94X-dcgpu/{name}"
        for name in (
            TORCH,
            f"{TORCH}.metadata",
            "index.html",
            "simple/index.html",
            "simple/index.v1_json",
            "simple/torch/index.html",
            "simple/torch/index.v1_json",
        )
    }
    base = f"https://{OWN}.s3.amazonaws.com/{P}/python/gfx94X-dcgpu"
    assert report.outputs == {
        "package_find_links_url": f"{base}/index.html",
        "index_url": f"{base}/simple/",
        "kpack_split": "false",
    }
    assert report.page is not None
    assert report.page.https_url == f"{base}/index.html"


@pytest.mark.parametrize("inputs", [{}, {"layout": "multi-arch", "artifact_group": "gfx94X-dcgpu"}])
def test_packages_of_a_multi_arch_build_lie_in_one_folder(tmp_path: Path, inputs: dict[str, str]) -> None:
    make_wheel(tmp_path / "packages", "torch")
    make_sdist(tmp_path / "packages", "rocm")
    report = upload(tmp_path, **inputs)
    assert packages_in(tmp_path) == {TORCH, "rocm-1.0.tar.gz"}
    base = f"https://{OWN}.s3.amazonaws.com/{P}/python"
    assert report.outputs == {
        "package_find_links_url": f"{base}/index.html",
        "index_url": f"{base}/simple/",
        "kpack_split": "true",
    }


def test_families_have_folders_of_their_own_that_name_generic_packages_too(tmp_path: Path) -> None:
    packages = tmp_path / "packages"
    make_wheel(packages, "core")
    make_wheel(packages / "gfx1151", "libraries")
    make_sdist(packages / "gfx94X-dcgpu", "libraries")
    report = upload(tmp_path)
    core, wheel, sdist = "core-1.0-py3-none-any.whl", "libraries-1.0-py3-none-any.whl", "libraries-1.0.tar.gz"
    assert packages_in(tmp_path) == {core, f"gfx1151/{wheel}", f"gfx94X-dcgpu/{sdist}"}
    for family, own in (("gfx1151", wheel), ("gfx94X-dcgpu", sdist)):
        for key in ("index.html", "simple/core/index.html", "simple/core/index.v1_json"):
            assert entries(tmp_path, f"{family}/{key}")[core].is_generic
        assert not entries(tmp_path, f"{family}/simple/libraries/index.html")[own].is_generic
    assert "index.html" not in staged(tmp_path)
    base = f"https://{OWN}.s3.amazonaws.com/{P}/python"
    assert report.outputs == {"package_find_links_url": base, "index_url": base, "kpack_split": "false"}
    assert [(part.what, part.file_count) for part in report.parts] == [
        ("Generic Python packages", 1),
        ("Python packages of gfx1151", 1),
        ("Python packages of gfx94X-dcgpu", 1),
    ]
    assert [snippet.title for snippet in report.snippets] == [
        "Install the packages of gfx1151:",
        "Install the packages of gfx94X-dcgpu:",
    ]


def test_a_family_can_be_given_for_packages_in_one_folder(tmp_path: Path) -> None:
    make_wheel(tmp_path / "packages", "torch")
    make_wheel(tmp_path / "packages" / "sub", "apex")
    report = upload(tmp_path, family="gfx1151")
    assert packages_in(tmp_path) == {f"gfx1151/{TORCH}"}
    assert report.subject == "gfx1151"
    base = f"https://{OWN}.s3.amazonaws.com/{P}/python/gfx1151"
    assert report.outputs == {
        "package_find_links_url": f"{base}/index.html",
        "index_url": f"{base}/simple/",
        "kpack_split": "false",
    }
    assert [(file.path, file.reason) for file in report.result.skipped] == [
        (f"sub/{APEX}", "it lies in a sub-folder, and these packages are of one folder")
    ]


def test_a_later_generic_package_is_added_to_the_pages_of_families(tmp_path: Path) -> None:
    make_wheel(tmp_path / "packages" / "gfx1151", "libraries")
    upload(tmp_path)
    make_wheel(tmp_path / "more", "core")
    upload(tmp_path, path="more")
    core = "core-1.0-py3-none-any.whl"
    assert entries(tmp_path, "gfx1151/simple/core/index.v1_json")[core].is_generic
    assert set(entries(tmp_path, "gfx1151/index.html")) == {core, "libraries-1.0-py3-none-any.whl"}
    root = json.loads(staged(tmp_path)["gfx1151/simple/index.v1_json"])
    assert [project["name"] for project in root["projects"]] == ["core", "libraries"]
    assert set(entries(tmp_path, "index.html")) == {core}


def test_a_page_that_a_family_does_not_have_is_not_made_by_a_job_of_generic_packages(tmp_path: Path) -> None:
    make_wheel(tmp_path / "packages" / "gfx1151", "libraries")
    upload(tmp_path)
    (tmp_path / STAGED / P / "python" / "gfx1151" / "index.html").unlink()
    make_wheel(tmp_path / "more", "core")
    upload(tmp_path, path="more")
    assert "gfx1151/index.html" not in staged(tmp_path)
    assert "gfx1151/simple/core/index.html" in staged(tmp_path)


def test_a_familys_own_package_hides_the_generic_one_of_that_name(tmp_path: Path) -> None:
    make_wheel(tmp_path / "packages", "torch")
    make_wheel(tmp_path / "packages" / "gfx1151", "torch", requires=("other",))
    upload(tmp_path)
    found = entries(tmp_path, "gfx1151/simple/torch/index.html")[TORCH]
    assert not found.is_generic
    assert found.sha256 == digest(staged(tmp_path)[f"gfx1151/{TORCH}"])


# Which files


def test_dist_is_taken_where_it_is_there(tmp_path: Path) -> None:
    make_wheel(tmp_path / "packages" / "dist", "torch")
    make_wheel(tmp_path / "packages", "apex")
    upload(tmp_path)
    assert packages_in(tmp_path) == {TORCH}


def test_only_wheels_and_sdists_are_stored_and_none_of_scratch_folders(tmp_path: Path) -> None:
    packages = tmp_path / "packages"
    make_wheel(packages, "torch")
    make_wheel(packages / ".scratch", "hidden")
    make_wheel(packages / "gfx1151" / "scratch", "nested")
    write_tree(
        packages, {"notes.txt": "x", "demo-1.0.zip": "x", "manifests/torch.json": "{}", "X-1-py3-none-any.WHL": ""}
    )
    write_tree(packages, {"gfx1151/x.sha256": "x"})
    (packages / "linked-1.0-py3-none-any.whl").symlink_to(packages / TORCH)
    report = upload(tmp_path)
    assert packages_in(tmp_path) == {TORCH}
    assert [(file.path, file.reason) for file in report.result.skipped] == [
        ("X-1-py3-none-any.WHL", "a package's name ends in .whl or .tar.gz, in small letters"),
        ("demo-1.0.zip", "an sdist is a .tar.gz, nothing else is stored"),
        ("gfx1151/x.sha256", "it is no wheel and no sdist"),
        ("linked-1.0-py3-none-any.whl", "it is a symbolic link"),
        ("notes.txt", "it is no wheel and no sdist"),
    ]
    assert report.outputs["kpack_split"] == "true"


def test_globs_choose_packages(tmp_path: Path) -> None:
    for name in ("torch", "apex", "vision"):
        make_wheel(tmp_path / "packages", name)
    upload(tmp_path, include="torch-*\napex-*", exclude="apex-*")
    assert packages_in(tmp_path) == {TORCH}


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"layout": "single-stage"}, "needs artifact_group"),
        ({"path": ""}, "needs path"),
        ({"path": "packages/file"}, "a folder"),
        ({"artifact_group": "simple"}, "simple repository has that name"),
        ({"artifact_group": "a/b"}, "cannot be used"),
        ({"family": "gfx1151,gfx1152"}, "not the name of one GPU family"),
        ({"family": "gfx1151 gfx1152"}, "not the name of one GPU family"),
        ({"family": "wheels"}, "not the name of one GPU family"),
        ({"family": "multiarch"}, "not the name of one GPU family"),
        ({"family": "gfx1151-tests"}, "not the name of one GPU family"),
    ],
)
def test_settings_that_cannot_be_used_are_told_before_anything_is_stored(
    tmp_path: Path, inputs: dict[str, str], message: str
) -> None:
    make_wheel(tmp_path / "packages", "torch")
    write_tree(tmp_path, {"packages/file": ""})
    with pytest.raises(InputError, match=message):
        upload(tmp_path, **inputs)
    assert not (tmp_path / STAGED).exists()


def test_a_family_beside_a_group_is_told(tmp_path: Path) -> None:
    make_wheel(tmp_path / "packages", "torch")
    report = upload(tmp_path, artifact_group="g", family="gfx1151")
    assert report.notices == ("input family is not used: the packages are those of artifact_group",)


@pytest.mark.parametrize("folder", ["wheels", "simple", "index.html", "multiarch", "x gfx1151"])
def test_a_folder_that_is_named_like_no_family_is_left_out_and_told(tmp_path: Path, folder: str) -> None:
    packages = tmp_path / "packages"
    make_wheel(packages / folder, "torch")
    make_wheel(packages / folder, "vision")
    make_wheel(packages / "gfx942-asan", "apex")
    report = upload(tmp_path)
    assert packages_in(tmp_path) == {f"gfx942-asan/{APEX}"}
    assert [(file.path, file.reason) for file in report.result.skipped] == [
        (f"{folder}/{TORCH}", "its folder is named like no GPU family"),
        (f"{folder}/vision-1.0-py3-none-any.whl", "its folder is named like no GPU family"),
    ]
    assert report.warnings == (f"2 packages in the folder '{folder}' left out: it is named like no GPU family",)


def test_a_bad_name_is_told_with_its_folder_and_what_to_do(tmp_path: Path) -> None:
    write_tree(tmp_path / "packages", {"gfx1151/a-b.whl": "x"})
    with pytest.raises(InputError) as caught:
        upload(tmp_path)
    assert caught.value.what == "'gfx1151/a-b.whl' is not a package's file name"
    assert caught.value.why.count('"') + caught.value.why.count("''") == 0
    assert "exclude" in caught.value.remedy


def test_a_broken_package_is_told_with_its_folder_and_what_to_do(tmp_path: Path) -> None:
    write_tree(tmp_path / "packages", {f"gfx1151/{TORCH}": "x"})
    with pytest.raises(IntegrityError) as caught:
        upload(tmp_path)
    assert caught.value.what == f"gfx1151/{TORCH} is not a wheel that pip could install"
    assert "exclude" in caught.value.remedy


def test_what_pip_could_not_compare_its_version_with_is_not_on_the_pages_and_told(tmp_path: Path) -> None:
    for number in range(7):
        make_wheel(tmp_path / "packages", f"demo{number}", requires_python=">=" + "3" * 5000)
    report = upload(tmp_path)
    assert report.error is None
    assert len(report.notices) == 6
    assert report.notices[0].startswith("the pages do not say the Requires-Python of demo0-1.0-py3-none-any.whl")
    assert len(report.notices[0]) < 400
    assert report.notices[-1] == "the same of 2 more packages"
    assert {entry.requires_python for entry in entries(tmp_path, "index.html").values()} == {""}


def test_all_broken_packages_are_named_and_none_is_stored(tmp_path: Path) -> None:
    make_wheel(tmp_path / "packages", "torch")
    write_tree(tmp_path / "packages", {APEX: "no zip", "demo-1.0.tar.gz": "no gzip", "a-b.whl": "x"})
    with pytest.raises(InputError) as caught:
        upload(tmp_path)
    assert caught.value.what == "3 packages cannot be stored, so none was"
    assert all(name in caught.value.why for name in (APEX, "demo-1.0.tar.gz", "a-b.whl"))
    assert not (tmp_path / STAGED).exists()
    (tmp_path / "packages" / "a-b.whl").unlink()
    (tmp_path / "packages" / APEX).unlink()
    with pytest.raises(IntegrityError, match=r"demo-1\.0\.tar\.gz is not an sdist"):
        upload(tmp_path)


def test_of_many_broken_packages_the_first_few_are_named(tmp_path: Path) -> None:
    write_tree(tmp_path / "packages", {f"demo-{number}.tar.gz": "x" for number in range(7)})
    with pytest.raises(IntegrityError) as caught:
        upload(tmp_path)
    assert caught.value.why.endswith("; and 2 more")


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize(("told", "error"), [("", NotFoundError), ("warn", None)])
def test_nothing_to_store_is_told_as_wanted(tmp_path: Path, there: bool, told: str, error: type | None) -> None:
    if there:
        (tmp_path / "packages").mkdir()
    report = upload(tmp_path, if_no_files_found=told)
    assert (type(report.error) if report.error else None) == error
    wanted = "there is no wheel and no sdist in packages" if there else "packages"
    assert wanted in (str(report.error) if report.error else report.warnings[0])
    assert report.outputs == {"package_find_links_url": "", "index_url": "", "kpack_split": ""}
    assert not (tmp_path / STAGED).exists()


# Pages


@pytest.mark.parametrize(
    ("index", "bucket", "page", "simple"),
    [
        ("auto", OWN, True, True),
        ("none", OWN, False, False),
        ("auto", "therock-ci-artifacts", True, True),
        ("none", "therock-ci-artifacts", False, False),
    ],
)
def test_pages_are_written_into_a_staging_folder_unless_none_is_wanted(
    tmp_path: Path, index: str, bucket: str, page: bool, simple: bool
) -> None:
    make_wheel(tmp_path / "packages", "torch")
    report = upload(tmp_path, index=index, bucket=bucket, staging_dir=STAGED)
    keys = staged(tmp_path)
    assert ("index.html" in keys, "simple/torch/index.html" in keys) == (page, simple)
    assert (f"{TORCH}.metadata" in keys) == simple
    assert bool(report.outputs["package_find_links_url"]) == bool(report.outputs["index_url"]) == simple
    assert bool(report.snippets) == simple


SERVED = {"bucket": "therock-ci-artifacts"}


def test_the_page_is_left_to_a_server_that_makes_it_but_the_simple_repository_is_ours(tmp_path: Path) -> None:
    make_wheel(tmp_path / "packages", "torch")
    report = upload_to_web(tmp_path, _WebBackend(tmp_path / STAGED), **SERVED)
    keys = staged(tmp_path)
    assert "index.html" not in keys
    assert {"simple/torch/index.html", f"{TORCH}.metadata"} <= keys.keys()
    assert report.outputs["package_find_links_url"].endswith(f"/{P}/python/index.html")
    assert report.outputs["index_url"]
    assert report.parts[0].by_server
    assert len(report.snippets) == 1


@pytest.mark.parametrize(("index", "written"), [("write", True), ("none", False)])
def test_a_server_is_not_waited_for_where_it_is_told_otherwise(tmp_path: Path, index: str, written: bool) -> None:
    make_wheel(tmp_path / "packages", "torch")
    report = upload_to_web(tmp_path, _WebBackend(tmp_path / STAGED), index=index, **SERVED)
    assert ("index.html" in staged(tmp_path)) == written
    assert bool(report.outputs["package_find_links_url"]) == written


def test_the_page_of_a_group_is_ours_in_every_bucket(tmp_path: Path) -> None:
    make_wheel(tmp_path / "packages", "torch")
    upload_to_web(tmp_path, _WebBackend(tmp_path / STAGED), artifact_group="g", **SERVED)
    assert "g/index.html" in staged(tmp_path)


def test_the_page_of_a_family_is_ours_in_every_bucket_because_no_server_names_generic_packages(tmp_path: Path) -> None:
    make_wheel(tmp_path / "packages", "torch")
    make_wheel(tmp_path / "packages" / "gfx1151", "apex")
    upload_to_web(tmp_path, _WebBackend(tmp_path / STAGED), **SERVED)
    assert set(entries(tmp_path, "gfx1151/index.html")) == {APEX, TORCH}


def test_a_page_of_another_program_is_kept_and_told(tmp_path: Path) -> None:
    make_wheel(tmp_path / "packages", "torch")
    write_tree(tmp_path / STAGED / P / "python", {"index.html": "<p>by hand</p>"})
    report = upload(tmp_path)
    assert staged(tmp_path)["index.html"] == b"<p>by hand</p>"
    assert any("another program made it" in warning for warning in report.warnings)
    assert report.outputs["package_find_links_url"]


def test_a_page_of_another_mode_and_what_lies_in_simple_are_replaced(tmp_path: Path) -> None:
    make_wheel(tmp_path / "packages", "torch")
    other = '<meta name="generator" content="therock-outputs files">'
    written = {"index.html": other, "simple/torch/index.html": "<p>a server's</p>", "simple/index.v1_json": "{"}
    write_tree(tmp_path / STAGED / P / "python", written)
    upload(tmp_path)
    assert set(entries(tmp_path, "index.html")) == {TORCH}
    assert set(entries(tmp_path, "simple/torch/index.html")) == {TORCH}
    assert json.loads(staged(tmp_path)["simple/index.v1_json"])["projects"] == [{"name": "torch"}]


def test_a_re_run_leaves_the_same_bytes(tmp_path: Path) -> None:
    make_wheel(tmp_path / "packages", "torch", requires_python=">=3.9")
    make_sdist(tmp_path / "packages", "rocm")
    first = upload(tmp_path)
    before = staged(tmp_path)
    second = upload(tmp_path)
    assert staged(tmp_path) == before
    assert second.outputs == first.outputs
    assert {item.location for item in second.result.stored} == {item.location for item in first.result.stored}


def test_packages_of_other_jobs_stay_with_what_their_jobs_said(tmp_path: Path) -> None:
    make_wheel(tmp_path / "packages", "torch", requires_python=">=3.9")
    upload(tmp_path)
    before = entries(tmp_path, "index.html")[TORCH]
    assert before.sha256 == digest(staged(tmp_path)[TORCH])
    make_wheel(tmp_path / "more", "apex")
    upload(tmp_path, path="more")
    assert entries(tmp_path, "index.html")[TORCH] == before
    assert entries(tmp_path, "simple/torch/index.v1_json")[TORCH] == before
    assert set(entries(tmp_path, "index.html")) == {APEX, TORCH}


def test_packages_whose_objects_are_gone_leave_the_pages(tmp_path: Path) -> None:
    make_wheel(tmp_path / "packages", "torch")
    make_wheel(tmp_path / "packages", "torch", "2.0")
    make_wheel(tmp_path / "packages", "vision")
    upload(tmp_path)
    folder = tmp_path / STAGED / P / "python"
    for name in (TORCH, f"{TORCH}.metadata", "torch-2.0-py3-none-any.whl.metadata", "vision-1.0-py3-none-any.whl"):
        (folder / name).unlink()
    make_wheel(tmp_path / "more", "apex")
    upload(tmp_path, path="more")
    assert set(entries(tmp_path, "index.html")) == {APEX, "torch-2.0-py3-none-any.whl"}
    assert entries(tmp_path, "index.html")["torch-2.0-py3-none-any.whl"].metadata_sha256 == ""
    assert set(entries(tmp_path, "simple/torch/index.html")) == {"torch-2.0-py3-none-any.whl"}
    projects = json.loads(staged(tmp_path)["simple/index.v1_json"])["projects"]
    assert [project["name"] for project in projects] == ["apex", "torch"]


class _SilentBackend(LocalStorageBackend):
    """A staging folder that keeps no digests, as S3 keeps none of an object in parts."""

    def describe(self, locations: Sequence[StorageLocation], **_options: Any) -> Any:  # noqa: ANN401 - as LocalStorageBackend's
        facts = super().describe(locations)
        return tuple(dataclasses.replace(fact, sha256="") if isinstance(fact, ObjectFacts) else fact for fact in facts)


def test_packages_that_no_page_names_are_added_with_what_storage_says(tmp_path: Path) -> None:
    make_wheel(tmp_path / "packages", "torch", requires_python=">=3.9")
    upload(tmp_path)
    folder = tmp_path / STAGED / P / "python"
    before = entries(tmp_path, "index.html")[TORCH]
    for page in ("index.html", "simple/index.html", "simple/torch/index.html", "simple/torch/index.v1_json"):
        (folder / page).unlink()
    make_wheel(tmp_path / "more", "apex")
    upload(tmp_path, path="more")
    assert entries(tmp_path, "index.html")[TORCH] == before
    assert entries(tmp_path, "simple/torch/index.html")[TORCH] == before


def test_a_package_of_which_storage_says_no_digest_is_on_the_page_without_one(tmp_path: Path) -> None:
    folder = tmp_path / STAGED / P / "python"
    make_sdist(folder, "rocm")
    make_wheel(tmp_path / "packages", "torch")
    upload(tmp_path, backend=_SilentBackend(tmp_path / STAGED))
    entry = entries(tmp_path, "index.html")["rocm-1.0.tar.gz"]
    assert (entry.sha256, entry.metadata_sha256) == ("", "")
    assert entry.size_bytes == (folder / "rocm-1.0.tar.gz").stat().st_size


def test_what_is_left_as_it_was_is_not_said_to_be_ours(tmp_path: Path) -> None:
    make_wheel(tmp_path / "packages", "torch")
    upload(tmp_path)
    before = staged(tmp_path)
    make_wheel(tmp_path / "packages", "torch", requires=("something-else",))
    report = upload(tmp_path, on_conflict="skip")
    assert staged(tmp_path) == before
    assert report.outputs["package_find_links_url"]
    overwritten = upload(tmp_path)
    assert overwritten.error is None
    entry = entries(tmp_path, "index.html")[TORCH]
    assert entry.sha256 == digest(staged(tmp_path)[TORCH])
    assert entry.metadata_sha256 == digest(staged(tmp_path)[f"{TORCH}.metadata"])


@pytest.mark.parametrize("with_pages", [True, False])
def test_where_all_is_left_as_it_was_outputs_and_pages_are_as_ever(tmp_path: Path, with_pages: bool) -> None:
    make_wheel(tmp_path / "packages", "torch")
    first = upload(tmp_path)
    before = staged(tmp_path)
    if not with_pages:
        for key in before:
            if key.startswith(("simple/", "index.html")):
                (tmp_path / STAGED / P / "python" / key).unlink()
    make_wheel(tmp_path / "packages", "torch", requires=("something-else",))
    report = upload(tmp_path, on_conflict="skip")
    assert report.error is None
    assert report.outputs == first.outputs
    assert report.snippets == first.snippets
    assert staged(tmp_path) == before


def test_where_all_is_left_as_it_was_the_servers_page_is_named(tmp_path: Path) -> None:
    make_wheel(tmp_path / "packages", "torch")
    first = upload_to_web(tmp_path, _WebBackend(tmp_path / STAGED), **SERVED)
    make_wheel(tmp_path / "packages", "torch", requires=("something-else",))
    report = upload_to_web(tmp_path, _WebBackend(tmp_path / STAGED), on_conflict="skip", **SERVED)
    assert report.error is None
    assert report.outputs == first.outputs


def test_nothing_is_written_where_a_conflict_is_an_error(tmp_path: Path) -> None:
    make_wheel(tmp_path / "packages", "torch")
    upload(tmp_path)
    before = staged(tmp_path)
    make_wheel(tmp_path / "packages", "torch", requires=("something-else",))
    make_wheel(tmp_path / "packages", "apex")
    report = upload(tmp_path, on_conflict="error")
    assert report.error is not None
    assert staged(tmp_path) == before
    assert set(report.outputs.values()) == {""}


def test_a_dry_run_writes_nothing_and_says_what_it_would_store(tmp_path: Path) -> None:
    make_wheel(tmp_path / "packages", "torch")
    report = upload(tmp_path, dry_run="true")
    assert not (tmp_path / STAGED).exists()
    names = {stored.location.relative_path.removeprefix(f"{P}/python/") for stored in report.result.stored}
    assert {TORCH, f"{TORCH}.metadata", "index.html", "simple/index.html", "simple/torch/index.v1_json"} <= names
    assert {stored.verified for stored in report.result.stored} == {"dry-run"}
    assert report.outputs == {"package_find_links_url": "", "index_url": "", "kpack_split": "true"}
    assert report.snippets == ()


# Objects that were replaced by a job that ended before it wrote its pages


def replaced(workspace: Path, *, with_metadata: bool = False) -> Path:
    """Lay another torch of the same size where the stored one was, some time later; perhaps its metadata file, too."""
    path = workspace / STAGED / P / "python" / TORCH
    data = bytearray(path.read_bytes())
    data[data.index(b"torch.py") + 30] ^= 1  # some byte
    path.write_bytes(data)
    later = path.stat().st_mtime + 10
    os.utime(path, (later, later))
    if with_metadata:
        os.utime(path.with_name(f"{TORCH}.metadata"), (later, later))
    return path


@pytest.mark.parametrize("with_metadata", [True, False])
def test_what_pages_say_of_an_object_that_was_replaced_is_put_right_by_any_job(
    tmp_path: Path, with_metadata: bool
) -> None:
    make_wheel(tmp_path / "packages", "torch", requires_python=">=3.9")
    upload(tmp_path)
    before = entries(tmp_path, "index.html")[TORCH]
    path = replaced(tmp_path, with_metadata=with_metadata)
    make_wheel(tmp_path / "more", "apex")
    upload(tmp_path, path="more")
    for document in ("index.html", "simple/torch/index.html", "simple/torch/index.v1_json"):
        entry = entries(tmp_path, document)[TORCH]
        assert entry.sha256 == digest(path.read_bytes()) != before.sha256
        assert (entry.requires_python, entry.metadata_sha256) == (
            (before.requires_python, before.metadata_sha256) if with_metadata else ("", "")
        )


def test_there_is_no_digest_rather_than_one_of_what_lay_there_before(tmp_path: Path) -> None:
    make_wheel(tmp_path / "packages", "torch")
    upload(tmp_path)
    replaced(tmp_path)
    make_wheel(tmp_path / "more", "apex")
    upload(tmp_path, path="more", backend=_SilentBackend(tmp_path / STAGED))
    assert entries(tmp_path, "index.html")[TORCH].sha256 == ""
    assert entries(tmp_path, "simple/torch/index.v1_json")[TORCH].sha256 == ""


def test_this_runs_digest_is_not_said_of_what_another_job_stored_there_meanwhile(tmp_path: Path) -> None:
    make_wheel(tmp_path / "packages", "torch")
    paths: list[Path] = []

    class Backend(LocalStorageBackend):
        listings = 0

        def list_objects(self, location: StorageLocation, **options: Any) -> Iterator[ListedObject]:  # noqa: ANN401 - as LocalStorageBackend's
            self.listings += 1
            if self.listings == 2:
                paths.append(replaced(tmp_path))
            return super().list_objects(location, **options)

    upload(tmp_path, backend=Backend(tmp_path / STAGED))
    assert entries(tmp_path, "index.html")[TORCH].sha256 == digest(paths[0].read_bytes())


def test_a_package_that_another_job_replaced_before_the_first_listing_is_asked_about(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path / "packages", "torch")
    make_wheel(tmp_path / "packages", "apex")
    stored = tmp_path / STAGED / P / "python" / TORCH
    other = make_wheel(tmp_path / "more", "torch", requires=("something-else",)).read_bytes()
    assert len(other) != wheel.stat().st_size

    def replace(items: Sequence[Any]) -> None:
        if items[0].destination.name.endswith(".metadata"):
            stored.write_bytes(other)

    upload(tmp_path, backend=TroubledBackend(tmp_path / STAGED, on_upload=replace))
    assert entries(tmp_path, "index.html")[TORCH].sha256 == digest(other)


def test_what_others_stored_under_a_name_that_no_package_has_is_on_no_page(tmp_path: Path) -> None:
    write_tree(tmp_path / STAGED / P / "python", {"logs.tar.gz": "x", f"demo-{'1' * 99}-.whl": "x"})
    make_wheel(tmp_path / "packages", "torch")
    assert upload(tmp_path).error is None
    assert set(entries(tmp_path, "index.html")) == {TORCH}


def test_only_packages_of_which_nothing_certain_is_known_are_asked_about(tmp_path: Path) -> None:
    asked: list[str] = []

    class Backend(LocalStorageBackend):
        def describe(self, locations: Sequence[StorageLocation], **options: Any) -> Any:  # noqa: ANN401 - as LocalStorageBackend's
            asked.extend(at.name for at in locations)
            return super().describe(locations, **options)

    make_wheel(tmp_path / "packages", "torch")
    upload(tmp_path, backend=Backend(tmp_path / STAGED))
    make_wheel(tmp_path / "more", "apex")
    upload(tmp_path, path="more", backend=Backend(tmp_path / STAGED))
    assert asked == []
    replaced(tmp_path)
    upload(tmp_path, path="more", backend=Backend(tmp_path / STAGED))
    assert asked == [TORCH]
    upload(tmp_path, path="more", backend=Backend(tmp_path / STAGED))
    assert asked == [TORCH]


def test_a_package_of_another_job_stays_on_the_page_when_ours_of_that_name_cannot_be_stored(tmp_path: Path) -> None:
    class Backend(LocalStorageBackend):
        def upload(self, items: Sequence[UploadItem], **options: Any) -> UploadResult:  # noqa: ANN401 - as LocalStorageBackend's
            good = [item for item in items if item.destination.name != TORCH]
            bad = [item for item in items if item.destination.name == TORCH]
            failed = tuple(FailedItem(item.label, item.destination, ServiceError("it is busy")) for item in bad)
            return super().upload(good, **options) + UploadResult(failed=failed)

    make_wheel(tmp_path / "packages", "torch")
    upload(tmp_path)
    make_wheel(tmp_path / "packages", "apex")
    report = upload(tmp_path, backend=Backend(tmp_path / STAGED))
    assert report.error is not None
    assert {TORCH, "apex-1.0-py3-none-any.whl"} <= set(entries(tmp_path, "index.html"))


def test_what_could_not_be_asked_is_asked_again_by_the_next_job(tmp_path: Path) -> None:
    class Backend(LocalStorageBackend):
        def describe(self, locations: Sequence[StorageLocation], **_options: Any) -> Any:  # noqa: ANN401 - as LocalStorageBackend's
            return tuple(ServiceError("looking is broken") for _ in locations)

    sdist = make_sdist(tmp_path / STAGED / P / "python", "rocm")
    make_wheel(tmp_path / "packages", "torch")
    upload(tmp_path, backend=Backend(tmp_path / STAGED))
    assert entries(tmp_path, "index.html")[sdist.name].sha256 == ""
    upload(tmp_path)
    assert entries(tmp_path, "index.html")[sdist.name].sha256 == digest(sdist.read_bytes())


def test_metadata_files_of_others_that_no_package_has_are_not_named(tmp_path: Path) -> None:
    folder = tmp_path / STAGED / P / "python"
    path = make_wheel(folder, "torch")
    hostile = b"Requires-Python: >=3.9\n" + b"".join(b"x%x: 1\n" % number for number in range(60_000))
    path.with_name(f"{TORCH}.metadata").write_bytes(hostile)
    make_wheel(tmp_path / "packages", "apex")
    upload(tmp_path)
    entry = entries(tmp_path, "index.html")[TORCH]
    assert (entry.requires_python, entry.metadata_sha256) == ("", "")


# Trouble


def test_pages_hold_what_is_known_where_the_folder_cannot_be_listed(tmp_path: Path) -> None:
    make_wheel(tmp_path / "packages", "torch")
    upload(tmp_path)
    make_wheel(tmp_path / "more", "apex")
    backend = TroubledBackend(tmp_path / STAGED, listing=NotPermittedError("listing is refused"))
    report = upload(tmp_path, path="more", backend=backend)
    assert report.error is None
    assert set(entries(tmp_path, "index.html")) == {APEX, TORCH}
    projects = json.loads(staged(tmp_path)["simple/index.v1_json"])["projects"]
    assert [project["name"] for project in projects] == ["apex", "torch"]
    assert sum("cannot be listed" in warning for warning in report.warnings) == 1


def test_a_listing_that_fails_is_the_failure_of_the_pages(tmp_path: Path) -> None:
    make_wheel(tmp_path / "packages", "torch")
    backend = TroubledBackend(tmp_path / STAGED, listing=ServiceError("listing is broken"))
    report = upload(tmp_path, backend=backend)
    assert report.error is not None
    assert report.error.what == "listing is broken"
    assert packages_in(tmp_path) == {TORCH}
    assert report.outputs["package_find_links_url"] == ""


def test_no_page_is_written_where_no_package_is_stored(tmp_path: Path) -> None:
    make_wheel(tmp_path / "packages", "torch")

    def refuse(_items: object) -> None:
        raise NotPermittedError("writing is refused")

    backend = TroubledBackend(tmp_path / STAGED, on_upload=refuse)
    report = upload(tmp_path, backend=backend)
    assert isinstance(report.error, NotPermittedError)
    assert len(backend.uploads) == 1
    assert set(report.outputs.values()) == {""}


def test_a_wheel_without_its_metadata_file_is_on_the_page_without_one(tmp_path: Path) -> None:
    make_wheel(tmp_path / "packages", "torch")

    def refuse(items: Sequence[Any]) -> None:
        if items[0].destination.name.endswith(".metadata"):
            raise ServiceError("writing is broken")

    report = upload(tmp_path, backend=TroubledBackend(tmp_path / STAGED, on_upload=refuse))
    assert report.error is not None
    entry = entries(tmp_path, "simple/torch/index.html")[TORCH]
    assert (entry.sha256, entry.metadata_sha256) == (digest(staged(tmp_path)[TORCH]), "")


def test_a_cancel_between_packages_and_pages_leaves_no_page(tmp_path: Path) -> None:
    make_wheel(tmp_path / "packages", "torch")
    cancel = CancelToken()

    def stop(items: Sequence[Any]) -> None:
        if items[0].destination.name.endswith(".metadata"):
            cancel.cancel()

    backend = TroubledBackend(tmp_path / STAGED, on_upload=stop)
    report = upload(tmp_path, backend=backend, cancel=cancel)
    assert isinstance(report.error, CancelledError)
    assert set(staged(tmp_path)) == {TORCH}


def test_a_package_that_cannot_be_read_is_a_local_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_wheel(tmp_path / "packages", "torch")

    def vanish(*_arguments: object, **_options: object) -> None:
        raise LocalFileError(f"the file {path} cannot be read")

    monkeypatch.setattr("therock_outputs.modes._python_plan.read_package", vanish)
    with pytest.raises(LocalFileError):
        upload(tmp_path)


def test_facts_of_another_size_say_nothing_about_a_package(tmp_path: Path) -> None:
    class Backend(LocalStorageBackend):
        def describe(self, locations: Sequence[StorageLocation], **_options: Any) -> Any:  # noqa: ANN401 - as LocalStorageBackend's
            return tuple(ObjectFacts(at, 1, "0" * 64, "") for at in locations)

    make_sdist(tmp_path / STAGED / P / "python", "rocm")
    make_wheel(tmp_path / "packages", "torch")
    upload(tmp_path, backend=Backend(tmp_path / STAGED))
    assert entries(tmp_path, "index.html")["rocm-1.0.tar.gz"].sha256 == ""


# Pages at a folder's own URL


class _WebBackend(LocalStorageBackend):
    """A staging folder that keeps pages at folders' own URLs apart, as a bucket does; `before_put` may come first."""

    def __init__(self, staging_dir: Path, before_put: Callable[[StorageLocation], None] = lambda _folder: None) -> None:
        super().__init__(staging_dir)
        self.at_slash: dict[str, bytes] = {}
        self.put_count = 0
        self._before_put = before_put

    def put_folder_document(self, folder: StorageLocation, data: bytes, content_type: str, **_options: Any) -> bool:  # noqa: ANN401 - as LocalStorageBackend's
        self._before_put(folder)
        assert content_type == "text/html; charset=utf-8"
        self.put_count += 1
        self.at_slash[folder.relative_path.removeprefix(f"{P}/python/")] = data
        return True


def upload_to_web(workspace: Path, backend: LocalStorageBackend, **options: Any) -> Report:  # noqa: ANN401 - as make_context's
    context = make_context(
        workspace, Mode.UPLOAD_PYTHON, backend=backend, **({"path": "packages", "bucket": OWN} | options)
    )
    return upload_python.run(dataclasses.replace(context, staging_dir=None))


def test_pages_lie_at_the_folders_own_urls_too(tmp_path: Path) -> None:
    make_wheel(tmp_path / "packages", "torch")
    make_wheel(tmp_path / "packages" / "gfx1151", "apex")
    backend = _WebBackend(tmp_path / STAGED)
    report = upload_to_web(tmp_path, backend)
    assert report.error is None
    folders = {"gfx1151/simple", "gfx1151/simple/apex", "gfx1151/simple/torch"}
    assert backend.at_slash == {folder: staged(tmp_path)[f"{folder}/index.html"] for folder in folders}
    assert backend.put_count == len(folders)
    (snippet,) = report.snippets
    assert any(f"--find-links https://{OWN}.s3.amazonaws.com/{P}/python/gfx1151/index.html" in x for x in snippet.lines)


def test_such_a_page_is_made_again_where_another_job_changed_its_list_meanwhile(tmp_path: Path) -> None:
    make_wheel(tmp_path / "packages", "torch")
    make_wheel(tmp_path / "more", "torch", "2.0")
    others: list[Report] = []
    first = threading.Lock()

    def other_job(_folder: StorageLocation) -> None:
        if first.acquire(blocking=False):  # pages are stored by several threads
            others.append(upload(tmp_path, path="more"))  # to a staging folder: it leaves those pages alone

    backend = _WebBackend(tmp_path / STAGED, other_job)
    upload_to_web(tmp_path, backend)
    assert len(others) == 1
    assert backend.at_slash["simple/torch"] == staged(tmp_path)["simple/torch/index.html"]
    assert b"torch-2.0" in backend.at_slash["simple/torch"]


def test_a_page_that_another_program_laid_over_ours_does_not_get_to_the_folders_url(tmp_path: Path) -> None:
    make_wheel(tmp_path / "packages", "torch")
    page = tmp_path / STAGED / P / "python" / "simple" / "torch" / "index.html"
    backend = _WebBackend(tmp_path / STAGED, lambda _folder: page.write_text("<p>a server's</p>") and None)
    upload_to_web(tmp_path, backend)
    assert b"torch-1.0" in backend.at_slash["simple/torch"]


def test_a_page_that_cannot_be_stored_there_is_a_failure(tmp_path: Path) -> None:
    make_wheel(tmp_path / "packages", "torch")

    def refuse(folder: StorageLocation) -> None:
        if folder.name == "torch":
            raise NotPermittedError("writing is refused")

    backend = _WebBackend(tmp_path / STAGED, refuse)
    report = upload_to_web(tmp_path, backend)
    assert isinstance(report.error, NotPermittedError)
    assert set(backend.at_slash) == {"simple"}


@pytest.mark.parametrize(
    ("error", "fails"), [(NotPermittedError("reading is refused"), False), (ServiceError("reading is broken"), True)]
)
def test_a_list_that_cannot_be_read_again_is_what_this_run_wrote(
    tmp_path: Path, error: OutputsError, fails: bool
) -> None:
    make_wheel(tmp_path / "packages", "torch")

    class Backend(_WebBackend):
        def read_all_small(self, locations: Sequence[StorageLocation], **options: Any) -> Any:  # noqa: ANN401 - as LocalStorageBackend's
            found = super().read_all_small(locations, **options)
            return tuple(error if isinstance(one, StoredBytes) else one for one in found)

    backend = Backend(tmp_path / STAGED)
    report = upload_to_web(tmp_path, backend)
    assert (report.error is not None) == fails
    assert set(backend.at_slash) == (set() if fails else {"simple", "simple/torch"})


class _WriteOnlyBackend(_WebBackend):
    """A bucket with credentials that may store and do nothing else: that an object is not there is not said either."""

    may_list = False

    def read_all_small(self, locations: Sequence[StorageLocation], **_options: Any) -> Any:  # noqa: ANN401 - as LocalStorageBackend's
        return tuple(NotPermittedError("reading is refused") for _ in locations)

    def list_objects(self, location: StorageLocation, **options: Any) -> Iterator[ListedObject]:  # noqa: ANN401 - as above
        if not self.may_list:
            raise NotPermittedError("listing is refused")
        return super().list_objects(location, **options)


@pytest.mark.parametrize("may_list", [True, False])
@pytest.mark.parametrize("bucket", [OWN, "therock-ci-artifacts"])
def test_the_first_job_that_may_only_store_makes_all_pages(tmp_path: Path, may_list: bool, bucket: str) -> None:
    make_wheel(tmp_path / "packages", "torch")
    make_wheel(tmp_path / "packages" / "gfx1151", "apex")
    backend = _WriteOnlyBackend(tmp_path / STAGED)
    backend.may_list = may_list
    report = upload_to_web(tmp_path, backend, bucket=bucket)
    assert report.error is None
    assert set(entries(tmp_path, "gfx1151/index.html")) == {APEX, TORCH}
    assert backend.at_slash["gfx1151/simple/torch"] == staged(tmp_path)["gfx1151/simple/torch/index.html"]


@pytest.mark.parametrize("may_list", [True, False])
@pytest.mark.parametrize("bucket", [OWN, "therock-ci-artifacts"])
@pytest.mark.parametrize("name", ["torch", "apex"])
def test_a_later_job_that_may_only_store_leaves_all_pages_as_they_are_and_fails(
    tmp_path: Path, may_list: bool, bucket: str, name: str
) -> None:
    make_wheel(tmp_path / "packages", "torch")
    backend = _WriteOnlyBackend(tmp_path / STAGED)
    backend.may_list = may_list
    upload_to_web(tmp_path, backend, bucket=bucket)
    before, at_slash = staged(tmp_path), dict(backend.at_slash)
    make_wheel(tmp_path / "more", name, "2.0")
    report = upload_to_web(tmp_path, backend, bucket=bucket, path="more")
    assert isinstance(report.error, NotPermittedError)
    assert "does not name the packages of this run" in report.error.what
    assert "s3:GetObject" in report.error.remedy
    assert report.exit_code == 4
    after = staged(tmp_path)
    assert f"{name}-2.0-py3-none-any.whl" in after
    assert {key: after[key] for key in before} == before
    assert {folder: backend.at_slash[folder] for folder in at_slash} == at_slash
    assert report.outputs["index_url"] == ""
    has_page = bucket != OWN  # the server's, which shows all that is there
    assert (bool(report.outputs["package_find_links_url"]), bool(report.snippets)) == (has_page, has_page)
    failed = [item.location for item in report.result.failed]
    assert len(failed) == len(set(failed))


def test_a_page_that_cannot_be_read_is_no_failure_where_it_is_not_for_this_runs_packages(tmp_path: Path) -> None:
    make_wheel(tmp_path / "packages", "torch")
    upload(tmp_path)
    before = staged(tmp_path)
    make_wheel(tmp_path / "packages", "torch", requires=("something-else",))
    backend = _WriteOnlyBackend(tmp_path / STAGED)
    report = upload_to_web(tmp_path, backend, on_conflict="skip")
    assert report.error is None
    assert staged(tmp_path) == before
    assert backend.at_slash == {}


def test_a_cancel_stops_these_pages_too(tmp_path: Path) -> None:
    make_wheel(tmp_path / "packages", "torch")
    cancel = CancelToken()
    backend = _WebBackend(tmp_path / STAGED, lambda _folder: cancel.cancel())
    report = upload_to_web(tmp_path, backend, cancel=cancel)
    assert isinstance(report.error, CancelledError)


def test_a_package_that_vanishes_before_it_is_stored_is_on_no_page(tmp_path: Path) -> None:
    make_wheel(tmp_path / "packages", "torch")
    apex = make_wheel(tmp_path / "packages", "apex")
    backend = TroubledBackend(tmp_path / STAGED, on_upload=lambda _items: apex.unlink(missing_ok=True))
    report = upload(tmp_path, backend=backend)
    assert [file.path for file in report.result.skipped] == [APEX]
    assert set(entries(tmp_path, "index.html")) == {TORCH}
    assert not any("apex" in key for key in staged(tmp_path))


@pytest.mark.parametrize("with_pages", [True, False])
def test_a_package_that_failed_is_on_no_page_though_one_lies_there(tmp_path: Path, with_pages: bool) -> None:
    make_wheel(tmp_path / "packages", "torch")
    make_wheel(tmp_path / "packages", "apex")
    if with_pages:
        upload(tmp_path)

    class Backend(LocalStorageBackend):
        def upload(self, items: Sequence[Any], **options: Any) -> UploadResult:  # noqa: ANN401 - as LocalStorageBackend's
            result = super().upload(items, **options)
            broken = [item for item in result.stored if item.location.name == APEX]
            error = IntegrityError("it changed while it was read")
            failed = tuple(FailedItem(APEX, item.location, error) for item in broken)
            kept = tuple(item for item in result.stored if item not in broken)
            return dataclasses.replace(result, stored=kept, failed=failed)

    report = upload(tmp_path, backend=Backend(tmp_path / STAGED))
    assert isinstance(report.error, IntegrityError)
    assert set(entries(tmp_path, "index.html")) == {TORCH}
    assert ("simple/apex/index.html" in staged(tmp_path)) == with_pages
    assert not with_pages or entries(tmp_path, "simple/apex/index.html") == {}
    assert json.loads(staged(tmp_path)["simple/index.v1_json"])["projects"] == [{"name": "torch"}]


def test_a_dist_folder_that_cannot_be_looked_at_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_wheel(tmp_path / "packages", "torch")
    is_dir = Path.is_dir

    def refused(path: Path) -> bool:
        if path.name == "dist":
            raise PermissionError(errno.EACCES, "Permission denied")
        return is_dir(path)

    monkeypatch.setattr(Path, "is_dir", refused)
    with pytest.raises(LocalFileError, match="cannot be looked at"):
        upload(tmp_path)


def test_what_another_job_adds_while_pages_are_made_is_on_them_in_the_end(tmp_path: Path) -> None:
    make_wheel(tmp_path / "packages" / "gfx1151", "libraries")
    folder = tmp_path / STAGED / P / "python"

    class Backend(LocalStorageBackend):
        listings = 0

        def list_objects(self, location: StorageLocation, **options: Any) -> Iterator[ListedObject]:  # noqa: ANN401 - as above
            self.listings += 1
            if self.listings == 3:  # it has stored its package, but saw no family to tell of it
                make_wheel(folder, "core")
            return super().list_objects(location, **options)

    report = upload(tmp_path, backend=Backend(tmp_path / STAGED))
    assert report.error is None
    assert "core-1.0-py3-none-any.whl" in entries(tmp_path, "gfx1151/simple/core/index.html")
    stored = [item.location for item in report.result.stored]
    assert len(stored) == len(set(stored))
