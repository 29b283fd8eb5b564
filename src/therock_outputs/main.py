"""From inputs to exit code: settings, mode, report, outputs, summary."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import sys
import traceback
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

from _therock_utils._cancel import CancelToken
from _therock_utils._errors import LocalFileError, OutputsError
from therock_outputs.runner import Runner
from therock_outputs.signals import cancel_on_signals

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from _therock_utils.storage_backend import StorageBackend
    from therock_outputs.context import Context
    from therock_outputs.ownership import Adoption
    from therock_outputs.report import Report
    from therock_outputs.settings import Settings

FAULT_EXIT_CODE: Final = 70
"""Exit code of a fault in this program (sysexits.h, EX_SOFTWARE)."""

_SUMMARY_MIRROR: Final = "job_summary.md"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one mode; the process's exit code. `arguments` is argv without the program's name."""
    _use_utf8()
    runner = runner_of_environment(os.environ)
    _log_through(runner)
    cancel = CancelToken()

    def last_words() -> None:
        runner.annotate("error", "cancelled: it did not stop in time, so what was stored last is not listed")

    with cancel_on_signals(cancel, last_words=last_words):
        try:
            return run(list(sys.argv[1:] if arguments is None else arguments), runner, cancel)
        except OutputsError as error:
            return _report_failure(error, runner)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:  # noqa: BLE001 - nothing carries on; a panic of a library in Rust is no Exception
            return _report_fault(runner)


def run(arguments: Sequence[str], runner: Runner, cancel: CancelToken) -> int:
    """Do what the settings ask for. Raises OutputsError for what stops it before there is a report."""
    from therock_outputs.command_line import load_settings
    from therock_outputs.modes import load_mode
    from therock_outputs.ownership import Adoption
    from therock_outputs.render_outputs import render_console

    if "--json" in arguments:
        runner.print_json()
    settings, warnings = load_settings(arguments, os.environ)
    runner.mask(settings.github_token.get_secret_value())
    if not settings.summary:
        runner.leave_out_summary()
    context = _context(settings, runner, cancel, warnings)
    adoptions = [Adoption(context.workspace.folder, folder) for folder in _written_folders(context)]
    with runner.group(f"therock-outputs {settings.mode}"):
        try:
            report = load_mode(settings.mode).run(context)
        except OutputsError:
            for warning in context.warnings:  # one may be the cause: an input of another mode
                runner.annotate("warning", warning)
            raise
        for line in render_console(report):
            runner.say(line)
    for adoption in adoptions:
        adoption.adopt(_made_files(report, context.staging_dir, adoption))
    return _deliver(report, context, runner)


def runner_of_environment(environment: Mapping[str, str]) -> Runner:
    """The runner that this process runs under, or a terminal."""
    temporary = environment.get("RUNNER_TEMP", "")
    output, summary = environment.get("GITHUB_OUTPUT", ""), environment.get("GITHUB_STEP_SUMMARY", "")
    return Runner(
        in_actions=environment.get("GITHUB_ACTIONS", "") == "true",
        output_file=Path(output) if output else None,
        summary_file=Path(summary) if summary else None,
        summary_mirror=Path(temporary, _SUMMARY_MIRROR) if temporary else None,
    )


def _written_folders(context: Context) -> Iterable[Path]:
    """The folders of this machine that the mode may write to."""
    settings = context.settings
    if settings.dry_run:
        return
    if context.staging_dir is not None:
        yield context.staging_dir
    for name in ("output_dir", "cache_dir"):
        value = getattr(settings, name)
        if value:
            yield context.workspace.resolve(value, what=name)


def _made_files(report: Report, staging_dir: Path | None, adoption: Adoption) -> Iterable[Path]:
    """What the run wrote that `adoption` is about: staged objects, its record, and what it made, with all below."""
    if staging_dir is not None and report.verb in {"stored", "copied"}:
        yield from filter(adoption.is_about, (item.location.local_path(staging_dir) for item in report.result.stored))
    if staging_dir is not None and report.record is not None:
        yield from filter(adoption.is_about, [report.record.local_path(staging_dir)])
    for path in filter(adoption.is_about, report.made):
        yield path
        for folder, folders, names in os.walk(path):  # follows no link
            yield from (Path(folder, name) for name in (*folders, *names))


class _LogHandler(logging.Handler):
    """Says log records line by line: what they hold comes from servers and file names."""

    def __init__(self, runner: Runner) -> None:
        super().__init__(logging.WARNING)
        self._runner = runner

    def emit(self, record: logging.LogRecord) -> None:
        """Say one record."""
        for line in f"{record.levelname.lower()}: {self.format(record)}".splitlines():
            self._runner.say(line)


