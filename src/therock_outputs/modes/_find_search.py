"""Looks through runs, newest first, for the first that holds all that is asked, or for the runs of one commit that do.

What is not known is an error: a run that cannot be listed may be the one.
"""

from __future__ import annotations

import contextlib
import sys
import time
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice, repeat
from typing import TYPE_CHECKING, Final

from _therock_utils._errors import OutputsError
from _therock_utils._s3_workers import lane, run_lanes
from _therock_utils.artifact_names import ArchiveName
from therock_outputs.modes._find_runs import PassedRun, unreadable_error
from therock_outputs.modes._find_wants import some_words
from therock_outputs.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from _therock_utils.storage_backend import StorageBackend
    from therock_outputs.context import Context
    from therock_outputs.modes._find_runs import Run, RunFacts, RunSource
    from therock_outputs.modes._find_wants import Want

MAX_ROWS: Final = 50
"""Runs that were looked at and that are told of; the others are counted."""

_AT_ONCE: Final = 4
"""Runs that are listed at the same time. The newest is listed alone: mostly it is the one."""

_GRACE_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class Holding:
    """What a run holds: indexes of the wants that are `met`, and the archives they mean, by name, with their sizes.

    `pages`: which of the pages that list artifacts lie in the run's folder.
    """

    run: Run
    met: frozenset[int]
    archives: tuple[str, ...] = ()
    sizes_bytes: tuple[int, ...] = ()
    pages: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class LookedAt:
    """One run that was met on the way: what it holds, or why it was passed over."""

    run: RunFacts
    archive_count: int = 0
    met: frozenset[int] = frozenset()
    passed_over: str = ""


@dataclass(frozen=True, slots=True)
class Findings:
    """What a look through the runs gave. `holdings`: the runs that hold all that is asked, newest first; () for none.

    `looked_at` are the first MAX_ROWS of `looked_at_count`; `lacking`, in words, is "" where nothing is. What the runs
    in `unreadable` hold is not known.
    """

    holdings: tuple[Holding, ...]
    looked_at: tuple[LookedAt, ...]
    looked_at_count: int
    lacking: str
    unreadable: tuple[PassedRun, ...] = ()


@dataclass(slots=True)
class _Commit:
    """The runs of one commit that add something, newest first, and what they hold together."""

    holdings: list[Holding] = field(default_factory=list)
    met: frozenset[int] = frozenset()

    def add(self, holding: Holding) -> None:
        if holding.met - self.met:
            self.holdings.append(holding)
            self.met |= holding.met


