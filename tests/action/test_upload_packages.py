"""Mode upload-packages as a step: outputs, summary and messages of a job that adds to an APT repository."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING

import pytest

from fakes.deb_packages import control_text, deb_of, offered_packages
from fakes.runner import FakeRunner
from fakes.trees import read_tree, write_tree

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

P = "15948739823-linux"
REPOSITORY = f"{P}/packages/deb"
URL = f"https://therock-ci-artifacts.s3.amazonaws.com/{P}"
INPUTS = {"mode": "upload-packages", "package_type": "deb", "path": "out/packages", "staging_dir": "staged"}


@pytest.fixture
def step(tmp_path: Path) -> Callable[..., FakeRunner]:
    """Make a job whose folder out/packages has these files, by default two packages and a log."""

    def make(files: dict[str, bytes | str] | None = None) -> FakeRunner:
        runner = FakeRunner(root=tmp_path / "job")
        default = {
            "rocm-core_7.1.0+a~1_amd64.deb": deb_of(control_text("rocm-core", "1:7.1.0+a~1")),
            "rocm-data_7.1.0_all.deb": deb_of(control_text("rocm-data", "7.1.0", "all")),
            "logs/build.log": "done\n",
        }
        write_tree(runner.workspace / "out" / "packages", default if files is None else files)
        return runner

    return make


def stored(runner: FakeRunner) -> dict[str, bytes]:
    return read_tree(runner.workspace / "staged")


def test_the_repository_and_its_logs_are_where_the_outputs_say(step: Callable[..., FakeRunner]) -> None:
    runner = step()
    result = runner.run({**INPUTS, "index": "write"})
    assert result.succeeded, result.log
    assert result.annotations == ()
    assert offered_packages(stored(runner), REPOSITORY) == {
        ("rocm-core", "1:7.1.0+a~1"): "rocm-core_7.1.0+a~1_amd64.deb",
        ("rocm-data", "7.1.0"): "rocm-data_7.1.0_all.deb",
    }
    assert result.outputs["package_repository_url"] == f"{URL}/packages/deb"
    assert result.outputs["packaging_logs_url"] == f"{URL}/logs/packaging/deb/index.html"
    assert result.outputs["url"] == f"{URL}/packages/deb/index.html"
    assert {f"{P}/logs/packaging/deb/build.log", f"{REPOSITORY}/index.html"} <= stored(runner).keys()


def test_the_summary_has_what_a_person_runs_next_on_top(step: Callable[..., FakeRunner]) -> None:
    runner = step()
    result = runner.run(INPUTS)
    text = result.summary
    assert text.index("Install the packages:") < text.index("Repository metadata")
    block = text.split("```sh\n")[1].split("\n```")[0].splitlines()
    assert block[0] == (
        f'echo "deb [trusted=yes] file://{runner.workspace}/staged/{REPOSITORY} stable main" | sudo tee '
        "/etc/apt/sources.list.d/rocm.list"
    )
    assert block[1:] == ["sudo apt-get update", "sudo apt-get install rocm-core rocm-data"]
    assert all(shlex.split(line) for line in block)


def test_the_record_lists_packages_and_metadata_with_their_digests(step: Callable[..., FakeRunner]) -> None:
    runner = step()
    runner.run(INPUTS)
    (record,) = [data for key, data in stored(runner).items() if "/reports/upload-packages/" in key]
    listed = {entry["key"]: entry["sha256"] for entry in json.loads(record)["objects"]}
    assert f"{REPOSITORY}/dists/stable/Release" in listed
    assert f"{REPOSITORY}/pool/main/rocm-core_7.1.0+a~1_amd64.deb" in listed
    assert all(listed.values())
    checked = runner.run({"mode": "verify", "staging_dir": "staged"})
    assert (checked.exit_code, checked.outputs["verified"]) == (0, "true"), checked.log


def test_what_two_steps_stored_is_verified_after_both(step: Callable[..., FakeRunner]) -> None:
    runner = step()
    runner.run(INPUTS)
    write_tree(runner.workspace / "more", {"rocm-more_1_amd64.deb": deb_of(control_text("rocm-more", "1"))})
    assert runner.run({**INPUTS, "path": "more"}).succeeded
    assert len(offered_packages(stored(runner), REPOSITORY)) == 3
    checked = runner.run({"mode": "verify", "staging_dir": "staged"})
    assert (checked.exit_code, checked.outputs["verified"]) == (0, "true"), checked.log


def test_in_a_staging_folder_no_server_makes_the_pages(step: Callable[..., FakeRunner]) -> None:
    runner = step()
    result = runner.run(INPUTS)
    assert {f"{REPOSITORY}/index.html", f"{P}/logs/packaging/deb/index.html"} <= stored(runner).keys()
    assert "the server makes this page" not in result.summary
    assert result.outputs["packaging_logs_url"] == f"{URL}/logs/packaging/deb/index.html"


def test_a_hostile_package_is_one_clear_error_and_nothing_of_the_step_is_offered(
    step: Callable[..., FakeRunner],
) -> None:
    runner = step({"::error::x.deb": b"no package", "good_1_amd64.deb": deb_of(control_text("good", "1"))})
    result = runner.run(INPUTS)
    assert result.exit_code == 6
    (message,) = result.messages("error")
    assert "is no sound Debian package" in message
    assert "Traceback" not in result.log
    assert result.outputs["package_repository_url"] == ""
    assert stored(runner) == {}


def test_a_description_that_looks_like_a_command_reaches_no_log(step: Callable[..., FakeRunner]) -> None:
    hostile = control_text("good", "1", extra="X: ::error::from the package\n ##[error]and this\n")
    result = step({"good_1_amd64.deb": deb_of(hostile)}).run(INPUTS)
    assert (result.exit_code, result.annotations) == (0, ())
    assert "from the package" not in result.log


@pytest.mark.parametrize(
    ("changes", "exit_code", "words"),
    [
        ({"package_type": ""}, 2, "needs package_type"),
        ({"package_type": "snap"}, 2, "package_type"),
        ({"path": ""}, 2, "needs path"),
        ({"platform": "windows"}, 2, "linux only"),
        ({"path": "nowhere"}, 3, "there is no folder nowhere"),
        ({"path": "out"}, 3, "there is no file *.deb in out"),
    ],
)
def test_what_cannot_be_done_is_told_with_an_exit_code(
    step: Callable[..., FakeRunner], changes: dict[str, str], exit_code: int, words: str
) -> None:
    result = step().run({**INPUTS, **changes})
    assert result.exit_code == exit_code, result.log
    assert any(words in message for message in result.messages("error")), result.log


def test_packages_in_deeper_folders_are_pointed_out(step: Callable[..., FakeRunner]) -> None:
    result = step().run({**INPUTS, "path": "out", "if_no_files_found": "warn"})
    assert result.exit_code == 0, result.log
    assert "in sub-folders of path, whose packages are not stored: 2 packages, the first is packages/" in result.log


def test_a_dry_run_stores_nothing_and_gives_no_link(step: Callable[..., FakeRunner]) -> None:
    runner = step()
    result = runner.run({**INPUTS, "dry_run": "true"})
    assert result.succeeded, result.log
    assert (stored(runner), result.outputs["package_repository_url"]) == ({}, "")
