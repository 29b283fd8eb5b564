"""The image, built from this Dockerfile and run as GitHub's runner runs it; `.ci/run` builds it and names it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from fakes.deb_packages import control_text, deb_of
from fakes.rpm_packages import build_rpm
from fakes.runner import PROJECT, FakeRunner, image_launcher
from fakes.trees import write_tree
from fakes.wheels import make_wheel

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.needs("image"), pytest.mark.slow]

_ENGINE = (str(PROJECT / ".ci" / "image"), "engine")
_PYTHON = "/opt/therock-outputs/bin/python"


def _image() -> str:
    return os.environ["THEROCK_OUTPUTS_IMAGE"]


def _in_image(*arguments: str, program: str = _PYTHON, options: tuple[str, ...] = ()) -> str:
    """Run one program of the image and return what it printed."""
    command = [*_ENGINE, "run", "--rm", "--network", "none", *options, "--entrypoint", program, _image(), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _inspected() -> dict[str, Any]:
    answer = subprocess.run([*_ENGINE, "image", "inspect", _image()], check=True, capture_output=True, text=True).stdout
    return json.loads(answer)[0]["Config"]


@pytest.fixture
def runner(tmp_path: Path) -> FakeRunner:
    return FakeRunner(root=tmp_path, launcher=image_launcher(_image()))


def test_a_run_is_located_in_the_container_as_on_the_host(runner: FakeRunner, tmp_path: Path) -> None:
    inside, on_host = runner.run({"mode": "locate"}), FakeRunner(root=tmp_path / "host").run({"mode": "locate"})
    assert inside.exit_code == 0, inside.log
    assert inside.succeeded
    assert inside.outputs["prefix"].startswith(f"{runner.github.get('run_id', '15948739823')}-linux")
    assert {k: v for k, v in inside.outputs.items() if k != "report"} == {
        k: v for k, v in on_host.outputs.items() if k != "report"
    }


def test_a_path_output_exists_on_the_host_below_the_workspace_and_belongs_to_its_owner(runner: FakeRunner) -> None:
    if os.geteuid() == 0:
        os.chown(runner.workspace, 1234, 1234)
    report = runner.workspace / runner.run({"mode": "locate"}).outputs["report"]
    json.loads(report.read_text(encoding="utf-8"))
    assert report.stat().st_uid == runner.workspace.stat().st_uid


def test_files_are_staged_in_the_shared_workspace(runner: FakeRunner) -> None:
    logs = runner.workspace / "build" / "logs"
    logs.mkdir(parents=True)
    (logs / "rocBLAS_build.log").write_text("done\n", encoding="utf-8")
    inputs = {"mode": "upload-stage", "stage": "math-libs", "staging_dir": str(runner.workspace / "staged")}
    result = runner.run(inputs)
    assert result.exit_code == 0, result.log
    assert [path.name for path in (runner.workspace / "staged").rglob("rocBLAS_build.log")] == ["rocBLAS_build.log"]


def test_artifacts_go_round_in_the_container_and_belong_to_the_workspaces_owner(runner: FakeRunner) -> None:
    write_tree(
        runner.workspace / "build/artifacts/blas_run_gfx1151",
        {"artifact_manifest.txt": "rocBLAS/stage\n", "rocBLAS/stage/bin/bench-5.1": "#!/bin/sh\n"},
    )
    program = runner.workspace / "build/artifacts/blas_run_gfx1151/rocBLAS/stage/bin/bench-5.1"
    program.chmod(0o755)
    program.with_name("bench").symlink_to(program.name)
    if os.geteuid() == 0:
        os.chown(runner.workspace, 1234, 1234)
    stored = runner.run({"mode": "upload-artifacts", "staging_dir": "out"})
    assert stored.exit_code == 0, stored.log
    fetched = runner.run(
        {
            "mode": "fetch-artifacts",
            "staging_dir": "out",
            "include_regex": "^blas_",
            "extract": "flatten",
            "output_dir": str(runner.workspace / "rocm"),
        }
    )
    assert fetched.exit_code == 0, fetched.log
    assert json.loads(fetched.outputs["artifacts"]) == json.loads(stored.outputs["artifacts"]) == ["blas_run_gfx1151"]
    folder = runner.workspace / fetched.outputs["download_path"] / "bin"
    assert (folder / "bench").readlink().name == "bench-5.1"
    assert os.access(folder / "bench-5.1", os.X_OK)
    assert (folder / "bench-5.1").stat().st_uid == folder.stat().st_uid == runner.workspace.stat().st_uid
    checked = runner.run({"mode": "verify", "staging_dir": "out"})
    assert (checked.exit_code, checked.outputs["verified"]) == (0, "true"), checked.log


@pytest.mark.needs("rpmbuild")
def test_packages_and_pages_are_made_in_the_container(runner: FakeRunner) -> None:
    source = runner.workspace / "packages"
    make_wheel(source, "rocm-sdk", "7.1.0+rocm")
    build_rpm(source, "rocm-core", version="7.1.0")
    (source / "rocm-core_7.1.0_amd64.deb").write_bytes(deb_of(control_text("rocm-core", "7.1.0")))
    staging = {"path": "packages", "staging_dir": "staged"}
    for inputs in (
        {"mode": "upload-python", "include": "*.whl"},
        {"mode": "upload-packages", "package_type": "deb"},
        {"mode": "upload-packages", "package_type": "rpm"},
        {"mode": "index", "path": ""},
    ):
        result = runner.run(staging | inputs)
        assert result.exit_code == 0, result.log
    (run,) = (runner.workspace / "staged").iterdir()
    for name in (
        "python/simple/rocm-sdk/index.html",
        "packages/deb/dists/stable/main/binary-amd64/Packages.gz",
        "packages/rpm/x86_64/repodata/repomd.xml",
        "index.html",
        "index.json",
    ):
        assert (run / name).is_file(), name
        assert (run / name).stat().st_uid == runner.workspace.stat().st_uid


@pytest.mark.parametrize(
    "hostile",
    [
        {"PYTHONPATH": "/github/workspace", "PYTHONHOME": "/nowhere", "PYTHONSTARTUP": "/github/workspace/logging.py"},
        {"PATH": "/nowhere"},
        {"LD_LIBRARY_PATH": "/opt/rocm/lib"},
        {"LC_ALL": "C", "LANG": "tr_TR.ISO-8859-9", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"},
        {"PYTHONWARNINGS": "error", "PYTHONOPTIMIZE": "2", "PYTHONINSPECT": "1"},
    ],
    ids=["python", "path", "libraries", "locale", "interpreter"],
)
def test_the_jobs_environment_and_checkout_do_not_reach_the_program(
    runner: FakeRunner, hostile: dict[str, str]
) -> None:
    for name in ("logging", "json", "therock_outputs", "boto3", "sitecustomize"):
        (runner.workspace / f"{name}.py").write_text(
            "raise SystemExit('the checkout was imported')\n", encoding="utf-8"
        )
    result = runner.run({"mode": "locate"}, env=hostile)
    assert result.exit_code == 0, result.log


def test_a_wrong_input_fails_with_one_error_and_its_remedy(runner: FakeRunner) -> None:
    result = runner.run({"mode": "no-such-mode"})
    assert result.exit_code not in {0, 1}
    assert "Traceback" not in result.log
    (message,) = result.messages("error")
    assert "no-such-mode" in message


def test_a_cancel_ends_process_one_at_the_first_signal(runner: FakeRunner) -> None:
    """Process 1 ignores a signal it has no handler for; the step is in an upload to a server that never answers."""
    (runner.workspace / "build" / "logs").mkdir(parents=True)
    (runner.workspace / "build" / "logs" / "a.log").write_text("a\n", encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as silent_server:
        silent_server.settimeout(30)

        def cancel_at_the_first_request(process: subprocess.Popen[bytes], _stdout: Path) -> None:
            connection, _ = silent_server.accept()
            with connection:
                connection.recv(1)
                process.send_signal(signal.SIGINT)
                process.wait(60)  # no second signal: the first one must do

        environment = {
            "AWS_ACCESS_KEY_ID": "made-up",
            "AWS_SECRET_ACCESS_KEY": "made-up",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{silent_server.getsockname()[1]}",
        }
        inputs = {"mode": "upload-stage", "stage": "math-libs", "bucket": "made-up-bucket"}
        result = runner.run(inputs, env=environment, while_running=cancel_at_the_first_request)
    assert result.exit_code == 130, result.log


def test_bytecode_is_valid_so_that_start_up_compiles_nothing() -> None:
    script = "import boto3, obstore, github, pydantic_settings, jinja2, tenacity, therock_outputs, _therock_utils"
    told = subprocess.run(
        [*_ENGINE, "run", "--rm", "--network", "none", "--entrypoint", _PYTHON, _image(), "-I", "-v", "-c", script],
        check=True,
        capture_output=True,
        text=True,
    ).stderr
    stale = [line for line in told.splitlines() if line.startswith("# wrote") or "bytecode is stale" in line]
    assert stale == []
    assert "matches /opt/therock-outputs/lib" in told


def test_the_s3_and_sts_clients_work_with_the_service_descriptions_that_are_left() -> None:
    script = (
        "import boto3\n"
        "for service in ('s3', 'sts', 'sso', 'sso-oidc', 'signin'):\n"
        "    client = boto3.client(service, region_name='us-east-2')\n"
        "    print(service, client.meta.endpoint_url, len(client.meta.service_model.operation_names) > 0)\n"
        "s3 = boto3.client('s3', region_name='us-east-2', aws_access_key_id='a', aws_secret_access_key='b')\n"
        "print(s3.get_paginator('list_objects_v2') and s3.get_waiter('object_exists') and 'ready')\n"
    )
    lines = _in_image("-I", "-c", script).splitlines()
    assert [line.split()[0] for line in lines] == ["s3", "sts", "sso", "sso-oidc", "signin", "ready"]
    assert "https://s3.us-east-2.amazonaws.com" in lines[0]
    assert "https://sts.us-east-2.amazonaws.com" in lines[1]


def test_the_image_carries_no_installer_no_tests_and_no_sources_of_the_build() -> None:
    script = (
        "import importlib.util, pathlib\n"
        "print([name for name in ('pip', 'setuptools', 'pytest', 'moto') if importlib.util.find_spec(name)])\n"
        "print([str(path) for path in map(pathlib.Path, ('/project', '/wheels', '/opt/build')) if path.exists()])\n"
    )
    assert _in_image("-I", "-c", script).splitlines() == ["[]", "[]"]


def test_the_image_runs_as_the_runner_needs_it() -> None:
    config = _inspected()
    assert config["Entrypoint"] == [_PYTHON, "-I", "-u", "-X", "utf8", "/entrypoint.py"]
    assert config.get("User", "") in {"", "0", "root"}
    assert config.get("WorkingDir", "") in {"", "/"}
    assert config["Labels"]["org.opencontainers.image.title"] == "therock-outputs"
    assert [entry for entry in config["Env"] if "TOKEN" in entry or "SECRET" in entry or "PIP" in entry] == []


def test_a_plain_import_of_the_library_works_in_the_image() -> None:
    script = "from _therock_utils.workflow_outputs import WorkflowOutputRoot; print(WorkflowOutputRoot.__name__)"
    assert _in_image("-I", "-c", script) == "WorkflowOutputRoot\n"
