"""Mode upload-manifest: framework manifests that are what they are called, below their group or family."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest

from _therock_utils import _source_file
from _therock_utils._cancel import CancelToken
from _therock_utils._errors import CancelledError, InputError
from _therock_utils.storage_backend import LocalStorageBackend
from fakes.contexts import STAGED, make_context
from fakes.trees import read_tree, write_tree
from therock_outputs.manifest_names import MAX_MANIFEST_BYTES
from therock_outputs.mode_names import Mode
from therock_outputs.modes import upload_manifest
from therock_outputs.modes.upload_manifest import run

if TYPE_CHECKING:
    from pathlib import Path

    from therock_outputs.report import Report

pytestmark = pytest.mark.usefixtures("no_job")

P = "100-linux"
URL = f"https://therock-ci-artifacts.s3.amazonaws.com/{P}/manifests"
TORCH = "therock-manifest_torch_py3.12_release-2.9.json"
JAX = "therock-manifest_jax_py3.13_main.json"


def upload(workspace: Path, files: dict[str, str | bytes], **inputs: Any) -> Report:  # noqa: ANN401 - make_context's
    write_tree(workspace / "dist", files)
    return run(make_context(workspace, Mode.UPLOAD_MANIFEST, **({"path": "dist", "family": "gfx94X-dcgpu"} | inputs)))


def staged(workspace: Path) -> list[str]:
    return [key for key in read_tree(workspace / STAGED / P) if not key.startswith("reports/")]


@pytest.mark.parametrize(
    ("inputs", "folder"),
    [
        ({"family": "gfx1151"}, "gfx1151"),
        ({"artifact_group": "gfx94X-dcgpu-asan", "family": ""}, "gfx94X-dcgpu-asan"),
        ({"artifact_group": "gfx94X-dcgpu-asan", "family": "gfx94X-dcgpu"}, "gfx94X-dcgpu-asan"),
    ],
)
def test_a_manifest_lies_in_the_folder_of_its_group_or_family(
    tmp_path: Path, inputs: dict[str, str], folder: str
) -> None:
    report = upload(tmp_path, {TORCH: "{}"}, index="none", **inputs)
    assert report.error is None
    assert staged(tmp_path) == [f"manifests/{folder}/{TORCH}"]
    assert report.outputs == {"manifest_url": f"{URL}/{folder}/{TORCH}"}
    assert report.page is not None
    assert report.page.https_url == report.outputs["manifest_url"]
    assert report.subject == folder


@pytest.mark.parametrize(
    ("files", "stored"),
    [
        ({f"manifests/{TORCH}": "{}"}, [TORCH]),
        ({f"manifests/{TORCH}": "{}", JAX: "{}"}, [TORCH]),
        ({"manifests/other.json": "{}", JAX: "{}"}, [JAX]),
        ({"manifests": "a file", JAX: "{}"}, [JAX]),
        ({f"deeper/{TORCH}": "{}", f"manifests/deeper/{TORCH}": "{}", JAX: "{}"}, [JAX]),
    ],
    ids=["in manifests", "that wins", "none in it", "it is a file", "nothing deeper"],
)
def test_the_folder_manifests_is_looked_into_first(
    tmp_path: Path, files: dict[str, str | bytes], stored: list[str]
) -> None:
    upload(tmp_path, files, index="none")
    assert staged(tmp_path) == [f"manifests/gfx94X-dcgpu/{name}" for name in stored]


def test_what_else_lies_there_is_of_no_interest(tmp_path: Path) -> None:
    report = upload(tmp_path, {TORCH: "{}", "torch-2.9-cp312.whl": "x", "therock_manifest.json": "no"}, index="none")
    assert len(staged(tmp_path)) == 1
    assert (report.notices, report.warnings, report.result.skipped) == ((), (), ())


@pytest.mark.parametrize("bad", ["therock-manifest_torch_py312_x.json", f"{TORCH}.bak"])
def test_a_name_that_only_begins_as_one_stops_everything_before_it_begins(tmp_path: Path, bad: str) -> None:
    with pytest.raises(InputError, match="nothing was stored: no framework manifest's name") as caught:
        upload(tmp_path, {TORCH: "{}", bad: "{}"})
    assert caught.value.why == "the form is therock-manifest_{torch or jax}_py{3.12}_{git ref}.json"
    assert not (tmp_path / STAGED).exists()
    assert upload(tmp_path, {}, exclude=bad).error is None


def test_of_many_such_names_the_first_few_are_told(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {f"therock-manifest_{number:02}": "{}" for number in range(12)}
    with pytest.raises(InputError, match=r"'therock-manifest_09' and 2 more"):
        upload(tmp_path, files)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("[]", "it is JSON, but a list and no object"),
        ("", "it is no JSON: Expecting value: line 1 column 1 (char 0)"),
        (b"{}" + b" " * MAX_MANIFEST_BYTES, f"it has more than {MAX_MANIFEST_BYTES} bytes"),
    ],
    ids=["list", "empty", "too big"],
)
def test_a_manifest_that_is_no_json_object_is_not_stored_but_the_others_are(
    tmp_path: Path, content: str | bytes, why: str
) -> None:
    report = upload(tmp_path, {TORCH: content, JAX: "{}"}, index="none")
    assert report.error is not None
    assert (report.error.what, report.error.why, report.exit_code) == (f"'{TORCH}' is no manifest", why, 6)
    assert staged(tmp_path) == [f"manifests/gfx94X-dcgpu/{JAX}"]
    assert report.outputs["manifest_url"].endswith(f"/{JAX}")
    assert [(part.state, part.note) for part in report.parts] == [("partly", "1 of 2 not stored")]


def test_the_largest_manifest_is_stored(tmp_path: Path) -> None:
    assert upload(tmp_path, {TORCH: b"{}" + b" " * (MAX_MANIFEST_BYTES - 2)}).error is None


def test_a_link_is_no_manifest_and_is_told(tmp_path: Path) -> None:
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / TORCH).symlink_to("elsewhere")
    (tmp_path / "dist" / "latest").symlink_to(TORCH)
    (tmp_path / "dist" / "manifests").symlink_to("elsewhere")
    report = upload(tmp_path, {})
    assert [(file.path, file.reason) for file in report.result.skipped] == [(TORCH, "it is a symbolic link")]


def test_one_that_vanishes_and_one_that_cannot_be_opened_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tree(tmp_path / "dist", {TORCH: "{}", JAX: "{}"})
    real = _source_file.os.open

    def troubled(path: Any, *rest: Any, **options: Any) -> int:  # noqa: ANN401 - as os.open
        if str(path).endswith(TORCH):
            raise FileNotFoundError(2, "No such file or directory")
        if str(path).endswith(JAX):
            raise PermissionError(13, "Permission denied")
        return real(path, *rest, **options)

    monkeypatch.setattr(_source_file.os, "open", troubled)
    report = upload(tmp_path, {})
    assert [(file.path, file.reason) for file in report.result.skipped] == [(TORCH, "it vanished before it was read")]
    assert report.exit_code == 8


def test_a_folder_manifests_that_cannot_be_looked_at_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pathlib import Path as AnyPath

    real = AnyPath.lstat

    def troubled(path: AnyPath) -> Any:  # noqa: ANN401 - as Path.lstat
        if path.name == "manifests":
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(AnyPath, "lstat", troubled)
    report = upload(tmp_path, {TORCH: "{}"})
    assert [item.location.name for item in report.result.stored] == [TORCH]


@pytest.mark.parametrize(
    ("index", "inputs", "written", "url"),
    [
        ("auto", {}, False, "index.html"),
        ("auto", {"artifact_group": "g", "family": ""}, True, "index.html"),
        ("write", {}, True, "index.html"),
        ("none", {}, False, JAX),
        ("auto", {"bucket": "own"}, True, "index.html"),
        ("auto", {"staging_dir": STAGED}, True, "index.html"),
    ],
)
def test_of_several_manifests_the_page_is_the_url_else_the_first(
    tmp_path: Path, index: str, inputs: dict[str, str], written: bool, url: str
) -> None:
    report = upload(tmp_path, {TORCH: "{}", JAX: "{}"}, index=index, **inputs)
    assert report.outputs["manifest_url"].endswith(f"/{url}")
    assert any(key.endswith("/index.html") for key in staged(tmp_path)) == written
    assert ["the server makes this page"] * (not written and index == "auto") == [
        part.note for part in report.parts if part.note
    ]


@pytest.mark.parametrize(
    ("inputs", "notice"),
    [
        ({"index": "write"}, "is the folder's page, because there are 2 manifests; include picks one"),
        ({}, "is the folder's page, because there are 2 manifests; include picks one"),
        ({"index": "none"}, f"is the first of 2 manifests, '{JAX}': no page lists them"),
        ({"dry_run": "true"}, "would be the folder's page, because there are 2 manifests; include picks one"),
    ],
)
def test_what_the_url_is_where_there_are_several_manifests_is_told(
    tmp_path: Path, inputs: dict[str, str], notice: str
) -> None:
    files: dict[str, str | bytes] = {TORCH: "{}", JAX: "{}"}
    assert upload(tmp_path, files, **inputs).notices == (f"manifest_url {notice}",)
    assert upload(tmp_path, {}, include="*torch*", **inputs).notices == ()


def test_where_only_one_of_several_was_stored_it_is_the_url(tmp_path: Path) -> None:
    report = upload(tmp_path, {TORCH: "{}", JAX: "no"}, index="write")
    assert report.outputs["manifest_url"].endswith(f"/{TORCH}")


@pytest.mark.parametrize(("told", "exit_code", "warned"), [("", 0, 1), ("error", 3, 0), ("ignore", 0, 0)])
@pytest.mark.parametrize("path", ["dist", "nothing"])
def test_no_manifest_is_a_warning_unless_told_otherwise(
    tmp_path: Path, path: str, told: str, exit_code: int, warned: int
) -> None:
    (tmp_path / "dist").mkdir()
    report = upload(tmp_path, {}, path=path, if_no_files_found=told)
    assert (report.exit_code, len(report.warnings)) == (exit_code, warned)
    assert report.outputs == {"manifest_url": ""}


def test_without_group_and_family_it_is_not_known_whose_they_are(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="mode upload-manifest needs artifact_group or family"):
        upload(tmp_path, {TORCH: "{}"}, family="")


@pytest.mark.parametrize("family", ["a/b", "..", "index.html"])
def test_a_family_that_is_no_name_is_refused(tmp_path: Path, family: str) -> None:
    with pytest.raises(InputError):
        upload(tmp_path, {TORCH: "{}"}, family=family)


def test_a_cancel_stops_the_look_into_them(tmp_path: Path) -> None:
    cancel = CancelToken()
    cancel.cancel(15)
    with pytest.raises(CancelledError):
        upload(tmp_path, {TORCH: "{}"}, cancel=cancel)


def test_the_summary_says_how_to_fetch_the_one_manifest(tmp_path: Path) -> None:
    write_tree(tmp_path / "dist", {TORCH: "{}"})
    context = make_context(tmp_path, Mode.UPLOAD_MANIFEST, path="dist", family="f")
    uploaded = dataclasses.replace(
        context, staging_dir=None, open_backend=lambda: LocalStorageBackend(tmp_path / STAGED)
    )
    (snippet,) = run(uploaded).snippets
    assert snippet.lines == (f"curl -fL -o {TORCH} {URL}/f/{TORCH}",)
    assert run(context).snippets == ()
    write_tree(tmp_path / "dist", {JAX: "{}"})
    assert run(uploaded).snippets == ()


def test_only_as_much_of_a_file_is_read_as_a_manifest_may_have() -> None:
    taken = []

    def chunks() -> Any:  # noqa: ANN401 - an iterator of bytes
        for number in range(10):
            taken.append(number)
            yield b"123"

    assert upload_manifest._head(chunks(), 7) == b"1231231"
    assert taken == [0, 1, 2]
