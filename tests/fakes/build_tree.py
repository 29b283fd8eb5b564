"""Makes a build tree shaped like TheRock's, by really building small C projects with cmake and ninja.

    python tests/fakes/build_tree.py OUT [--units 40] [--family gfx1151] [--no-ccache] [--logs-only]

Below OUT:
    logs/{subproject}_{configure,build,install}.log   what cmake and ninja printed
    logs/ccache/{subproject}.log                      a CCACHE_LOGFILE, where ccache is installed
    logs/therock-build-prof/comp-summary.{html,md}, logs/build_observability.html
    {subproject}/build/.ninja_log                     ninja's own logs
    base/aux-overlay/build/therock_manifest.json
    artifacts/{name}_{component}_{target}/            artifact directories with artifact_manifest.txt, symlinked shared
                                                      libraries, an executable, an empty directory
"""

from __future__ import annotations

import argparse
import html
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, kw_only=True)
class Subproject:
    """One project of the tree; `per_family` says whether its artifacts are made for one GPU family."""

    name: str
    artifact: str
    per_family: bool


SUBPROJECTS = (
    Subproject(name="rocBLAS", artifact="blas", per_family=True),
    Subproject(name="MIOpen", artifact="miopen", per_family=True),
    Subproject(name="amd-llvm", artifact="amd-llvm", per_family=False),
)
_COMPONENTS = {"lib": "lib", "run": "bin", "doc": "share"}
_CMAKE_PROJECT = """\
cmake_minimum_required(VERSION 3.20)
project({library} C)
file(GLOB S k*.c)
add_library({library} SHARED ${{S}})
set_target_properties({library} PROPERTIES VERSION 5.1.0 SOVERSION 5)
add_executable({library}-bench main.c)
install(TARGETS {library} {library}-bench)
install(FILES CMakeLists.txt DESTINATION share/{library})
"""


def make_build_tree(out: Path, *, units: int = 40, family: str = "gfx1151", use_ccache: bool = True) -> Path:
    """Build everything into `out`, which must be empty or missing; `units` is the number of C files of each subproject.

    Raises:
        FileExistsError: `out` is not empty.
        subprocess.CalledProcessError: cmake or ninja failed; their log is below `out`/logs.
    """
    if out.exists() and any(out.iterdir()):
        raise FileExistsError(f"{out} is not empty")
    out = out.resolve()
    logs = out / "logs"
    logs.mkdir(parents=True)
    ccache = shutil.which("ccache") if use_ccache else None
    if ccache:
        (logs / "ccache").mkdir()
    seconds: dict[str, float] = {}
    for subproject in SUBPROJECTS:
        began = time.monotonic()
        _write_sources(out / subproject.name / "src", subproject, units)
        _build(out, subproject, ccache)
        seconds[subproject.name] = time.monotonic() - began
        _populate_artifacts(out, subproject, family if subproject.per_family else "generic")
    _write_reports(logs, {name: (units, spent) for name, spent in seconds.items()})
    _write_manifest(out / "base" / "aux-overlay" / "build" / "therock_manifest.json")
    return out


def keep_logs_only(tree: Path) -> None:
    """Leave what log handling reads: logs, ninja logs, the manifest. Everything with binaries goes."""
    for subproject in SUBPROJECTS:
        for entry in [*(tree / subproject.name).iterdir(), *(tree / subproject.name / "build").iterdir()]:
            if entry.name in {"build", ".ninja_log"}:
                continue
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    shutil.rmtree(tree / "artifacts")
    shutil.rmtree(tree / ".ccache", ignore_errors=True)


def _write_sources(folder: Path, subproject: Subproject, units: int) -> None:
    folder.mkdir(parents=True)
    symbol = subproject.name.replace("-", "_")
    for number in range(units):
        (folder / f"k{number}.c").write_text(
            f"/* {subproject.name} */\nint {symbol}_k{number}(int n) {{\n  int sum = 0;\n"
            f"  for (int i = 0; i < n; i++) sum += i * {number + 1};\n  return sum;\n}}\n",
            encoding="utf-8",
        )
    (folder / "main.c").write_text("int main(void) { return 0; }\n", encoding="utf-8")
    library = subproject.artifact.replace("-", "_")
    (folder / "CMakeLists.txt").write_text(_CMAKE_PROJECT.format(library=library), encoding="utf-8")


