"""Mode upload-packages: what joins the repository, what is refused, and what is recovered. Packages made by hand."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import os
import shutil
import subprocess
import tempfile
from typing import TYPE_CHECKING, Any

import pytest
from debian.deb822 import Release

from _therock_utils._cancel import CancelToken
from _therock_utils._errors import (
    BucketNotFoundError,
    CancelledError,
    ConflictError,
    IllegalLocationError,
    InputError,
    IntegrityError,
    LocalFileError,
    NotFoundError,
    NotPermittedError,
    ServiceUnavailableError,
)
from _therock_utils._transfer_types import ObjectFacts
from _therock_utils.storage_backend import LocalStorageBackend
from fakes.contexts import STAGED, TroubledBackend, make_context
from fakes.deb_packages import control_text, deb_of, offered_packages
from fakes.trees import read_tree, write_tree
from therock_outputs import deb_repository
from therock_outputs.mode_names import Mode
from therock_outputs.modes import _repository, _repository_unnamed
from therock_outputs.modes.upload_packages import run
from therock_outputs.paths import Workspace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from _therock_utils._errors import OutputsError
    from _therock_utils.storage_location import StorageLocation
    from therock_outputs.context import Context
    from therock_outputs.report import Report

P = "100-linux"
REPOSITORY = f"{P}/packages/deb"
RELEASE = f"{REPOSITORY}/dists/stable/Release"
INDEX = f"{REPOSITORY}/dists/stable/main/binary-amd64/Packages"
POOL = f"{REPOSITORY}/pool/main"
BUCKET = "my-own-bucket"


def deb(name: str, version: str = "1", *, content: str = "") -> bytes:
    return deb_of(control_text(name, version, extra=f"Content: {content}\n" if content else ""))


def lay(workspace: Path, *packages: tuple[str, bytes], **files: str) -> None:
    """Make the folder `packages` hold exactly these."""
    shutil.rmtree(workspace / "packages", ignore_errors=True)
    (workspace / "packages").mkdir()
    for name, data in packages:
        (workspace / "packages" / name).write_bytes(data)
    write_tree(workspace / "packages", files)


def context_of(workspace: Path, **options: Any) -> Context:  # noqa: ANN401 - as make_context's
    values = {"path": "packages", "package_type": "deb", "bucket": BUCKET} | options
    return make_context(workspace, Mode.UPLOAD_PACKAGES, **values)


def upload(workspace: Path, *packages: tuple[str, bytes], **options: Any) -> Report:  # noqa: ANN401 - as above
    lay(workspace, *packages)
    return run(context_of(workspace, **options))


def staged(workspace: Path) -> dict[str, bytes]:
    return {key: data for key, data in read_tree(workspace / STAGED).items() if "/reports/" not in key}


def offered(workspace: Path) -> dict[str, str]:
    """What the repository offers: file name by package, after a check of all that apt checks."""
    found = offered_packages(staged(workspace), REPOSITORY)
    assert len({name for name, _ in found}) == len(found)
    return {name: file_name for (name, _), file_name in found.items()}


A, B = ("a1_1_amd64.deb", deb("a1")), ("b1_1_amd64.deb", deb("b1"))
OTHER_A = ("a1_1_amd64.deb", deb("a1", content="other"))


def beside(package: tuple[str, bytes]) -> str:
    return f"{package[0].removesuffix('.deb')}.{hashlib.sha256(package[1]).hexdigest()[:12]}.deb"


def test_packages_of_several_jobs_join_one_repository(tmp_path: Path) -> None:
    first, second = upload(tmp_path, A), upload(tmp_path, B)
    assert (first.error, second.error, second.warnings) == (None, None, ())
    assert offered(tmp_path) == {"a1": A[0], "b1": B[0]}
    url = f"https://{BUCKET}.s3.amazonaws.com/{REPOSITORY}"
    assert second.outputs == {"package_repository_url": url, "packaging_logs_url": ""}
    assert f"{REPOSITORY}/index.html" in staged(tmp_path)


def test_a_rerun_changes_nothing(tmp_path: Path) -> None:
    upload(tmp_path, A, B)
    before = staged(tmp_path)
    report = upload(tmp_path, A, B)
    assert (report.error, report.warnings, staged(tmp_path)) == (None, (), before)
    assert [(part.what, part.state, part.file_count) for part in report.parts][:2] == [
        ("Packages", "stored", 2),
        ("Repository metadata", "stored", 3),  # Release and the copies under fixed names; what is by digest is there
    ]


def test_a_rerun_sends_no_package_again(tmp_path: Path) -> None:
    upload(tmp_path, A)
    backend = TroubledBackend(tmp_path / STAGED)
    assert upload(tmp_path, A, B, backend=backend).error is None
    assert [key for keys in backend.uploads for key in keys if key.startswith(POOL)] == [f"{POOL}/{B[0]}"]


def test_logs_go_to_their_own_folder_and_never_into_the_repository(tmp_path: Path) -> None:
    lay(tmp_path, A, **{"logs/build.log": "done\n", "logs/sub/x.txt": "x\n", "notes.txt": "none\n"})
    report = run(context_of(tmp_path))
    keys = set(staged(tmp_path))
    folder = f"{P}/logs/packaging/deb"
    assert {f"{folder}/build.log", f"{folder}/sub/x.txt", f"{folder}/index.html"} <= keys
    assert not [key for key in keys if key.startswith(REPOSITORY) and key.endswith((".log", ".txt"))]
    assert report.outputs["packaging_logs_url"] == f"https://{BUCKET}.s3.amazonaws.com/{folder}/index.html"
    assert report.warnings == ()


def test_only_files_of_the_folder_itself_are_packages(tmp_path: Path) -> None:
    lay(tmp_path, A)
    (tmp_path / "packages" / "sub").mkdir()
    (tmp_path / "packages" / "sub" / B[0]).write_bytes(B[1])
    (tmp_path / "packages" / "link_1_amd64.deb").symlink_to(A[0])
    report = run(context_of(tmp_path))
    assert offered(tmp_path) == {"a1": A[0]}
    assert report.notices[-1].endswith(f"not stored: 1 package, the first is sub/{B[0]}")
    assert [(file.path, file.reason) for file in report.result.skipped] == [
        ("link_1_amd64.deb", "it is a symbolic link")
    ]


def test_include_and_exclude_choose(tmp_path: Path) -> None:
    upload(tmp_path, A, B, exclude="b1*")
    assert offered(tmp_path) == {"a1": A[0]}


@pytest.mark.parametrize("bad", [b"no package", deb("A1")], ids=["broken", "illegal"])
def test_a_bad_package_is_told_before_any_is_stored(tmp_path: Path, bad: bytes) -> None:
    lay(tmp_path, A, ("bad.deb", bad), **{"logs/build.log": "done\n"})
    report = run(context_of(tmp_path))
    assert isinstance(report.error, IntegrityError)
    assert "bad.deb" in report.error.what
    assert "1 other package of this step not stored, either" in report.warnings
    assert not [key for key in staged(tmp_path) if key.startswith(REPOSITORY)]
    assert f"{P}/logs/packaging/deb/build.log" in staged(tmp_path)
    assert report.outputs["package_repository_url"] == ""
    assert report.snippets == ()


def test_two_files_of_one_package_are_refused(tmp_path: Path) -> None:
    report = upload(tmp_path, A, ("copy.deb", A[1]))
    assert isinstance(report.error, IntegrityError)
    assert "are one package" in report.error.what
    assert not (tmp_path / STAGED).exists()


def test_other_bytes_under_a_name_get_a_name_of_their_own_and_the_old_ones_stay(tmp_path: Path) -> None:
    upload(tmp_path, A, B)
    report = upload(tmp_path, OTHER_A)
    assert report.error is None
    assert offered(tmp_path) == {"a1": beside(OTHER_A), "b1": B[0]}
    assert staged(tmp_path)[f"{POOL}/{A[0]}"] == A[1]
    (warning,) = report.warnings
    assert warning.startswith(f"{A[0]} lay in the repository with other bytes")
    assert f"now offers {beside(OTHER_A)} instead" in warning
    assert report.result.conflicts == ()
    again = upload(tmp_path, OTHER_A)
    assert (again.error, offered(tmp_path)) == (None, {"a1": beside(OTHER_A), "b1": B[0]})
    upload(tmp_path, A)
    assert offered(tmp_path) == {"a1": A[0], "b1": B[0]}


def test_other_bytes_are_left_out_with_skip_and_the_old_ones_stay_offered(tmp_path: Path) -> None:
    upload(tmp_path, A)
    report = upload(tmp_path, OTHER_A, B, on_conflict="skip")
    assert (report.error, offered(tmp_path)) == (None, {"a1": A[0], "b1": B[0]})
    assert report.warnings == (f"{POOL}/{A[0]} was skipped: other bytes lay there",)
    assert staged(tmp_path)[f"{POOL}/{A[0]}"] == A[1]


def test_other_bytes_are_refused_with_error_before_anything_is_stored(tmp_path: Path) -> None:
    upload(tmp_path, A)
    before = staged(tmp_path)
    report = upload(tmp_path, OTHER_A, B, on_conflict="error")
    assert isinstance(report.error, ConflictError)
    assert report.error.what.startswith("no package was stored, because 1 of 2 lie in the repository")
    assert staged(tmp_path) == before
    assert upload(tmp_path, A, B, on_conflict="error").error is None


def test_even_a_name_made_of_the_digest_is_never_overwritten(tmp_path: Path) -> None:
    upload(tmp_path, A)
    write_tree(tmp_path / STAGED, {f"{POOL}/{beside(OTHER_A)}": b"what somebody put there"})
    report = upload(tmp_path, OTHER_A, B)
    assert isinstance(report.error, ConflictError)
    assert beside(OTHER_A) in report.error.what
    assert offered(tmp_path) == {"a1": A[0], "b1": B[0]}


def test_what_a_crash_left_in_the_pool_is_offered_after_the_next_job(tmp_path: Path) -> None:
    write_tree(tmp_path / STAGED, {f"{POOL}/{A[0]}": A[1]})
    said: list[str] = []
    assert upload(tmp_path, B, said=said).error is None
    assert offered(tmp_path) == {"a1": A[0], "b1": B[0]}
    assert [line for line in said if A[0] in line]


def test_what_a_crash_left_is_offered_after_a_rerun(tmp_path: Path) -> None:
    write_tree(tmp_path / STAGED, {f"{POOL}/{A[0]}": A[1]})
    report = upload(tmp_path, A)
    assert (report.warnings, offered(tmp_path)) == ((), {"a1": A[0]})


def test_a_broken_file_in_the_pool_is_told_and_left_out(tmp_path: Path) -> None:
    write_tree(tmp_path / STAGED, {f"{POOL}/broken.deb": b"no package"})
    report = upload(tmp_path, A)
    assert (report.error, offered(tmp_path)) == (None, {"a1": A[0]})
    (warning,) = report.warnings
    assert warning.startswith("broken.deb in the repository is left out of its metadata: 'broken.deb' is no sound")


def test_where_the_newest_of_several_files_is_broken_the_one_before_it_is_offered(tmp_path: Path) -> None:
    write_tree(tmp_path / STAGED, {f"{POOL}/{A[0]}": A[1], f"{POOL}/{beside(OTHER_A)}": b"no package"})
    os.utime(tmp_path / STAGED / POOL / A[0], (0, 0))
    report = upload(tmp_path, B)
    assert (report.error, offered(tmp_path)) == (None, {"a1": A[0], "b1": B[0]})
    assert report.warnings[0].startswith(f"{beside(OTHER_A)} in the repository is left out")


def test_a_file_that_goes_before_it_is_read_is_left_out(tmp_path: Path) -> None:
    write_tree(tmp_path / STAGED, {f"{POOL}/{A[0]}": A[1]})

    class Going(TroubledBackend):
        def download(self, items: Any, **options: Any) -> Any:  # noqa: ANN401 - as LocalStorageBackend's
            (tmp_path / STAGED / POOL / A[0]).unlink()
            return super().download(items, **options)

    report = upload(tmp_path, B, backend=Going(tmp_path / STAGED))
    assert (report.error, report.warnings, offered(tmp_path)) == (None, (), {"b1": B[0]})


def test_a_package_whose_file_is_gone_is_told_and_offered_no_more(tmp_path: Path) -> None:
    upload(tmp_path, A, B)
    (tmp_path / STAGED / POOL / A[0]).unlink()
    report = upload(tmp_path, ("c1.deb", deb("c1")))
    assert offered(tmp_path) == {"b1": B[0], "c1": "c1.deb"}
    assert report.warnings == (f"the metadata named what is not stored any more: {A[0]}",)


def _damages() -> dict[str, Callable[[Path], None]]:
    def by_hash(root: Path) -> list[Path]:
        return sorted((root / INDEX).parent.rglob("by-hash/SHA256/*"))

    def lose_indexes(root: Path) -> None:
        for path in by_hash(root):
            path.unlink()

    def damage_indexes(root: Path) -> None:
        for path in by_hash(root):
            path.write_bytes(bytes(path.stat().st_size))

    def other_commit(root: Path) -> None:
        (root / RELEASE).write_bytes(b"<html>not found</html>")

    def hostile_commit(root: Path) -> None:
        text = (root / RELEASE).read_text()
        (root / RELEASE).write_text(text.replace(" main/", " ../../"))

    def lose_all(root: Path) -> None:
        shutil.rmtree(root / REPOSITORY / "dists")

    return {
        "its indexes are lost": lose_indexes,
        "its indexes are damaged": damage_indexes,
        "its commit is something else": other_commit,
        "its commit names what it may not": hostile_commit,
        "all of it is lost": lose_all,
    }


@pytest.mark.parametrize("damage", _damages().values(), ids=_damages())
def test_metadata_that_are_lost_or_damaged_are_made_again_of_what_is_stored(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    upload(tmp_path, A, B)
    upload(tmp_path, OTHER_A)
    complete = staged(tmp_path)
    damage(tmp_path / STAGED)
    report = upload(tmp_path, ("c1.deb", deb("c1")))
    assert report.error is None
    assert offered(tmp_path) == {"a1": beside(OTHER_A), "b1": B[0], "c1": "c1.deb"}
    assert all(data == staged(tmp_path)[key] for key, data in complete.items() if key.startswith(POOL))
    is_told = any("were made again of the packages that are stored" in warning for warning in report.warnings)
    assert is_told == (damage.__name__ != "lose_all")


def test_metadata_that_cannot_be_read_at_the_moment_are_never_made_again(tmp_path: Path) -> None:
    upload(tmp_path, A)
    before = staged(tmp_path)
    unreachable = ServiceUnavailableError("the service did not answer")

    class Unreachable(TroubledBackend):
        def download(self, items: Any, **options: Any) -> Any:  # noqa: ANN401 - as LocalStorageBackend's
            result = super().download([], **options)
            failed = tuple(_repository._failed(item.location, unreachable) for item in items)
            return type(result)(failed=failed)

    report = upload(tmp_path, B, backend=Unreachable(tmp_path / STAGED))
    assert report.error is unreachable
    assert {key: data for key, data in staged(tmp_path).items() if "/dists/" in key} == {
        key: data for key, data in before.items() if "/dists/" in key
    }


@pytest.mark.parametrize("denied", ["listing", "reading"])
def test_without_the_right_to_look_nothing_is_published(tmp_path: Path, denied: str) -> None:
    error = NotPermittedError("denied")
    backend = TroubledBackend(tmp_path / STAGED, **{denied: error})
    report = upload(tmp_path, A, backend=backend)
    assert report.error is error
    assert RELEASE not in staged(tmp_path)
    assert report.outputs["package_repository_url"] == ""


class Racing(TroubledBackend):
    """Another job commits before each of the first `times` commits."""

    def __init__(self, staging_dir: Path, *, before_commit: Callable[[], None], times: int = 1) -> None:
        super().__init__(staging_dir)
        self._before_commit = before_commit
        self.left = times

    def replace(self, location: StorageLocation, data: bytes, content_type: str, **options: Any) -> Any:  # noqa: ANN401 - as above
        if location.relative_path == RELEASE and self.left:
            self.left -= 1
            self._before_commit()
        return super().replace(location, data, content_type, **options)


def another_job(workspace: Path, *packages: tuple[str, bytes], **options: Any) -> Callable[[], None]:  # noqa: ANN401 - as above
    def publish() -> None:
        other = workspace / "other"
        lay(other, *packages)
        context = make_context(
            other, Mode.UPLOAD_PACKAGES, path="packages", package_type="deb", bucket=BUCKET, index="none", **options
        )
        backend = TroubledBackend(workspace / STAGED)
        report = run(dataclasses.replace(context, open_backend=lambda: backend))
        assert report.error is None

    return publish


def test_a_job_that_commits_meanwhile_loses_nothing(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    backend = Racing(tmp_path / STAGED, before_commit=another_job(tmp_path, B))
    report = upload(tmp_path, A, backend=backend)
    assert (report.error, report.warnings, backend.left) == (None, (), 0)
    assert offered(tmp_path) == {"a1": A[0], "b1": B[0]}


def test_a_job_whose_packages_another_one_offers_by_then_has_nothing_left_to_do(tmp_path: Path) -> None:
    """The other one found them in the pool, which nothing named."""
    (tmp_path / "other").mkdir()
    backend = Racing(tmp_path / STAGED, before_commit=another_job(tmp_path, B), times=99)
    assert upload(tmp_path, A, backend=backend).error is None
    assert backend.left == 98
    assert offered(tmp_path) == {"a1": A[0], "b1": B[0]}


def test_a_job_that_never_wins_fails_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other's repository has another label, so its commit is never what this job would write."""
    monkeypatch.setattr(CancelToken, "sleep", lambda _self, _seconds: None)
    versions = iter(range(1, 99))

    def other() -> None:
        another_job(tmp_path, ("b1.deb", deb("b1", f"{next(versions)}")), release_type="dev")()

    (tmp_path / "other").mkdir()
    backend = Racing(tmp_path / STAGED, before_commit=other, times=99)
    report = upload(tmp_path, A, backend=backend)
    assert isinstance(report.error, ConflictError)
    assert backend.left == 99 - _repository.MAX_ROUNDS
    assert report.outputs["package_repository_url"] == ""
    upload(tmp_path, ("c1.deb", deb("c1")))
    assert b"Package: a1\n" in staged(tmp_path)[INDEX]


