"""What a tar archive may hold, and why the rest is refused: nothing in an archive is trusted.

tarfile parses the headers (POSIX.1-2008 "pax", GNU long names), from a stream that is read once.
"""

from __future__ import annotations

import re
import tarfile
from bisect import bisect_left
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, cast

from _therock_utils._errors import IntegrityError, LocalFileError
from _therock_utils._folder import check_names
from _therock_utils._keys import quote, segment_fault
from therock_outputs._tar_stream import damaged

if TYPE_CHECKING:
    from collections.abc import Iterator

    from therock_outputs._tar_stream import TarStream

BLOCK_BYTES: Final = 512
MAX_HEADER_BYTES: Final = 1024 * 1024
"""Most that the headers of one member may take together: its pax records and long names are held in memory."""

MAX_NAME_BYTES: Final = 4096
MAX_SEGMENT_BYTES: Final = 255
"""NAME_MAX of every file system that artifacts are made on."""

MAX_DEPTH: Final = 256
MANIFEST: Final = "artifact_manifest.txt"
MAX_MANIFEST_BYTES: Final = 1024 * 1024

_MAX_HEADER_READS: Final = 64  # headers of headers are read recursively
_PAX_TYPES: Final = frozenset({tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE})
_BODY_TYPES: Final = _PAX_TYPES | {tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK}
_PAX_RECORD: Final = re.compile(rb"([0-9]{1,7}) ([^=]{1,1024})=")
_PAX_KEPT: Final = frozenset({b"path", b"linkpath", b"size", b"mtime", b"hdrcharset", b"GNU.sparse.name"})
_SPECIAL_BITS: Final = 0o7000
_OWNER_EXECUTES: Final = 0o100
_LAST_SECOND: Final = 253_402_300_799  # of the year 9999
_DRIVE: Final = re.compile(r"[A-Za-z]:")
_BAD_HEADERS: Final = (tarfile.TarError, ValueError, LookupError, OverflowError)
_REFUSED_TYPES: Final = {
    tarfile.CHRTYPE: "a device",
    tarfile.BLKTYPE: "a device",
    tarfile.FIFOTYPE: "a named pipe",
    tarfile.GNUTYPE_SPARSE: "a sparse file",
}


class HostileArchiveError(IntegrityError):
    """An archive with a member that no honest one has: `member` is its name as it is, `rule` what is wrong."""

    def __init__(self, archive: Path, member: str, rule: str, *, remedy: str = "") -> None:
        honest = "Find out who made it; an honest archive of such files must be made again."
        super().__init__(
            f"the archive {quote(archive.name)} is refused for its member {quote(member)}",
            why=rule,
            remedy=f"Nothing of it was kept. {remedy or honest}",
        )
        self.member = member
        self.rule = rule


class Kind(Enum):
    """What a member is."""

    FILE = "file"
    FOLDER = "folder"
    SYMBOLIC_LINK = "symbolic link"
    HARD_LINK = "hard link"


_KEPT_TYPES: Final = {
    tarfile.REGTYPE: Kind.FILE,
    tarfile.AREGTYPE: Kind.FILE,
    tarfile.DIRTYPE: Kind.FOLDER,
    tarfile.SYMTYPE: Kind.SYMBOLIC_LINK,
    tarfile.LNKTYPE: Kind.HARD_LINK,
}


@dataclass(frozen=True, slots=True)
class Member:
    """One member that keeps all rules which it can keep or break alone.

    `name` as the archive has it; `segments` of it are legal, none for the archive's root folder. `size_bytes` of
    content follow (files only), `header_bytes` came before. `target` of a symbolic link as it is, `source` the segments
    of the file that a hard link names. `modified_seconds` is 0 where no time is recorded.
    """

    name: str
    kind: Kind
    segments: tuple[str, ...]
    size_bytes: int = 0
    header_bytes: int = BLOCK_BYTES
    is_executable: bool = False
    modified_seconds: float = 0
    target: str = ""
    source: tuple[str, ...] = ()


def read_members(archive: Path, stream: TarStream) -> Iterator[Member]:
    """The members in their order. After each, the caller reads its `size_bytes` from `stream`, and nothing else.

    Raises HostileArchiveError, and IntegrityError for a header that cannot be read or is missing.
    """
    headers = _HeaderSource(archive, stream)
    parser: _Parser | None = None
    while headers.begin():
        try:
            if parser is None:
                parser = _Parser(
                    fileobj=cast("IO[bytes]", headers), mode="r", encoding="utf-8", errors="surrogateescape"
                )
            else:
                parser.next()
        except _BAD_HEADERS as error:
            raise damaged(archive, f"a header of the tar archive cannot be read: {error}") from error
        member = _checked_member(archive, parser.current, headers)
        yield member
        stream.skip(-member.size_bytes % BLOCK_BYTES)


