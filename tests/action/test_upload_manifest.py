"""Mode upload-manifest as a step: where the manifest lies, its URL, and what is none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fakes.trees import read_tree, write_tree

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakes.runner import FakeRunner

P = "15948739823-linux"
NAME = "therock-manifest_torch_py3.12_release-2.9.json"
INPUTS = {"mode": "upload-manifest", "path": "dist", "staging_dir": "out"}


@pytest.mark.parametrize(
    ("inputs", "folder"),
    [({"family": "gfx1151"}, "gfx1151"), ({"artifact_group": "gfx94X-dcgpu-asan"}, "gfx94X-dcgpu-asan")],
)
@pytest.mark.parametrize("at", ["dist", "dist/manifests"])
def test_a_manifest_lies_below_its_group_or_family(
    job: Callable[..., FakeRunner], inputs: dict[str, str], folder: str, at: str
) -> None:
    runner = job()
    write_tree(runner.workspace / at, {NAME: "{}"})
    result = runner.run(INPUTS | inputs)
    assert result.succeeded, result.log
    assert f"manifests/{folder}/{NAME}" in read_tree(runner.workspace / "out" / P)
    url = f"https://therock-ci-artifacts.s3.amazonaws.com/{P}/manifests/{folder}/{NAME}"
    assert (result.outputs["manifest_url"], result.outputs["url"]) == (url, url)


def test_a_broken_manifest_is_exit_code_6_and_not_stored(job: Callable[..., FakeRunner]) -> None:
    runner = job()
    write_tree(runner.workspace / "dist", {NAME: '{"cut": '})
    result = runner.run({**INPUTS, "family": "gfx1151"})
    assert result.exit_code == 6
    (message,) = result.messages("error")
    assert "is no manifest" in message
    assert not (runner.workspace / "out").exists()


@pytest.mark.parametrize(("told", "exit_code", "level"), [("", 0, "warning"), ("error", 3, "error")])
def test_no_manifest_is_told_as_wanted(job: Callable[..., FakeRunner], told: str, exit_code: int, level: str) -> None:
    result = job().run({**INPUTS, "family": "gfx1151", "if_no_files_found": told})
    assert result.exit_code == exit_code
    assert any("there is no folder dist" in message for message in result.messages(level))


def test_without_group_and_family_it_is_exit_code_2(job: Callable[..., FakeRunner]) -> None:
    assert job().run(INPUTS).exit_code == 2
