"""What find-artifacts asks of a run, one want a group, family, target, glob or regular expression. Pure."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from _therock_utils.artifact_names import GENERIC
from _therock_utils.workflow_outputs import WorkflowOutputRoot
from therock_outputs.artifact_selection import choose, make_selection
from therock_outputs.modes._selectors import check_selectors

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from _therock_utils.artifact_names import ArchiveName
    from therock_outputs.artifact_selection import Selection
    from therock_outputs.settings import Settings

_SHOWN_WORDS: Final = 8
_SHOWN_CHARACTERS: Final = 100


@dataclass(frozen=True, slots=True)
class Want:
    """One thing that is asked for, in the user's `word`, and the archives that it means.

    `is_target`: a GPU is meant, so that generic archives alone are not enough.
    """

    word: str
    selection: Selection
    is_target: bool = False

    def archives_in(self, names: Collection[str]) -> tuple[ArchiveName, ...]:
        """What of the file names `names` it means; () where that is not enough."""
        chosen = choose(self.selection, names).chosen
        if self.is_target and all(archive.artifact.target == GENERIC for archive in chosen):
            return ()
        return chosen


def read_wants(settings: Settings) -> tuple[tuple[Want, ...], tuple[str, ...]]:
    """Everything that is asked for, at least one want, and notices about unknown families.

    Each want stands by itself: a glob or a regular expression needs a match among the archives of all groups together,
    or generic ones, not one a group. What is excluded counts for none. Raises InputError for what cannot be asked for.
    """
    if settings.generic_only:
        check_selectors(settings, ("generic_only",), purpose="find")
    groups = settings.artifact_groups
    for group in groups:
        WorkflowOutputRoot.for_local(platform="linux").artifact_index(group)  # raises for what no group is called
    given, notices = make_selection(
        artifacts=settings.artifacts,
        exclude_artifacts=settings.exclude_artifacts,
        exclude_components=settings.exclude_components,
        families=settings.families,
        targets=settings.targets,
        groups=groups,
        generic_only=settings.generic_only,
        include_regex=settings.include_regex,
        exclude_regex=settings.exclude_regex,
    )
    plain = dataclasses.replace(given, artifacts=(), include_regex=(), asked_targets=())
    if settings.generic_only:
        wants = [Want("a generic artifact", plain)]
    else:
        wants = [
            Want(word, dataclasses.replace(plain, wanted_targets=meanings), is_target=True)
            for word, meanings in given.asked_targets
        ]
    wants += [Want(glob, dataclasses.replace(plain, artifacts=(glob,))) for glob in given.artifacts]
    wants += [Want(regex, dataclasses.replace(plain, include_regex=(regex,))) for regex in given.include_regex]
    return tuple(wants) or (Want("an artifact", plain),), notices


def some_words(words: Iterable[str]) -> str:
    """The first of `words` in one line, each cut where it is long, and the number of the others."""
    words = list(words)
    shown = [word if len(word) <= _SHOWN_CHARACTERS else f"{word[:_SHOWN_CHARACTERS]}..." for word in words]
    more = len(words) - _SHOWN_WORDS
    return ", ".join(shown[:_SHOWN_WORDS]) + (f" and {more:,} more" if more > 0 else "")
