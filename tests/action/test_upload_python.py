"""Mode upload-python as a step: its outputs, its summary, and its errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fakes.trees import read_tree, write_tree
from fakes.wheels import make_sdist, make_wheel

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakes.runner import FakeRunner

P = "15948739823-linux"
BASE = f"https://therock-ci-artifacts.s3.amazonaws.com/{P}/python"
INPUTS = {"mode": "upload-python", "path": "packages", "staging_dir": "out"}
TORCH = "torch-2.10.0+rocm7.10.0-py3-none-any.whl"


@pytest.fixture
def runner(job: Callable[..., FakeRunner]) -> FakeRunner:
    runner = job(build={})
    make_wheel(runner.workspace / "packages" / "dist", "torch", "2.10.0+rocm7.10.0")
    make_sdist(runner.workspace / "packages" / "dist", "rocm", "7.10.0", extras=("libraries", "devel"))
    return runner


def test_a_group_has_a_page_and_a_simple_repository(runner: FakeRunner) -> None:
    result = runner.run({**INPUTS, "artifact_group": "gfx94X-dcgpu"})
    assert result.succeeded, result.log
    assert result.outputs["package_find_links_url"] == f"{BASE}/gfx94X-dcgpu/index.html"
    assert result.outputs["index_url"] == f"{BASE}/gfx94X-dcgpu/simple/"
    assert result.outputs["kpack_split"] == "false"
    assert result.outputs["url"] == f"{BASE}/gfx94X-dcgpu/index.html"
    assert result.annotations == ()


def test_a_multi_arch_build_says_that_it_is_split(runner: FakeRunner) -> None:
    result = runner.run(INPUTS)
    assert result.succeeded, result.log
    assert result.outputs["kpack_split"] == "true"
    assert result.outputs["package_find_links_url"] == f"{BASE}/index.html"
    assert {f"python/{TORCH}", "python/index.html"} <= read_tree(runner.workspace / "out" / P).keys()


def test_families_give_the_url_that_their_names_are_added_to(runner: FakeRunner) -> None:
    make_wheel(runner.workspace / "packages" / "dist" / "gfx1151", "libraries")
    result = runner.run(INPUTS)
    assert result.outputs["package_find_links_url"] == result.outputs["index_url"] == BASE
    assert result.outputs["kpack_split"] == "false"
    for below in ("index.html", "simple/index.html", "simple/torch/index.html"):
        assert f"python/gfx1151/{below}" in read_tree(runner.workspace / "out" / P)


@pytest.mark.parametrize(
    ("platform", "shell", "end"), [("linux", "sh", "\\"), ("windows", "bat", "^")], ids=["linux", "windows"]
)
def test_the_summary_begins_with_the_command_for_the_platform(
    runner: FakeRunner, platform: str, shell: str, end: str
) -> None:
    result = runner.run({**INPUTS, "platform": platform})
    command = result.summary.partition(f"```{shell}\n")[2].partition("\n```")[0].splitlines()
    assert "Install the packages:" in result.summary
    quote = '"' if platform == "windows" else "'"
    assert command == [
        f"python -m pip install {end}",
        f"    --find-links out/15948739823-{platform}/python/index.html {end}",
        f"    {quote}rocm[libraries,devel]==7.10.0{quote}",
    ]
    assert result.summary.index("pip install") < result.summary.index("Python packages")


def test_one_family_gives_urls_that_pip_takes_as_they_are(runner: FakeRunner) -> None:
    result = runner.run({**INPUTS, "family": "gfx1151"})
    assert result.succeeded, result.log
    assert result.outputs["package_find_links_url"] == f"{BASE}/gfx1151/index.html"
    assert result.outputs["index_url"] == f"{BASE}/gfx1151/simple/"


def test_a_list_of_families_is_told_before_anything_is_stored(runner: FakeRunner) -> None:
    result = runner.run({**INPUTS, "family": "gfx1151,gfx1152"})
    assert result.exit_code == 2
    assert "not the name of one GPU family" in result.messages("error")[0]
    assert not (runner.workspace / "out").exists()


def test_what_is_no_package_is_told_and_folders_of_no_family_are_a_warning(runner: FakeRunner) -> None:
    make_wheel(runner.workspace / "packages" / "dist" / "wheels", "apex")
    write_tree(runner.workspace / "packages" / "dist", {"README.txt": "x", "X-1-py3-none-any.WHL": "x"})
    result = runner.run(INPUTS)
    assert result.succeeded, result.log
    assert all(name in result.summary for name in ("README.txt", "X-1-py3-none-any.WHL"))
    (warning,) = result.messages("warning")
    assert "'wheels'" in warning


def test_a_broken_wheel_is_told_before_anything_is_stored(runner: FakeRunner) -> None:
    write_tree(runner.workspace / "packages" / "dist", {"apex-1.0-py3-none-any.whl": "no zip"})
    result = runner.run(INPUTS)
    assert result.exit_code == 6
    (message,) = result.messages("error")
    assert "apex-1.0-py3-none-any.whl is not a wheel that pip could install" in message
    assert not (runner.workspace / "out").exists()


@pytest.mark.parametrize("told", ["", "warn", "ignore"])
def test_a_folder_without_packages_is_an_error_unless_told_otherwise(job: Callable[..., FakeRunner], told: str) -> None:
    result = job(build={}).run({**INPUTS, "if_no_files_found": told})
    assert result.exit_code == (0 if told else 3)
    assert len(result.annotations) == (0 if told == "ignore" else 1)


def test_a_path_is_needed(job: Callable[..., FakeRunner]) -> None:
    result = job(build={}).run({**INPUTS, "path": ""})
    assert result.exit_code == 2
    assert "needs path" in result.messages("error")[0]
