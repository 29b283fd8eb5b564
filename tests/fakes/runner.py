"""A double of GitHub's runner: it runs one Docker container action as the runner would and reads the results.

`FakeRunner(root=tmp_path).run({"mode": "locate"})` gives a StepResult. The step runs in a process of this Python, or in
the image with `launcher=image_launcher(...)`. GITHUB_ENV and masks of one step hold for the later ones, as in a job.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from fakes.runner_protocol import (
    OUTPUTS_LIMIT_BYTES,
    SUMMARY_LIMIT_BYTES,
    Annotation,
    Command,
    FileCommandError,
    parse_environment,
    parse_key_values,
    read_console,
)

PROJECT = Path(__file__).resolve().parents[2]
_FILE_COMMANDS = {
    "GITHUB_OUTPUT": "set_output",
    "GITHUB_ENV": "set_env",
    "GITHUB_PATH": "add_path",
    "GITHUB_STEP_SUMMARY": "step_summary",
    "GITHUB_STATE": "save_state",
}
_EXPRESSION = re.compile(r"\$\{\{\s*([a-z_.]+)\s*\}\}")
_ENGINE_NEEDS = frozenset({"HOME", "LD_LIBRARY_PATH", "LD_PRELOAD", "PATH", "TMPDIR", "XDG_RUNTIME_DIR"})
_PASSED_ON = ("PATH", "SYSTEMROOT", "TMPDIR", "TEMP", "TMP")


@dataclass(frozen=True, kw_only=True)
class Invocation:
    """One step to start: the environment with the host's paths, and the mounts (host path, container path)."""

    environment: Mapping[str, str]
    workspace: Path
    mounts: tuple[tuple[Path, str], ...]


@dataclass(frozen=True, kw_only=True)
class Launch:
    """The process that a launcher wants: arguments, whole environment, working directory."""

    arguments: Sequence[str]
    environment: Mapping[str, str]
    directory: Path


Launcher = Callable[[Invocation], Launch]


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """What a workflow and a person get of a step. `faults` are what the runner refused to read; any fails the step."""

    exit_code: int
    outputs: Mapping[str, str]
    summary: str
    summary_dropped: bool
    annotations: tuple[Annotation, ...]
    commands: tuple[Command, ...]
    masks: tuple[str, ...]
    environment: Mapping[str, str]
    paths: tuple[str, ...]
    state: Mapping[str, str]
    faults: tuple[str, ...]
    stdout: str
    stderr: str
    log: str

    @property
    def succeeded(self) -> bool:
        """Whether the runner marks the step green."""
        return self.exit_code == 0 and not self.faults

    def messages(self, level: str) -> list[str]:
        """The annotations of one level: error, warning or notice."""
        return [annotation.message for annotation in self.annotations if annotation.level == level]


def python_launcher(entrypoint: Path = PROJECT / "entrypoint.py") -> Launcher:
    """Start `entrypoint` with this Python, isolated as in the image."""

    def launch(invocation: Invocation) -> Launch:
        environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ} | dict(
            invocation.environment
        )
        arguments = [sys.executable, "-I", "-u", "-X", "utf8", str(entrypoint)]
        return Launch(arguments=arguments, environment=environment, directory=invocation.workspace)

    return launch


def image_launcher(image: str, engine: Sequence[str] = (str(PROJECT / ".ci" / "image"), "engine")) -> Launcher:
    """Start `image` with the runner's `docker run`, but on the host's network: test servers are on 127.0.0.1."""

    def launch(invocation: Invocation) -> Launch:
        inside = {
            name: _container_value(name, value, invocation.mounts) for name, value in invocation.environment.items()
        }
        # `-e NAME` hands on the engine's own value; what would break the engine itself is given as `-e NAME=value`.
        names = [f"{name}={value}" if name in _ENGINE_NEEDS else name for name, value in sorted(inside.items())]
        arguments = [*engine, "run", "--name", f"step_{uuid.uuid4().hex}", "--workdir", "/github/workspace", "--rm"]
        arguments += ["--network", "host", *(argument for name in names for argument in ("-e", name))]
        arguments += [argument for host, path in invocation.mounts for argument in ("-v", f"{host}:{path}")]
        kept = {name: value for name, value in inside.items() if name not in _ENGINE_NEEDS}
        return Launch(arguments=[*arguments, image], environment={**os.environ, **kept}, directory=PROJECT)

    return launch


def _container_value(name: str, value: str, mounts: tuple[tuple[Path, str], ...]) -> str:
    """Translate a host path at the value's start, and only there; RUNNER_WORKSPACE stays."""
    if name == "RUNNER_WORKSPACE":
        return value
    for host, path in mounts:
        if value == str(host) or value.startswith(f"{host}/"):
            return path + value[len(str(host)) :]
    return value


