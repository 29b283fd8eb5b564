"""What is looked at before anything is downloaded: digests, and room on the disk."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from _therock_utils._errors import IntegrityError, LocalFileError, NotFoundError, OutputsError
from _therock_utils._sidecar import MAX_SIDECAR_BYTES, sidecar_name
from _therock_utils._transfer_types import FailedItem
from therock_outputs.modes._fetch_plan import digest_in
from therock_outputs.modes._selectors import some_of
from therock_outputs.run_target import single_root
from therock_outputs.text_safety import count

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from _therock_utils.storage_backend import StorageBackend
    from therock_outputs.context import Context
    from therock_outputs.modes._fetch_pipeline import Destination
    from therock_outputs.modes._fetch_plan import RunContents, Wanted

_NO_DIGEST: Final = "Store its .sha256sum beside it, or leave out require_digest."


@dataclass(frozen=True, slots=True)
class Checked:
    """Archives that may be fetched, those that may not, and what to say of the digests."""

    wanted: tuple[Wanted, ...] = ()
    failed: tuple[FailedItem, ...] = ()
    warnings: tuple[str, ...] = ()


def check_digests(
    context: Context, backend: StorageBackend, wanted: Sequence[Wanted], contents: RunContents
) -> Checked:
    """Read the sidecars that the listing shows."""
    root = single_root(context.target)
    names = {item.name: sidecar_name(item.name) for item in wanted}
    digests: dict[str, str | OutputsError] = {}
    readable = []
    for item in wanted:
        size_bytes = contents.sidecars.get(names[item.name])
        if size_bytes is None:
            if context.settings.require_digest:
                digests[item.name] = NotFoundError(
                    f"{item.name} has no digest", why=f"there is no {names[item.name]}", remedy=_NO_DIGEST
                )
        elif size_bytes > MAX_SIDECAR_BYTES:
            digests[item.name] = IntegrityError(f"{names[item.name]} is no digest", why=f"it has {size_bytes} bytes")
        else:
            readable.append(item)
    answers = backend.read_all_small([root.artifact(names[item.name]) for item in readable], cancel=context.cancel)
    digests |= {item.name: digest_in(answer, item) for item, answer in zip(readable, answers, strict=True)}
    sound, failed, without = [], [], []
    for item in wanted:
        digest = digests.get(item.name, "")
        if isinstance(digest, OutputsError):
            failed.append(FailedItem(item.name, item.location, digest))
            continue
        sound.append(dataclasses.replace(item, sha256=digest))
        if not digest:
            without.append(item.name)
    return Checked(tuple(sound), tuple(failed), _warning_of_digests(without))


def _warning_of_digests(without: Sequence[str]) -> tuple[str, ...]:
    if not without:
        return ()
    have = "has" if len(without) == 1 else "have"
    return (f"{count(len(without), 'archive')} {have} no .sha256sum, so only sizes are checked: {some_of(without)}",)


def check_space(wanted: Sequence[Wanted], destination: Destination) -> str:
    """Raise LocalFileError where a file system has less room than the archives need, and as much again to extract.

    Returns why nothing can be added to the cache, where only the cache's file system has too little room, or "".
    """
    needed: defaultdict[int, int] = defaultdict(int)
    output = _existing(destination.output_dir)
    output_device = output.stat().st_dev
    folders = {output_device: output}

    def need(folder: Path, size_bytes: int) -> None:
        there = _existing(folder)
        device = there.stat().st_dev
        needed[device] += size_bytes
        folders.setdefault(device, there)

    cache = destination.cache
    for item in wanted:
        if cache is None or not item.sha256:
            need(destination.output_dir, item.size_bytes)
        elif not cache.has(cache.path_of(item.sha256, item.extension)):
            need(cache.folder, item.size_bytes)
        if destination.extract != "none" or (cache is not None and item.sha256):
            need(destination.output_dir, item.size_bytes)
    no_room_in_cache = ""
    for device, size_bytes in needed.items():
        free_bytes = shutil.disk_usage(folders[device]).free
        if free_bytes < size_bytes:
            what = f"there is too little room in {str(folders[device])!a}"
            why = f"{size_bytes:,} bytes are needed at least, and {free_bytes:,} are free"
            if device == output_device:
                remedy = "Free some space there, or choose folders on another file system."
                raise LocalFileError(what, why=why, remedy=remedy)
            no_room_in_cache = f"{what} ({why})"
    return no_room_in_cache


def _existing(folder: Path) -> Path:
    """`folder`, or the nearest around it that is there."""
    return next(path for path in (folder, *folder.parents) if os.path.exists(path))  # noqa: PTH110 - False, too, where it may not be looked at