def _log_through(runner: Runner) -> None:
    """Send what the libraries and we log, and Python's warnings, through `runner`, which makes it harmless."""
    logging.getLogger().addHandler(_LogHandler(runner))
    logging.captureWarnings(capture=True)


def _context(settings: Settings, runner: Runner, cancel: CancelToken, warnings: tuple[str, ...]) -> Context:
    from therock_outputs.context import Context
    from therock_outputs.paths import Workspace
    from therock_outputs.run_target import resolve_target

    workspace = Workspace.from_environment(
        workspace=settings.github_workspace,
        runner_workspace=settings.runner_workspace,
        repository=settings.github_repository,
    )
    staging_dir = workspace.resolve(settings.staging_dir, what="staging_dir") if settings.staging_dir else None
    if staging_dir is not None and not workspace.is_seen_by_job(staging_dir, runner_temp=settings.runner_temp):
        lost = "what is stored there is gone when this step's container ends"
        warnings = (*warnings, f"staging_dir {staging_dir} is outside the workspace and RUNNER_TEMP: {lost}")

    def open_backend() -> StorageBackend:
        from _therock_utils.storage_backend import create_storage_backend

        return create_storage_backend(
            staging_dir=staging_dir, dry_run=settings.dry_run, upload_concurrency=settings.concurrency
        )

    return Context(
        settings=settings,
        target=resolve_target(settings, cancel, say=runner.say),
        workspace=workspace,
        staging_dir=staging_dir,
        cancel=cancel,
        open_backend=open_backend,
        say=runner.say,
        warnings=warnings,
    )


def _deliver(report: Report, context: Context, runner: Runner) -> int:
    """Tell everybody what happened: log, annotations, report file, outputs, summary."""
    from therock_outputs.render_outputs import render_document
    from therock_outputs.report_file import write_report_file

    path = ""
    try:
        if context.settings.github_workspace:
            path = write_report_file(context.workspace, report.mode, render_document(report))
    except OutputsError as error:  # what matters is done: nobody shall take it for undone
        why = f" ({error.why})" if error.why else ""
        warning = f"the report file was not written: {error.what}{why}"
        report = dataclasses.replace(report, warnings=(*report.warnings, warning))
    for notice in report.notices:
        runner.say(notice)
    for warning in report.warnings:
        runner.annotate("warning", warning)
    if report.error is not None:
        runner.annotate("error", str(report.error))
    _fill_runner_files(report, context, runner, path)
    return report.exit_code


def _fill_runner_files(report: Report, context: Context, runner: Runner, report_path: str) -> None:
    """Write summary and outputs. Raises LocalFileError for the first that fails, unless the report tells worse."""
    from therock_outputs.render_outputs import render_outputs
    from therock_outputs.render_summary import render_summary

    room_bytes = runner.summary_room_bytes - 2  # two line ends follow
    summary = render_summary(report, workspace=context.workspace, room_bytes=room_bytes)
    outputs = render_outputs(report, report_path=report_path)
    failures = []
    for write in (partial(runner.append_summary, summary), partial(runner.set_outputs, outputs)):
        try:
            write()
        except LocalFileError as error:  # the other can still be written
            failures.append(error)
    if failures and report.error is None:
        raise failures[0]
    for failure in failures:
        runner.annotate("error", str(failure))


def _report_failure(error: OutputsError, runner: Runner) -> int:
    """Tell about an error that left no report."""
    from therock_outputs.render_summary import render_failure

    runner.annotate("error", str(error))
    with contextlib.suppress(LocalFileError):  # it may be the summary's file that cannot be written
        runner.append_summary(render_failure(error))
    return error.exit_code


def _report_fault(runner: Runner) -> int:
    with runner.group("traceback"):
        for line in traceback.format_exc().splitlines():
            runner.say(line)
    runner.annotate("error", "therock-outputs has a fault (the traceback is in the log); nothing more is done")
    return FAULT_EXIT_CODE


def _use_utf8() -> None:
    """Start over in UTF-8 mode (PEP 540) where the locale is another: keys are UTF-8, and so are file names here."""
    if sys.getfilesystemencoding().lower() not in {"utf-8", "utf8"} and not sys.flags.utf8_mode:
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])  # noqa: S606 - it is this program
    for stream in (sys.stdout, sys.stderr):
        _escape_what_it_cannot_encode(stream)


def _escape_what_it_cannot_encode(stream: TextIO) -> None:
    reconfigure = getattr(stream, "reconfigure", None)  # a captured stream has none
    if reconfigure is not None:
        reconfigure(encoding="utf-8", errors="backslashreplace")
