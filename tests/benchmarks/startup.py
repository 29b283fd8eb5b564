"""Measure how long `locate` takes as a whole process, against what it cannot do without.

    python tests/benchmarks/startup.py [--rounds 15] [--json FILE]

The commands alternate. `locate` computes every location of a run and asks nobody; the action is started as its image
starts it, the command line as a user does. A bare interpreter and one that imports pydantic-settings are the floors.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
RUN_ID = "1"


@dataclass(frozen=True)
class Command:
    """One way to start Python; `expected` must be in what it prints or in its outputs file."""

    name: str
    line: tuple[str, ...]
    expected: str = ""


def commands() -> list[Command]:
    """The floors, then ours. Exits where the project is not installed in this Python."""
    script = shutil.which("therock-outputs", path=str(Path(sys.executable).parent))
    if script is None:
        sys.exit("startup: install the project in this Python first: pip install .")
    return [
        Command("python -c pass", (sys.executable, "-I", "-c", "pass")),
        Command("import pydantic_settings", (sys.executable, "-I", "-c", "import pydantic_settings")),
        Command("action, locate", (sys.executable, "-I", str(REPOSITORY / "entrypoint.py")), f"{RUN_ID}-linux"),
        Command("therock-outputs locate", (script, "locate", "--run-id", RUN_ID), f"{RUN_ID}-linux"),
    ]


def job(folder: Path) -> dict[str, str]:
    """A step's environment as the runner makes it; the action reads its mode there."""
    for name in ("output", "summary", "event.json"):
        (folder / name).write_text("{}" if name == "event.json" else "")
    kept = {name: value for name, value in os.environ.items() if name in {"PATH", "HOME", "LANG"}}
    return kept | {
        "GITHUB_ACTIONS": "true",
        "GITHUB_REPOSITORY": "ROCm/TheRock",
        "GITHUB_RUN_ID": RUN_ID,
        "GITHUB_RUN_ATTEMPT": "1",
        "GITHUB_JOB": "build",
        "GITHUB_EVENT_NAME": "push",
        "GITHUB_EVENT_PATH": str(folder / "event.json"),
        "GITHUB_WORKSPACE": str(folder),
        "GITHUB_OUTPUT": str(folder / "output"),
        "GITHUB_STEP_SUMMARY": str(folder / "summary"),
        "RUNNER_TEMP": str(folder),
        "RUNNER_OS": "Linux",
        "INPUT_MODE": "locate",
        "INPUT_RUN_ID": RUN_ID,
        "INPUT_LOOKUP": "false",
    }


def run(command: Command) -> tuple[float, float]:
    """Seconds and processor seconds of one whole process. Exits where it fails or says something else."""
    with tempfile.TemporaryDirectory(prefix="startup-") as name:
        folder = Path(name)
        environment = job(folder)
        if not command.line[-1].endswith("entrypoint.py"):  # a user's shell has no job
            hidden = ("GITHUB_", "INPUT_", "RUNNER_")
            environment = {key: value for key, value in environment.items() if not key.startswith(hidden)}
        before, start = os.times(), time.perf_counter()
        done = subprocess.run(
            command.line, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
        seconds, after = time.perf_counter() - start, os.times()
        said = done.stdout.decode() + (folder / "output").read_text()
    if done.returncode != 0 or command.expected not in said:
        sys.exit(f"startup: {command.name} ended with {done.returncode}:\n{said}{done.stderr.decode()}")
    return seconds, after.children_user + after.children_system - before.children_user - before.children_system


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path, help="write every measurement there")
    chosen = parser.parse_args()
    every = commands()
    found: dict[str, list[tuple[float, float]]] = {command.name: [] for command in every}
    for command in every:
        run(command)  # once before: byte code and the page cache
    for number in range(chosen.rounds):
        first = number % len(every)
        for command in every[first:] + every[:first]:
            found[command.name].append(run(command))
    medians = {name: statistics.median(one[0] for one in times) for name, times in found.items()}
    bare, settings, *_ = medians.values()
    print(f"Python {sys.version.partition(' ')[0]}, {os.cpu_count()} cores, medians of {chosen.rounds}")
    print(f"{'command':28} {'ms':>7} {'min':>7} {'max':>7} {'CPU ms':>7} {'x bare':>7} {'x settings':>10}")
    for name, times in found.items():
        seconds = [one[0] for one in times]
        cpu = statistics.median(one[1] for one in times)
        print(
            f"{name:28} {medians[name] * 1e3:7.1f} {min(seconds) * 1e3:7.1f} {max(seconds) * 1e3:7.1f} {cpu * 1e3:7.1f}"
            f" {medians[name] / bare:7.2f} {medians[name] / settings:10.2f}"
        )
    if chosen.json:
        chosen.json.write_text(json.dumps({"medians": medians, "runs": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
