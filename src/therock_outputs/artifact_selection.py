"""Which of a run's artifact archives are asked for: selectors as data, and one decision. Pure."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from _therock_utils._errors import InputError
from _therock_utils._globs import check_pattern, compile_filter
from _therock_utils._keys import quote
from _therock_utils.artifact_names import (
    FAMILIES,
    GENERIC,
    base_target,
    expand_families,
    is_known_family,
    matches_target,
    preferred,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import regex

    from _therock_utils.artifact_names import ArchiveName, ArtifactName

_MAX_REGEX_CHARACTERS: Final = 1000
_REGEX_SECONDS: Final = 1.0
_SUGGESTION_CUTOFF: Final = 0.8


@dataclass(frozen=True, slots=True)
class Selection:
    """What is wanted; every selector narrows. Raises InputError for a pattern that cannot be used.

    - `names`: artifact names that a stage makes or needs; None for any.
    - `artifacts`, `exclude_artifacts`: globs (`_globs`) over `name`, `name_component` and `name_component_target`.
    - `exclude_components`: globs over the component; with a "_" over `name_component` and `name_component_target`.
    - `wanted_targets`: what generic artifacts are wanted beside; () for any target.
    - `asked_targets`: each family, target and group as it was written, and what it stands for.
    - `include_regex`, `exclude_regex`: regular expressions, searched for in the archive's file name.
    """

    names: frozenset[str] | None = None
    artifacts: tuple[str, ...] = ()
    exclude_artifacts: tuple[str, ...] = ()
    exclude_components: tuple[str, ...] = ()
    wanted_targets: tuple[str, ...] = ()
    asked_targets: tuple[tuple[str, tuple[str, ...]], ...] = ()
    generic_only: bool = False
    include_regex: tuple[str, ...] = ()
    exclude_regex: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for pattern in (*self.artifacts, *self.exclude_artifacts, *self.exclude_components):
            _check_glob(pattern)
        for pattern in (*self.include_regex, *self.exclude_regex):
            _compile(pattern)


@dataclass(frozen=True, slots=True)
class Choice:
    """What is chosen, sorted, one archive an artifact, and what was asked for by name and is not there.

    `missing`: globs of `artifacts` that match nothing chosen, then asked targets, each as it was written.
    """

    chosen: tuple[ArchiveName, ...]
    missing: tuple[str, ...]


def make_selection(
    *,
    names: Iterable[str] | None = None,
    artifacts: Iterable[str] = (),
    exclude_artifacts: Iterable[str] = (),
    exclude_components: Iterable[str] = (),
    families: Iterable[str] = (),
    targets: Iterable[str] = (),
    groups: Iterable[str] = (),
    generic_only: bool = False,
    include_regex: Iterable[str] = (),
    exclude_regex: Iterable[str] = (),
) -> tuple[Selection, tuple[str, ...]]:
    """The selection, and notices about families and targets that are not known and so stand for themselves.

    A family, target or group (single-stage: a family or a variant of one) stands for itself and the targets of that
    family. Empty strings are unset. Raises InputError for a pattern that cannot be used.
    """
    words = {"families": _words(families), "targets": _words(targets)}
    asked = _words([*words["families"], *words["targets"], *groups])
    selection = Selection(
        names=None if names is None else frozenset(names),
        artifacts=_words(artifacts),
        exclude_artifacts=_words(exclude_artifacts),
        exclude_components=_words(exclude_components),
        wanted_targets=expand_families(asked),
        asked_targets=tuple((word, expand_families([word])) for word in asked if word != GENERIC),
        generic_only=generic_only,
        include_regex=_words(include_regex),
        exclude_regex=_words(exclude_regex),
    )
    notices = tuple(
        f"{option}: {quote(word)} is no known GPU family or target; only artifacts of that very target are taken"
        + _nearest(word)
        for option, given in words.items()
        for word in given
        if word != GENERIC and not is_known_family(base_target(word))
    )
    return selection, notices


def choose(selection: Selection, available: Iterable[str]) -> Choice:
    """The archives among the file names `available` that `selection` wants, and what it asks for in vain.

    A target is missing where no archive for it, beside the generic ones, passes the other selectors; not so with
    `generic_only`, nor with `names`: what a stage needs never fails on what a run does not have; nor where the globs
    name only generic artifacts, as in a matrix job that always passes its family, or nothing at all.
    """
    candidates = _candidates(selection, available)
    chosen = tuple(archive for archive in candidates if _is_wanted_target(archive.artifact.target, selection))
    names_generic_ones = bool(selection.artifacts and candidates) and all(
        archive.artifact.target == GENERIC for archive in candidates
    )
    missing = []
    for glob in selection.artifacts:
        matches = _any_of([glob])
        if not any(matches(archive.artifact) for archive in chosen):
            missing.append(glob)
    only_globs_fail = bool(missing) and not candidates  # of a target nothing can be said then
    if selection.names is None and not (selection.generic_only or names_generic_ones or only_globs_fail):
        present = {archive.artifact.target for archive in chosen} - {GENERIC}
        missing += [
            asked
            for asked, meanings in selection.asked_targets
            if not any(matches_target(target, meanings) for target in present)
        ]
    return Choice(chosen, _words(missing))


def _candidates(selection: Selection, available: Iterable[str]) -> list[ArchiveName]:
    """What every selector takes but those about targets. File names come first: they may ask for one compression."""
    is_included, is_left_out = _matcher(selection.include_regex), _matcher(selection.exclude_regex)
    filenames = (
        name for name in available if (not selection.include_regex or is_included(name)) and not is_left_out(name)
    )
    is_asked = _any_of(selection.artifacts)
    is_excluded = _any_of(
        [*selection.exclude_artifacts, *(glob for glob in selection.exclude_components if "_" in glob)]
    )
    components = compile_filter(exclude=selection.exclude_components)  # a component has no "_"
    return [
        archive
        for archive in preferred(filenames)
        if (selection.names is None or archive.artifact.name in selection.names)
        and (not selection.artifacts or is_asked(archive.artifact))
        and not is_excluded(archive.artifact)
        and not components.excludes(archive.artifact.component)
    ]


def _is_wanted_target(target: str, selection: Selection) -> bool:
    if selection.generic_only:
        return target == GENERIC
    return not selection.wanted_targets or matches_target(target, selection.wanted_targets)


def _any_of(globs: Sequence[str]) -> Callable[[ArtifactName], bool]:
    """Whether one of `globs` takes an artifact by its name, with or without component and target."""
    matches = compile_filter(exclude=globs).excludes
    return lambda artifact: (
        matches(artifact.name) or matches(f"{artifact.name}_{artifact.component}") or matches(str(artifact))
    )


def _check_glob(pattern: str) -> None:
    if "/" in pattern:
        raise InputError(
            f"the glob pattern {quote(pattern)} cannot be used: no artifact has a '/' in its name",
            remedy="Patterns match name, name_component or name_component_target, e.g. blas_lib or *_gfx942.",
        )
    check_pattern(pattern)


def _matcher(patterns: Sequence[str]) -> Callable[[str], bool]:
    """Whether a regular expression is found in a name. Raises InputError where one is none, or takes too long.

    Names come from storage, and an innocent pattern can take for ever on one that is made for it (OWASP, "Regular
    expression Denial of Service"); `re` could not be stopped then, not even by a signal.
    """
    compiled = [_compile(pattern) for pattern in patterns]

    def matches(name: str) -> bool:
        try:
            return any(pattern.search(name, timeout=_REGEX_SECONDS) for pattern in compiled)
        except TimeoutError:
            raise InputError(
                f"the regular expressions take too long on {quote(name)}",
                remedy="Write them without nested repetitions such as (a|aa)+ or (a*)*.",
            ) from None

    return matches


def _compile(pattern: str) -> regex.Pattern[str]:
    """Compile a regular expression (the library keeps the last 500). Raises InputError where it is none."""
    import regex

    fault = f"it has more than {_MAX_REGEX_CHARACTERS} characters" if len(pattern) > _MAX_REGEX_CHARACTERS else ""
    if not fault:
        try:
            return regex.compile(pattern)
        except (regex.error, OverflowError, RecursionError, ValueError) as error:
            fault = str(error)
    raise InputError(
        f"the regular expression {quote(pattern)} cannot be used: {fault}",
        remedy=r"It is searched for in file names as Python's re.search does; a literal . + or ( is written \. \+ \(.",
    )


def _nearest(word: str) -> str:
    """`. Did you mean x?`, or "" where no family is near."""
    near = difflib.get_close_matches(word, FAMILIES, 1, _SUGGESTION_CUTOFF)
    return f". Did you mean {near[0]}?" if near else ""


def _words(words: Iterable[str]) -> tuple[str, ...]:
    """Each word that is not empty, once, in the order given."""
    return tuple(dict.fromkeys(word for word in words if word))
