"""The path modules cost nothing to import, and an installed copy of them leaves TheRock's own scripts alone."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

SOURCE = Path(__file__).parents[2] / "src"
HEAVY = ("boto3", "botocore", "obstore", "github", "pydantic", "tenacity", "jinja2", "requests")
PURE = (
    "artifact_backend",
    "artifact_names",
    "s3_buckets",
    "storage_backend",
    "storage_location",
    "workflow_outputs",
)


def run_isolated(program: str, *paths: Path) -> str:
    """Output of `program` in a Python of its own with `paths` first on its sys.path, without PYTHON* variables."""
    program = f"import sys; sys.path[:0] = {[str(path) for path in paths]!r}\n{dedent(program)}"
    done = subprocess.run(
        [sys.executable, "-I", "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("module", PURE)
def test_importing_a_path_module_loads_no_third_party_package(module: str) -> None:
    loaded = run_isolated(
        f"""
        import _therock_utils.{module}
        print(*sorted({set(HEAVY)!r} & set(sys.modules)))
        """,
        SOURCE,
    )
    assert loaded == ""


def test_computing_a_location_loads_no_third_party_package() -> None:
    loaded = run_isolated(
        f"""
        from _therock_utils.workflow_outputs import WorkflowOutputRoot
        root = WorkflowOutputRoot.from_workflow_run("1", "linux", workflow_run={{"head_repository": None}})
        assert root.log_dir("gfx94X-dcgpu").https_url
        print(*sorted({set(HEAVY)!r} & set(sys.modules)))
        """,
        SOURCE,
    )
    assert loaded == ""


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """Our packages as a wheel lays them out."""
    site = tmp_path / "site-packages"
    ignore = shutil.ignore_patterns("__pycache__", ".*")
    for package in ("_therock_utils", "therock_outputs"):
        shutil.copytree(SOURCE / package, site / package, ignore=ignore)
    return site


@pytest.fixture(params=["without __init__.py", "with __init__.py"])
def build_tools(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """TheRock's build_tools: scripts, and a folder `_therock_utils` that has modules of ours and of its own."""
    folder = tmp_path / "build_tools"
    package = folder / "_therock_utils"
    package.mkdir(parents=True)
    if request.param == "with __init__.py":
        (package / "__init__.py").touch()
    (package / "pattern_match.py").write_text("ORIGIN = 'theirs'\n", encoding="utf-8")
    (package / "storage_location.py").write_text("ORIGIN = 'theirs'\n", encoding="utf-8")
    (package / "workflow_outputs.py").write_text(
        "from _therock_utils.storage_location import ORIGIN as LOCATION\nfrom .pattern_match import ORIGIN\n",
        encoding="utf-8",
    )
    (folder / "fetch_things.py").write_text(
        "from _therock_utils.pattern_match import ORIGIN as MATCH\n"
        "from _therock_utils.workflow_outputs import LOCATION, ORIGIN\n"
        "print(MATCH, LOCATION, ORIGIN)\n",
        encoding="utf-8",
    )
    return folder


def test_a_script_of_therock_gets_therocks_modules_where_ours_are_installed(installed: Path, build_tools: Path) -> None:
    program = f"import runpy; runpy.run_path({str(build_tools / 'fetch_things.py')!r}, run_name='__main__')"
    assert run_isolated(program, build_tools, installed) == "theirs theirs theirs"


def test_ours_work_where_therocks_are_not_on_the_path(installed: Path, build_tools: Path) -> None:
    program = """
        from _therock_utils.workflow_outputs import WorkflowOutputRoot
        print(WorkflowOutputRoot.for_local(platform="linux").root().s3_uri)
        """
    assert run_isolated(program, installed) == "s3://local/local-linux"
