"""What a run should hold, by its records and digests, compared with what is stored. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal

from _therock_utils._errors import IntegrityError, NotFoundError
from _therock_utils._sidecar import MAX_SIDECAR_BYTES, parse_sidecar, sidecar_name
from _therock_utils.artifact_names import EXTENSIONS, SIDECAR_EXTENSION
from _therock_utils.workflow_outputs import PACKAGE_NAMES
from therock_outputs.text_safety import count, visible

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from _therock_utils._errors import OutputsError
    from therock_outputs.run_records import RecordedObject, RunRecord

State = Literal["differs", "missing", "extra", "same"]
SYMBOLS: Final[Mapping[State, str]] = {"differs": "*", "missing": "-", "extra": "+", "same": "="}
"""The states, what needs a look first, and their signs."""

MAX_ROWS: Final = 200
_LIST: Final = "index.json"
_NAME_RECORDS: Final = f"reports/{PACKAGE_NAMES}/"
_PAGES: Final = ("index.html", _LIST)
_SHOWN_DIGESTS: Final = 3
_UNREAD: Final = "the digest beside it could not be read, so its bytes were not compared"


@dataclass(frozen=True, slots=True)
class Stored:
    """What is stored under a key. `sha256`: "" where it is not known."""

    size_bytes: int
    sha256: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """What came of one object; `why` is for people. `is_digest_compared`: all its bytes are vouched for."""

    state: State
    key: str
    why: str = ""
    is_digest_compared: bool = False


@dataclass(frozen=True, slots=True)
class Expected:
    """What a run should hold: recorded objects by name, and the digest in each sidecar that is there, by its name.

    Names are relative to the run. A digest is None where the sidecar was not read, "" where it holds none of its file.
    """

    records: Mapping[str, tuple[RecordedObject, ...]] = field(default_factory=dict)
    digests: Mapping[str, str | None] = field(default_factory=dict)

    def wants_digest(self, name: str, size_bytes: int) -> bool:
        """Whether a digest of the object stored as `name`, with this size, would decide anything."""
        claims, said = self.records.get(name), self.digests.get(sidecar_name(name))
        if claims is None:
            return bool(said)
        return any(claim.size_bytes == size_bytes and (claim.sha256 or said) for claim in claims)


def by_name(records: Iterable[RunRecord], *, prefix: str) -> dict[str, tuple[RecordedObject, ...]]:
    """Each object that `records` name, by its name in the run of `prefix`, and all that they say of it."""
    claims: dict[str, tuple[RecordedObject, ...]] = {}
    for record in records:
        for claim in record.objects:
            name = claim.key[len(prefix) + 1 :]
            known = claims.get(name, ())
            if claim not in known:
                claims[name] = (*known, claim)
    return claims


def is_sidecar(name: str) -> bool:
    """Whether the object `name`, relative to the run, is the digest of an artifact file: directly in the run."""
    return "/" not in name and name.endswith(SIDECAR_EXTENSION) and name != SIDECAR_EXTENSION


def file_of(sidecar: str) -> str:
    """The name of the file whose digest `sidecar` holds."""
    return sidecar.removesuffix(SIDECAR_EXTENSION)


def digest_in(data: bytes, sidecar: str) -> str:
    """The digest that the sidecar of this name holds, "" where it is none of its file's."""
    return parse_sidecar(data, name=file_of(sidecar))


def is_too_long(size_bytes: int) -> bool:
    """Whether no sidecar has so many bytes, so that it need not be read."""
    return size_bytes > MAX_SIDECAR_BYTES


def without_sidecar(names: Collection[str]) -> tuple[str, ...]:
    """The archives directly in the run beside which no digest lies, sorted."""
    archives = [name for name in names if "/" not in name and name.endswith(EXTENSIONS)]
    return tuple(sorted(name for name in archives if sidecar_name(name) not in names))


