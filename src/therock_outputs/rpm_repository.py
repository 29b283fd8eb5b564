"""An rpm repository for dnf, yum and zypper: `x86_64/` with all packages, and `x86_64/repodata/` with their metadata.

createrepo_c reads and writes the metadata. They have keys made of their digests; repomd.xml names them, so a client
that read one repomd.xml gets the files which that one names, whatever is published meanwhile.

A package's href is its file's name as it is, never percent-encoded: dnf takes it for a name and encodes it itself, `+`
(which S3 reads as a space) included, so it asks for `%2B`; where the metadata say `%2B`, it asks for `%252B`.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from _therock_utils._errors import IllegalLocationError, IntegrityError
from _therock_utils._folder import local_file_error
from _therock_utils._keys import quote, segment_fault
from therock_outputs._rpm_file import read_rpm, unsound
from therock_outputs._rpm_metadata import (
    KINDS,
    UnusableError,
    library,
    metadata_error,
    open_metadata,
    package_of_head,
    parse_packages,
    parse_repomd,
    write_metadata,
    write_repomd,
)
from therock_outputs.package_repository import Metadata, MetadataFile, Package, Reference, RepositoryKind, in_order

if TYPE_CHECKING:
    import datetime
    from collections.abc import Iterable, Mapping, Sequence

    from _therock_utils._cancel import CancelToken
    from _therock_utils.storage_location import StorageLocation
    from therock_outputs._rpm_metadata import Kind, RepomdRecord, RpmPackage

POOL: Final = "x86_64"
"""The repository's folder, whatever the architecture of its packages: `noarch` ones are there, too."""

_REPODATA: Final = "repodata"
_GZIP_TYPE: Final = "application/gzip"
_XML_TYPE: Final = "application/xml"
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
# rpm.org, "Spec file format": what rpmbuild allows in these.
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]{0,254}")
_VERSION: Final = re.compile(r"[A-Za-z0-9._+~^]{1,254}")
_EPOCH: Final = re.compile(r"[0-9]{1,10}")
_MAX_EPOCH: Final = 2**31 - 1  # not every tool has room for more
_ARCH: Final = re.compile(r"[A-Za-z0-9_]{1,64}")
# Files made of the others; those of packages that come or go would be wrong.
_DERIVED: Final = re.compile(rf"(?:{'|'.join(KINDS)})(?:_db|_zck|_ext|_ext_zck)?")


