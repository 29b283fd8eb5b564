"""Mode upload-report: every file of a report, and a URL that opens."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest

from _therock_utils._errors import InputError, ServiceUnavailableError
from _therock_utils._keys import quote
from _therock_utils.storage_backend import LocalStorageBackend
from fakes.contexts import STAGED, TroubledBackend, make_context
from fakes.trees import read_tree, write_tree
from therock_outputs.index_page import read_index_page
from therock_outputs.mode_names import Mode
from therock_outputs.modes.upload_report import run

if TYPE_CHECKING:
    from pathlib import Path

    from therock_outputs.report import Report

pytestmark = pytest.mark.usefixtures("no_job")

P = "100-linux"
FOLDER = "logs/manifest-diff"
URL = f"https://therock-ci-artifacts.s3.amazonaws.com/{P}/{FOLDER}"
WITHOUT_PAGE = {"diff.html": "<p>diff", "style/a.css": "p {}", "data.json": "{}"}


def upload(workspace: Path, files: dict[str, str], **inputs: Any) -> Report:  # noqa: ANN401 - make_context's
    write_tree(workspace / "report", files)
    return run(
        make_context(workspace, Mode.UPLOAD_REPORT, **({"path": "report", "subfolder": "manifest-diff"} | inputs))
    )


def staged(workspace: Path) -> dict[str, str]:
    tree = read_tree(workspace / STAGED / P)
    return {
        key.removeprefix(f"{FOLDER}/"): data.decode() for key, data in tree.items() if not key.startswith("reports/")
    }


def test_everything_that_the_pages_may_need_is_stored_where_it_lies(tmp_path: Path) -> None:
    files = {"index.html": "own", "a/b/c.js": "1", "a/b.png": "\x89", ".assets/d.css": "p {}", "odd + %#?.html": "x"}
    report = upload(tmp_path, files, index="write")
    assert report.error is None
    assert staged(tmp_path) == files
    types = {item.location.name: item.content_type for item in report.result.stored}
    assert (types["index.html"], types["c.js"]) == ("text/html; charset=utf-8", "text/javascript; charset=utf-8")


@pytest.mark.parametrize("index", ["auto", "write", "none"])
@pytest.mark.parametrize("index_file", ["index.html", "Main.HTM"])
def test_the_reports_own_page_is_kept_and_is_the_url(tmp_path: Path, index: str, index_file: str) -> None:
    report = upload(tmp_path, {**WITHOUT_PAGE, index_file: "own"}, index=index, index_file=index_file)
    assert staged(tmp_path) == {**WITHOUT_PAGE, index_file: "own"}
    assert report.outputs == {"report_url": f"{URL}/{index_file}"}
    assert [(part.by_server, part.note) for part in report.parts] == [(False, "")]
    assert report.warnings == ()  # no page was even tried


@pytest.mark.parametrize("index_file", ["index.html", "list.html"])
def test_a_page_is_made_under_the_name_that_is_wanted_where_the_report_brings_none(
    tmp_path: Path, index_file: str
) -> None:
    report = upload(tmp_path, WITHOUT_PAGE, index="write", index_file=index_file)
    rows = read_index_page(staged(tmp_path)[index_file].encode())
    assert rows is not None
    assert [row.name for row in rows] == sorted(WITHOUT_PAGE)
    assert report.outputs == {"report_url": f"{URL}/{index_file}"}
    assert report.page is not None
    assert report.page.https_url == report.outputs["report_url"]


def test_a_list_of_the_reports_own_is_a_file_as_any_other(tmp_path: Path) -> None:
    upload(tmp_path, {"a.txt": "a", "index.json": '{"results": 1}'}, index="write", subfolder="own")
    (page,) = (tmp_path / STAGED).rglob("logs/own/index.html")
    assert 'href="./index.json"' in page.read_text(encoding="utf-8")


def test_a_page_of_another_report_is_never_replaced_by_a_list(tmp_path: Path) -> None:
    write_tree(tmp_path / STAGED / P / FOLDER, {"index.html": "<p>another's"})
    report = upload(tmp_path, WITHOUT_PAGE, index="write")
    assert staged(tmp_path)["index.html"] == "<p>another's"
    assert report.outputs == {"report_url": f"{URL}/index.html"}
    assert "another program made it" in report.warnings[0]


def test_a_folder_has_no_server_that_makes_a_page(tmp_path: Path) -> None:
    report = upload(tmp_path, WITHOUT_PAGE, staging_dir=STAGED, index_file="list.html")
    assert set(staged(tmp_path)) == {*WITHOUT_PAGE, "list.html"}
    assert report.outputs == {"report_url": f"{URL}/list.html"}
    assert [(part.by_server, part.note) for part in report.parts] == [(False, "")]


@pytest.mark.parametrize("index_file", ["index.html", "list.html"])
def test_where_the_server_makes_a_page_that_is_the_url(tmp_path: Path, index_file: str) -> None:
    report = upload(tmp_path, WITHOUT_PAGE, index_file=index_file)
    assert staged(tmp_path) == WITHOUT_PAGE
    assert report.outputs == {"report_url": f"{URL}/index.html"}
    assert [part.note for part in report.parts] == ["the server makes this page"]


@pytest.mark.parametrize(
    ("files", "url"),
    [
        (WITHOUT_PAGE, f"{URL}/diff.html"),
        ({"deep/a b.htm": "x", "x.css": "x"}, f"{URL}/deep/a%20b.htm"),
        ({"a.html": "x", "b.html": "x"}, ""),
        ({"a.json": "x"}, ""),
    ],
)
def test_without_any_page_the_only_html_file_is_the_url(tmp_path: Path, files: dict[str, str], url: str) -> None:
    report = upload(tmp_path, files, index="none")
    assert report.outputs == {"report_url": url}
    assert (report.page.https_url if report.page is not None else "") == url


def test_a_page_that_fails_leaves_the_only_html_file_as_the_url(tmp_path: Path) -> None:
    backend = TroubledBackend(tmp_path / STAGED, reading=ServiceUnavailableError("no answer"))
    report = upload(tmp_path, WITHOUT_PAGE, index="write", backend=backend)
    assert report.exit_code == 5
    assert report.outputs == {"report_url": f"{URL}/diff.html"}


@pytest.mark.parametrize("index", ["auto", "write", "none"])
@pytest.mark.parametrize("name", ["diff.html", "index.html"])
def test_one_file_is_a_report_and_its_page_whatever_is_said_of_pages(tmp_path: Path, index: str, name: str) -> None:
    report = upload(tmp_path, {**WITHOUT_PAGE, "index.html": "own"}, path=f"report/{name}", index=index)
    assert set(staged(tmp_path)) == {name}
    assert report.outputs == {"report_url": f"{URL}/{name}"}
    assert report.page is not None
    assert report.page.https_url == f"{URL}/{name}"
    assert [(part.by_server, part.note) for part in report.parts] == [(False, "")]


@pytest.mark.parametrize(
    ("files", "inputs", "which"),
    [
        (WITHOUT_PAGE, {"index": "write"}, "is that of 'list.html', made here, which lists the files"),
        (WITHOUT_PAGE, {}, "is that of 'index.html', made by the server, which lists the files"),
        (WITHOUT_PAGE, {"index": "none"}, "is that of 'diff.html', the only HTML file"),
        (WITHOUT_PAGE, {"path": "report/diff.html"}, "is that of 'diff.html', the only HTML file"),
        ({"a.html": "x", "b.html": "x"}, {"index": "none"}, "is empty: there is no page to open"),
        (WITHOUT_PAGE, {"index": "none", "dry_run": "true"}, "would be that of 'diff.html', the only HTML file"),
    ],
)
def test_an_index_file_that_is_not_among_the_files_is_told_with_the_page_that_is_opened_instead(
    tmp_path: Path, files: dict[str, str], inputs: dict[str, str], which: str
) -> None:
    report = upload(tmp_path, files, index_file="list.html", **inputs)
    assert report.notices == (f"index_file 'list.html' is not among the files: report_url {which}",)


def test_nothing_is_told_of_an_index_file_that_is_there_or_where_nothing_is_stored(tmp_path: Path) -> None:
    assert upload(tmp_path, {}, path="nothing", index_file="list.html").notices == ()
    assert upload(tmp_path, WITHOUT_PAGE).notices == ()
    assert upload(tmp_path, {"list.html": "x"}, index_file="list.html").notices == ()


def test_a_file_that_is_no_html_is_no_report(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a file, not a folder or a file"):
        upload(tmp_path, WITHOUT_PAGE, path="report/data.json")


def test_patterns_and_hidden_files_are_as_told(tmp_path: Path) -> None:
    upload(tmp_path, {**WITHOUT_PAGE, ".cache/x": "x"}, exclude="*.json", include_hidden="false")
    assert set(staged(tmp_path)) == {"diff.html", "style/a.css"}


def test_links_are_left_out_and_told(tmp_path: Path) -> None:
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "latest.html").symlink_to("diff.html")
    report = upload(tmp_path, WITHOUT_PAGE)
    assert [file.path for file in report.result.skipped] == ["latest.html"]


@pytest.mark.parametrize("subfolder", ["tests/gfx1151", "tests/gfx1151/deep"])
def test_the_folder_may_be_a_deeper_one(tmp_path: Path, subfolder: str) -> None:
    report = upload(tmp_path, {"index.html": "x"}, subfolder=subfolder)
    assert set(staged(tmp_path)) == {f"logs/{subfolder}/index.html"}
    assert report.subject == subfolder
    assert report.record is not None
    assert report.record.name.startswith(subfolder.replace("/", "-"))


@pytest.mark.parametrize(
    ("subfolder", "why"),
    [
        ("/", "it has an empty segment (or a leading or trailing '/')"),
        ("a/", "it has an empty segment (or a leading or trailing '/')"),
        ("/a", "it has an empty segment (or a leading or trailing '/')"),
        ("a//b", "it has an empty segment (or a leading or trailing '/')"),
        ("..", "it has the segment '..'"),
        ("../x", "it has the segment '..'"),
        ("a/../b", "it has the segment '..'"),
        (".", "it has the segment '.'"),
        ("a\\b", "it has a backslash"),
        ("index.html", "a file of the layout has that name"),
        ("index.html/x", "a file of the layout has that name"),
        ("a cannot be used: /" + "b" * 1000, "it has 1034 bytes in UTF-8, more than 1024"),
        ("logs", "it is below logs/ already"),
        ("logs/manifest-diff", "it is below logs/ already"),
        ("packaging", "logs/packaging/ has the logs of native packages"),
        ("packaging/deb", "logs/packaging/ has the logs of native packages"),
    ],
)
def test_a_folder_that_is_none_is_refused_by_its_whole_name_before_anything_is_stored(
    tmp_path: Path, subfolder: str, why: str
) -> None:
    with pytest.raises(InputError) as caught:
        upload(tmp_path, WITHOUT_PAGE, subfolder=subfolder)
    assert caught.value.what == f"subfolder {quote(subfolder)} cannot be used: {why}"
    assert caught.value.remedy.startswith("Leave logs/ out: give 'manifest" if "/manifest" in subfolder else "Give the")
    assert not (tmp_path / STAGED).exists()


def test_without_a_folder_the_mode_says_what_it_needs(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="mode upload-report needs subfolder"):
        upload(tmp_path, WITHOUT_PAGE, subfolder="")


@pytest.mark.parametrize("subfolder", ["packaging-times", "my/logs/packaging"])
def test_a_folder_with_such_a_word_elsewhere_in_it_is_a_reports(tmp_path: Path, subfolder: str) -> None:
    assert upload(tmp_path, WITHOUT_PAGE, subfolder=subfolder).error is None


@pytest.mark.parametrize("index_file", ["index", "index.md", "sub/index.html", "..html/", "a\n.html"])
def test_a_page_name_that_is_none_is_refused(tmp_path: Path, index_file: str) -> None:
    with pytest.raises(InputError, match="index_file"):
        upload(tmp_path, WITHOUT_PAGE, index_file=index_file)


@pytest.mark.parametrize(("told", "exit_code", "warned"), [("", 0, 1), ("error", 3, 0), ("ignore", 0, 0)])
@pytest.mark.parametrize("path", ["report", "nothing", "nothing.html"])
def test_no_report_is_a_warning_unless_told_otherwise(
    tmp_path: Path, path: str, told: str, exit_code: int, warned: int
) -> None:
    (tmp_path / "report").mkdir()
    report = upload(tmp_path, {}, path=path, if_no_files_found=told, index="write")
    assert (report.exit_code, len(report.warnings)) == (exit_code, warned)
    assert (report.outputs, report.page, report.snippets) == ({"report_url": ""}, None, ())
    assert not (tmp_path / STAGED).exists()


def test_the_summary_has_the_address_to_pass_on_or_how_to_look_at_what_is_staged(tmp_path: Path) -> None:
    write_tree(tmp_path / "report", WITHOUT_PAGE)
    context = make_context(tmp_path, Mode.UPLOAD_REPORT, path="report", subfolder="my report", index="write")
    uploaded = dataclasses.replace(
        context, staging_dir=None, open_backend=lambda: LocalStorageBackend(tmp_path / STAGED)
    )
    (address,) = run(uploaded).snippets
    assert (address.language, address.lines) == ("text", (f"{URL.replace('manifest-diff', 'my%20report')}/index.html",))
    server, local = run(context).snippets
    folder = f"{STAGED}/{P}/logs/my report"
    assert server.lines == (f"python3 -m http.server 8000 --bind 127.0.0.1 --directory '{folder}'",)
    assert (local.language, local.lines) == ("text", ("http://127.0.0.1:8000/index.html",))


def test_the_address_of_what_is_staged_is_that_of_the_page_to_open(tmp_path: Path) -> None:
    _, local = upload(tmp_path, {"deep/a b#.html": "x"}, index="none").snippets
    assert local.lines == ("http://127.0.0.1:8000/deep/a%20b%23.html",)


def test_on_windows_the_command_is_cmds(tmp_path: Path) -> None:
    snippet, _ = upload(tmp_path, WITHOUT_PAGE, platform="windows").snippets
    assert snippet.language == "bat"
    assert snippet.lines[0].startswith('python -m http.server 8000 --bind 127.0.0.1 --directory "staged')


def test_a_dry_run_says_what_would_be_and_links_nothing(tmp_path: Path) -> None:
    report = upload(tmp_path, WITHOUT_PAGE, dry_run="true", index="write")
    assert len(report.result.stored) == 4
    assert (report.outputs, report.snippets) == ({"report_url": ""}, ())