@pytest.mark.parametrize(
    ("on_conflict", "expected", "fails"),
    [("overwrite", A[0], False), ("skip", beside(A), False), ("error", beside(A), True)],
)
def test_another_build_that_is_published_after_this_jobs_file_got_its_name_has_another_name(
    tmp_path: Path, on_conflict: str, expected: str, fails: bool
) -> None:
    (tmp_path / "other").mkdir()
    backend = Racing(tmp_path / STAGED, before_commit=another_job(tmp_path, A))
    report = upload(tmp_path, OTHER_A, backend=backend, on_conflict=on_conflict)
    assert isinstance(report.error, ConflictError) == fails
    assert offered(tmp_path) == {"a1": expected}
    assert staged(tmp_path)[f"{POOL}/{A[0]}"] == OTHER_A[1]
    assert staged(tmp_path)[f"{POOL}/{beside(A)}"] == A[1]
    told = " ".join((*report.warnings, str(report.error)))
    assert beside(A) in told


class Reserving(TroubledBackend):
    """Something happens between this job's look at the pool and its reservation of names."""

    def __init__(self, staging_dir: Path, *, before: Callable[[], None]) -> None:
        super().__init__(staging_dir)
        self._before = before
        self.done = False

    def replace_all(self, items: Any, **options: Any) -> Any:  # noqa: ANN401 - as LocalStorageBackend's
        if not self.done and any("/package-names/" in item.location.relative_path for item in items):
            self.done = True
            self._before()
        return super().replace_all(items, **options)


