"""What a run did, as data. The renderers beside this module make outputs, Markdown, JSON and console lines of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from _therock_utils._errors import CancelledError, IncompleteError, OutputsError
from _therock_utils._transfer_types import UploadResult
from therock_outputs.rewording import made_of_words

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from _therock_utils.storage_location import StorageLocation
    from _therock_utils.workflow_outputs import WorkflowOutputRoot
    from therock_outputs.mode_names import Mode

PartState = Literal["stored", "partly", "failed", "nothing", "left-out", "located"]


@dataclass(frozen=True, slots=True)
class Part:
    """One row of the summary. `location` is what its link opens: stored, or made by the server (`by_server`).

    `is_folder`: S3 shows nothing at a folder's URL, so it is no link.
    """

    what: str
    state: PartState
    file_count: int = 0
    total_bytes: int = 0
    location: StorageLocation | None = None
    link_text: str = ""
    note: str = ""
    by_server: bool = False
    is_folder: bool = False

    def staged_path(self, staging_dir: Path) -> Path | None:
        """Where `location` is in a staging folder; of a page that only the server makes, its folder."""
        if self.location is None:
            return None
        path = self.location.local_path(staging_dir)
        return path.parent if self.by_server else path


@dataclass(frozen=True, slots=True)
class Table:
    """Rows that a mode wants to show below its parts. Cells are text from anywhere: renderers make them harmless.

    The first column is shown as code. `more` counts rows that the mode left out itself.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    more: int = 0


@dataclass(frozen=True, slots=True)
class Snippet:
    """Lines that a person copies and runs next, on top of the summary. `language` names its colours, e.g. `sh`.

    Lines are shown as they are: whoever makes them quotes what comes from outside for that language (shlex.quote).
    """

    title: str
    language: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that came of a run. `outputs` are the mode's own, beside those that every mode has.

    `root` is None where no run was found. `verb` says what was done to the objects of `result`: stored, fetched,
    copied. `made` are local files and folders that the mode wrote, apart from a staging folder's.
    """

    mode: Mode
    subject: str
    root: WorkflowOutputRoot | None
    parts: tuple[Part, ...] = ()
    result: UploadResult = field(default_factory=UploadResult)
    outputs: Mapping[str, str] = field(default_factory=dict)
    page: StorageLocation | None = None
    notices: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    error: OutputsError | None = None
    staging_dir: Path | None = None
    dry_run: bool = False
    record: StorageLocation | None = None  # where the run's record was stored
    verb: str = "stored"
    tables: tuple[Table, ...] = ()
    made: tuple[Path, ...] = ()
    snippets: tuple[Snippet, ...] = ()

    @property
    def exit_code(self) -> int:
        """The process's exit code."""
        return self.error.exit_code if self.error is not None else 0

    @property
    def complete(self) -> bool:
        """Whether all that was to be stored is."""
        return self.error is None and not self.result.failed


def in_one_line(error: OutputsError) -> str:
    """What, why and the remedy, for a list of warnings."""
    return ". ".join(part.rstrip(".") for part in (error.what, error.why, error.remedy) if part)


def has_one_cause(result: UploadResult) -> bool:
    """Whether all that failed did so for the same reason, which is then told once."""
    return len({(type(item.error), item.error.why, item.error.remedy) for item in result.failed}) == 1


def error_of(result: UploadResult, *, verb: str = "stored") -> OutputsError | None:
    """The one error that sums up what failed, None where nothing did; `verb` as in Report.

    One cause for all is the error itself; several of one kind keep that kind's exit code; else it is IncompleteError.
    """
    if not result.failed:
        return None
    cancelled = next((item.error for item in result.failed if isinstance(item.error, CancelledError)), None)
    if cancelled is not None:
        return cancelled
    first = result.failed[0].error
    if has_one_cause(result):
        return first
    kinds = {type(item.error) for item in result.failed}
    kind = kinds.pop() if len(kinds) == 1 else IncompleteError
    return made_of_words(kind)(
        f"{len(result.failed)} of {len(result.failed) + len(result.stored)} objects were not {verb}",
        why=f"the first: {result.failed[0].path}: {first.what}" + (f" ({first.why})" if first.why else ""),
        remedy=first.remedy,
    )