def compare(
    expected: Expected, stored: Mapping[str, Stored], *, records: Collection[str], unknown: Collection[str] = ()
) -> tuple[Finding, ...]:
    """A finding for each object that is expected or stored, trouble first, then in key order.

    `records` are the names of the run's records, which nobody expects; `unknown` those of objects that could not be
    looked at, which get no finding.
    """
    unknown = frozenset(unknown)
    names = {*expected.records, *map(file_of, expected.digests), *stored} - set(records) - unknown
    # Mode index removes the pages of a folder that holds nothing else any more, and a list that would become too large.
    folders = {"", *(folder for name in stored for folder in _folders_of(name))}
    names -= {
        name
        for name in names - set(stored)
        if _is_page(name) and (name.rpartition("/")[0] not in folders or name.endswith(_LIST))
    }
    findings = [_compare(name, expected, stored) for name in names]
    kept = [
        replace(finding, why=_UNREAD) if is_by_size(finding) and sidecar_name(finding.key) in unknown else finding
        for finding in findings
        if finding is not None
    ]
    order = list(SYMBOLS)
    return tuple(sorted(kept, key=lambda finding: (order.index(finding.state), finding.key.encode())))


def _is_page(name: str) -> bool:
    return name.rpartition("/")[2] in _PAGES


def _folders_of(name: str) -> Iterator[str]:
    """The folders below the run's that an object lies in."""
    while name := name.rpartition("/")[0]:
        yield name


def is_by_size(finding: Finding) -> bool:
    """Whether it counts as the same without a look at its bytes."""
    return finding.state == "same" and not finding.is_digest_compared


def _compare(name: str, expected: Expected, stored: Mapping[str, Stored]) -> Finding | None:
    claims, found = expected.records.get(name, ()), stored.get(name)
    if found is None:
        return Finding("missing", name, "a record names it" if claims else f"{visible(sidecar_name(name))} is there")
    if name in expected.digests:
        return _compare_sidecar(name, expected, found, stored.get(file_of(name)))
    said = expected.digests.get(sidecar_name(name))
    if claims:
        finding = _compare_with_records(name, claims, found)
        # Records that know no digest leave it to the sidecar.
        return _compare_with_sidecar(name, said, found) if is_by_size(finding) and said and found.sha256 else finding
    if sidecar_name(name) in expected.digests:
        return _compare_with_sidecar(name, said, found)
    # The server makes such pages, or a step of mode index that ended before it left its record; and names are reserved
    # before there is a package.
    if _is_page(name) or name.startswith(_NAME_RECORDS):
        return None
    return Finding("extra", name, "no record names it")


def _compare_with_records(name: str, claims: Sequence[RecordedObject], found: Stored) -> Finding:
    """The same if one of the claims is true: two jobs can have written it."""
    of_this_size = [claim for claim in claims if claim.size_bytes == found.size_bytes]
    if not of_this_size:
        sizes = " or ".join(f"{size_bytes:,}" for size_bytes in sorted({claim.size_bytes for claim in claims}))
        return Finding("differs", name, f"it has {found.size_bytes:,} bytes, and {sizes} were recorded")
    digests = {claim.sha256 for claim in of_this_size}
    if not found.sha256 or digests == {""}:
        return Finding("same", name, "only its size was compared")
    if found.sha256 in digests:
        return Finding("same", name, is_digest_compared=True)
    if "" in digests:
        return Finding("same", name, "only its size was compared")
    return Finding("differs", name, f"its SHA-256 is {found.sha256}, and {_any_of(digests)} was recorded")


def _compare_with_sidecar(name: str, digest: str | None, found: Stored) -> Finding:
    """An archive of which no record has a digest."""
    if not digest or not found.sha256:
        return Finding("same", name, "it is there; no digest of it was compared")
    if digest == found.sha256:
        return Finding("same", name, is_digest_compared=True)
    return Finding("differs", name, f"its SHA-256 is {found.sha256}, and its sidecar says {digest}")


