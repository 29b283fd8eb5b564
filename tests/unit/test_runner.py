"""What is written for the runner is read by it as it was meant, and nothing else is."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from _therock_utils._errors import LocalFileError
from fakes.runner_protocol import parse_key_values, read_console
from therock_outputs.runner import MAX_ANNOTATIONS, MAX_SUMMARY_BYTES, Level, Runner


class Streams:
    """A runner and what it printed."""

    def __init__(self, *, in_actions: bool = True, **files: Path | None) -> None:
        self.out, self.err = io.StringIO(), io.StringIO()
        self.runner = Runner(in_actions=in_actions, stdout=self.out, stderr=self.err, **files)

    @property
    def stdout(self) -> str:
        return self.out.getvalue()


def test_people_are_spoken_to_on_stdout_in_actions_and_on_stderr_at_a_terminal() -> None:
    actions, terminal = Streams(), Streams(in_actions=False)
    for streams in (actions, terminal):
        streams.runner.say("hello")
    assert (actions.stdout, actions.err.getvalue()) == ("hello\n", "")
    assert (terminal.stdout, terminal.err.getvalue()) == ("", "hello\n")


@given(st.text())
def test_what_is_said_is_never_a_command(text: str) -> None:
    streams = Streams()
    streams.runner.say(text)
    assert read_console(streams.stdout).commands == ()
    assert streams.stdout.count("\n") == 1


def test_a_group_is_closed_after_an_error_too() -> None:
    streams = Streams()
    with pytest.raises(KeyError), streams.runner.group("a\r\n::error::b"):
        raise KeyError
    commands = read_console(streams.stdout).commands
    assert [(command.name, command.value) for command in commands] == [
        ("group", r"a\x0d\x0a::error::b"),
        ("endgroup", ""),
    ]


def test_a_terminal_gets_no_commands() -> None:
    streams = Streams(in_actions=False)
    with streams.runner.group("title"):
        streams.runner.annotate("error", "bad\nbecause")
        streams.runner.mask("token")
    assert streams.stdout == ""
    assert streams.err.getvalue() == "error: bad\n  because\n"


@given(st.text(), st.sampled_from(["notice", "warning", "error"]))
def test_an_annotation_is_one_command_with_the_lines_of_its_message(message: str, level: Level) -> None:
    streams = Streams()
    streams.runner.annotate(level, message)
    (command,) = read_console(streams.stdout).commands
    assert (command.name, command.properties["title"]) == (level, "therock-outputs")
    assert command.value.count("\n") == message.count("\n")


def test_annotations_beyond_what_github_keeps_are_plain_lines() -> None:
    streams = Streams()
    for number in range(MAX_ANNOTATIONS + 2):
        streams.runner.annotate("warning", f"w{number}")
    streams.runner.annotate("error", "e")
    console = read_console(streams.stdout)
    assert [annotation.message for annotation in console.annotations] == [f"w{n}" for n in range(MAX_ANNOTATIONS)] + [
        "e"
    ]
    assert "warning: w10\nwarning: w11\n" in console.log
    assert len(console.commands) == MAX_ANNOTATIONS + 1


def test_a_secret_is_masked_line_by_line_and_nothing_is_printed_for_none() -> None:
    streams = Streams()
    streams.runner.mask("one%\ntwo")
    streams.runner.mask("")
    console = read_console(streams.stdout, "one% two\n")
    assert console.log.endswith("*** ***\n")
    assert len(console.commands) == 2


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(
        st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True), st.text(st.characters(exclude_categories=["Cs"]))
    )
)
def test_outputs_are_read_back_exactly(tmp_path: Path, outputs: dict[str, str]) -> None:
    file = tmp_path / "output"
    file.write_bytes(b"earlier=1\n")
    Streams(output_file=file).runner.set_outputs(outputs)
    assert parse_key_values(file.read_bytes().decode(), file_name="GITHUB_OUTPUT") == {"earlier": "1"} | outputs


def test_a_value_cannot_end_its_block_because_the_delimiter_is_random(tmp_path: Path) -> None:
    file = tmp_path / "output"
    runner = Streams(output_file=file).runner
    runner.set_outputs({"a": "x"})
    delimiter = file.read_text().splitlines()[-1]
    runner.set_outputs({"a": f"x\n{delimiter}\nevil=1", "b": "EOF"})
    assert parse_key_values(file.read_text(), file_name="") == {"a": f"x\n{delimiter}\nevil=1", "b": "EOF"}


@pytest.mark.parametrize("name", ["", "A", "a b", "a=b", "a\nb", "1a"])
def test_a_name_that_would_break_the_file_is_a_fault_of_this_program(tmp_path: Path, name: str) -> None:
    file = tmp_path / "output"
    with pytest.raises(ValueError, match="is no output name"):
        Streams(output_file=file).runner.set_outputs({"good": "1", name: "x"})
    assert not file.exists()


def test_outputs_at_a_terminal_are_lines_on_stdout() -> None:
    streams = Streams(in_actions=False)
    streams.runner.set_outputs({"log_url": "https://x/y", "odd": "a\nb"})
    assert streams.stdout == "log_url=https://x/y\nodd=a\\x0ab\n"


def test_outputs_in_actions_without_a_file_are_dropped_and_printed_nowhere() -> None:
    streams = Streams()
    streams.runner.set_outputs({"a": "x"})
    assert streams.stdout == ""


def test_a_file_of_the_runner_that_cannot_be_written_is_a_local_file_error(tmp_path: Path) -> None:
    with pytest.raises(LocalFileError, match="cannot write the runner's file output"):
        Streams(output_file=tmp_path / "missing" / "output").runner.set_outputs({"a": "x"})


def test_the_summary_goes_to_the_step_and_to_the_jobs_mirror(tmp_path: Path) -> None:
    step, mirror = tmp_path / "step", tmp_path / "job_summary.md"
    runner = Streams(summary_file=step, summary_mirror=mirror).runner
    runner.append_summary("### one\n\n\n")
    runner.append_summary("two \udcff")
    runner.append_summary("")
    assert step.read_text() == mirror.read_text() == "### one\n\ntwo \\udcff\n\n"


def test_a_summary_that_is_left_out_is_written_nowhere(tmp_path: Path) -> None:
    step, mirror = tmp_path / "step", tmp_path / "job_summary.md"
    runner = Streams(summary_file=step, summary_mirror=mirror).runner
    runner.leave_out_summary()
    runner.append_summary("### one")
    assert list(tmp_path.iterdir()) == []
    assert runner.summary_room_bytes == MAX_SUMMARY_BYTES


def test_the_room_for_the_summary_is_what_the_step_has_left(tmp_path: Path) -> None:
    step = tmp_path / "step"
    runner = Streams(summary_file=step).runner
    assert runner.summary_room_bytes == MAX_SUMMARY_BYTES
    step.write_bytes(b"x" * 100)
    assert runner.summary_room_bytes == MAX_SUMMARY_BYTES - 100
    step.write_bytes(b"x" * (MAX_SUMMARY_BYTES + 1))
    assert runner.summary_room_bytes == 0


def test_the_mirror_is_no_way_to_write_through_a_link(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("whole")
    (tmp_path / "job_summary.md").symlink_to(victim)
    Streams(summary_mirror=tmp_path / "job_summary.md").runner.append_summary("x")
    assert victim.read_text() == "whole"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_the_mirror_does_not_wait_for_a_reader_of_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "job_summary.md")
    Streams(summary_mirror=tmp_path / "job_summary.md").runner.append_summary("x")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files away")
def test_the_mirror_belongs_to_the_owner_of_its_folder_and_no_other_file_does(tmp_path: Path) -> None:
    mirror, root_file = tmp_path / "job_summary.md", tmp_path / "roots"
    os.chown(tmp_path, 1234, 2345)
    Streams(summary_mirror=mirror).runner.append_summary("x")
    assert (mirror.stat().st_uid, mirror.stat().st_gid) == (1234, 2345)
    mirror.unlink()
    root_file.touch()
    mirror.hardlink_to(root_file)
    Streams(summary_mirror=mirror).runner.append_summary("x")
    assert root_file.stat().st_uid == 0


def test_a_summary_that_the_step_cannot_keep_is_still_in_the_jobs_mirror(tmp_path: Path) -> None:
    mirror = tmp_path / "job_summary.md"
    with pytest.raises(LocalFileError):
        Streams(summary_file=tmp_path, summary_mirror=mirror).runner.append_summary("### one")
    assert mirror.read_text() == "### one\n\n"


_FULL = Path("/dev/full")
needs_full_disk = pytest.mark.skipif(not _FULL.exists(), reason="needs a device that is always full")


@needs_full_disk
@pytest.mark.parametrize("in_actions", [True, False])
def test_words_that_cannot_be_printed_are_lost_and_nothing_else_is(in_actions: bool, tmp_path: Path) -> None:
    output = tmp_path / "output"
    with _FULL.open("w", encoding="utf-8") as full:
        runner = Runner(in_actions=in_actions, stdout=full, stderr=full, output_file=output)
        for _ in range(2):
            runner.say("x")
            runner.annotate("error", "x")
        with runner.group("x"):
            runner.mask("x")
        runner.set_outputs({"a": "1"})
    assert parse_key_values(output.read_text(), file_name="") == {"a": "1"}


@needs_full_disk
def test_outputs_that_cannot_be_printed_are_a_local_file_error() -> None:
    with _FULL.open("w", encoding="utf-8") as full:
        with pytest.raises(LocalFileError, match="cannot print the outputs") as caught:
            Runner(in_actions=False, stdout=full).set_outputs({"a": "1"})
        assert caught.value.why == "No space left on device"


def test_a_process_without_streams_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    for in_actions in (True, False):
        Runner(in_actions=in_actions).say("x")
        Runner(in_actions=in_actions).annotate("error", "x")


def test_the_process_own_streams_are_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    Runner(in_actions=True, stdout=sys.stdout).say("x")
    Runner(in_actions=False).say("y")
    assert capsys.readouterr() == ("x\n", "y\n")


def test_as_json_the_outputs_are_one_object_and_everything_else_is_said_on_stderr(tmp_path: Path) -> None:
    stdout, stderr = io.StringIO(), io.StringIO()
    runner = Runner(in_actions=True, output_file=tmp_path / "outputs", stdout=stdout, stderr=stderr)
    runner.print_json()
    runner.mask("secret")
    with runner.group("work"):
        runner.say("working")
    runner.annotate("warning", "careful")
    runner.set_outputs({"found": "true", "runs": '[{"id": 1}]', "url": "https://x/y", "odd": "[broken"[1:], "none": ""})
    expected = {"found": True, "runs": [{"id": 1}], "url": "https://x/y", "odd": "broken", "none": ""}
    assert json.loads(stdout.getvalue()) == expected
    assert stderr.getvalue().splitlines() == ["working", "warning: careful"]
    assert not (tmp_path / "outputs").exists()


def test_as_json_a_text_that_only_looks_like_json_stays_text() -> None:
    stdout = io.StringIO()
    runner = Runner(in_actions=False, stdout=stdout, stderr=io.StringIO())
    runner.print_json()
    runner.set_outputs({"name": "[not json", "other": "{x"})
    assert json.loads(stdout.getvalue()) == {"name": "[not json", "other": "{x"}