@pytest.mark.parametrize(
    ("on_conflict", "expected"),
    [
        ("overwrite", {"a1": beside(OTHER_A), "b1": B[0]}),
        ("skip", {"a1": A[0], "b1": B[0]}),
        ("error", {"a1": A[0], "b1": B[0]}),
    ],
)
def test_a_name_that_another_job_takes_after_the_look_into_the_pool_is_never_written(
    tmp_path: Path, on_conflict: str, expected: dict[str, str]
) -> None:
    (tmp_path / "other").mkdir()
    backend = Reserving(tmp_path / STAGED, before=another_job(tmp_path, A))
    report = upload(tmp_path, OTHER_A, B, backend=backend, on_conflict=on_conflict)
    assert backend.done
    assert isinstance(report.error, ConflictError) == (on_conflict == "error")
    assert offered(tmp_path) == expected
    assert staged(tmp_path)[f"{POOL}/{A[0]}"] == A[1]


def record(workspace: Path, name: str) -> Path:
    return workspace / STAGED / P / "reports" / "package-names" / "deb" / name


def test_before_a_package_is_stored_its_name_has_a_record_with_its_digest(tmp_path: Path) -> None:
    digests = []

    def look(items: Any) -> None:  # noqa: ANN401 - upload items
        digests.extend(record(tmp_path, item.destination.name).read_bytes() for item in items if is_pool(item))

    def is_pool(item: Any) -> bool:  # noqa: ANN401 - as above
        return item.destination.relative_path.startswith(POOL)

    assert upload(tmp_path, A, B, backend=TroubledBackend(tmp_path / STAGED, on_upload=look)).error is None
    assert digests == [f"{hashlib.sha256(data).hexdigest()}  {name}\n".encode() for name, data in (A, B)]
    before = record(tmp_path, A[0]).stat().st_mtime_ns
    assert upload(tmp_path, A).error is None
    assert record(tmp_path, A[0]).stat().st_mtime_ns == before