class Subtrees:
    """The folders that an artifact's manifest lists, outside of which the artifact has nothing.

    `names` are they as the manifest writes them, in its order.
    """

    def __init__(self, by_segments: dict[tuple[str, ...], str]) -> None:
        self.names = tuple(by_segments.values())
        self._roots = frozenset(by_segments)
        self._ordered = sorted(by_segments)

    @classmethod
    def parse(cls, archive: Path, data: bytes) -> Subtrees:
        """Of an artifact_manifest.txt: a relative path a line, line ends of any platform, empty lines left out.

        Raises HostileArchiveError where a line is no path of a folder below the archive's root (so "." is none, and
        neither is the manifest itself), and where one subtree is listed twice or lies in another.
        """
        try:
            text = data.decode()
        except UnicodeDecodeError:
            raise HostileArchiveError(archive, MANIFEST, "it is not UTF-8") from None
        found: dict[tuple[str, ...], str] = {}
        for line in text.split("\n"):
            subtree = line.removesuffix("\r")
            segments = tuple(subtree.split("/"))
            if subtree:
                fault = "it is listed twice" if segments in found else _segments_fault(subtree, segments)
                fault = "it is the manifest itself, and no folder" if segments[0] == MANIFEST else fault
                if fault:
                    raise HostileArchiveError(archive, MANIFEST, f"it lists {quote(subtree)}: {fault}")
                found[segments] = subtree
        subtrees = cls(found)
        for segments, subtree in found.items():
            outer = subtrees._depth(segments[:-1])
            if outer:
                around = quote(found[segments[:outer]])
                raise HostileArchiveError(archive, MANIFEST, f"it lists {quote(subtree)}, and {around} around it")
        return subtrees

    def fault_of(self, member: Member) -> str:
        """Why `member` cannot be in an artifact of these subtrees, or ""."""
        segments = member.segments
        depth = self._depth(segments)
        if not depth:
            is_above = member.kind is Kind.FOLDER and self._is_above_one(segments)
            return "" if is_above else f"it is in no subtree that {MANIFEST} lists"
        if depth == len(segments) and member.kind is not Kind.FOLDER:
            return f"it is a {member.kind.value}, and {MANIFEST} lists it as a folder"
        if member.kind is Kind.SYMBOLIC_LINK and _climbs(member.target) >= len(segments) - depth:
            return f"it is a symbolic link that leads out of its subtree, to {quote(member.target)}"
        return ""

    def _depth(self, segments: tuple[str, ...]) -> int:
        """How many of the segments name the subtree that they are in; 0 where they are in none."""
        return next((end for end in range(1, len(segments) + 1) if segments[:end] in self._roots), 0)

    def _is_above_one(self, segments: tuple[str, ...]) -> bool:
        first = bisect_left(self._ordered, segments)
        return first < len(self._ordered) and self._ordered[first][: len(segments)] == segments


class _HeaderSource:
    """The file that tarfile reads headers from: bounded for each member, and nothing can be sought in it.

    Of pax records it gives only those that matter here: in Python before 3.11.10 a few bytes of them could fill the
    memory, and take a time that grows with the square of their size (CVE-2024-6232).
    """

    def __init__(self, archive: Path, stream: TarStream) -> None:
        self._archive = archive
        self._stream = stream
        self._reads = 0
        self._body_type = b""  # of the header whose body is read next
        self.read_bytes = 0
        self.is_sparse = False

    def begin(self) -> bool:
        """Whether another member's headers follow, not the end mark (a block of zeros)."""
        self._reads = self.read_bytes = 0
        self._body_type, self.is_sparse = b"", False
        block = self._stream.read(BLOCK_BYTES)
        if block == bytes(BLOCK_BYTES):
            return False
        self._stream.push_back(block)
        return True

    def tell(self) -> int:
        return self._stream.tell()

    def read(self, size_bytes: int = -1) -> bytes:
        self._reads += 1
        if size_bytes < 0:
            raise damaged(self._archive, "a header of the tar archive has a negative size")
        self.read_bytes += size_bytes
        if self.read_bytes > MAX_HEADER_BYTES or self._reads > _MAX_HEADER_READS:
            raise HostileArchiveError(
                self._archive, f"at byte {self._stream.tell()}", f"its headers take more than {MAX_HEADER_BYTES} bytes"
            )
        data = self._stream.read(size_bytes)
        body_type, self._body_type = self._body_type, b""
        if body_type in _PAX_TYPES:
            return self._without_needless_records(data)
        if not body_type and data[156:157] in _BODY_TYPES:  # the type's place in a header
            self._body_type = data[156:157]
        return data

    def _without_needless_records(self, body: bytes) -> bytes:
        """The pax records that are kept, the last of each keyword (POSIX.1-2008, pax, "Extended Header"), and zeros."""
        kept: dict[bytes, bytes] = {}
        start = 0
        while start < len(body) and body[start]:
            match = _PAX_RECORD.match(body, start)
            end = start + int(match[1]) if match else 0
            if match is None or not match.end() < end <= len(body) or body[end - 1 : end] != b"\n":
                raise damaged(self._archive, f"a pax header of the tar archive cannot be read at byte {start} of it")
            keyword = match[2]
            self.is_sparse |= keyword.startswith(b"GNU.sparse.")
            if keyword in _PAX_KEPT:
                if end - match.end() - 1 > MAX_NAME_BYTES:
                    name = body[match.end() : end - 1].decode("utf-8", "surrogateescape")
                    raise HostileArchiveError(self._archive, name, f"its name has more than {MAX_NAME_BYTES} bytes")
                kept[keyword] = body[start:end]
            start = end
        return b"".join(kept.values()).ljust(len(body), b"\0")


