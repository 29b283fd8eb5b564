"""GitHub's runner protocol: commands on stdout, and the files for outputs and summary (runner documentation).

Everything that is printed or written for the runner passes through here and is escaped here.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import stat
import sys
from typing import TYPE_CHECKING, Final, Literal, TextIO

from _therock_utils._errors import LocalFileError
from therock_outputs.text_safety import command_data, command_property, log_line, visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

Level = Literal["notice", "warning", "error"]

MAX_ANNOTATIONS: Final = 10
"""Annotations of one level that GitHub keeps of a step; later ones are printed as plain lines."""

MAX_SUMMARY_BYTES: Final = 1_048_576
"""A step's summary over this size is dropped whole by the runner."""

_OUTPUT_NAME: Final = re.compile(r"[a-z][a-z0-9_]*")
_TITLE: Final = "therock-outputs"


class Runner:
    """Speaks to the runner, or, outside GitHub Actions, to a person at a terminal."""

    def __init__(
        self,
        *,
        in_actions: bool,
        output_file: Path | None = None,
        summary_file: Path | None = None,
        summary_mirror: Path | None = None,
        stdout: TextIO | None = None,
        stderr: TextIO | None = None,
    ) -> None:
        """`summary_mirror` is the file in RUNNER_TEMP in which the job's summary is kept for later steps."""
        self._in_actions = in_actions
        self._output_file = output_file
        self._summary_file = summary_file
        self._summary_mirror = summary_mirror
        self._stdout: TextIO | None = stdout if stdout is not None else sys.stdout  # None: the process has none
        self._stderr: TextIO | None = stderr if stderr is not None else sys.stderr
        self._annotations: dict[Level, int] = {"notice": 0, "warning": 0, "error": 0}
        self._as_json = False

    def say(self, text: str) -> None:
        """Print one line for people: stdout in Actions, stderr at a terminal, where stdout is for results."""
        self._print(log_line(text), self._stdout if self._in_actions else self._stderr)

    @contextlib.contextmanager
    def group(self, title: str) -> Iterator[None]:
        """Fold what is said inside."""
        if not self._in_actions:
            yield
            return
        self._print(f"::group::{command_data(visible(title))}", self._stdout)
        try:
            yield
        finally:
            self._print("::endgroup::", self._stdout)

    def annotate(self, level: Level, message: str) -> None:
        """Show `message` on the run's page, as long as GitHub keeps it; it may have several lines."""
        lines = [visible(line) for line in message.split("\n")]
        self._annotations[level] += 1
        if not self._in_actions or self._annotations[level] > MAX_ANNOTATIONS:
            self.say(f"{level}: {lines[0]}")
            for line in lines[1:]:
                self.say(f"  {line}")
            return
        title = command_property(_TITLE)
        self._print(f"::{level} title={title}::{command_data(chr(10).join(lines))}", self._stdout)

    def mask(self, secret: str) -> None:
        """Have the runner replace `secret` in all logs from here on."""
        if secret and self._in_actions:
            for line in secret.splitlines():
                self._print(f"::add-mask::{command_data(line)}", self._stdout)

    def set_outputs(self, outputs: Mapping[str, str]) -> None:
        """Append the step's outputs, each between random delimiters; at a terminal print `name=value` lines.

        Raises LocalFileError where they cannot be written.
        """
        if self._output_file is None:
            if not self._in_actions:
                self._print_outputs(outputs)
            return
        blocks = []
        for name, value in outputs.items():
            if not _OUTPUT_NAME.fullmatch(name):
                message = f"{name!r} is no output name"
                raise ValueError(message)
            delimiter = f"end-{secrets.token_hex(16)}"
            blocks.append(f"{name}<<{delimiter}\n{value}\n{delimiter}\n")
        _append(self._output_file, "".join(blocks))

    def print_json(self) -> None:
        """Print the outputs as one JSON object, and everything else on stderr: stdout is for a program to read."""
        self._in_actions = False
        self._output_file = None
        self._as_json = True

    def leave_out_summary(self) -> None:
        """Write no summary from here on."""
        self._summary_file = self._summary_mirror = None

    def append_summary(self, markdown: str) -> None:
        """Append to the step's summary, which must fit (render_summary trims), and to the job's mirror.

        Raises LocalFileError where the step's cannot be written.
        """
        if not markdown:
            return
        if self._summary_mirror is not None:
            _append_shared(self._summary_mirror, markdown.rstrip("\n") + "\n\n")
        if self._summary_file is not None:
            _append(self._summary_file, markdown.rstrip("\n") + "\n\n")

    @property
    def summary_room_bytes(self) -> int:
        """Bytes that still fit into the step's summary."""
        if self._summary_file is None:
            return MAX_SUMMARY_BYTES
        with contextlib.suppress(OSError):  # writing to it tells
            return max(0, MAX_SUMMARY_BYTES - self._summary_file.stat().st_size)
        return MAX_SUMMARY_BYTES

    def _print_outputs(self, outputs: Mapping[str, str]) -> None:
        lines = [f"{name}={visible(value)}" for name, value in outputs.items()]
        if self._as_json:
            lines = [json.dumps({name: _decoded(value) for name, value in outputs.items()}, indent=1)]
        try:
            for line in lines:
                _write_line(line, self._stdout)
        except OSError as error:
            raise LocalFileError("cannot print the outputs", why=error.strerror or type(error).__name__) from error

    @staticmethod
    def _print(line: str, stream: TextIO | None) -> None:
        """Print what is said: that nobody can hear it is no reason to lose the step."""
        with contextlib.suppress(OSError):
            _write_line(line, stream)


def _decoded(value: str) -> object:
    """An output's value as JSON has it: a list, an object or a boolean as what it is, all else as text."""
    if value[:1] in {"[", "{"} or value in {"true", "false"}:
        with contextlib.suppress(ValueError):  # a text that only begins like JSON
            return json.loads(value)
    return value


def _write_line(line: str, stream: TextIO | None) -> None:
    """Write and flush; a stream that fails is done with: Python would fail again over its buffer at the exit."""
    if stream is None:
        return
    try:
        stream.write(f"{line}\n")
        stream.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, stream.fileno())
        finally:
            os.close(nowhere)
        raise


def _append(path: Path, text: str) -> None:
    try:
        with path.open("ab") as file:
            file.write(text.encode("utf-8", errors="backslashreplace"))
    except OSError as error:
        message = f"cannot write the runner's file {path.name}"
        raise LocalFileError(message, why=error.strerror or type(error).__name__) from error


def _append_shared(path: Path, text: str) -> None:
    """Append to a file that the job's own user appends to as well: it gets the owner of its folder.

    RUNNER_TEMP is the job's to write, so the file may be anything: a link is not followed, and no failure here matters
    enough to lose the step.
    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    with contextlib.suppress(OSError):
        descriptor = os.open(path, flags, 0o666)
        try:
            owner, status = path.parent.stat(), os.fstat(descriptor)
            is_ours = stat.S_ISREG(status.st_mode) and status.st_nlink == 1  # no other name of some file of root's
            if hasattr(os, "fchown") and is_ours and status.st_uid != owner.st_uid:
                os.fchown(descriptor, owner.st_uid, owner.st_gid)
            os.write(descriptor, text.encode("utf-8", errors="backslashreplace"))
        finally:
            os.close(descriptor)