RECORDS = {
    "for other bytes": f"{'0' * 64}  {A[0]}\n".encode(),
    "for another name": f"{hashlib.sha256(A[1]).hexdigest()}  {B[0]}\n".encode(),
    "unsound": b"<html>",
    "too large": bytes(17 * 2**20),
}


@pytest.mark.parametrize("data", RECORDS.values(), ids=RECORDS)
@pytest.mark.parametrize("on_conflict", ["overwrite", "skip", "error"])
def test_a_name_that_is_reserved_for_other_bytes_is_not_used_though_nothing_is_stored_under_it(
    tmp_path: Path, on_conflict: str, data: bytes
) -> None:
    record(tmp_path, A[0]).parent.mkdir(parents=True)
    record(tmp_path, A[0]).write_bytes(data)
    report = upload(tmp_path, A, B, on_conflict=on_conflict)
    assert f"{POOL}/{A[0]}" not in staged(tmp_path)
    assert record(tmp_path, A[0]).read_bytes() == data
    assert report.error is None
    assert offered(tmp_path) == {"a1": beside(A), "b1": B[0]}
    assert report.warnings[0].startswith(f"the name {A[0]} is reserved")


def test_a_name_of_its_own_that_is_reserved_for_other_bytes_is_not_used_either(tmp_path: Path) -> None:
    upload(tmp_path, A)
    record(tmp_path, beside(OTHER_A)).write_bytes(b"<html>")
    report = upload(tmp_path, OTHER_A, B)
    assert isinstance(report.error, ConflictError)
    assert offered(tmp_path) == {"a1": A[0], "b1": B[0]}
    (tmp_path / "other").mkdir()
    third = (A[0], deb("a1", content="third"))

    def take() -> None:
        record(tmp_path, beside(third)).write_bytes(b"<html>")

    assert isinstance(upload(tmp_path, third, backend=Reserving(tmp_path / STAGED, before=take)).error, ConflictError)
    assert offered(tmp_path) == {"a1": A[0], "b1": B[0]}


def test_a_record_that_comes_and_goes_counts_as_anothers(tmp_path: Path) -> None:
    class Restless(TroubledBackend):
        def replace_all(self, items: Any, **options: Any) -> Any:  # noqa: ANN401 - as above
            if any(item.location.name == A[0] for item in items):
                return tuple(ConflictError("there is already one") for _ in items)
            return super().replace_all(items, **options)

    report = upload(tmp_path, A, backend=Restless(tmp_path / STAGED))
    assert (report.error, offered(tmp_path)) == (None, {"a1": beside(A)})


@pytest.mark.parametrize("verb", ["reserved", "looked up"])
def test_where_names_cannot_be_reserved_that_is_told_and_no_package_is_stored(tmp_path: Path, verb: str) -> None:
    denied = NotPermittedError("could not store it", why="AccessDenied")

    class Denying(TroubledBackend):
        def replace_all(self, items: Any, **options: Any) -> Any:  # noqa: ANN401 - as above
            return tuple(denied for _ in items) if verb == "reserved" else super().replace_all(items, **options)

        def read_all_small(self, locations: Any, **options: Any) -> Any:  # noqa: ANN401 - as above
            return tuple(denied for _ in locations) if verb != "reserved" else super().read_all_small(locations)

    report = upload(tmp_path, A, B, backend=Denying(tmp_path / STAGED))
    assert isinstance(report.error, NotPermittedError)
    assert report.error.what == f"the packages' file names cannot be {verb}, so none was stored"
    assert report.error.why == "could not store it: AccessDenied"
    assert "reports/" in report.error.remedy
    assert not [key for key in staged(tmp_path) if key.startswith(REPOSITORY)]