class _Parser(tarfile.TarFile):
    """tarfile's parser without its memory of earlier members, and without its tolerance for damage after the first."""

    current: tarfile.TarInfo

    def next(self) -> tarfile.TarInfo:  # the base class calls it once when it is made
        self.current = tarfile.TarInfo.fromtarfile(self)
        return self.current


def _checked_member(archive: Path, header: tarfile.TarInfo, headers: _HeaderSource) -> Member:
    segments = _without_dots(header.name)
    is_sparse = headers.is_sparse or header.issparse()
    kind = None if is_sparse else _KEPT_TYPES.get(header.type)
    fault = _name_fault(header.name, segments)
    if fault:
        raise HostileArchiveError(archive, header.name, fault)
    if kind is None:
        rule = f"it is {'a sparse file' if is_sparse else _REFUSED_TYPES.get(header.type, 'of an unknown type')}"
        raise HostileArchiveError(archive, header.name, rule)
    fault = _mode_fault(header, kind) or _link_fault(header, kind, segments)
    if not segments and kind is not Kind.FOLDER:
        fault = "it has an empty name"
    if fault:
        raise HostileArchiveError(archive, header.name, fault)
    if header.size < 0:
        raise damaged(archive, f"the member {quote(header.name)} has a negative size")
    is_recorded = 0 < header.mtime <= _LAST_SECOND
    return Member(
        header.name,
        kind,
        segments,
        size_bytes=header.size if kind is Kind.FILE else 0,
        header_bytes=headers.read_bytes,
        is_executable=bool(header.mode & _OWNER_EXECUTES),
        modified_seconds=header.mtime if is_recorded else 0,
        target=header.linkname if kind is Kind.SYMBOLIC_LINK else "",
        source=_without_dots(header.linkname) if kind is Kind.HARD_LINK else (),
    )


def _without_dots(name: str) -> tuple[str, ...]:
    return tuple(segment for segment in name.split("/") if segment not in {"", "."})


def _name_fault(name: str, segments: tuple[str, ...]) -> str:
    if not name:
        return "it has an empty name"
    if name.startswith("/"):
        return "its name is an absolute path"
    return _segments_fault(name, segments)


def _segments_fault(name: str, segments: tuple[str, ...]) -> str:
    """Why no file can have this relative path, on any platform that the tool runs on; or ""."""
    if len(name.encode("utf-8", "surrogatepass")) > MAX_NAME_BYTES:
        return f"its name has more than {MAX_NAME_BYTES} bytes"
    if len(segments) > MAX_DEPTH:
        return f"its name has more than {MAX_DEPTH} segments"
    fault = next((fault for segment in segments if (fault := _segment_fault(segment))), "")
    if fault:
        return fault
    if segments and _DRIVE.match(segments[0]):
        return "its name begins with a drive letter"
    try:
        check_names(Path(), segments)
    except LocalFileError as error:
        return error.why
    return ""


def _segment_fault(segment: str) -> str:
    if len(segment.encode("utf-8", "surrogatepass")) > MAX_SEGMENT_BYTES:
        return f"its name has a segment of more than {MAX_SEGMENT_BYTES} bytes"
    return segment_fault(segment)


def _mode_fault(header: tarfile.TarInfo, kind: Kind) -> str:
    if kind in {Kind.FILE, Kind.HARD_LINK} and header.mode & _SPECIAL_BITS:
        return "it has a setuid, setgid or sticky bit"
    return ""


def _link_fault(header: tarfile.TarInfo, kind: Kind, segments: tuple[str, ...]) -> str:
    target = header.linkname
    if kind is Kind.HARD_LINK:
        fault = _name_fault(target, _without_dots(target))
        return f"it is a hard link to {quote(target)}, which cannot be in an archive" if fault else ""
    if kind is not Kind.SYMBOLIC_LINK:
        return ""
    what = f"it is a symbolic link to {quote(target)}, which"
    steps = _without_dots(target)
    climbs = _climbs(target)
    faults = (
        (not target, "is empty"),
        (target.startswith("/") or bool(_DRIVE.match(target)), "is an absolute path"),
        (len(target.encode("utf-8", "surrogatepass")) > MAX_NAME_BYTES, f"has more than {MAX_NAME_BYTES} bytes"),
        (any(_segment_fault(step) for step in steps if step != ".."), "no file can be called"),
        (climbs >= len(segments), "leads out of the archive's tree"),
        (".." in steps[climbs:], "has a '..' after a name, and that may be another link"),
    )
    fault = next((fault for is_fault, fault in faults if is_fault), "")
    return f"{what} {fault}" if fault else ""


def _climbs(target: str) -> int:
    """How many levels a link's target goes up before it goes down."""
    steps = _without_dots(target)
    return next((index for index, step in enumerate(steps) if step != ".."), len(steps))
