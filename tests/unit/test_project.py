"""What the project's own files promise: locks that agree, an entry point that explains itself."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = Path(__file__).resolve().parents[2]
LOCKS = [PROJECT / "requirements.lock", *sorted((PROJECT / ".ci" / "locks").glob("*.lock"))]
PYPROJECT = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))


def locked(path: Path) -> dict[str, str]:
    """The versions in a lock file, by canonical name."""
    pins = re.findall(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?==([^ ;\\]+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {canonicalize_name(name): version for name, version in pins}


def wanted(group: str) -> list[Requirement]:
    """The requirements of a dependency group, included groups resolved."""
    found: list[Requirement] = []
    for entry in PYPROJECT["dependency-groups"][group]:
        found += [Requirement(entry)] if isinstance(entry, str) else wanted(entry["include-group"])
    return found


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.stem)
def test_every_locked_requirement_has_hashes_and_none_names_a_host(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    entries = re.split(r"^(?=[A-Za-z0-9])", text, flags=re.MULTILINE)[1:]
    assert len(entries) == len(locked(path)) > 0
    assert [entry.splitlines()[0] for entry in entries if "--hash=sha256:" not in entry] == []
    assert "://" not in text
    assert "--index-url" not in text.replace("--no-emit-index-url", "")


@pytest.mark.parametrize("group", ["build", "dev", "ministack", "bench"])
def test_each_lock_satisfies_its_group(group: str) -> None:
    versions = locked(PROJECT / ".ci" / "locks" / f"{group}.lock")
    for requirement in wanted(group):
        assert versions[canonicalize_name(requirement.name)] in requirement.specifier, requirement


def test_the_runtime_lock_satisfies_the_dependencies_and_the_tests_run_with_the_same_versions() -> None:
    runtime, dev = locked(PROJECT / "requirements.lock"), locked(PROJECT / ".ci" / "locks" / "dev.lock")
    for requirement in map(Requirement, PYPROJECT["project"]["dependencies"]):
        assert runtime[canonicalize_name(requirement.name)] in requirement.specifier, requirement
    assert runtime.items() <= dev.items()


def test_the_build_backend_is_the_one_that_is_locked() -> None:
    (backend,) = map(Requirement, PYPROJECT["build-system"]["requires"])
    assert str(backend.specifier) == f"=={locked(PROJECT / '.ci' / 'locks' / 'build.lock')[backend.name]}"


def test_without_the_packages_the_entry_point_says_how_to_set_up() -> None:
    entrypoint = PROJECT / "entrypoint.py"
    result = subprocess.run(
        [sys.executable, "-I", "-S", entrypoint], check=False, capture_output=True, text=True, cwd="/"
    )
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == "therock_outputs is not installed here: run `python3 -m pip install .` in this project\n"


def test_the_entry_point_is_at_most_fifteen_lines() -> None:
    assert len((PROJECT / "entrypoint.py").read_text(encoding="utf-8").splitlines()) <= 15