def test_an_entry_with_another_digest_than_its_name_is_reserved_for_is_not_believed_and_healed(tmp_path: Path) -> None:
    """What a writer that reserves no names leaves when it replaces a package and dies."""
    upload(tmp_path, A, B)
    other = deb("a1").replace(b"2.0\n", b"2.1\n", 1)
    write_tree(tmp_path / STAGED, {f"{POOL}/{A[0]}": other})
    record(tmp_path, A[0]).write_text(f"{hashlib.sha256(other).hexdigest()}  {A[0]}\n")
    with pytest.raises(AssertionError):
        offered(tmp_path)
    report = upload(tmp_path, ("c1.deb", deb("c1")))
    assert report.error is None
    assert offered(tmp_path) == {"a1": A[0], "b1": B[0], "c1": "c1.deb"}
    assert report.warnings == (f"the metadata's entry of {A[0]} has another digest than its name is reserved for",)


@pytest.mark.parametrize("back_to", ["the first", "the second"])
@pytest.mark.parametrize("on_conflict", ["overwrite", "skip", "error"])
def test_going_back_to_another_build_of_one_version_is_a_conflict_though_its_bytes_are_there(
    tmp_path: Path, back_to: str, on_conflict: str
) -> None:
    upload(tmp_path, A)
    upload(tmp_path, OTHER_A)
    if back_to == "the second":
        upload(tmp_path, A)
    old, new = (beside(OTHER_A), A[0]) if back_to == "the first" else (A[0], beside(OTHER_A))
    report = upload(tmp_path, A if back_to == "the first" else OTHER_A, B, on_conflict=on_conflict)
    if on_conflict == "error":
        assert isinstance(report.error, ConflictError)
        assert offered(tmp_path) == {"a1": old}
    else:
        assert report.error is None
        assert offered(tmp_path) == {"a1": new if on_conflict == "overwrite" else old, "b1": B[0]}
        assert len(report.warnings) == 1
        assert (new if on_conflict == "overwrite" else f"{POOL}/{old} was skipped") in report.warnings[0]


@pytest.mark.parametrize("on_conflict", ["overwrite", "skip", "error"])
def test_the_build_that_is_offered_is_no_conflict_whatever_its_file_is_called_there(
    tmp_path: Path, on_conflict: str
) -> None:
    upload(tmp_path, A)
    upload(tmp_path, OTHER_A)
    report = upload(tmp_path, OTHER_A, on_conflict=on_conflict)
    assert (report.error, report.warnings, offered(tmp_path)) == (None, (), {"a1": beside(OTHER_A)})


def test_where_all_is_skipped_the_repository_that_is_there_is_the_result(tmp_path: Path) -> None:
    upload(tmp_path, A)
    report = upload(tmp_path, OTHER_A, on_conflict="skip")
    assert (report.error, offered(tmp_path)) == (None, {"a1": A[0]})
    assert report.outputs["package_repository_url"].endswith(f"/{REPOSITORY}")
    assert (report.parts[0].state, report.parts[0].note) == (
        "left-out",
        "the repository has other builds of all of them",
    )
    assert (report.warnings, report.snippets) == ((f"{POOL}/{A[0]} was skipped: other bytes lay there",), ())


@pytest.mark.parametrize("on_conflict", ["overwrite", "skip", "error"])
def test_a_package_whose_offered_file_is_gone_from_the_pool_is_published_again(
    tmp_path: Path, on_conflict: str
) -> None:
    upload(tmp_path, A, B)
    (tmp_path / STAGED / POOL / A[0]).unlink()
    report = upload(tmp_path, OTHER_A, on_conflict=on_conflict)
    assert report.error is None
    assert offered(tmp_path) == {"a1": beside(OTHER_A), "b1": B[0]}


def test_a_file_that_is_not_the_one_its_name_is_reserved_for_is_never_named(tmp_path: Path) -> None:
    upload(tmp_path, A, B)
    (tmp_path / STAGED / POOL / A[0]).write_bytes(OTHER_A[1])
    for _ in range(2):
        report = upload(tmp_path, B)
        assert offered(tmp_path) == {"b1": B[0]}
        assert any("is another file than it should be" in warning for warning in report.warnings)


def test_a_package_that_apt_could_not_read_in_an_index_is_taken_out_by_the_next_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = ("bad.deb", deb_of(control_text("bad", "1", extra="Depends: foo (>= 1.0\n")))
    with monkeypatch.context() as without:
        without.setattr(deb_repository, "_fields_fault", lambda _paragraph: "")
        upload(tmp_path, A, bad)
    assert "bad" in offered(tmp_path)
    report = upload(tmp_path, B)
    assert (report.error, offered(tmp_path)) == (None, {"a1": A[0], "b1": B[0]})
    entry, file = report.warnings
    assert entry == "the metadata's entry of bad.deb cannot be used: its Depends has the element 'foo (>= 1.0'"
    assert file.startswith(
        "bad.deb in the repository is left out of its metadata: 'bad.deb' is no sound Debian package"
    )
    assert f"{POOL}/bad.deb" in staged(tmp_path)


def test_a_package_whose_name_can_be_no_key_is_an_error_before_any_is_stored(tmp_path: Path) -> None:
    lay(tmp_path, A, ("a\\b_1.deb", B[1]), ("new\nline.deb", B[1]), **{"logs/build.log": "done\n"})
    (tmp_path / "packages" / "li\nk.deb").symlink_to(A[0])
    (tmp_path / "packages" / "logs" / "a\\b.log").write_text("x")
    report = run(context_of(tmp_path))
    assert isinstance(report.error, IllegalLocationError)
    assert report.error.exit_code == 2
    assert "'a\\\\b_1.deb'" in str(report.error)
    assert [item.path for item in report.result.failed] == ["'a\\\\b_1.deb'", "'new\\nline.deb'"]
    assert "1 other package of this step not stored, either" in report.warnings
    assert [file.path for file in report.result.skipped] == ["'li\\nk.deb'", "'logs/a\\\\b.log'"]
    assert {key for key in staged(tmp_path) if "index.html" not in key} == {f"{P}/logs/packaging/deb/build.log"}