@dataclass(kw_only=True)
class FakeRunner:
    """One job on one machine, below `root`; `workspace` and `temp` are the job's folders on the host.

    `github` overrides the job's GITHUB_* values (keys without the prefix: `run_id`, `repository`); `job_status` is what
    `${{ job.status }}` gives; `event` is the payload.
    """

    root: Path
    action: Path = PROJECT / "action.yml"
    launcher: Launcher = field(default_factory=python_launcher)
    github: Mapping[str, str] = field(default_factory=dict)
    token: str = "ghs_madeUpTokenOfTheJob"
    job_status: str = "success"
    event: Mapping[str, Any] = field(default_factory=dict)
    job_environment: dict[str, str] = field(default_factory=dict)
    masks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.root = self.root.resolve()
        for folder in (self.workspace, self.home, self.workflow, self.file_commands):
            folder.mkdir(parents=True, exist_ok=True)
        self.masks = (*self.masks, self.token)

    @property
    def workspace(self) -> Path:
        repository = self._github_values()["repository"].rpartition("/")[2]
        return self.root / "work" / repository / repository

    @property
    def temp(self) -> Path:
        return self.root / "work" / "_temp"

    @property
    def home(self) -> Path:
        return self.temp / "_github_home"

    @property
    def workflow(self) -> Path:
        return self.temp / "_github_workflow"

    @property
    def file_commands(self) -> Path:
        return self.temp / "_runner_file_commands"

    def run(
        self,
        inputs: Mapping[str, str] | None = None,
        *,
        env: Mapping[str, str] | None = None,
        timeout_seconds: float = 60,
        while_running: Callable[[subprocess.Popen[bytes], Path], None] | None = None,
    ) -> StepResult:
        """Run the step with these `with:` inputs and `env:`; `while_running` gets the process and its stdout's file.

        Raises:
            subprocess.TimeoutExpired: the step did not end in time; it is killed.
        """
        files = {name: self.file_commands / f"{stem}_{uuid.uuid4()}" for name, stem in _FILE_COMMANDS.items()}
        for path in files.values():
            path.touch()
        (self.workflow / "event.json").write_text(json.dumps(self.event), encoding="utf-8")
        environment = self._standard_environment() | self.job_environment | dict(env or {})
        environment |= self._inputs(inputs or {}) | {name: str(path) for name, path in files.items()}
        launch = self.launcher(Invocation(environment=environment, workspace=self.workspace, mounts=self._mounts()))
        exit_code, stdout, stderr = self._wait(launch, timeout_seconds, while_running)
        return self._result(exit_code, stdout, stderr, files, self._unexpected(inputs or {}))

    def _wait(
        self,
        launch: Launch,
        timeout_seconds: float,
        while_running: Callable[[subprocess.Popen[bytes], Path], None] | None,
    ) -> tuple[int, str, str]:
        out, err = self.root / "stdout", self.root / "stderr"
        with out.open("wb") as out_file, err.open("wb") as err_file:
            process = subprocess.Popen(
                launch.arguments,
                env=dict(launch.environment),
                cwd=launch.directory,
                stdin=subprocess.DEVNULL,
                stdout=out_file,
                stderr=err_file,
            )
            try:
                if while_running is not None:
                    while_running(process, out)
                exit_code = process.wait(timeout_seconds)
            finally:
                if process.poll() is None:
                    process.kill()
                    process.wait()
        texts = [path.read_bytes().decode("utf-8", "replace") for path in (out, err)]
        return exit_code, texts[0], texts[1]

    def _result(
        self, exit_code: int, stdout: str, stderr: str, files: Mapping[str, Path], unexpected: str
    ) -> StepResult:
        console = read_console(unexpected, stdout, stderr, masks=self.masks)
        faults: list[str] = []
        outputs = _parsed(files["GITHUB_OUTPUT"], parse_output_file, faults)
        environment = _parsed(files["GITHUB_ENV"], parse_environment, faults)
        state = _parsed(files["GITHUB_STATE"], parse_state_file, faults)
        if sum(len(text.encode()) for pair in outputs.items() for text in pair) > OUTPUTS_LIMIT_BYTES:
            faults.append("GITHUB_OUTPUT: more than 1 MB")
        summary = files["GITHUB_STEP_SUMMARY"].read_bytes()
        dropped = len(summary) > SUMMARY_LIMIT_BYTES
        paths = tuple(line for line in files["GITHUB_PATH"].read_text(encoding="utf-8").splitlines() if line)
        self.job_environment |= environment
        self.masks = console.masks
        return StepResult(
            exit_code=exit_code,
            outputs=outputs,
            summary="" if dropped else summary.decode("utf-8", "replace"),
            summary_dropped=dropped,
            annotations=console.annotations,
            commands=console.commands,
            masks=console.masks,
            environment=environment,
            paths=paths,
            state=state,
            faults=tuple(faults),
            stdout=stdout,
            stderr=stderr,
            log=console.log,
        )

    def _github_values(self) -> dict[str, str]:
        return {
            "action": "__self",
            "actor": "octocat",
            "api_url": "https://api.github.com",
            "event_name": "push",
            "job": "build",
            "ref": "refs/heads/main",
            "ref_name": "main",
            "ref_type": "branch",
            "repository": "ROCm/TheRock",
            "repository_owner": "ROCm",
            "retention_days": "90",
            "run_attempt": "1",
            "run_id": "15948739823",
            "run_number": "7",
            "server_url": "https://github.com",
            "sha": "8d2ec28aa2b5ad5e3b3b1a7e6a3a8e5b0c6d7e8f",
            "workflow": "CI",
        } | dict(self.github)

    def _standard_environment(self) -> dict[str, str]:
        return {f"GITHUB_{name.upper()}": value for name, value in self._github_values().items()} | {
            "CI": "true",
            "GITHUB_ACTIONS": "true",
            "GITHUB_EVENT_PATH": str(self.workflow / "event.json"),
            "GITHUB_WORKSPACE": str(self.workspace),
            "HOME": str(self.home),
            "RUNNER_ARCH": "X64",
            "RUNNER_NAME": "runner-1",
            "RUNNER_OS": "Linux",
            "RUNNER_TEMP": str(self.temp),
            "RUNNER_TOOL_CACHE": "/opt/hostedtoolcache",
            "RUNNER_WORKSPACE": str(self.workspace.parent),
        }

    def _declared(self) -> Mapping[str, Mapping[str, Any]]:
        # The base loader makes every scalar a string, as the runner does: `default: false` is "false".
        text = self.action.read_text(encoding="utf-8")
        return yaml.load(text, Loader=yaml.BaseLoader).get("inputs") or {}  # noqa: S506 - it constructs strings only

    def _inputs(self, given: Mapping[str, str]) -> dict[str, str]:
        """INPUT_* for every declared input; an undeclared one arrives too, as on GitHub, after a warning."""
        declared = {name: self._evaluated(spec.get("default", "")) for name, spec in self._declared().items()}
        values = declared | {next((d for d in declared if d.lower() == n.lower()), n): v for n, v in given.items()}
        return {f"INPUT_{name.replace(' ', '_').upper()}": value for name, value in values.items()}

    def _unexpected(self, given: Mapping[str, str]) -> str:
        valid = list(self._declared())
        unknown = [name for name in given if name.lower() not in {v.lower() for v in valid}]
        if not unknown:
            return ""
        return f"::warning::Unexpected input(s) {', '.join(map(repr, unknown))}, valid inputs are {valid}\n"

    def _evaluated(self, default: str) -> str:
        contexts = {f"github.{name}": value for name, value in self._github_values().items()}
        contexts |= {"github.token": self.token, "job.status": self.job_status, "runner.os": "Linux"}
        return _EXPRESSION.sub(lambda match: contexts[match[1]], default)

    def _mounts(self) -> tuple[tuple[Path, str], ...]:
        """What the runner mounts, the deepest host path first, so that translation finds the closest."""
        return (
            (self.home, "/github/home"),
            (self.workflow, "/github/workflow"),
            (self.file_commands, "/github/file_commands"),
            (self.temp, "/github/runner_temp"),
            (self.workspace, "/github/workspace"),
        )


def parse_output_file(text: str) -> dict[str, str]:
    return parse_key_values(text, file_name="GITHUB_OUTPUT")


def parse_state_file(text: str) -> dict[str, str]:
    return parse_key_values(text, file_name="GITHUB_STATE")


def cancel_as_the_runner(process: subprocess.Popen[bytes]) -> None:
    """SIGINT, 7.5 s, SIGTERM, 2.5 s, kill; returns as soon as the process has ended."""
    for number, patience_seconds in ((signal.SIGINT, 7.5), (signal.SIGTERM, 2.5), (signal.SIGKILL, None)):
        process.send_signal(number)
        try:
            process.wait(patience_seconds)
        except subprocess.TimeoutExpired:
            continue
        return


def _parsed(path: Path, parse: Callable[[str], dict[str, str]], faults: list[str]) -> dict[str, str]:
    try:
        return parse(path.read_bytes().decode("utf-8", "replace"))
    except FileCommandError as error:
        faults.append(str(error))
        return {}
