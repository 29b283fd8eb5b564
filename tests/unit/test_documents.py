"""The Python that README and layout page show runs as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from therock_outputs.topology import parse_topology

PROJECT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", ["README.md", "docs/artifacts.md", "docs/workflow_outputs.md"])
def test_the_python_of_a_page_runs(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_job: None, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    logs = tmp_path / "build/logs"
    logs.mkdir(parents=True)
    (logs / "a.log").write_text("a", encoding="utf-8")
    artifact = tmp_path / "out/local-linux/blas_lib_generic.tar.zst"
    artifact.parent.mkdir(parents=True)
    artifact.touch()
    blocks = re.findall(r"```python\n(.*?)```", (PROJECT / page).read_text(encoding="utf-8"), re.DOTALL)
    assert blocks
    for block in blocks:
        # A lookup asks GitHub, which a unit test does not.
        exec(compile(block.replace("lookup_workflow_run=True", "lookup_workflow_run=False"), page, "exec"), {})  # noqa: S102 - our own page
    printed = capsys.readouterr().out
    if page == "README.md":
        assert printed.startswith("https://therock-ci-artifacts.s3.amazonaws.com/12345-linux/logs/")
    elif page == "docs/artifacts.md":
        assert printed == "blas_lib_generic.tar.zst True\n"
        assert (tmp_path / "got/blas_lib_generic.tar.zst").is_file()
    else:
        assert (tmp_path / "out/12345-linux/logs/gfx94X-dcgpu/a.log").read_text(encoding="utf-8") == "a"


def test_the_topology_that_the_guide_shows_is_one() -> None:
    (block,) = re.findall(r"```toml\n(.*?)```", (PROJECT / "docs/artifacts.md").read_text(encoding="utf-8"), re.DOTALL)
    topology = parse_topology(block.encode())
    assert [artifact.name for artifact in topology.inbound_of(["math-libs"], platform="linux")] == ["amd-llvm"]
    assert topology.inbound_of(["compiler-runtime"], platform="linux") == ()