def test_a_legal_name_in_quotes_is_no_other_name(tmp_path: Path) -> None:
    lay(tmp_path, A)
    (tmp_path / "packages" / "'b1.deb'").symlink_to(A[0])
    (tmp_path / "packages" / "'b1.deb").write_bytes(B[1])
    report = run(context_of(tmp_path))
    assert isinstance(report.error, IntegrityError)
    assert "other characters" in report.error.why
    assert report.result.skipped == ()


def test_names_that_end_in_upper_case_are_pointed_out(tmp_path: Path) -> None:
    report = upload(tmp_path, A, ("B.DEB", B[1]), ("c.Deb", B[1]))
    assert offered(tmp_path) == {"a1": A[0]}
    assert report.notices[-1] == (
        "not stored, because packages end in .deb in lower case: 2 files, the first is 'B.DEB'"
    )


def test_packages_of_the_other_type_only_are_an_error_before_anything_is_written(tmp_path: Path) -> None:
    lay(tmp_path, ("a.rpm", b""), ("b.rpm", b""), **{"logs/build.log": "done\n"})
    with pytest.raises(InputError) as told:
        run(context_of(tmp_path))
    assert (told.value.what, told.value.why) == (
        "there is no file *.deb in packages",
        "2 *.rpm lie there: package_type: rpm?",
    )
    assert not (tmp_path / STAGED).exists()
    report = run(context_of(tmp_path, if_no_files_found="warn"))
    assert report.error is None
    assert "2 *.rpm lie there: package_type: rpm?" in report.warnings[0]
    lay(tmp_path, A, ("a.rpm", b""))
    assert run(context_of(tmp_path)).error is None


def test_the_row_of_the_metadata_counts_all_that_was_stored_of_them(tmp_path: Path) -> None:
    report = upload(tmp_path, A)
    (row,) = [part for part in report.parts if part.what == "Repository metadata"]
    stored = {key: len(data) for key, data in staged(tmp_path).items() if "/dists/" in key}
    assert (row.file_count, row.total_bytes) == (len(stored), sum(stored.values()))
    assert row.file_count == 9


def test_many_files_that_nothing_names_are_fetched_in_batches_and_told_in_few_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = {f"p{number:02}.deb": deb(f"p{number:02}") for number in range(40)}
    bad = {f"z{number}.deb": b"no package" for number in range(6)}
    write_tree(tmp_path / STAGED, {f"{POOL}/{name}": data for name, data in {**packages, **bad}.items()})
    batches: list[int] = []

    class Counting(TroubledBackend):
        def download(self, items: Any, **options: Any) -> Any:  # noqa: ANN401 - as LocalStorageBackend's
            batches.append(len(items))
            return super().download(items, **options)

    said: list[str] = []
    report = upload(tmp_path, A, backend=Counting(tmp_path / STAGED), said=said)
    assert (report.error, len(offered(tmp_path))) == (None, 41)
    assert batches == [16, 16, 14]
    assert [line for line in said if line.startswith("reading")][3:] == ["reading 43 more such files"]
    assert report.warnings[3:] == ("the same is so of 3 more files of the repository",)
    shutil.rmtree(tmp_path / STAGED / REPOSITORY / "dists")
    batches.clear()
    monkeypatch.setattr(_repository_unnamed, "MAX_BATCH_BYTES", 10 * len(packages["p00.deb"]))
    assert upload(tmp_path, A, backend=Counting(tmp_path / STAGED)).error is None
    assert max(batches) == 10


@pytest.mark.parametrize(("others", "expected"), [((B,), {"b1": B[0]}), ((), None)], ids=["one of two", "the only one"])
def test_a_file_that_is_removed_before_it_is_published_is_a_failure(
    tmp_path: Path, others: tuple[tuple[str, bytes], ...], expected: dict[str, str] | None
) -> None:
    backend = TroubledBackend(tmp_path / STAGED)
    original = backend.read_small

    def read_small(location: StorageLocation, **options: Any) -> Any:  # noqa: ANN401 - as LocalStorageBackend's
        if location.relative_path == RELEASE:
            (tmp_path / STAGED / POOL / A[0]).unlink(missing_ok=True)
        return original(location, **options)

    backend.read_small = read_small  # type: ignore[method-assign]  # the file goes after it was stored
    report = upload(tmp_path, A, *others, backend=backend)
    assert isinstance(report.error, ConflictError)
    assert (offered(tmp_path) if RELEASE in staged(tmp_path) else None) == expected


def test_a_file_that_changes_after_it_was_inspected_is_not_offered(tmp_path: Path) -> None:
    def change(items: Any) -> None:  # noqa: ANN401 - upload items
        if items[0].destination.name == A[0]:
            (tmp_path / "packages" / A[0]).write_bytes(OTHER_A[1])

    report = upload(tmp_path, A, backend=TroubledBackend(tmp_path / STAGED, on_upload=change))
    assert isinstance(report.error, IntegrityError)
    assert "changed after it was inspected" in report.error.what
    assert RELEASE not in staged(tmp_path)


def test_a_package_that_cannot_be_stored_keeps_no_other_from_being_offered(tmp_path: Path) -> None:
    upload(tmp_path, A)

    class Full(TroubledBackend):
        def upload(self, items: Any, **options: Any) -> Any:  # noqa: ANN401 - as LocalStorageBackend's
            result = super().upload([item for item in items if item.destination.name != B[0]], **options)
            refused = [item.destination for item in items if item.destination.name == B[0]]
            failed = [_repository._failed(location, ServiceUnavailableError("no")) for location in refused]
            return type(result)(result.stored, result.skipped, tuple(failed))

    report = upload(tmp_path, B, ("c1.deb", deb("c1")), backend=Full(tmp_path / STAGED))
    assert isinstance(report.error, ServiceUnavailableError)
    assert offered(tmp_path) == {"a1": A[0], "c1": "c1.deb"}


