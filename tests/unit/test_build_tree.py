"""The example build tree has the shape that upload modes read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fakes.build_tree import keep_logs_only, make_build_tree

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.needs("cc", "cmake", "ninja")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return make_build_tree(tmp_path / "build", units=1, family="gfx1151")


def test_the_tree_holds_real_logs_and_artifact_directories(tree: Path) -> None:
    assert "ninja -C" in (tree / "logs" / "rocBLAS_build.log").read_text(encoding="utf-8")
    assert (tree / "MIOpen" / "build" / ".ninja_log").read_text(encoding="utf-8").startswith("# ninja log")
    assert (tree / "artifacts" / "blas_lib_gfx1151" / "artifact_manifest.txt").read_text() == "rocBLAS/stage\n"
    library = tree / "artifacts" / "amd-llvm_lib_generic" / "amd-llvm" / "stage" / "lib" / "libamd_llvm.so"
    assert library.is_symlink()
    assert library.resolve().name == "libamd_llvm.so.5.1.0"
    assert (library.parent / "empty").is_dir()


def test_a_tree_of_logs_keeps_every_log_and_no_binary(tree: Path) -> None:
    logs = set((tree / "logs").rglob("*.log")) | set(tree.glob("*/build/.ninja_log"))
    keep_logs_only(tree)
    left = {path for path in tree.rglob("*") if path.is_file()}
    assert logs <= left
    assert {path.suffix or path.name for path in left} <= {".log", ".html", ".md", ".json", ".ninja_log"}
    assert not (tree / "artifacts").exists()


def test_a_folder_that_is_not_empty_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    with pytest.raises(FileExistsError):
        make_build_tree(tmp_path)
