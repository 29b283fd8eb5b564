"""Mode upload-report as a step: all files, the right page, and a summary that leads to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fakes import markdown
from fakes.reports import HOSTILE_NAMES
from fakes.trees import read_tree, write_tree

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakes.runner import FakeRunner

P = "15948739823-linux"
FOLDER = "logs/manifest-diff"
URL = f"https://therock-ci-artifacts.s3.amazonaws.com/{P}/{FOLDER}"
INPUTS = {"mode": "upload-report", "path": "report", "subfolder": "manifest-diff", "staging_dir": "out"}

OUR_COMMANDS = {"group", "endgroup", "error", "warning", "notice", "add-mask"}


def staged(runner: FakeRunner) -> set[str]:
    tree = read_tree(runner.workspace / "out" / P)
    return {key.removeprefix(f"{FOLDER}/") for key in tree if not key.startswith("reports/")}


@pytest.mark.parametrize(
    ("files", "inputs", "written", "url"),
    [
        ({"index.html": "own", "a.css": ""}, {"index": "write"}, set(), "index.html"),
        ({"diff.html": "x", "a.css": ""}, {"index": "write"}, {"index.html"}, "index.html"),
        ({"diff.html": "x", "a.css": ""}, {"index": "write", "index_file": "all.html"}, {"all.html"}, "all.html"),
        ({"diff.html": "x", "a.css": ""}, {}, {"index.html"}, "index.html"),
        ({"diff.html": "x", "a.css": ""}, {"index": "none"}, set(), "diff.html"),
        ({"diff.html": "x"}, {"path": "report/diff.html", "index": "write"}, set(), "diff.html"),
    ],
    ids=["own page", "made page", "made page of that name", "no server makes one in a folder", "no page", "one file"],
)
def test_the_url_is_the_page_that_is_there(
    job: Callable[..., FakeRunner], files: dict[str, str], inputs: dict[str, str], written: set[str], url: str
) -> None:
    runner = job()
    write_tree(runner.workspace / "report", files)
    result = runner.run(INPUTS | inputs)
    assert result.succeeded, result.log
    assert staged(runner) == set(files) | written
    assert (result.outputs["report_url"], result.outputs["url"]) == (f"{URL}/{url}", f"{URL}/{url}")


def test_a_report_of_the_whole_workspace_has_no_output_of_this_program(job: Callable[..., FakeRunner]) -> None:
    runner = job(build={})
    write_tree(runner.workspace, {"index.html": "x"})
    for _ in range(2):  # the second time, the first one's report file and staged objects are there
        assert runner.run({**INPUTS, "path": "."}).succeeded
    assert staged(runner) == {"index.html"}


@pytest.mark.parametrize("name", [name for name in HOSTILE_NAMES if "/" not in name])
def test_hostile_file_names_are_stored_or_told_and_do_nothing(job: Callable[..., FakeRunner], name: str) -> None:
    runner = job()
    write_tree(runner.workspace / "report", {name: "x", "index.html": "x"})
    result = runner.run(INPUTS)
    assert result.succeeded, result.log
    is_key = not any(character in name for character in "\n\x1b")
    assert staged(runner) == ({name, "index.html"} if is_key else {"index.html"})
    assert {command.name for command in result.commands} <= OUR_COMMANDS
    assert markdown.types(result.summary).isdisjoint({"image", "link_open", "em_open", "s_open"})
    tokens = markdown.flat(markdown.parse(result.summary))
    assert {token.content for token in tokens if token.type == "html_inline"} <= markdown.OUR_HTML


def test_where_the_server_makes_the_page_the_summary_says_so_and_links_nothing_that_is_not_there(
    job: Callable[..., FakeRunner],
) -> None:
    runner = job()
    write_tree(runner.workspace / "report", {"diff.html": "x"})
    inputs = {"dry_run": "true", "staging_dir": ""}
    result = runner.run(INPUTS | inputs, env={"AWS_EC2_METADATA_DISABLED": "true"})
    assert result.succeeded, result.log
    assert "the server makes this page" in result.summary
    assert (result.outputs["file_count"], result.outputs["url"], markdown.links(result.summary)) == ("1", "", [])
    assert "the server makes this page" not in runner.run(INPUTS).summary


@pytest.mark.parametrize(
    "inputs",
    [{"subfolder": ""}, {"subfolder": "../x"}, {"subfolder": "logs/x"}, {"index_file": "a/b.html"}, {"path": ""}],
)
def test_settings_that_the_mode_cannot_use_are_exit_code_2(
    job: Callable[..., FakeRunner], inputs: dict[str, str]
) -> None:
    runner = job()
    write_tree(runner.workspace / "report", {"index.html": "x"})
    result = runner.run(INPUTS | inputs)
    assert result.exit_code == 2
    assert not (runner.workspace / "out").exists()


def test_a_report_that_is_not_there_is_a_warning(job: Callable[..., FakeRunner]) -> None:
    result = job().run(INPUTS)
    assert result.exit_code == 0
    assert any("there is no folder report" in message for message in result.messages("warning"))
    assert result.outputs["report_url"] == ""