def test_plain_copies_of_a_newer_commit_are_left_alone(tmp_path: Path) -> None:
    """Another job commits, and writes its copies, between this job's commit and copies."""
    (tmp_path / "other").mkdir()
    other = another_job(tmp_path, B)

    class Between(TroubledBackend):
        done = False

        def replace(self, location: StorageLocation, data: bytes, content_type: str, **options: Any) -> Any:  # noqa: ANN401 - as above
            stored = super().replace(location, data, content_type, **options)
            if location.relative_path == RELEASE and not self.done:
                self.done = True
                other()
            return stored

    assert upload(tmp_path, A, backend=Between(tmp_path / STAGED)).error is None
    assert offered(tmp_path) == {"a1": A[0], "b1": B[0]}


def test_copies_that_a_crash_left_old_are_made_new_by_a_rerun(tmp_path: Path) -> None:
    upload(tmp_path, A)
    old = {key: data for key, data in staged(tmp_path).items() if key.startswith(INDEX)}
    upload(tmp_path, B)
    write_tree(tmp_path / STAGED, old)
    assert upload(tmp_path, B).error is None
    assert offered(tmp_path) == {"a1": A[0], "b1": B[0]}


def test_copies_too_large_to_be_replaced_at_once_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_repository, "SMALL_OBJECT_LIMIT_BYTES", 300)
    report = upload(tmp_path, A, B)
    assert report.error is None
    assert report.warnings[0] == "Packages is too large to be stored a second time under its fixed name"


def test_the_digest_of_a_package_that_the_service_does_not_know_is_believed_or_read(tmp_path: Path) -> None:
    """S3 keeps no SHA-256 of what was stored in parts."""

    class InParts(TroubledBackend):
        reads: list[str]

        def describe(self, locations: Any, *, reads: bool = False, **options: Any) -> Any:  # noqa: ANN401 - as above
            facts = super().describe(locations, reads=reads, **options)
            if reads:
                self.reads += [location.name for location in locations]
                return facts
            return tuple(one and ObjectFacts(one.location, one.size_bytes, "", one.content_type) for one in facts)

    upload(tmp_path, A)
    backend = InParts(tmp_path / STAGED)
    backend.reads = []
    assert upload(tmp_path, A, backend=backend).warnings == ()
    assert backend.reads == []
    same_size = (A[0], deb("a1").replace(b"2.0\n", b"2.1\n", 1))
    assert len(same_size[1]) == len(A[1])
    assert upload(tmp_path, same_size, backend=backend).error is None
    assert backend.reads == [A[0]]
    assert offered(tmp_path) == {"a1": beside(same_size)}


def test_a_service_that_cannot_say_what_lies_there_stops_it_before_anything_is_stored(tmp_path: Path) -> None:
    class Mute(TroubledBackend):
        def describe(self, locations: Any, **options: Any) -> Any:  # noqa: ANN401 - as above
            return tuple(NotPermittedError("denied") for _ in locations)

    upload(tmp_path, A)
    before = staged(tmp_path)
    report = upload(tmp_path, A, B, backend=Mute(tmp_path / STAGED))
    assert isinstance(report.error, NotPermittedError)
    assert staged(tmp_path) == before


def test_a_cancel_before_the_packages_are_read_stops_it(tmp_path: Path) -> None:
    cancel = CancelToken()
    cancel.cancel(15)
    with pytest.raises(CancelledError):
        upload(tmp_path, A, cancel=cancel)


def test_a_cancel_between_files_and_metadata_ends_it_and_a_rerun_completes_it(tmp_path: Path) -> None:
    cancel = CancelToken()
    backend = TroubledBackend(
        tmp_path / STAGED,
        on_upload=lambda items: cancel.cancel(15) if "/dists/" in items[0].destination.relative_path else None,
    )
    report = upload(tmp_path, A, backend=backend, cancel=cancel)
    assert isinstance(report.error, CancelledError)
    assert RELEASE not in staged(tmp_path)
    assert upload(tmp_path, A).error is None
    assert offered(tmp_path) == {"a1": A[0]}


@pytest.mark.parametrize(
    ("told", "error"), [("", NotFoundError), ("error", NotFoundError), ("warn", None), ("ignore", None)]
)
def test_no_package_is_an_error_unless_told_otherwise(tmp_path: Path, told: str, error: type[Exception] | None) -> None:
    report = upload(tmp_path, if_no_files_found=told) if told else upload(tmp_path)
    assert type(report.error) is (error or type(None))
    assert bool(report.warnings) == (told == "warn")
    assert not (tmp_path / STAGED).exists()


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    report = run(context_of(tmp_path, path="nowhere"))
    assert isinstance(report.error, NotFoundError)
    assert "there is no folder nowhere" in report.error.why


def test_a_dry_run_says_what_would_be_stored_and_stores_nothing(tmp_path: Path) -> None:
    report = upload(tmp_path, A, B, dry_run=True)
    assert (report.error, report.warnings) == (None, ())
    assert not (tmp_path / STAGED).exists()
    keys = {stored.location.relative_path for stored in report.result.stored}
    assert {RELEASE, INDEX, f"{INDEX}.gz", f"{POOL}/{A[0]}", f"{POOL}/{B[0]}"} <= keys
    assert {stored.verified for stored in report.result.stored} <= {"dry-run", "local"}
    assert report.outputs == {"package_repository_url": "", "packaging_logs_url": ""}


@pytest.mark.parametrize("on_conflict", ["overwrite", "skip", "error"])
def test_a_dry_run_tells_of_conflicts_as_the_run_itself_would_and_writes_nothing(
    tmp_path: Path, on_conflict: str
) -> None:
    upload(tmp_path, A)
    before = read_tree(tmp_path / STAGED)
    dry = upload(tmp_path, OTHER_A, dry_run=True, on_conflict=on_conflict)
    assert read_tree(tmp_path / STAGED) == before
    real = upload(tmp_path, OTHER_A, on_conflict=on_conflict)
    assert dry.warnings == real.warnings
    assert str(dry.error) == str(real.error)
    assert dry.result.conflicts == real.result.conflicts