class RunSearch:
    """Looks at the runs of `source` for `wants`.

    Memory: the listings of four runs, and of each run that holds something its archives' names and sizes (names are
    shared between runs): about 50 bytes an archive, of 1,000 runs at most.
    """

    def __init__(self, context: Context, source: RunSource, wants: Sequence[Want], backend: StorageBackend) -> None:
        """Nothing is asked yet."""
        self._context = context
        self._settings = context.settings
        self._source = source
        self._wants = wants
        self._backend = backend
        self._final: dict[tuple[str, int], Holding] = {}  # of finished attempts, which hold what they hold

    def find(
        self, *, now: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] | None = None
    ) -> Findings:
        """Look, and for `wait_seconds` again and again until it is found.

        Raises as `RunSource.runs`, another OutputsError where a run cannot be listed before all is found, and
        GitHubError where nothing is found and it is not known what a run holds.
        """

        def look() -> tuple[Findings, str]:
            findings = self.look()
            cannot_change = bool(self._settings.run_id) and all(one.run.is_finished for one in findings.looked_at)
            return findings, "" if cannot_change else findings.lacking

        context, wait_seconds = self._context, self._settings.wait_seconds
        findings = wait_for(
            look, wait_seconds=wait_seconds, cancel=context.cancel, say=context.say, now=now, sleep=sleep
        )
        if findings.unreadable and not findings.holdings:
            raise unreadable_error(findings.unreadable)
        return findings

    def look(self) -> Findings:
        """Look through the runs once."""
        commits: dict[str, _Commit] = {}
        looked_at: list[LookedAt] = []
        unreadable: list[PassedRun] = []
        seen = 0
        alone = self._settings.require_single_run
        with contextlib.closing(self._held()) as held:
            for run, holding in held:
                seen += 1
                if isinstance(holding, PassedRun):
                    unreadable += [holding] if holding.is_unreadable else []
                    one = LookedAt(run, passed_over=holding.why)
                else:
                    one = LookedAt(run, len(holding.archives), holding.met)
                looked_at += [one] if len(looked_at) < MAX_ROWS else []
                if isinstance(holding, PassedRun):
                    continue
                commit = _Commit() if alone else commits.setdefault(run.head_sha or run.run_id, _Commit())
                commit.add(holding)
                if len(commit.met) == len(self._wants):
                    return Findings(tuple(commit.holdings), tuple(looked_at), seen, "", tuple(unreadable))
        lacking = self._lacking(looked_at, list(commits.values()))
        return Findings((), tuple(looked_at), seen, lacking, tuple(unreadable))

    def _held(self) -> Generator[tuple[RunFacts, Holding | PassedRun], None, None]:
        """The runs, newest first, with what they hold; those after the first are listed four at the same time.

        What goes wrong with a run, or with the records behind one, is raised when it is that one's turn.
        """
        with contextlib.closing(self._source.runs()) as runs:
            for size in chain([1], repeat(_AT_ONCE)):
                batch: list[Run | PassedRun] = []
                fault: OutputsError | None = None
                try:
                    batch.extend(islice(runs, size))  # keeps those that came before a failure
                except OutputsError as error:
                    fault = error
                holdings = self._list_all([run for run in batch if not isinstance(run, PassedRun)])
                for run in batch:
                    holding = run if isinstance(run, PassedRun) else next(holdings)
                    if isinstance(holding, OutputsError):
                        raise holding
                    yield run, holding
                if fault is not None:
                    raise fault
                if len(batch) < size:
                    return

    def _list_all(self, runs: Sequence[Run]) -> Iterator[Holding | OutputsError]:
        """What each of the runs holds, or why it cannot be listed, in order. Raises CancelledError."""
        answers: dict[int, Holding | OutputsError] = {}

        def list_one(number: int, run: Run) -> None:
            try:
                answers[number] = self._holding(run)
            except OutputsError as error:
                answers[number] = error

        cancel = self._context.cancel
        cancel.check()
        jobs = [partial(list_one, number, run) for number, run in enumerate(runs)]
        run_lanes([lane(jobs, _AT_ONCE)], cancel=cancel, grace_seconds=_GRACE_SECONDS)
        cancel.check()
        return iter([answers[number] for number in range(len(runs))])

    def words(self, indexes: frozenset[int], *, targets_only: bool = False) -> tuple[str, ...]:
        """The wants of `indexes` as the user wrote them, in that order."""
        return tuple(
            want.word
            for index, want in enumerate(self._wants)
            if index in indexes and (want.is_target or not targets_only)
        )

    def lacks(self, met: frozenset[int]) -> tuple[str, ...]:
        """The wants that are not in `met`."""
        return self.words(frozenset(range(len(self._wants))) - met)

    def _holding(self, run: Run) -> Holding:
        known = self._final.get((run.run_id, run.attempt)) if run.is_finished else None
        if known is None:
            known = self._list(run)
            if run.is_finished and self._settings.wait_seconds:
                self._final[run.run_id, run.attempt] = known
        return known

    def _list(self, run: Run) -> Holding:
        sizes: dict[str, int] = {}
        pages = set()
        for listed in self._backend.list_folder(run.root.root(), cancel=self._context.cancel):
            name = listed.location.name
            if ArchiveName.parse(name) is not None:
                sizes[sys.intern(name)] = listed.size_bytes
            elif name.startswith("index") and name.endswith(".html"):
                pages.add(name)
        met = []
        meant: set[str] = set()
        for index, want in enumerate(self._wants):
            archives = want.archives_in(sizes.keys())
            if archives:
                met.append(index)
                meant.update(map(str, archives))
        names = tuple(name for name in sorted(sizes) if name in meant)
        return Holding(run, frozenset(met), names, tuple(sizes[name] for name in names), frozenset(pages))

    def _lacking(self, looked_at: Sequence[LookedAt], commits: Sequence[_Commit]) -> str:
        if not looked_at:
            return self._source.none_there
        newest = next((one for one in looked_at if not one.passed_over), looked_at[0])
        words = f"the newest run, {newest.run.run_id}" if not self._settings.run_id else f"run {newest.run.run_id}"
        if newest.run.state:
            words += f" ({newest.run.state.replace('_', ' ')})"
        if newest.passed_over:
            return f"{words}, was passed over: {newest.passed_over}"
        words += f", lacks {some_words(self.lacks(newest.met))}"
        if commits and len(commits[0].holdings) > 1:
            words += f"; the runs of its commit together lack {some_words(self.lacks(commits[0].met))}"
        return words
