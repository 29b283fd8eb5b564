"""What a stage makes and needs, from a build topology (TOML in the shape of TheRock's BUILD_TOPOLOGY.toml).

Pure but for `load_topology`, which reads one file.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from _therock_utils._errors import InputError
from _therock_utils._keys import quote

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

MAX_TOPOLOGY_BYTES: Final = 16 * 1024 * 1024
_TYPES: Final = {"target-neutral": False, "target-specific": True}
_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]{1,80}")
_SHOWN_STAGES: Final = 50


@dataclass(frozen=True, slots=True)
class TopologyArtifact:
    """One artifact of the build: the group that makes it, what it needs, and where it exists.

    `is_per_target`: each GPU target has its own archives; else they are generic. `only_platform`: "" for any.
    `conditional_platforms`: where a build has it only with a flag that the topology names.
    """

    name: str
    group: str
    is_per_target: bool = False
    needs: tuple[str, ...] = ()
    only_platform: str = ""
    disabled_platforms: frozenset[str] = frozenset()
    conditional_platforms: frozenset[str] = frozenset()

    def exists_on(self, platform: str) -> bool:
        """Whether a build for `platform` can have it at all."""
        return self.only_platform in {"", platform} and platform not in self.disabled_platforms

    def is_certain_on(self, platform: str) -> bool:
        """Whether every build for `platform` has it, as far as the topology says."""
        return self.exists_on(platform) and platform not in self.conditional_platforms


@dataclass(frozen=True, slots=True)
class Topology:
    """Artifacts by name, groups and their needs, stages and their groups, in the order of the file."""

    artifacts: Mapping[str, TopologyArtifact]
    group_needs: Mapping[str, tuple[str, ...]]
    stage_groups: Mapping[str, tuple[str, ...]]

    @property
    def stages(self) -> tuple[str, ...]:
        """Names of all stages."""
        return tuple(self.stage_groups)

    def produced_by(self, stages: Iterable[str], *, platform: str) -> tuple[TopologyArtifact, ...]:
        """What `stages` make on `platform`, in the order of the file. Raises InputError for an unknown stage."""
        groups = self._groups_of(stages)
        return self._on(platform, [artifact for artifact in self.artifacts.values() if artifact.group in groups])

    def inbound_of(self, stages: Iterable[str], *, platform: str) -> tuple[TopologyArtifact, ...]:
        """What `stages` need from other stages on `platform`, in the order of the file.

        That is every artifact of the groups that theirs depend on, and every artifact that theirs or those depend on,
        both transitively, without what they make themselves. Raises InputError for an unknown stage.
        """
        groups = self._groups_of(stages)
        needed_groups = _closure(groups, self.group_needs)
        artifact_needs = {artifact.name: artifact.needs for artifact in self.artifacts.values()}
        starts = [artifact.name for artifact in self.artifacts.values() if artifact.group in needed_groups]
        needed = _closure(starts, artifact_needs)
        return self._on(
            platform,
            [
                artifact
                for artifact in self.artifacts.values()
                if artifact.name in needed and artifact.group not in groups
            ],
        )

    def producers_of(self, name: str) -> tuple[str, ...]:
        """The stages that make the artifact `name` on some platform; () where it is not in the topology."""
        artifact = self.artifacts.get(name)
        if artifact is None:
            return ()
        return tuple(stage for stage, groups in self.stage_groups.items() if artifact.group in groups)

    def _groups_of(self, stages: Iterable[str]) -> frozenset[str]:
        """The groups that belong to `stages`."""
        groups: set[str] = set()
        for stage in stages:
            if stage not in self.stage_groups:
                raise self._unknown_stage(stage)
            groups.update(self.stage_groups[stage])
        return frozenset(groups)

    def _unknown_stage(self, stage: str) -> InputError:
        near = difflib.get_close_matches(stage, self.stages, 1)
        known = ", ".join(map(_shown, self.stages[:_SHOWN_STAGES]))
        more = f" and {len(self.stages) - _SHOWN_STAGES} more" if len(self.stages) > _SHOWN_STAGES else ""
        return InputError(
            f"stage {quote(stage)} is not in the topology",
            why=f"Did you mean {_shown(near[0])}?" if near else "",
            remedy=f"Its stages are: {known}{more}." if known else "It has no stages.",
        )

    @staticmethod
    def _on(platform: str, artifacts: Iterable[TopologyArtifact]) -> tuple[TopologyArtifact, ...]:
        return tuple(artifact for artifact in artifacts if artifact.exists_on(platform))


def load_topology(path: Path) -> Topology:
    """Read the topology at `path`, at most 16 MiB.

    Raises InputError with the path, and the table and key at fault, where it cannot be read or has another shape.
    """
    what = f"the topology {str(path)!a} cannot be used"
    remedy = "Set topology to the build's BUILD_TOPOLOGY.toml; a relative path lies in the workspace."
    try:
        if not path.is_file():
            raise InputError(what, why="there is no such file", remedy=remedy)
        with path.open("rb") as file:
            data = file.read(MAX_TOPOLOGY_BYTES + 1)
    except OSError as error:
        raise InputError(what, why=error.strerror or str(error), remedy=remedy) from error
    if len(data) > MAX_TOPOLOGY_BYTES:
        raise InputError(what, why=f"it has more than {MAX_TOPOLOGY_BYTES} bytes", remedy=remedy)
    try:
        return parse_topology(data)
    except InputError as error:
        raise InputError(what, why=str(error)) from error


def parse_topology(data: bytes) -> Topology:
    """Read a topology from TOML in UTF-8. Keys that decide nothing here are not looked at.

    Raises InputError that names the table and key at fault.
    """
    try:
        document = tomllib.loads(data.decode())
    except RecursionError as error:
        raise InputError("it is nested too deeply") from error
    except ValueError as error:  # not UTF-8, not TOML, or a number too long to read
        raise InputError(f"it is not TOML: {_one_line(error)}") from error
    groups = {name: _Table("artifact_groups", name, fields) for name, fields in _tables(document, "artifact_groups")}
    disabled = {name: table.names("disable_platforms") for name, table in groups.items()}
    artifacts = {
        name: _read_artifact(_Table("artifacts", name, fields), disabled)
        for name, fields in _tables(document, "artifacts")
    }
    for artifact in artifacts.values():
        _Table("artifacts", artifact.name, {}).check_known("artifact_deps", artifact.needs, artifacts, "artifact")
    return Topology(
        artifacts,
        {name: table.known_names("artifact_group_deps", groups, "artifact group") for name, table in groups.items()},
        {
            name: _Table("build_stages", name, fields).known_names("artifact_groups", groups, "artifact group")
            for name, fields in _tables(document, "build_stages")
        },
    )


@dataclass(frozen=True, slots=True)
class _Table:
    """One `[kind.name]` of the file; each method raises InputError that names it and the key at fault."""

    kind: str
    name: str
    fields: Mapping[str, object]

    def names(self, key: str) -> tuple[str, ...]:
        """A list of strings, each once; () where it is not there."""
        value = self.fields.get(key, [])
        if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
            raise self.fault(key, "it must be a list of strings")
        return tuple(dict.fromkeys(value))

    def known_names(self, key: str, known: Mapping[str, object], noun: str) -> tuple[str, ...]:
        """As `names`, each one in `known`."""
        names = self.names(key)
        self.check_known(key, names, known, noun)
        return names

    def check_known(self, key: str, names: Iterable[str], known: Mapping[str, object], noun: str) -> None:
        for name in names:
            if name not in known:
                raise self.fault(key, f"there is no {noun} {quote(name)}")

    def text(self, key: str, default: str | None) -> str:
        """A string; `default` where it is not there, unless that is None."""
        value = self.fields.get(key, default)
        if value is None:
            raise self.fault(key, "it is not there")
        if not isinstance(value, str):
            raise self.fault(key, "it must be a string")
        return value

    def keys(self, key: str) -> frozenset[str]:
        """The keys of a table; none where it is not there."""
        value = self.fields.get(key, {})
        if not isinstance(value, dict):
            raise self.fault(key, "it must be a table")
        return frozenset(value)

    def fault(self, key: str, why: str) -> InputError:
        return InputError(f"[{self.kind}.{_shown(self.name)}] {key}: {why}")


def _tables(document: Mapping[str, object], kind: str) -> list[tuple[str, Mapping[str, object]]]:
    """The tables `[kind.*]`, in the order of the file."""
    tables = document.get(kind)
    if not isinstance(tables, dict):
        raise InputError(f"[{kind}]: {'it is not there' if tables is None else 'it must be a table of tables'}")
    for name, fields in tables.items():
        if not isinstance(fields, dict):
            raise InputError(f"[{kind}.{_shown(name)}]: it must be a table")
    return list(tables.items())


def _read_artifact(table: _Table, disabled: Mapping[str, tuple[str, ...]]) -> TopologyArtifact:
    """One artifact; `disabled`: for each group the platforms that do not have it."""
    kind, group = table.text("type", "target-neutral"), table.text("artifact_group", None)
    if kind not in _TYPES:
        raise table.fault("type", f"it is {quote(kind)}, and must be {' or '.join(_TYPES)}")
    table.check_known("artifact_group", [group], disabled, "artifact group")
    return TopologyArtifact(
        table.name,
        group,
        is_per_target=_TYPES[kind],
        needs=table.names("artifact_deps"),
        only_platform=table.text("platform", ""),
        disabled_platforms=frozenset([*table.names("disable_platforms"), *disabled[group]]),
        conditional_platforms=table.keys("disable_platforms_if_flags_not_set"),
    )


def _closure(starts: Iterable[str], needs: Mapping[str, tuple[str, ...]]) -> frozenset[str]:
    """`starts` and all they need, transitively; cycles end."""
    found: set[str] = set()
    waiting = list(starts)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting.extend(needs[name])
    return frozenset(found)


def _shown(name: str) -> str:
    """A name from the file, as a TOML key; one that could act in a message is quoted and cut."""
    return name if _BARE_KEY.fullmatch(name) else quote(name)


def _one_line(error: ValueError) -> str:
    return quote(str(error), shown_characters=200)[1:-1]
