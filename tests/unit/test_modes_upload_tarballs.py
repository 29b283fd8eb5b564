"""Mode upload-tarballs: names first, then the bytes, then the page, and a URL for each family."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import pytest

from _therock_utils import _source_file
from _therock_utils._errors import InputError, IntegrityError, NotPermittedError
from fakes.contexts import STAGED, TroubledBackend, make_context
from fakes.trees import read_tree, write_tree
from therock_outputs.index_page import read_index_page
from therock_outputs.mode_names import Mode
from therock_outputs.modes.upload_tarballs import run

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from _therock_utils._transfer_types import UploadItem
    from therock_outputs.report import Report

pytestmark = pytest.mark.usefixtures("no_job")

P = "100-linux"
URL = f"https://therock-ci-artifacts.s3.amazonaws.com/{P}/tarballs"
ONE = "therock-dist-linux-gfx94X-dcgpu-7.11.0.dev0+abc123.tar.gz"
OTHER = "therock-dist-linux-gfx1151-7.11.0.dev0+abc123.tar.gz"
TESTS = "therock-dist-linux-multiarch-tests-7.11.0.dev0+abc123.tar.gz"
ALL = "therock-dist-linux-multiarch-7.11.0.dev0+abc123.tar.gz"
GZIP = gzip.compress(b"bytes", mtime=0)


def upload(workspace: Path, *names: str, **inputs: Any) -> Report:  # noqa: ANN401 - make_context's
    write_tree(workspace / "tarballs", dict.fromkeys(names, GZIP))
    return run(make_context(workspace, Mode.UPLOAD_TARBALLS, **({"path": "tarballs"} | inputs)))


def staged(workspace: Path) -> list[str]:
    return [key for key in read_tree(workspace / STAGED / P) if not key.startswith("reports/")]


def urls(report: Report) -> dict[str, str]:
    return dict(json.loads(report.outputs["tarball_urls"]))


def test_each_family_has_its_url_and_tests_are_apart(tmp_path: Path) -> None:
    report = upload(tmp_path, ONE, OTHER, TESTS, ALL)
    assert report.error is None
    assert urls(report) == {
        "gfx1151": f"{URL}/{OTHER.replace('+', '%2B')}",
        "gfx94X-dcgpu": f"{URL}/{ONE.replace('+', '%2B')}",
        "multiarch": f"{URL}/{ALL.replace('+', '%2B')}",
        "multiarch-tests": f"{URL}/{TESTS.replace('+', '%2B')}",
    }
    assert list(urls(report)) == sorted(urls(report))
    assert staged(tmp_path) == sorted(f"tarballs/{name}" for name in (ONE, OTHER, TESTS, ALL))


def test_only_the_top_level_is_stored_and_what_else_lies_there_is_told(tmp_path: Path) -> None:
    deeper = (".work/therock-dist-linux-gfx1200-7.0.tar.gz", "sub/bad.tar.gz", "sub/a.log", ".part.tar.gz")
    (tmp_path / "tarballs" / "sub").mkdir(parents=True)
    (tmp_path / "tarballs" / "sub" / "link.tar.gz").symlink_to("elsewhere")
    report = upload(tmp_path, ONE, "build.log", "notes.txt", f"sub/deep/{OTHER}", *deeper)
    assert staged(tmp_path) == [f"tarballs/{ONE}"]
    assert report.notices == (
        "2 other files left out, not *.tar.gz: 'build.log', 'notes.txt'",
        f"2 tarballs in sub-folders left out: only the top of path is stored: 'sub/bad.tar.gz', 'sub/deep/{OTHER}'",
    )
    assert report.result.skipped == ()
    assert upload(tmp_path, exclude="sub/\n*.log\n*.txt").notices == ()


@pytest.mark.parametrize(
    ("content", "why"),
    [(b"", "is empty"), (b"\x1f", "has other first bytes"), (b"PK\x03\x04", "has other first bytes")],
)
def test_what_can_be_no_gzip_stops_everything_before_it_begins(tmp_path: Path, content: bytes, why: str) -> None:
    write_tree(tmp_path / "tarballs", {OTHER: content, TESTS: b""})
    with pytest.raises(IntegrityError) as caught:
        upload(tmp_path, ONE)
    assert caught.value.what.startswith("nothing was stored: 2 files cannot be a tarball")
    assert f"{why}: '{OTHER}'" in caught.value.why
    assert f"'{TESTS}'" in caught.value.why
    assert f"'{ONE}'" not in caught.value.why
    assert not (tmp_path / STAGED).exists()
    assert upload(tmp_path, exclude=f"*gfx1151*\n{TESTS}").error is None


def test_one_that_vanishes_and_one_that_cannot_be_opened_are_told_and_the_rest_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = _source_file.os.open

    def troubled(path: Any, *rest: Any, **options: Any) -> int:  # noqa: ANN401 - as os.open
        if str(path).endswith(ONE):
            raise FileNotFoundError(2, "No such file or directory")
        if str(path).endswith(f"tarballs/{OTHER}"):
            raise PermissionError(13, "Permission denied")
        return real(path, *rest, **options)

    monkeypatch.setattr(_source_file.os, "open", troubled)
    report = upload(tmp_path, ONE, OTHER, ALL)
    assert [(file.path, file.reason) for file in report.result.skipped] == [(ONE, "it vanished before it was read")]
    assert (report.exit_code, list(urls(report))) == (8, ["multiarch"])


def test_a_tarball_that_is_left_because_another_lies_there_has_its_url_all_the_same(tmp_path: Path) -> None:
    write_tree(tmp_path / STAGED / P, {f"tarballs/{OTHER}": "another job's"})
    report = upload(tmp_path, ONE, OTHER, on_conflict="skip", index="write")
    assert report.error is None
    assert list(urls(report)) == ["gfx1151", "gfx94X-dcgpu"]
    assert f"{STAGED}/{P}/tarballs/{OTHER}" in report.snippets[0].lines[1]
    assert read_tree(tmp_path / STAGED / P)[f"tarballs/{OTHER}"] == b"another job's"
    assert list(urls(upload(tmp_path, on_conflict="skip", include="*gfx1151*"))) == ["gfx1151"]
    assert urls(upload(tmp_path, on_conflict="skip", dry_run="true")) == {}


def test_a_tarball_that_is_refused_because_another_lies_there_has_none(tmp_path: Path) -> None:
    write_tree(tmp_path / STAGED / P, {f"tarballs/{OTHER}": "another job's"})
    report = upload(tmp_path, OTHER, on_conflict="error")
    assert report.error is not None
    assert urls(report) == {}


@pytest.mark.parametrize(
    "bad",
    [
        "rocm.tar.gz",
        "therock-dist-windows-gfx1151-7.10.0.tar.gz",
        "therock-dist-linux-gfx1151.tar.gz",
        "therock-dist-linux-gfx1151-7.0.TAR.GZ",
        "new\nline.tar.gz",
    ],
)
def test_any_other_name_stops_everything_before_it_begins(tmp_path: Path, bad: str) -> None:
    if "\n" in bad:
        report = upload(tmp_path, ONE, bad)  # no key can have that name: it is left out and told
        assert [file.path for file in report.result.skipped] == [ascii(bad)]
        return
    with pytest.raises(InputError) as caught:
        upload(tmp_path, ONE, bad)
    assert f"nothing was stored: 1 name cannot be a tarball's of a linux run: '{bad}'" in caught.value.what
    assert caught.value.why == "the form is therock-dist-linux-{family or multiarch}[-tests]-{version}.tar.gz"
    assert not (tmp_path / STAGED).exists()


def test_of_very_many_bad_names_the_first_few_are_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"30 names .*: 'x00.tar.gz', .*'x09.tar.gz' and 20 more"):
        upload(tmp_path, *(f"x{number:02}.tar.gz" for number in range(30)))


def test_a_windows_run_takes_windows_names(tmp_path: Path) -> None:
    name = "therock-dist-windows-gfx1151-7.10.0.tar.gz"
    report = upload(tmp_path, name, platform="windows")
    assert list(urls(report)) == ["gfx1151"]
    (snippet,) = report.snippets
    assert snippet.language == "bat"
    with pytest.raises(InputError):
        upload(tmp_path, ONE, platform="windows")


def test_two_versions_of_one_family_stop_everything_before_it_begins(tmp_path: Path) -> None:
    second = ONE.replace("7.11", "7.12")
    with pytest.raises(InputError, match="there are 2 tarballs of gfx94X-dcgpu") as caught:
        upload(tmp_path, ONE, second, OTHER)
    assert second in caught.value.what
    assert not (tmp_path / STAGED).exists()


def test_exclude_and_include_decide_before_the_names_are_checked(tmp_path: Path) -> None:
    report = upload(tmp_path, ONE, OTHER, "rocm.tar.gz", exclude="rocm*\n*gfx1151*")
    assert list(urls(report)) == ["gfx94X-dcgpu"]
    assert list(urls(upload(tmp_path, include="*gfx1151*"))) == ["gfx1151"]


def test_a_family_that_is_not_known_is_stored_and_told(tmp_path: Path) -> None:
    report = upload(tmp_path, ONE, "therock-dist-linux-gfx94x-dcgpu-7.0.tar.gz")
    assert report.error is None
    assert report.notices == ("not among the known GPU families: 'gfx94x-dcgpu'",)


@pytest.mark.parametrize(("told", "exit_code"), [("", 3), ("error", 3), ("warn", 0), ("ignore", 0)])
@pytest.mark.parametrize("names", [(), ("notes.txt",)])
def test_no_tarball_is_an_error_unless_told_otherwise(
    tmp_path: Path, names: tuple[str, ...], told: str, exit_code: int
) -> None:
    report = upload(tmp_path, *names, if_no_files_found=told)
    assert report.exit_code == exit_code
    assert bool(report.warnings) == (told == "warn")
    assert report.outputs == {"tarball_urls": "{}"}
    assert report.snippets == ()
    assert not (tmp_path / STAGED).exists()


def test_a_link_is_no_tarball_and_is_told(tmp_path: Path) -> None:
    (tmp_path / "tarballs").mkdir()
    (tmp_path / "tarballs" / ONE).symlink_to("elsewhere")
    (tmp_path / "tarballs" / "latest").symlink_to(ONE)
    report = upload(tmp_path, OTHER)
    assert [(file.path, file.reason) for file in report.result.skipped] == [(ONE, "it is a symbolic link")]
    assert list(urls(report)) == ["gfx1151"]


@pytest.mark.parametrize(
    ("index", "bucket", "written"),
    [("auto", "", False), ("write", "", True), ("none", "", False), ("auto", "own", True), ("none", "own", False)],
)
def test_the_page_is_written_where_no_server_does_it_or_as_told(
    tmp_path: Path, index: str, bucket: str, written: bool
) -> None:
    report = upload(tmp_path, ONE, index=index, bucket=bucket)
    assert ("tarballs/index.html" in staged(tmp_path)) == written
    assert (report.page is None) == (index == "none")
    assert report.parts[0].by_server == (index == "auto" and not bucket)


def test_a_folder_has_no_server_that_makes_the_page(tmp_path: Path) -> None:
    report = upload(tmp_path, ONE, staging_dir=STAGED)
    assert staged(tmp_path) == ["tarballs/index.html", f"tarballs/{ONE}"]
    assert [(part.by_server, part.note) for part in report.parts] == [(False, "")]
    assert report.page is not None
    assert report.page.https_url == f"{URL}/index.html"


def test_the_page_lists_what_other_jobs_stored_too(tmp_path: Path) -> None:
    upload(tmp_path, ONE, index="write")
    (tmp_path / "tarballs" / ONE).unlink()
    upload(tmp_path, OTHER, index="write")
    rows = read_index_page((tmp_path / STAGED / P / "tarballs" / "index.html").read_bytes())
    assert rows is not None
    assert [row.name for row in rows] == [OTHER, ONE]


def test_what_is_not_stored_has_no_url_and_no_page_is_touched(tmp_path: Path) -> None:
    write_tree(tmp_path / STAGED / P, {f"tarballs/{OTHER}": "another job's"})

    def refuse(_items: Sequence[UploadItem]) -> None:
        raise NotPermittedError("access was denied")

    report = upload(tmp_path, ONE, backend=TroubledBackend(tmp_path / STAGED, on_upload=refuse), index="write")
    assert (report.exit_code, urls(report), report.snippets, report.page) == (4, {}, (), None)
    assert staged(tmp_path) == [f"tarballs/{OTHER}"]


def test_a_folder_that_cannot_be_read_is_the_failure_of_the_mode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

    def refuse(_path: object) -> None:
        raise PermissionError(13, "Permission denied")

    write_tree(tmp_path / "tarballs", {ONE: GZIP})
    context = make_context(tmp_path, Mode.UPLOAD_TARBALLS, path="tarballs")
    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", refuse)
        report = run(context)
    assert report.exit_code == 8
    assert [part.state for part in report.parts] == ["failed"]


def test_a_dry_run_says_what_would_be_and_links_nothing(tmp_path: Path) -> None:
    report = upload(tmp_path, ONE, index="write", dry_run="true")
    assert {item.location.name for item in report.result.stored} == {ONE, "index.html"}
    assert (urls(report), report.snippets) == ({}, ())
    assert not (tmp_path / STAGED).exists()


def test_of_a_staged_tarball_the_summary_says_how_to_unpack_it(tmp_path: Path) -> None:
    (snippet,) = upload(tmp_path, ONE).snippets
    assert snippet.title == "Unpack:"
    assert snippet.lines == (
        "mkdir -p therock-gfx94X-dcgpu",
        f"tar -xzf {STAGED}/{P}/tarballs/{ONE} -C therock-gfx94X-dcgpu",
    )


def test_of_many_tarballs_the_summary_shows_the_first_few(tmp_path: Path) -> None:
    (snippet,) = upload(tmp_path, ONE, OTHER, TESTS, ALL).snippets
    assert snippet.title == "Unpack the first 3 of 4:"
    assert len(snippet.lines) == 6


def test_of_an_uploaded_tarball_the_summary_says_how_to_fetch_it(tmp_path: Path) -> None:
    import dataclasses

    from _therock_utils.storage_backend import LocalStorageBackend

    write_tree(tmp_path / "tarballs", {ONE: GZIP})
    context = make_context(tmp_path, Mode.UPLOAD_TARBALLS, path="tarballs")
    context = dataclasses.replace(
        context, staging_dir=None, open_backend=lambda: LocalStorageBackend(tmp_path / STAGED)
    )
    (snippet,) = run(context).snippets
    assert (snippet.title, snippet.language) == ("Fetch and unpack:", "sh")
    assert snippet.lines[0] == f"curl -fL -o {ONE} {URL}/{ONE.replace('+', '%2B')}"
    assert snippet.lines[1:] == (
        "mkdir -p therock-gfx94X-dcgpu",
        f"tar -xzf {ONE} -C therock-gfx94X-dcgpu",
    )


def test_a_list_of_platforms_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="platform is a list"):
        upload(tmp_path, ONE, platform="linux,windows")