def _build(out: Path, subproject: Subproject, ccache: str | None) -> None:
    logs, home = out / "logs", out / subproject.name
    environment = dict(os.environ)
    launcher = []
    if ccache:
        environment |= {
            "CCACHE_DIR": str(out / ".ccache"),
            "CCACHE_LOGFILE": str(logs / "ccache" / f"{subproject.name}.log"),
        }
        launcher = [f"-DCMAKE_C_COMPILER_LAUNCHER={ccache}"]
    configure = ["cmake", "-G", "Ninja", "-S", str(home / "src"), "-B", str(home / "build")]
    configure += [f"-DCMAKE_INSTALL_PREFIX={home / 'stage'}", *launcher]
    ninja = ["ninja", "-C", str(home / "build")]
    _run(configure, logs / f"{subproject.name}_configure.log", environment)
    _run([*ninja, "-v"], logs / f"{subproject.name}_build.log", environment)
    _run([*ninja, "install"], logs / f"{subproject.name}_install.log", environment)


def _run(command: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
    with log.open("ab") as stream:
        stream.write(f"$ {' '.join(command)}\n".encode())
        stream.flush()
        subprocess.run(command, check=True, stdout=stream, stderr=subprocess.STDOUT, env=environment)


def _populate_artifacts(out: Path, subproject: Subproject, target: str) -> None:
    stage_name = f"{subproject.name}/stage"
    for component, folder in _COMPONENTS.items():
        artifact = out / "artifacts" / f"{subproject.artifact}_{component}_{target}"
        shutil.copytree(out / stage_name / folder, artifact / stage_name / folder, symlinks=True)
        if component == "lib":
            (artifact / stage_name / folder / "empty").mkdir()
        (artifact / "artifact_manifest.txt").write_text(f"{stage_name}\n", encoding="utf-8")


def _write_reports(logs: Path, rows: Mapping[str, tuple[int, float]]) -> None:
    profile = logs / "therock-build-prof"
    profile.mkdir()
    table = "".join(f"<tr><td>{html.escape(name)}<td>{units}<td>{spent:.2f}" for name, (units, spent) in rows.items())
    lines = "".join(f"| {name} | {units} | {spent:.2f} |\n" for name, (units, spent) in rows.items())
    (profile / "comp-summary.html").write_text(f"<table>{table}</table>\n", encoding="utf-8")
    (profile / "comp-summary.md").write_text(
        f"| component | units | seconds |\n|---|---|---|\n{lines}", encoding="utf-8"
    )
    page = f"<!doctype html><title>build</title><table>{table}</table>\n"
    (logs / "build_observability.html").write_text(page, encoding="utf-8")


def _write_manifest(path: Path) -> None:
    pins = [{"submodule_name": subproject.name, "pin_sha": "1" * 40} for subproject in SUBPROJECTS]
    path.parent.mkdir(parents=True)
    text = json.dumps({"the_rock_commit": "0" * 40, "submodules": pins}, indent=2)
    path.write_text(f"{text}\n", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Make a tree from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--units", type=int, default=40, help="C files of each subproject")
    parser.add_argument("--family", default="gfx1151")
    parser.add_argument("--no-ccache", action="store_true")
    parser.add_argument("--logs-only", action="store_true", help="leave no sources, binaries and artifacts")
    options = parser.parse_args(arguments)
    try:
        tree = make_build_tree(
            options.out, units=options.units, family=options.family, use_ccache=not options.no_ccache
        )
    except FileExistsError as error:
        parser.error(str(error))
    if options.logs_only:
        keep_logs_only(tree)
    print(tree)
    return 0


if __name__ == "__main__":
    sys.exit(main())
