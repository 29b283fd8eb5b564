"""What run records know of digests, as far as it still holds for what a listing shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import datetime
    from collections.abc import Iterable, Mapping

    from therock_outputs.run_records import RunRecord


class RecordedDigests:
    """Digests by name and size, each with the time of the record that says so. Memory: about 300 bytes an object."""

    def __init__(self, records: Iterable[RunRecord], times: Mapping[str, datetime.datetime], *, prefix: str) -> None:
        """`times`: when each record was stored, by its name; one that is not among them counts for nothing."""
        self._known: dict[tuple[str, int], list[tuple[datetime.datetime, str]]] = {}
        for record in records:
            at = times.get(record.name)
            if at is None:
                continue
            for claim in record.objects:
                if claim.sha256:
                    key = (claim.key[len(prefix) + 1 :], claim.size_bytes)
                    self._known.setdefault(key, []).append((at, claim.sha256))

    def of(self, name: str, size_bytes: int, modified: datetime.datetime) -> str:
        """The digest of what was stored at `modified`; "" where none is known, or records since then disagree.

        A record that is older than the object is about what lay there before.
        """
        claims = self._known.get((name, size_bytes))
        if claims is None:
            return ""
        digests = {digest for at, digest in claims if at >= modified}
        return digests.pop() if len(digests) == 1 else ""
