"""Mode upload-tarballs as a step: URLs by family, and a command on top that unpacks what was stored."""

from __future__ import annotations

import json
import subprocess
import tarfile
from typing import TYPE_CHECKING

import pytest

from fakes import markdown
from fakes.reports import HOSTILE_NAMES
from fakes.trees import read_tree, write_tree

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakes.runner import FakeRunner

P = "15948739823-linux"
URL = f"https://therock-ci-artifacts.s3.amazonaws.com/{P}/tarballs"
INPUTS = {"mode": "upload-tarballs", "path": "tarballs", "staging_dir": "out"}
NAME = "therock-dist-linux-gfx94X-dcgpu-7.11.0.dev0+abc123.tar.gz"
MULTIARCH = "therock-dist-linux-multiarch-7.11.0.dev0+abc123.tar.gz"

OUR_COMMANDS = {"group", "endgroup", "error", "warning", "notice", "add-mask"}


def with_tarballs(runner: FakeRunner, *names: str) -> FakeRunner:
    write_tree(runner.workspace, {"tree/bin/tool": "#!/bin/sh\n", "tarballs/.work/tree/x.tar.gz": "not ready"})
    for name in names:
        with tarfile.open(runner.workspace / "tarballs" / name, "w:gz") as archive:
            archive.add(runner.workspace / "tree", arcname=".")
    return runner


def staged(runner: FakeRunner) -> set[str]:
    return {key for key in read_tree(runner.workspace / "out" / P) if not key.startswith("reports/")}


def test_each_tarball_has_its_url_and_the_page_is_the_one_to_open(job: Callable[..., FakeRunner]) -> None:
    runner = with_tarballs(job(), NAME, MULTIARCH)
    result = runner.run({**INPUTS, "index": "write"})
    assert result.succeeded, result.log
    assert result.messages("error") == []
    assert json.loads(result.outputs["tarball_urls"]) == {
        "gfx94X-dcgpu": f"{URL}/{NAME.replace('+', '%2B')}",
        "multiarch": f"{URL}/{MULTIARCH.replace('+', '%2B')}",
    }
    assert (result.outputs["url"], result.outputs["file_count"]) == (f"{URL}/index.html", "3")
    assert staged(runner) == {f"tarballs/{name}" for name in (NAME, MULTIARCH, "index.html")}
    (record,) = (runner.workspace / "out" / P / "reports" / "upload-tarballs").iterdir()
    assert record.name.startswith("tarballs-build-1-")


def test_the_commands_on_top_of_the_summary_unpack_what_was_staged(job: Callable[..., FakeRunner]) -> None:
    runner = with_tarballs(job(), NAME)
    summary = runner.run(INPUTS).summary
    (fence,) = [token for token in markdown.parse(summary) if token.type == "fence"]
    assert summary.index("```sh") < summary.index("| What |")
    subprocess.run(["sh", "-ec", fence.content], cwd=runner.workspace, check=True)
    assert (runner.workspace / "therock-gfx94X-dcgpu" / "bin" / "tool").read_text() == "#!/bin/sh\n"


def test_a_name_that_is_no_tarballs_is_exit_code_2_and_nothing_is_stored(job: Callable[..., FakeRunner]) -> None:
    runner = with_tarballs(job(), NAME, "rocm.tar.gz")
    result = runner.run(INPUTS)
    assert result.exit_code == 2
    (message,) = result.messages("error")
    assert "'rocm.tar.gz'" in message
    assert "therock-dist-linux-{family or multiarch}[-tests]-{version}.tar.gz" in message
    assert not (runner.workspace / "out").exists()


@pytest.mark.parametrize("name", [name for name in HOSTILE_NAMES if "/" not in name])
def test_hostile_names_of_files_that_are_none_do_nothing(job: Callable[..., FakeRunner], name: str) -> None:
    runner = with_tarballs(job(), NAME)
    write_tree(runner.workspace / "tarballs", {name: "x", f"{name}.tar.gz": "x"})
    result = runner.run(INPUTS)
    if any(character in name for character in "\n\x1b"):  # no key has such a name: it is left out, and told
        assert result.exit_code == 0, result.log
    else:
        assert result.exit_code == 2, result.log
        assert len(result.messages("error")) == 1
    assert {command.name for command in result.commands} <= OUR_COMMANDS
    assert markdown.types(result.summary).isdisjoint({"image", "link_open", "em_open", "s_open"})
    tokens = markdown.flat(markdown.parse(result.summary))
    assert {token.content for token in tokens if token.type == "html_inline"} <= markdown.OUR_HTML


def test_no_tarball_is_exit_code_3(job: Callable[..., FakeRunner]) -> None:
    result = with_tarballs(job()).run(INPUTS)
    assert result.exit_code == 3
    assert result.messages("error") != []
    assert (result.outputs["tarball_urls"], result.outputs["url"]) == ("{}", "")