class RpmRepository(RepositoryKind):
    """Memory: three times what the metadata have when decompressed, and of a package file its header."""

    def __init__(self, root: StorageLocation) -> None:
        """See RepositoryKind. Raises InputError where createrepo_c cannot be loaded."""
        super().__init__(root)
        library()

    @property
    def extension(self) -> str:
        """See RepositoryKind."""
        return ".rpm"

    @property
    def pool(self) -> StorageLocation:
        """See RepositoryKind."""
        return self.root.child(POOL)

    @property
    def commit(self) -> StorageLocation:
        """See RepositoryKind; repomd.xml."""
        return self.pool.child(f"{_REPODATA}/repomd.xml")

    @property
    def url(self) -> StorageLocation:
        """See RepositoryKind; the folder that has `repodata`."""
        return self.pool

    def inspect(self, path: Path, *, file_name: str, cancel: CancelToken) -> Package:
        """See RepositoryKind. Times are those of the build: when the file was made here says nothing."""
        file = read_rpm(path, file_name=file_name, cancel=cancel)
        try:
            record = package_of_head(file.head)
            record.pkgId, record.checksum_type, record.size_package = file.sha256, "sha256", file.size_bytes
            record.time_file = record.time_build
            return _package(record, file_name)
        except UnusableError as error:
            raise unsound(file_name, str(error)) from error

    def referenced(self, commit: bytes) -> tuple[Reference, ...]:
        """See RepositoryKind; primary.xml, filelists.xml and other.xml, however they are compressed."""
        records = {record.type: record for record in parse_repomd(commit)}
        return tuple(self._reference(kind, records.get(kind)) for kind in KINDS)

    def read(self, files: Mapping[StorageLocation, Path], *, cancel: CancelToken) -> tuple[Package, ...]:
        """See RepositoryKind. Decompresses into the folder that the files are in.

        A package's base URL (`xml:base`, as mergerepo_c writes it) is left out of account: packages are looked for in
        the pool. Those with another digest than SHA-256 are refused.
        """
        folder = next(iter(files.values())).parent if files else None
        opened: dict[Kind, Path] = {}
        try:
            with tempfile.TemporaryDirectory(dir=folder) as scratch:
                for number, location in enumerate(sorted(files, key=lambda location: location.relative_path)):
                    target = Path(scratch, str(number))
                    kind = open_metadata(files[location], target, cancel=cancel)
                    if kind in opened:
                        raise metadata_error("the metadata", f"two files of it are {kind}.xml")
                    opened[kind] = target.rename(Path(scratch, f"{kind}.xml"))  # the name that errors tell
                lacking = [kind for kind in KINDS if kind not in opened]
                if lacking:
                    raise metadata_error("the metadata", f"there is no {lacking[0]}.xml")
                records = parse_packages(opened, cancel=cancel)
        except OSError as error:
            raise local_file_error(folder or Path(tempfile.gettempdir()), "written", error) from error
        try:
            return tuple(_package(record, record.location_href) for record in records)
        except UnusableError as error:
            raise metadata_error("the metadata", str(error)) from error

    def compose(
        self,
        packages: Sequence[Package],
        scratch: Path,
        *,
        previous: bytes | None,
        now: datetime.datetime,
        label: str,
    ) -> Metadata:
        """See RepositoryKind. What `previous` names beside the packages (advisories, groups) stays named.

        `label` becomes a repo tag. Changes the records of `packages`: they get the file names.
        """
        ordered = in_order(packages)
        for package in ordered:
            record = cast("RpmPackage", package.record)
            record.location_href, record.location_base = package.file_name, None
        time_seconds = int(now.timestamp())
        written = [cast("RpmPackage", package.record) for package in ordered]
        records = write_metadata(written, scratch, time_seconds=time_seconds)
        files = tuple(
            MetadataFile(
                self.pool.child(str(record.location_href)),
                Path(scratch, Path(str(record.location_href)).name),
                _GZIP_TYPE,
            )
            for record in records
        )
        old = _records_or_none(previous)
        if previous is not None and old is not None and _names(old, records):
            return Metadata(files, previous, _XML_TYPE)
        others = [record for record in old or () if record.location_href and not _DERIVED.fullmatch(record.type)]
        commit = write_repomd([*records, *others], revision=time_seconds, tag=label)
        return Metadata(files, commit, _XML_TYPE)

    def _reference(self, kind: Kind, record: RepomdRecord | None) -> Reference:
        what = f"repomd.xml's entry {kind}"
        if record is None:
            raise metadata_error(what, "it is missing")
        sha256, size_bytes = record.checksum or "", record.size
        if record.checksum_type != "sha256" or not _SHA256.fullmatch(sha256):
            raise metadata_error(what, "it has no SHA-256")
        if size_bytes <= 0:
            raise metadata_error(what, "it has no size")
        if record.location_base:
            raise metadata_error(what, "it is in another repository")
        try:
            return Reference(self.pool.child(record.location_href or ""), size_bytes, sha256)
        except IllegalLocationError as error:
            raise metadata_error(what, str(error)) from error


def _records_or_none(commit: bytes | None) -> tuple[RepomdRecord, ...] | None:
    """What a commit names; None where there is none, or none that can be read: it is then replaced."""
    try:
        return None if commit is None else parse_repomd(commit)
    except IntegrityError:
        return None


def _names(old: Iterable[RepomdRecord], new: Iterable[RepomdRecord]) -> bool:
    """Whether `old` has each of `new`: kind, place and digest."""
    known = {(record.type, record.location_href, record.checksum_type, record.checksum) for record in old}
    return all((record.type, record.location_href, record.checksum_type, record.checksum) in known for record in new)


def _package(record: RpmPackage, file_name: str) -> Package:
    """`record` as a Package. Raises UnusableError where it says what none may say."""
    fields = (
        ("name", _NAME, record.name),
        ("epoch", _EPOCH, record.epoch or "0"),
        ("version", _VERSION, record.version),
        ("release", _VERSION, record.release),
        ("architecture", _ARCH, record.arch),
    )
    for what, pattern, value in fields:
        if not pattern.fullmatch(value or ""):
            raise UnusableError(f"a package has the {what} {quote(str(value))}")
    if int(record.epoch or "0") > _MAX_EPOCH:
        raise UnusableError(f"the package {record.name} has the epoch {record.epoch}, which is above {_MAX_EPOCH}")
    fault = segment_fault(file_name or "")
    if fault:
        raise UnusableError(f"the package {record.name} is in the file {quote(str(file_name))}: {fault}")
    if record.checksum_type != "sha256" or not _SHA256.fullmatch(record.pkgId or ""):
        raise UnusableError(f"the package {record.name} has no SHA-256")
    version = f"{record.epoch or '0'}:{record.version}-{record.release}"
    return Package((record.name, version, record.arch), file_name, record.size_package, record.pkgId, record)
