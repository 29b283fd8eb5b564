"""Mode verify: compares what a run's records and digests say with what is stored. Nothing is written."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from _therock_utils._errors import NotFoundError, OutputsError
from _therock_utils._sidecar import sidecar_name
from _therock_utils._transfer_types import FailedItem, StoredObject, UploadResult
from therock_outputs.modes._comparison import (
    Expected,
    Stored,
    by_name,
    compare,
    digest_in,
    in_words,
    is_by_size,
    is_sidecar,
    is_too_long,
    rows,
    tally,
    verdict,
    without_sidecar,
)
from therock_outputs.modes._other_places import explain_empty_run
from therock_outputs.modes._selectors import some_of
from therock_outputs.report import Part, Report, Table, error_of
from therock_outputs.rewording import reworded
from therock_outputs.run_records import read_records
from therock_outputs.run_target import single_root
from therock_outputs.text_safety import count, visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from _therock_utils._transfer_types import Verified
    from _therock_utils.storage_backend import StorageBackend
    from _therock_utils.storage_location import StorageLocation
    from therock_outputs.context import Context
    from therock_outputs.modes._comparison import Finding
    from therock_outputs.report import PartState
    from therock_outputs.run_records import RunRecords

OUTPUTS: Final[Mapping[str, str]] = {
    "verified": "true where nothing is missing or differs and all could be looked at.",
    "same_count": "Objects that are as records and digests say.",
    "missing_count": "Objects that are named and not there.",
    "differs_count": "Objects with other bytes than records and digests say.",
    "extra_count": "Objects that nothing names; they are no failure.",
}


def run(context: Context) -> Report:
    """Compare.

    Raises NotFoundError for an empty run, and where there is neither a record nor a digest; an OutputsError where the
    run cannot be listed. What fails for one object is in the report. Memory: about 1.5 kB for each object that is
    stored or named by a record, and what reading the records takes.
    """
    check = _Check(context)
    check.look()
    findings = compare(check.expected, check.stored, records=check.records.keys, unknown=check.unknown)
    return _report(context, check, findings)


class _Check:
    """What one look at the run gave. Objects go by their names, relative to the run."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._root = single_root(context.target)
        self._backend: StorageBackend = context.open_backend()
        self.records: RunRecords = read_records(self._backend, self._root, cancel=context.cancel)
        self.expected = Expected(by_name(self.records.records, prefix=self._root.prefix))
        self.stored: dict[str, Stored] = {}
        self.failed: list[FailedItem] = list(self.records.failed)

    def location_of(self, name: str) -> StorageLocation:
        """Where the object `name` lies."""
        return self._root.root().child(name)

    @property
    def unknown(self) -> frozenset[str]:
        """Names of what could not be looked at."""
        return frozenset(item.path for item in self.failed)

    def look(self) -> None:
        """List, read the sidecars, and get digests as far as `check` wants them. Raises as `run` does."""
        context, backend = self._context, self._backend
        start = len(self._root.prefix) + 1
        for listed in backend.list_objects(self._root.root(), cancel=context.cancel):
            self.stored[listed.location.relative_path[start:]] = Stored(listed.size_bytes)
        if not self.stored:
            raise explain_empty_run(context, backend)
        sidecars = [name for name in self.stored if is_sidecar(name)]
        if not sidecars and not self.records.keys:
            raise NotFoundError(
                f"there is nothing to verify {self._root.root().s3_uri} with",
                why=f"it has {count(len(self.stored), 'object')}, and neither a record nor a digest among them",
                remedy="Modes of this action that store leave both; what other programs stored cannot be verified.",
            )
        if context.settings.check == "size":
            self.expected = Expected(self.expected.records, dict.fromkeys(sidecars))
            return
        self._read(sidecars)
        self._describe()

    def _read(self, sidecars: Sequence[str]) -> None:
        """Keep each sidecar's digest, and the digest of its own bytes."""
        readable = [name for name in sidecars if not is_too_long(self.stored[name].size_bytes)]
        digests: dict[str, str | None] = dict.fromkeys(sidecars, "")
        answers = self._backend.read_all_small([*map(self.location_of, readable)], cancel=self._context.cancel)
        for name, answer in zip(readable, answers, strict=True):
            if isinstance(answer, OutputsError):
                digests[name] = None
                self._fail(name, answer)
            elif answer is None:  # it is gone since it was listed
                del digests[name], self.stored[name]
            else:
                digests[name] = digest_in(answer.data, name)
                self.stored[name] = Stored(len(answer.data), hashlib.sha256(answer.data).hexdigest())
        self.expected = Expected(self.expected.records, digests)

    def _describe(self) -> None:
        """Keep the digests of those objects for which one decides."""
        unknown = self.unknown
        wanted = [
            name
            for name, stored in self.stored.items()
            if not stored.sha256 and name not in unknown and self.expected.wants_digest(name, stored.size_bytes)
        ]
        if not wanted:
            return
        reads = self._context.settings.check == "read"
        self._context.say(f"{'reading' if reads else 'looking at'} {count(len(wanted), 'object')}")
        facts = self._backend.describe([*map(self.location_of, wanted)], reads=reads, cancel=self._context.cancel)
        for name, fact in zip(wanted, facts, strict=True):
            if isinstance(fact, OutputsError):
                self._fail(name, fact)
            elif fact is None:
                del self.stored[name]
            else:
                self.stored[name] = Stored(fact.size_bytes, fact.sha256)

    def _fail(self, name: str, error: OutputsError) -> None:
        self.failed.append(FailedItem(name, self.location_of(name), error))


