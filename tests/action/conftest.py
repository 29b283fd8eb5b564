"""What action tests share: a job, and a build tree in its workspace."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fakes.runner import FakeRunner
from fakes.trees import write_tree

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BUILD_FILES = {
    "logs/rocBLAS_build.log": "compiling\n",
    "logs/empty.log": "",
    "logs/build_observability.html": "<p>fast</p>\n",
    "logs/therock-build-prof/comp-summary.html": "<p>costs</p>\n",
    "logs/therock-build-prof/comp-summary.md": "costs\n",
    "logs/ccache/rocBLAS.log": "raw\n",
    "logs/proj/ccache/x.log": "a log of the project's own\n",
    "logs/.hidden/y.log": "hidden\n",
    "rocBLAS/build/.ninja_log": "# ninja log v5\n",
    "base/aux-overlay/build/therock_manifest.json": "{}\n",
    "artifacts/blas_lib_gfx1151.tar.zst": "archive\n",
    "artifacts/blas_lib_gfx1151/inside": "not yet archived\n",
}


@pytest.fixture
def job(tmp_path: Path) -> Callable[..., FakeRunner]:
    """Make a job; `build` are the files of its build tree, by default one of each kind."""

    def make(*, build: dict[str, str] | None = None, **options: object) -> FakeRunner:
        runner = FakeRunner(root=tmp_path / "job", **options)  # type: ignore[arg-type]  # whatever FakeRunner takes
        write_tree(runner.workspace / "build", BUILD_FILES if build is None else build)
        return runner

    return make
