"""Reads the records that upload modes leave of what they stored (docs, "Run records").

A record is a claim. It may come from anywhere, so its shape is checked and nothing outside its own run is taken from
it; and whether an object is there, and what it holds, only the storage can say.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NoReturn, TypeVar

from _therock_utils._backend_base import too_large
from _therock_utils._errors import IntegrityError, NotFoundError, OutputsError
from _therock_utils._keys import key_fault, quote, segment_fault
from _therock_utils._transfer_types import SMALL_OBJECT_LIMIT_BYTES, FailedItem
from therock_outputs.batching import batches
from therock_outputs.rewording import reworded

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from _therock_utils._cancel import CancelToken
    from _therock_utils._transfer_types import ListedObject
    from _therock_utils.storage_backend import StorageBackend
    from _therock_utils.storage_location import StorageLocation
    from _therock_utils.workflow_outputs import WorkflowOutputRoot

RECORD_FORMAT: Final = "therock-outputs/report/1"
_FOLDER: Final = "reports"
_EXTENSION: Final = ".json"
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_BATCH_BYTES: Final = 2 * SMALL_OBJECT_LIMIT_BYTES
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class RecordedObject:
    """One object that a record names. `sha256`: hex digest of all its bytes, "" where its writer did not know it."""

    key: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class RunRecord:
    """What one step says it stored. `name`: where the record lies in the run, `reports/{mode}/{name}.json`.

    `subject`: a group, or a stage, with a family as `stage/family`. `complete`: whether all that was to be stored is.
    `per_stage`: artifact names (name_component_target) by stage, where a step stored those of several (copy-artifacts).
    """

    name: str
    mode: str
    subject: str
    complete: bool
    objects: tuple[RecordedObject, ...]
    per_stage: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class RunRecords:
    """A run's records in key order, and those that cannot be used, each with the reason."""

    records: tuple[RunRecord, ...] = ()
    failed: tuple[FailedItem, ...] = ()

    @property
    def keys(self) -> frozenset[str]:
        """Where they lie in the run, usable or not, as `RunRecord.name`."""
        return frozenset([*(record.name for record in self.records), *(item.path for item in self.failed)])


def read_records(
    backend: StorageBackend,
    root: WorkflowOutputRoot,
    *,
    modes: Iterable[str] | None = None,
    cancel: CancelToken | None = None,
) -> RunRecords:
    """The records of a run, of certain `modes` or of all. One that cannot be read or used is in `failed`, in words.

    Raises as `list_folder` and `list_objects` do. Memory: 32 MiB of records at a time, up to 30 times its size for the
    one that is parsed (16 MiB at most), and about 400 bytes for each object that they name.
    """
    records: list[RunRecord] = []
    failed: list[FailedItem] = []
    readable = _readable(_listed_records(backend, root, modes, cancel), failed)
    for batch in batches(readable, lambda listed: listed.size_bytes, most_bytes=_BATCH_BYTES):
        answers = backend.read_all_small([listed.location for listed in batch], cancel=cancel)
        for listed, answer in zip(batch, answers, strict=True):
            location, name = listed.location, _name_in_run(listed.location, root)
            try:
                if answer is None:
                    raise NotFoundError(f"the record {quote(name)} was listed and is gone")
                if isinstance(answer, OutputsError):
                    raise _unread(name, answer)
                records.append(parse_record(answer.data, name=name, prefix=root.prefix))
            except OutputsError as error:
                failed.append(FailedItem(name, location, error))
    return RunRecords(tuple(records), tuple(sorted(failed, key=lambda item: item.path.encode())))


def is_record_name(name: str) -> bool:
    """Whether `name`, relative to the run, is where a record lies: `reports/{mode}/{name}.json`."""
    parts = name.split("/")
    return len(parts) == 3 and parts[0] == _FOLDER and name.endswith(_EXTENSION)  # noqa: PLR2004 - see above


def parse_record(data: bytes, *, name: str, prefix: str) -> RunRecord:
    """Read the record that lies at `name` in the run of `prefix`. Pure.

    Raises IntegrityError, and nothing else, for anything that is no record of this run: it says what is wrong.
    """
    try:
        document = json.loads(data.decode("utf-8"), parse_constant=_no_number)
    except RecursionError:
        raise _bad(name, "it is nested too deeply") from None
    except ValueError as error:  # not UTF-8, not JSON, or a number too long to read
        raise _bad(name, f"it is not JSON: {quote(str(error))[1:-1]}") from error
    try:
        return _read(document, name, f"{prefix}/")
    except _BadFieldError as error:
        raise _bad(name, str(error)) from error


