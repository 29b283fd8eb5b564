"""Which bytes a package's file name stands for in a repository: a record, made once and never changed.

A record is made before the package is stored, by a conditional write that the service decides. So of two jobs with
other bytes for one name only one stores under it, whatever each of them saw in a listing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from _therock_utils._errors import ConflictError, IntegrityError, OutputsError
from _therock_utils._sidecar import parse_sidecar, render_sidecar
from _therock_utils._transfer_types import Replacement
from therock_outputs.rewording import reworded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from _therock_utils._cancel import CancelToken
    from _therock_utils._transfer_types import StoredBytes
    from _therock_utils.storage_backend import StorageBackend
    from _therock_utils.storage_location import StorageLocation

ANOTHERS: Final = ""
"""What a record says that cannot be understood: that the name stands for other bytes than anybody's."""

_CONTENT_TYPE: Final = "text/plain; charset=utf-8"
_ROUNDS: Final = 3
_REMEDY: Final = "The job needs s3:GetObject and s3:PutObject below reports/ of the run, too."


class NameRecords:
    """The records of one repository. Memory: about 300 bytes a name that was asked for."""

    def __init__(
        self, backend: StorageBackend, location_of: Callable[[str], StorageLocation], cancel: CancelToken
    ) -> None:
        """`location_of` gives the record of a file name (WorkflowOutputRoot.package_name_record)."""
        self._backend = backend
        self._location_of = location_of
        self._cancel = cancel
        self._known: dict[str, str] = {}

    def digests(self, names: Iterable[str]) -> dict[str, str]:
        """What each name stands for, SHA-256 in hex or ANOTHERS; names without a record are left out.

        Each record is read once. Raises OutputsErrors where one cannot be asked for.
        """
        wanted = list(dict.fromkeys(names))
        self._read([name for name in wanted if name not in self._known])
        return {name: self._known[name] for name in wanted if name in self._known}

    def reserve(self, wanted: Mapping[str, str]) -> frozenset[str]:
        """Let each name stand for the SHA-256 in hex that it is `wanted` for; those that stand for other bytes.

        Raises OutputsErrors where that cannot be found out or written; some names may be reserved then.
        """
        for _ in range(_ROUNDS):
            missing = [name for name in wanted if name not in self._known]
            if not missing:
                break
            self._read(self._create({name: wanted[name] for name in missing}))
        return frozenset(name for name, sha256 in wanted.items() if self._known.get(name, ANOTHERS) != sha256)

    def _create(self, wanted: Mapping[str, str]) -> list[str]:
        """Make the records that are not there; the names of those that are."""
        items = [
            Replacement(self._location_of(name), render_sidecar(sha256, name), _CONTENT_TYPE, "")
            for name, sha256 in wanted.items()
        ]
        there: list[str] = []
        failure: OutputsError | None = None
        for (name, sha256), answer in zip(
            wanted.items(), self._backend.replace_all(items, cancel=self._cancel), strict=True
        ):
            if isinstance(answer, ConflictError):
                there.append(name)
            elif isinstance(answer, OutputsError):
                failure = failure or answer
            else:
                self._known[name] = sha256
        if failure is not None:
            raise self._not_done("reserved", failure)
        return there

    def _read(self, names: Sequence[str]) -> None:
        answers = self._backend.read_all_small([self._location_of(name) for name in names], cancel=self._cancel)
        for name, answer in zip(names, answers, strict=True):
            if answer is not None:
                self._known[name] = self._digest(name, answer)

    def _digest(self, name: str, answer: StoredBytes | OutputsError) -> str:
        if isinstance(answer, IntegrityError):  # larger than any record
            return ANOTHERS
        if isinstance(answer, OutputsError):
            raise self._not_done("looked up", answer)
        return parse_sidecar(answer.data, name=name)

    def _not_done(self, verb: str, error: OutputsError) -> OutputsError:
        self._cancel.check()
        why = ": ".join(words for words in (error.what, error.why) if words)
        return reworded(
            error,
            f"the packages' file names cannot be {verb}, so none was stored",
            why=why,
            remedy=error.remedy or _REMEDY,
        )
