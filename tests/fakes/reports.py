"""Reports and their pieces, made of a few words."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from _therock_utils._errors import OutputsError
from _therock_utils._transfer_types import Conflict, FailedItem, SkippedFile, StoredObject, UploadResult
from _therock_utils.workflow_outputs import WorkflowOutputRoot
from therock_outputs.mode_names import Mode
from therock_outputs.report import Report

if TYPE_CHECKING:
    from _therock_utils.storage_location import StorageLocation

ROOT = WorkflowOutputRoot("therock-ci-artifacts", "", "12345", "linux")
HOSTILE_NAMES = (
    "::error::x.log",
    "##[error]x.log",
    "a|b`c.log",
    "<img src=x onerror=alert(1)>.log",
    "[x](javascript:alert(1)).log",
    "https://evil.example/x.log",
    "@octocat #1 **bold** ~~gone~~.log",
    "new\nline\r.log",
    "\u202egol.exe",
    "\x1b[31mred.log",
    "</details><h1>x",
)


def at(path: str) -> StorageLocation:
    """A location below the run's folder."""
    return ROOT.root().child(path)


def stored(path: str, size_bytes: int = 1) -> StoredObject:
    """An object that was stored."""
    return StoredObject(at(path), size_bytes, f"{size_bytes:064x}", "text/plain; charset=utf-8", "sha256-single")


def failed(path: str, error: OutputsError) -> FailedItem:
    """A file that was not stored; its key is a legal one, whatever its path."""
    return FailedItem(path, at("logs/x"), error)


def conflict(path: str, **fields: Any) -> Conflict:  # noqa: ANN401 - as Conflict's
    """Other bytes under a key."""
    return Conflict(**({"location": at(path), "state": "different", "origin": "", "action": "overwritten"} | fields))


def result_of(count: int) -> UploadResult:
    """A result in which `count` objects failed, were skipped and met conflicts, each with a long name."""
    error = OutputsError("it was refused")
    names = [f"logs/{number:06d}-{'n' * 200}.log" for number in range(count)]
    return UploadResult(
        stored=tuple(stored(name, 1000) for name in names),
        failed=tuple(failed(name, error) for name in names),
        skipped=tuple(SkippedFile(name, "it is a symbolic link") for name in names),
        conflicts=tuple(conflict(name) for name in names),
    )


def report(**fields: Any) -> Report:  # noqa: ANN401 - as Report's
    """A report of mode upload-stage, unless `fields` say otherwise."""
    return Report(**({"mode": Mode.UPLOAD_STAGE, "subject": "math-libs/gfx1151", "root": ROOT} | fields))


STAGING = Path("/github/workspace/out")