def test_a_dry_run_that_cannot_look_says_so_and_goes_on(tmp_path: Path) -> None:
    backend = TroubledBackend(tmp_path / STAGED, listing=NotPermittedError("denied"))
    lay(tmp_path, A)
    context = context_of(tmp_path, dry_run=True)
    dry = LocalStorageBackend(tmp_path / STAGED, dry_run=True)
    dry.list_objects = backend.list_objects  # type: ignore[method-assign]  # the one thing that is denied
    report = run(dataclasses.replace(context, open_backend=lambda: dry))
    assert report.error is None
    assert report.warnings == ("what the repository has cannot be read, so conflicts are not told: denied",)
    assert not (tmp_path / STAGED).exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"package_type": ""}, "needs package_type"),
        ({"path": ""}, "needs path"),
        ({"platform": "windows"}, "native packages exist for linux only"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(tmp_path: Path, options: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        upload(tmp_path, A, **options)


@pytest.mark.parametrize(
    ("index", "bucket", "written"), [("write", "", True), ("none", BUCKET, False), ("auto", "", False)]
)
def test_pages_are_written_where_no_server_does_it_or_as_told(
    tmp_path: Path, index: str, bucket: str, written: bool
) -> None:
    lay(tmp_path, A, **{"logs/build.log": "done\n"})
    report = run(context_of(tmp_path, index=index, bucket=bucket))
    pages = {key for key in staged(tmp_path) if key.endswith("index.html")}
    assert pages == ({f"{REPOSITORY}/index.html", f"{P}/logs/packaging/deb/index.html"} if written else set())
    assert bool(report.outputs["packaging_logs_url"]) == (index != "none")
    assert report.outputs["package_repository_url"]


def test_the_summary_says_how_to_install_from_a_staging_folder(tmp_path: Path) -> None:
    report = upload(tmp_path, A, B)
    (snippet,) = report.snippets
    assert snippet.language == "sh"
    source, *rest = snippet.lines
    line = f"deb [trusted=yes] file://{tmp_path}/{STAGED}/{REPOSITORY} stable main"
    assert source == f'echo "{line}" | sudo tee /etc/apt/sources.list.d/rocm.list'
    assert rest == ["sudo apt-get update", "sudo apt-get install a1 b1"]


def test_the_summary_names_the_first_packages_of_many(tmp_path: Path) -> None:
    packages = [(f"p{number:02}.deb", deb(f"p{number:02}")) for number in range(25)]
    (snippet,) = upload(tmp_path, *packages).snippets
    assert snippet.lines[-1] == "# and 5 more packages"
    assert snippet.lines[-2].endswith(" p18 p19")


def test_the_release_type_is_the_label(tmp_path: Path) -> None:
    upload(tmp_path, A, release_type="nightly")
    assert Release(staged(tmp_path)[RELEASE])["Label"] == "nightly"


@pytest.mark.parametrize(
    "allowed",
    range(4),
    ids=["for all of it", "for what is read before", "for what is read", "for what is written"],
)
def test_without_room_for_temporary_files_nothing_is_published_and_the_reason_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allowed: int
) -> None:
    make, made = tempfile.mkdtemp, itertools.count()

    def refuse(*arguments: Any, **options: Any) -> str:  # noqa: ANN401 - as mkdtemp's
        if next(made) >= allowed:
            raise OSError(28, "No space left on device")
        return make(*arguments, **options)

    lay(tmp_path, A)
    context = context_of(tmp_path)
    monkeypatch.setattr(tempfile, "mkdtemp", refuse)
    report = run(context)
    assert isinstance(report.error, LocalFileError)
    assert report.error.why == "No space left on device"
    assert RELEASE not in staged(tmp_path)


def test_a_staging_folder_outside_the_workspace_is_named_in_full(tmp_path: Path) -> None:
    context = context_of(tmp_path)
    lay(tmp_path, A)
    report = run(
        dataclasses.replace(
            context,
            workspace=Workspace(tmp_path / "packages"),
            settings=context.settings.model_copy(update={"path": str(tmp_path / "packages")}),
        )
    )
    assert f'"deb [trusted=yes] file://{tmp_path}/{STAGED}/{REPOSITORY} stable main"' in report.snippets[0].lines[0]


def test_in_a_container_the_lines_find_the_workspace_where_they_are_run(tmp_path: Path) -> None:
    lay(tmp_path, A)
    context = dataclasses.replace(context_of(tmp_path), workspace=Workspace(tmp_path, ("/host/work/repo",)))
    line = run(context).snippets[0].lines[0]
    command = line.split(" | sudo tee")[0]
    folder = tmp_path / "with a %"
    folder.mkdir()
    told = subprocess.run(["sh", "-c", command], cwd=folder, check=True, capture_output=True, text=True).stdout
    place = f"file://{tmp_path}/with%20a%20%25/{STAGED}/{REPOSITORY}"
    assert told == f"deb [trusted=yes] {place} stable main\n"


def test_in_a_container_a_folder_that_only_it_knows_is_named_and_no_more(tmp_path: Path) -> None:
    lay(tmp_path, A)
    context = context_of(tmp_path, path=str(tmp_path / "packages"))
    context = dataclasses.replace(context, workspace=Workspace(tmp_path / "elsewhere", ("/host/work/repo",)))
    assert run(context).snippets[0].lines == (f"{tmp_path}/{STAGED}/{REPOSITORY}",)


@pytest.mark.parametrize(
    "error", [ServiceUnavailableError("the service did not answer"), BucketNotFoundError("no bucket")]
)
def test_a_file_that_cannot_be_fetched_stops_the_publishing(tmp_path: Path, error: OutputsError) -> None:
    """Its package would be offered no more, where the metadata were lost."""
    write_tree(tmp_path / STAGED, {f"{POOL}/{A[0]}": A[1]})

    class Unreachable(TroubledBackend):
        def download(self, items: Any, **options: Any) -> Any:  # noqa: ANN401 - as LocalStorageBackend's
            failed = tuple(_repository._failed(item.location, error) for item in items)
            return type(super().download([], **options))(failed=failed)

    report = upload(tmp_path, B, backend=Unreachable(tmp_path / STAGED))
    assert report.error is error
    assert RELEASE not in staged(tmp_path)


@pytest.mark.parametrize("runner_temp", ["", "nowhere"])
def test_a_temporary_folder_is_found_where_the_runners_cannot_be_used(tmp_path: Path, runner_temp: str) -> None:
    environment = {"RUNNER_TEMP": str(tmp_path / runner_temp)} if runner_temp else {}
    assert upload(tmp_path, A, environment=environment).error is None
    assert offered(tmp_path) == {"a1": A[0]}
