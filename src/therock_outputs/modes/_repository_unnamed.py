"""Files of a pool that no metadata name: left by a crash, about to be named, or all when metadata are lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from _therock_utils._errors import IntegrityError
from therock_outputs.batching import batches
from therock_outputs.report import in_one_line
from therock_outputs.text_safety import count

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from therock_outputs.modes._repository_state import StateReader
    from therock_outputs.package_repository import Package, PoolFile

MAX_BATCH_FILES: Final = 16
MAX_BATCH_BYTES: Final = 2**30
"""What is fetched at once to a temporary folder, unless one file alone is larger."""

SHOWN: Final = 3
_Looked = dict["PoolFile", "Package | IntegrityError | None"]


class UnnamedFiles:
    """Looks into such files, into each once however many rounds there are."""

    def __init__(self, say: Callable[[str], None]) -> None:
        """`say` tells people what takes its time."""
        self._say = say
        self._looked: _Looked = {}

    @property
    def unsound(self) -> tuple[str, ...]:
        """What is wrong with those that are no sound packages, in the order of their names."""
        bad = ((file, answer) for file, answer in self._looked.items() if isinstance(answer, IntegrityError))
        return tuple(
            f"{file.name} in the repository is left out of its metadata: {in_one_line(error)}"
            for file, error in sorted(bad, key=lambda pair: pair[0].name)
        )

    def found(
        self, reader: StateReader, groups: Sequence[Sequence[PoolFile]], folder: Path
    ) -> tuple[tuple[PoolFile, Package], ...]:
        """Of each group the first file that is a sound package. Raises OutputsErrors where one cannot be fetched.

        The first files of all groups are fetched in batches, then the next ones of those groups that need them.
        """
        found: list[tuple[PoolFile, Package]] = []
        left = [group for group in groups if group]
        while left:
            self._look(reader, [group[0] for group in left], folder)
            answers = [(group[0], self._looked[group[0]]) for group in left]
            sound = [(file, answer) for file, answer in answers if not isinstance(answer, IntegrityError | None)]
            done = {file for file, _ in sound}
            found += sound
            left = [group[1:] for group in left if group[0] not in done and group[1:]]
        return tuple(found)

    def _look(self, reader: StateReader, files: Sequence[PoolFile], folder: Path) -> None:
        unknown = [file for file in files if file not in self._looked]
        for file in unknown[:SHOWN]:
            self._say(f"reading {file.name}, which the repository has and its metadata do not name")
        if len(unknown) > SHOWN:
            self._say(f"reading {count(len(unknown) - SHOWN, 'more such file')}")
        for batch in batches(
            unknown, lambda file: file.size_bytes, most_bytes=MAX_BATCH_BYTES, most_items=MAX_BATCH_FILES
        ):
            self._looked.update(zip(batch, reader.look_into(batch, folder), strict=True))