def _report(context: Context, check: _Check, findings: Sequence[Finding]) -> Report:
    counts = tally(findings)
    result = UploadResult(stored=tuple(_same(check, findings)), failed=tuple(check.failed))
    error = verdict(findings, _unseen(check, result))
    shown, more = rows(findings)
    return Report(
        mode=context.settings.mode,
        subject=single_root(context.target).prefix,
        root=single_root(context.target),
        parts=(_part(check, findings, result),),
        result=result,
        outputs={
            "verified": str(error is None).lower(),
            "same_count": str(counts["same"]),
            "missing_count": str(counts["missing"]),
            "differs_count": str(counts["differs"]),
            "extra_count": str(counts["extra"]),
        },
        notices=(*context.target.notices, *_notices(context, findings)),
        warnings=(*context.warnings, *_warnings(check, findings)),
        error=error,
        verb="checked",
        tables=(Table("Checked", ("State", "Key", "Why"), shown, more),),
    )


def _unseen(check: _Check, result: UploadResult) -> OutputsError | None:
    """The error of what could not be looked at: objects, then records, which are none of the objects."""
    unusable = check.records.failed
    objects = error_of(UploadResult(result.stored, failed=tuple(check.failed[len(unusable) :])), verb="checked")
    if not unusable:
        return objects
    first = unusable[0]
    number = count(len(unusable), "record")
    if objects is not None:
        why = "; ".join(word for word in (objects.why, f"{number} cannot be used, too") if word)
        return reworded(objects, objects.what, why=why, remedy=objects.remedy)
    if len(unusable) == 1:
        return first.error
    return reworded(
        first.error,
        f"{number} of the run cannot be used",
        why=f"the first: {visible(first.path)}: {first.error.why or first.error.what}",
        remedy=first.error.remedy,
    )


def _same(check: _Check, findings: Iterable[Finding]) -> Iterable[StoredObject]:
    for finding in findings:
        if finding.state == "same":
            stored = check.stored[finding.key]
            verified: Verified = "sha256-single" if finding.is_digest_compared else "size-only"
            yield StoredObject(check.location_of(finding.key), stored.size_bytes, stored.sha256, "", verified)


def _part(check: _Check, findings: Sequence[Finding], result: UploadResult) -> Part:
    counts = tally(findings)
    state: PartState = "stored"
    if counts["differs"] or counts["missing"] or result.failed:
        state = "partly" if result.stored else "failed"
    note = in_words(counts)
    unusable = len(check.records.failed)
    if len(result.failed) > unusable:
        note += f", {len(result.failed) - unusable:,} not looked at"
    if unusable:
        note += f", {count(unusable, 'record')} cannot be used"
    return Part("Objects", state, len(result.stored), result.total_bytes, note=note)


def _notices(context: Context, findings: Iterable[Finding]) -> Iterable[str]:
    by_size = sum(map(is_by_size, findings))
    if not by_size:
        return
    which = f"{count(by_size, 'object')}: no SHA-256 was compared"
    if context.settings.check == "size":
        yield f"{which} (check: stored compares those that the service keeps, check: read reads every byte)"
    elif context.settings.check == "stored":
        yield f"{which}, because the service keeps none, or none is known of them (check: read reads every byte)"
    else:
        yield f"{which}, because none is known of them"


def _warnings(check: _Check, findings: Iterable[Finding]) -> Iterable[str]:
    unread = [finding.key for finding in findings if is_by_size(finding) and sidecar_name(finding.key) in check.unknown]
    if unread:
        yield (
            "the bytes of these archives were not compared, because the digests beside them could not be read: "
            f"{some_of(map(visible, unread))}"
        )
    incomplete = [record.name for record in check.records.records if not record.complete]
    if incomplete:
        yield f"these records say that not all was stored: {some_of(map(visible, incomplete))}"
    archives = without_sidecar(check.stored.keys())
    if archives:
        yield f"these archives have no digest beside them: {some_of(map(visible, archives))}"
