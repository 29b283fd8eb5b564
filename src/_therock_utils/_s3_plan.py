"""Decisions of the S3 transfer, without I/O. Sizes are bytes."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from _therock_utils._transfer_types import OnConflict, Origin

MIB: Final = 1024 * 1024
PART_SIZE_BYTES: Final = 8 * MIB
SINGLE_PUT_LIMIT_BYTES: Final = 16 * MIB
"""The largest object that is sent in one request; larger ones go as multipart uploads."""
MAX_PARTS: Final = 10_000
"""Most parts of one multipart upload (Amazon S3 User Guide, "Multipart upload limits")."""
COPY_LIMIT_BYTES: Final = 5 * 1024**3
"""Largest object that CopyObject takes (Amazon S3 API Reference, "CopyObject")."""

ConflictState = Literal["same", "different", "unknown", "rerun"]


def choose_part_size(size_bytes: int) -> int:
    """8 MiB, or the next whole MiB with which `size_bytes` fits into 10,000 parts."""
    if size_bytes <= PART_SIZE_BYTES * MAX_PARTS:
        return PART_SIZE_BYTES
    smallest = -(-size_bytes // MAX_PARTS)
    return -(-smallest // MIB) * MIB


def is_large(size_bytes: int) -> bool:
    """Whether an object goes in parts."""
    return size_bytes > SINGLE_PUT_LIMIT_BYTES


def byte_ranges(size_bytes: int, part_size_bytes: int) -> list[tuple[int, int]]:
    """(start, end) of each part, end exclusive."""
    return [(start, min(start + part_size_bytes, size_bytes)) for start in range(0, size_bytes, part_size_bytes)]


def joined_digest(part_digests: Sequence[bytes]) -> str:
    """Base64 SHA-256 of the joined part digests: S3's composite checksum, without its `-N`.

    Amazon S3 User Guide, "Checking object integrity", composite checksums.
    """
    return base64.b64encode(hashlib.sha256(b"".join(part_digests)).digest()).decode()


def matches_joined_digest(stored: str, part_digests: Sequence[bytes]) -> bool:
    """Whether a ChecksumSHA256 of a HEAD is the joined digest of these parts; `-N` may be missing, but not be wrong."""
    value, dash, count = stored.partition("-")
    return value == joined_digest(part_digests) and (not dash or count == str(len(part_digests)))


def multipart_etag(part_md5s: Sequence[bytes]) -> str:
    """The ETag that S3 usually gives a multipart upload of these parts. A hint only, never a digest."""
    return f"{hashlib.md5(b''.join(part_md5s), usedforsecurity=False).hexdigest()}-{len(part_md5s)}"


@dataclass(frozen=True, slots=True)
class StoredFacts:
    """What a HEAD says of an object: its size, ChecksumSHA256 ("" where not kept) and metadata `therock-origin`."""

    size_bytes: int
    checksum_sha256: str
    origin: str


@dataclass(frozen=True, slots=True)
class LocalDigests:
    """Digests of local bytes: SHA-256 of all and of each part as an upload cuts them, and the ETag it probably gets."""

    sha256: bytes
    part_sha256s: tuple[bytes, ...]
    etag: str


def compare(
    local_size_bytes: int, local: LocalDigests | None, stored: StoredFacts
) -> Literal["same", "different", "unknown"]:
    """Whether the stored bytes are the local ones. Equal sizes without a comparable checksum are `unknown`."""
    if local_size_bytes != stored.size_bytes:
        return "different"
    if local is None or not stored.checksum_sha256:
        return "unknown"
    if stored.checksum_sha256 == base64.b64encode(local.sha256).decode():
        return "same"
    if matches_joined_digest(stored.checksum_sha256, local.part_sha256s):
        return "same"
    _, dash, count = stored.checksum_sha256.partition("-")
    # Parts cut by another program, or in another number, say nothing about the bytes.
    if dash and (not stored.origin or count != str(len(local.part_sha256s))):
        return "unknown"
    return "different"


def is_earlier_attempt(stored_origin: str, origin: Origin | None) -> bool:
    """Whether `stored_origin` (`run/job/attempt`) is the same run and job as `origin`, in an earlier attempt."""
    if origin is None or not stored_origin:
        return False
    owner, _, attempt = stored_origin.rpartition("/")
    if owner != f"{origin.run_id}/{origin.job}" or not (_is_number(attempt) and _is_number(origin.attempt)):
        return False
    return int(attempt) < int(origin.attempt)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10  # noqa: PLR2004 - an attempt has few digits


def decide_state(
    local_size_bytes: int, local: LocalDigests | None, stored: StoredFacts, origin: Origin | None
) -> ConflictState:
    """The state of a key that is taken by the object that `stored` describes."""
    compared = compare(local_size_bytes, local, stored)
    if compared != "same" and is_earlier_attempt(stored.origin, origin):
        return "rerun"
    return compared


def decide_action(
    state: Literal["different", "unknown", "rerun"], on_conflict: OnConflict
) -> Literal["overwritten", "skipped", "refused"]:
    """What to do with a key in conflict: an earlier attempt of the same job is always overwritten."""
    if state == "rerun" or on_conflict == "overwrite":
        return "overwritten"
    return "skipped" if on_conflict == "skip" else "refused"


@dataclass(frozen=True, slots=True)
class ListingWindow:
    """One listing: below `prefix` ("" or a folder without its slash), keys behind `after`, up to and with `last`."""

    prefix: str
    after: str
    last: str


def listing_windows(keys: Iterable[str]) -> list[ListingWindow]:
    """The listings that meet every key: one below their common folder, or one a top folder where they share none.

    The bucket's root holds every run's outputs, so it is never listed whole.
    """
    by_top: dict[str, list[str]] = {}
    for key in keys:
        top, slash, _ = key.partition("/")
        by_top.setdefault(top + slash, []).append(key)
    return [
        ListingWindow(common_folder(group), just_before(min(group, key=str.encode)), max(group, key=str.encode))
        for _, group in sorted(by_top.items())
    ]


def just_before(key: str) -> str:
    """A key that sorts before `key`, with little between: without its last character, "" where a folder is left."""
    shorter = key[:-1]
    return "" if not shorter or shorter.endswith("/") else shorter


def common_folder(keys: Sequence[str]) -> str:
    """The longest folder that holds all `keys`, "" for the root."""
    folders = [key.split("/")[:-1] for key in keys]
    shared = min(folders, key=len)
    for folder in folders:
        length = next(
            (at for at, (left, right) in enumerate(zip(shared, folder, strict=False)) if left != right), len(shared)
        )
        shared = shared[:length]
    return "/".join(shared)