def _compare_sidecar(name: str, expected: Expected, found: Stored, archive: Stored | None) -> Finding:
    """A sidecar: as any object, and what it says of its file."""
    claims, digest = expected.records.get(name, ()), expected.digests[name]
    finding = _compare_with_records(name, claims, found) if claims else _sidecar_alone(name, digest)
    if finding.state == "differs" or digest is None:
        return finding
    if not digest:
        return Finding("differs", name, f"it holds no SHA-256 of {visible(file_of(name))}")
    if archive is not None and digest == archive.sha256 and _is_recorded(file_of(name), expected, archive):
        return finding
    trusted = _digests_of(expected.records.get(file_of(name), ()), archive)
    if trusted and digest not in trusted:
        return Finding("differs", name, f"it says {digest}, and the SHA-256 of its file is {_any_of(trusted)}")
    return finding


def _is_recorded(name: str, expected: Expected, found: Stored) -> bool:
    """Whether what is stored as `name` is what a record says, as far as its records say anything."""
    claims = expected.records.get(name, ())
    return not claims or _compare_with_records(name, claims, found).state == "same"


def _sidecar_alone(name: str, digest: str | None) -> Finding:
    return Finding("same", name, "it was not read" if digest is None else "", is_digest_compared=digest is not None)


def _digests_of(claims: Sequence[RecordedObject], archive: Stored | None) -> set[str]:
    """The digests that an archive's sidecar may hold; none where they are not known.

    An archive of which no record has a digest is itself measured by its sidecar. One that is none of those recorded is
    what differs itself, and its sidecar is measured by the records.
    """
    recorded = {claim.sha256 for claim in claims} - {""}
    if archive is None:
        return recorded
    if archive.sha256 in recorded:
        return {archive.sha256}
    return {claim.sha256 for claim in claims if claim.size_bytes == archive.size_bytes} - {""} or recorded


def tally(findings: Iterable[Finding]) -> Counter[State]:
    """How many objects are in each state."""
    return Counter(finding.state for finding in findings)


def rows(findings: Sequence[Finding]) -> tuple[tuple[tuple[str, str, str], ...], int]:
    """Sign, key and why of the first MAX_ROWS findings, and the number of the others."""
    shown = tuple((SYMBOLS[finding.state], finding.key, finding.why) for finding in findings[:MAX_ROWS])
    return shown, len(findings) - len(shown)


def in_words(counts: Mapping[State, int]) -> str:
    """`5 same, 1 missing`: the states that there are."""
    order: tuple[State, ...] = ("same", "missing", "differs", "extra")
    return ", ".join(f"{counts[state]:,} {state}" for state in order if counts.get(state)) or "nothing"


def verdict(findings: Sequence[Finding], unseen: OutputsError | None) -> OutputsError | None:
    """The error that `findings` are, if any: IntegrityError where one differs, NotFoundError where some are missing.

    `unseen` is why something could not be looked at; it is worse than what is missing.
    """
    counts = tally(findings)
    if not counts["differs"]:
        if unseen is not None or not counts["missing"]:
            return unseen
        missing = list(_of(findings, "missing"))
        return NotFoundError(
            f"{count(len(missing), 'object')} of the run {'is' if len(missing) == 1 else 'are'} missing",
            why=f"the first: {_told(missing[0])}",
            remedy="Run the step again that stored them, or correct what removes them.",
        )
    differing = next(_of(findings, "differs"))
    notes = [f"the first: {_told(differing)}"]
    if counts["missing"]:
        notes.append(f"{count(counts['missing'], 'object')} missing, too")
    if unseen is not None:
        notes.append(f"not all could be looked at: {unseen.what}")
    return IntegrityError(
        f"{count(counts['differs'], 'object')} of the run {'is' if counts['differs'] == 1 else 'are'} not what "
        "records and digests say",
        why="; ".join(notes),
        remedy="Find out who wrote them last (metadata therock-origin), and run the step again that made them.",
    )


def _of(findings: Iterable[Finding], state: State) -> Iterator[Finding]:
    return (finding for finding in findings if finding.state == state)


def _told(finding: Finding) -> str:
    return f"{visible(finding.key)}: {finding.why}"


def _any_of(digests: Iterable[str]) -> str:
    """`a or b`: the first few of `digests`."""
    digests = sorted(digests)
    more = len(digests) - _SHOWN_DIGESTS
    return " or ".join(digests[:_SHOWN_DIGESTS]) + (f" or one of {more:,} more" if more > 0 else "")
