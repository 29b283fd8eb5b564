"""The artifacts of a run, in a bucket and in a staging directory: one contract for both, and between them."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from _therock_utils._errors import (
    BucketNotFoundError,
    IllegalLocationError,
    IntegrityError,
    LocalFileError,
    NotFoundError,
    OutputsError,
)
from _therock_utils._sidecar import render_sidecar
from _therock_utils.artifact_backend import LocalDirectoryBackend, S3Backend
from _therock_utils.storage_backend import S3StorageBackend
from _therock_utils.workflow_outputs import WorkflowOutputRoot
from fakes.storages import LocalStorage

if TYPE_CHECKING:
    from collections.abc import Callable

    from _therock_utils.artifact_backend import ArtifactBackend
    from fakes.storages import S3Storage, Storage

BLAS = "blas_lib_gfx942.tar.zst"


def artifacts(storage: Storage, run_id: str = "12345", *, external_repo: str = "") -> S3Backend | LocalDirectoryBackend:
    root = WorkflowOutputRoot(storage.bucket, external_repo, run_id, "linux")
    return LocalDirectoryBackend(storage.staging_dir, root) if isinstance(storage, LocalStorage) else S3Backend(root)


def sidecar(data: bytes, name: str = BLAS) -> bytes:
    return render_sidecar(hashlib.sha256(data).hexdigest(), name)


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_archives_directly_in_the_run_are_listed_sorted(storage: Storage) -> None:
    names = [
        "blas_lib_gfx942.tar.zst",
        "blas_lib_gfx942.tar.xz",
        "blas-x_dev_generic.tar.xz",
        "fft_run_gfx942:xnack+.tar.zst",
    ]
    others = [
        f"{BLAS}.sha256sum",
        "README.txt",
        "index.html",
        "blas_lib.tar.zst",
        "blas_lib_gfx942.tar.gz",
        "logs/math-libs/x_lib_generic.tar.xz",
        "manifests/therock_manifest.json",
    ]
    for name in [*names, *others]:
        storage.put(f"12345-linux/{name}", b"x")
    storage.put("12345-linux2/other_lib_generic.tar.zst", b"x")
    storage.put("x/12345-linux/other_lib_generic.tar.zst", b"x")
    backend = artifacts(storage)
    assert backend.list_artifacts() == sorted(names)
    assert backend.list_artifacts("blas") == sorted(names[:2])
    assert backend.list_artifacts("bla") == []
    assert backend.list_artifacts("") == sorted(names)
    assert artifacts(storage, "1234").list_artifacts() == []
    assert artifacts(storage, external_repo="x/").list_artifacts() == ["other_lib_generic.tar.zst"]


def test_an_artifact_exists_or_does_not(storage: Storage) -> None:
    storage.put(f"12345-linux/{BLAS}", b"x")
    backend = artifacts(storage)
    assert backend.artifact_exists(BLAS)
    assert not backend.artifact_exists(f"{BLAS}.sha256sum")
    assert not artifacts(storage, "1").artifact_exists(BLAS)


@pytest.mark.parametrize("key", ["", "a/b", "../x", "..", "/x", "logs", "a\nb", "a\\b"])
def test_a_key_must_be_one_legal_segment(storage: Storage, tmp_path: Path, key: str) -> None:
    backend = artifacts(storage)
    (tmp_path / "file").write_bytes(b"x")
    calls: list[Callable[[], object]] = [
        lambda: backend.download_artifact(key, tmp_path / "new"),
        lambda: backend.upload_artifact(tmp_path / "file", key),
        lambda: backend.copy_artifact(key, artifacts(storage, "1")),
        lambda: backend.artifact_exists(key),
    ]
    for call in calls:
        with pytest.raises(IllegalLocationError):
            call()
    assert storage.contents() == {}


def test_what_was_stored_comes_back(storage: Storage, tmp_path: Path) -> None:
    data = os.urandom(100_000)
    (tmp_path / "source").write_bytes(data)
    backend = artifacts(storage)
    backend.upload_artifact(tmp_path / "source", BLAS)
    assert storage.contents() == {f"12345-linux/{BLAS}": data}
    backend.download_artifact(BLAS, tmp_path / "new" / "folder" / "target")
    assert files(tmp_path / "new") == {"folder/target": data}
    with pytest.raises(OutputsError):
        backend.upload_artifact(tmp_path / "missing", BLAS)


@pytest.mark.parametrize("text", ["{digest}\n", "{digest}  {name}\n", "{DIGEST} *{name}"])
def test_a_download_is_checked_against_the_sidecar(storage: Storage, tmp_path: Path, text: str) -> None:
    digest = hashlib.sha256(b"true").hexdigest()
    said = text.format(digest=digest, DIGEST=digest.upper(), name=BLAS).encode()
    storage.put(f"12345-linux/{BLAS}", b"true")
    storage.put(f"12345-linux/{BLAS}.sha256sum", said)
    backend = artifacts(storage)
    backend.download_artifact(BLAS, tmp_path / "target")
    assert (tmp_path / "target").read_bytes() == b"true"
    storage.put(f"12345-linux/{BLAS}", b"other")
    with pytest.raises(IntegrityError) as caught:
        backend.download_artifact(BLAS, tmp_path / "second")
    assert digest in str(caught.value)
    assert hashlib.sha256(b"other").hexdigest() in str(caught.value)
    assert not (tmp_path / "second").exists()
    assert set(files(tmp_path)) <= {"target", *(f"staging/{key}" for key in storage.contents())}


@pytest.mark.parametrize("said", [b"", b"no digest", b"0" * 64 + b"  other_lib_generic.tar.zst\n", b"0" * 5000])
def test_a_sidecar_that_says_nothing_of_the_artifact_is_an_error(storage: Storage, tmp_path: Path, said: bytes) -> None:
    storage.put(f"12345-linux/{BLAS}", b"data")
    storage.put(f"12345-linux/{BLAS}.sha256sum", said)
    with pytest.raises(IntegrityError, match="holds no SHA-256"):
        artifacts(storage).download_artifact(BLAS, tmp_path / "target")
    assert not (tmp_path / "target").exists()


def test_a_sidecar_itself_is_fetched_as_it_is(storage: Storage, tmp_path: Path) -> None:
    storage.put(f"12345-linux/{BLAS}.sha256sum", b"whatever")
    artifacts(storage).download_artifact(f"{BLAS}.sha256sum", tmp_path / "target")
    assert (tmp_path / "target").read_bytes() == b"whatever"


def test_a_missing_artifact_is_an_error_and_leaves_nothing(storage: Storage, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        artifacts(storage).download_artifact(BLAS, tmp_path / "target")
    with pytest.raises(NotFoundError):
        artifacts(storage).copy_artifact(BLAS, artifacts(storage, "1"))
    assert not (tmp_path / "target").exists()
    assert storage.contents() == {}


def test_an_artifact_is_copied_from_another_run_with_its_sidecar(storage: Storage) -> None:
    storage.put(f"1-linux/{BLAS}", b"data")
    storage.put(f"1-linux/{BLAS}.sha256sum", sidecar(b"data"))
    storage.put("1-linux/fft_lib_generic.tar.xz", b"fft")
    backend = artifacts(storage, "2")
    for name in (BLAS, "fft_lib_generic.tar.xz"):
        backend.copy_artifact(name, artifacts(storage, "1"))
    assert {key: data for key, data in storage.contents().items() if key.startswith("2-")} == {
        f"2-linux/{BLAS}": b"data",
        f"2-linux/{BLAS}.sha256sum": sidecar(b"data"),
        "2-linux/fft_lib_generic.tar.xz": b"fft",
    }


def other_storages(storage: Storage, tmp_path: Path) -> list[ArtifactBackend]:
    """Backends whose storage is not the one of `artifacts(storage)`."""
    root = WorkflowOutputRoot("local", "", "1", "linux")
    others: list[ArtifactBackend] = [LocalDirectoryBackend(tmp_path / "elsewhere", root)]
    if storage.kind != "local":
        others.append(S3Backend(WorkflowOutputRoot(storage.bucket, "", "1", "linux"), storage=S3StorageBackend()))
    return others


def test_an_artifact_is_copied_between_storages_both_ways(storage: Storage, tmp_path: Path) -> None:
    for number, other in enumerate(other_storages(storage, tmp_path)):
        data = os.urandom(70_000)
        (tmp_path / "source").write_bytes(data)
        (tmp_path / "sidecar").write_bytes(sidecar(data))
        other.upload_artifact(tmp_path / "source", BLAS)
        other.upload_artifact(tmp_path / "sidecar", f"{BLAS}.sha256sum")
        backend = artifacts(storage, f"2{number}")
        backend.copy_artifact(BLAS, other)
        assert storage.contents()[f"2{number}-linux/{BLAS}"] == data
        assert storage.contents()[f"2{number}-linux/{BLAS}.sha256sum"] == sidecar(data)
    back = LocalDirectoryBackend(tmp_path / "back", WorkflowOutputRoot.for_local("3", "linux"))
    back.copy_artifact(BLAS, backend)
    assert files(tmp_path / "back") == {f"3-linux/{BLAS}": data, f"3-linux/{BLAS}.sha256sum": sidecar(data)}


def test_a_copy_between_storages_is_checked_against_the_sidecar(storage: Storage, tmp_path: Path) -> None:
    storage.put(f"1-linux/{BLAS}", b"other")
    storage.put(f"1-linux/{BLAS}.sha256sum", sidecar(b"data"))
    target = LocalDirectoryBackend(tmp_path / "back", WorkflowOutputRoot.for_local("3", "linux"))
    with pytest.raises(IntegrityError):
        target.copy_artifact(BLAS, artifacts(storage, "1"))
    assert not target.base_path.exists()


def test_the_base_uri_says_where_the_artifacts_are(tmp_path: Path) -> None:
    root = WorkflowOutputRoot("therock-ci-artifacts-external", "ROCm-x/", "12345", "linux")
    s3, local = S3Backend(output_root=root), LocalDirectoryBackend(staging_dir=tmp_path, output_root=root)
    assert s3.base_uri == "s3://therock-ci-artifacts-external/ROCm-x/12345-linux"
    assert (s3.bucket, s3.s3_prefix) == (root.bucket, root.prefix)
    assert Path(local.base_uri) == local.base_path == tmp_path / "ROCm-x" / "12345-linux"


def test_a_missing_bucket_is_no_empty_run(s3_storage: S3Storage) -> None:
    backend = S3Backend(WorkflowOutputRoot(f"{s3_storage.bucket}-none", "", "12345", "linux"))
    for call in (backend.list_artifacts, lambda: backend.artifact_exists(BLAS)):
        with pytest.raises(BucketNotFoundError):
            call()


def test_a_folder_that_cannot_be_read_is_no_empty_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = LocalDirectoryBackend(tmp_path, WorkflowOutputRoot.for_local("1", "linux"))
    backend.base_path.mkdir()

    def refuse(_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(LocalFileError, match="Permission denied"):
        backend.list_artifacts()


def test_a_link_in_the_run_s_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "1-linux").symlink_to("elsewhere")
    backend = LocalDirectoryBackend(tmp_path, WorkflowOutputRoot.for_local("1", "linux"))
    for call in (backend.list_artifacts, lambda: backend.artifact_exists(BLAS)):
        with pytest.raises(LocalFileError, match="symbolic link"):
            call()