def _read(document: object, name: str, start: str) -> RunRecord:
    fields = _as(document, dict, "it")
    kind = fields.get("format")
    if kind != RECORD_FORMAT:
        raise _BadFieldError(f"its format is {_shown(kind)}, and {RECORD_FORMAT} is wanted")
    mode = _field(fields, "mode", str)
    if mode != name.rpartition("/")[0].rpartition("/")[2]:
        raise _BadFieldError(f"its mode is {quote(mode)}, and it lies in another one's folder")
    if _field(fields, "dry_run", bool):
        raise _BadFieldError("it is of a dry run, which stores nothing")
    return RunRecord(
        name,
        mode,
        _field(fields, "subject", str),
        _field(fields, "complete", bool),
        tuple(_object(entry, number, start) for number, entry in enumerate(_field(fields, "objects", list))),
        _per_stage(_as(fields.get("outputs", {}), dict, "outputs").get("per_stage", "{}")),
    )


def _object(entry: object, number: int, start: str) -> RecordedObject:
    what = f"objects[{number}]"
    fields = _as(entry, dict, what)
    key, size_bytes = _field(fields, "key", str, what), _field(fields, "size_bytes", int, what)
    sha256 = _field(fields, "sha256", str, what)
    fault = key_fault(key) or ("" if key.startswith(start) else "it is not in this run")
    if fault:
        raise _BadFieldError(f"{what}.key {quote(key)}: {fault}")
    if size_bytes < 0:
        raise _BadFieldError(f"{what}.size_bytes is negative")
    if sha256 and not _DIGEST.fullmatch(sha256):
        raise _BadFieldError(f"{what}.sha256 {quote(sha256)} is no SHA-256 in lower-case hex")
    return RecordedObject(key, size_bytes, sha256)


def _per_stage(value: object) -> Mapping[str, tuple[str, ...]]:
    """The output `per_stage`: JSON in a string, stage to artifact names."""
    what = "outputs.per_stage"
    text = _as(value, str, what)
    try:
        stages = _as(json.loads(text), dict, what)
    except RecursionError:
        raise _BadFieldError(f"{what} is nested too deeply") from None
    except ValueError:
        raise _BadFieldError(f"{what} is not JSON") from None
    return MappingProxyType(
        {stage: tuple(_artifact(name, what) for name in _as(names, list, what)) for stage, names in stages.items()}
    )


def _artifact(value: object, what: str) -> str:
    name = _as(value, str, what)
    fault = segment_fault(name)
    if fault:
        raise _BadFieldError(f"{what} has the name {quote(name)}: {fault}")
    return name


def _field(fields: Mapping[str, object], key: str, kind: type[_T], where: str = "") -> _T:
    return _as(fields.get(key), kind, f"{where}.{key}" if where else key)


def _as(value: object, kind: type[_T], what: str) -> _T:
    """`value` if it is of exactly this type of JSON's: true is no number."""
    if type(value) is not kind:
        raise _BadFieldError(f"{what} must be {_KINDS[kind]}, not {_KINDS.get(type(value), 'null')}")
    return value


_KINDS: Final[Mapping[type, str]] = {
    dict: "an object",
    list: "a list",
    str: "a string",
    bool: "true or false",
    int: "a whole number",
    float: "a fraction",
}


class _BadFieldError(Exception):
    """A record has another shape than it should have; the message says where."""


def _bad(name: str, why: str) -> IntegrityError:
    return IntegrityError(
        f"the record {quote(name)} cannot be used",
        why=why,
        remedy="Something else wrote or changed it: remove it, and run the step that it is named after again.",
    )


def _unread(name: str, error: OutputsError) -> OutputsError:
    """One that could not be read, in the words of a record."""
    return reworded(error, f"the record {quote(name)} cannot be read", why=error.why or error.what, remedy=error.remedy)


def _no_number(word: str) -> NoReturn:
    """Refuse NaN and Infinity, which are no JSON (RFC 8259, section 6)."""
    raise ValueError(f"{word} is no number")


def _shown(value: object) -> str:
    return quote(value) if isinstance(value, str) else _KINDS.get(type(value), "null")


def _listed_records(
    backend: StorageBackend, root: WorkflowOutputRoot, modes: Iterable[str] | None, cancel: CancelToken | None
) -> Iterator[ListedObject]:
    """The objects that lie where records do, in key order."""
    folder = root.root().child(_FOLDER)
    if modes is None:
        listed = backend.list_objects(folder, cancel=cancel)
    else:
        listed = (
            entry for mode in sorted(set(modes)) for entry in backend.list_folder(folder.child(mode), cancel=cancel)
        )
    return (entry for entry in listed if is_record_name(_name_in_run(entry.location, root)))


def _name_in_run(location: StorageLocation, root: WorkflowOutputRoot) -> str:
    return location.relative_path[len(root.prefix) + 1 :]


def _readable(entries: Iterable[ListedObject], failed: list[FailedItem]) -> Iterator[ListedObject]:
    """The entries but those too large to be read, which are added to `failed`."""
    for entry in entries:
        if entry.size_bytes <= SMALL_OBJECT_LIMIT_BYTES:
            yield entry
            continue
        name = "/".join(entry.location.relative_path.split("/")[-3:])
        error = _unread(name, too_large(entry.location.s3_uri, entry.size_bytes))
        failed.append(FailedItem(name, entry.location, error))
