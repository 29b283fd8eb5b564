"""What stages make and need follows from the topology, and a file of another shape is told precisely."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from _therock_utils._errors import InputError
from therock_outputs import topology as topology_module
from therock_outputs.topology import Topology, TopologyArtifact, load_topology, parse_topology

FILE = Path(__file__).parents[1] / "fakes" / "topology.toml"
TEXT = FILE.read_text(encoding="utf-8")
SMALL = """
[build_stages.s]
artifact_groups = ["g"]
[artifact_groups.g]
artifact_group_deps = []
[artifacts.a]
artifact_group = "g"
"""


def names(artifacts: tuple[TopologyArtifact, ...]) -> list[str]:
    return [artifact.name for artifact in artifacts]


@pytest.fixture(name="product")
def small_product() -> Topology:
    return load_topology(FILE)


def test_stages_come_in_the_order_of_the_file(product: Topology) -> None:
    assert product.stages == ("foundation", "math", "tools")


@pytest.mark.parametrize(
    ("stages", "platform", "produced", "inbound"),
    [
        (["foundation"], "linux", "zlib netlink llvm hip", ""),
        (["foundation"], "windows", "zlib llvm hip hip-info", ""),
        (["math"], "linux", "blas solver support", "zlib netlink llvm hip emulator"),
        (["math"], "windows", "blas solver support", "zlib llvm hip hip-info"),
        (["tools"], "linux", "debugger emulator", "zlib netlink llvm"),
        (["tools"], "windows", "debugger", "zlib llvm"),
        (["math", "tools"], "linux", "blas solver support debugger emulator", "zlib netlink llvm hip"),
        (["tools", "foundation", "math", "math"], "windows", "zlib llvm hip hip-info blas solver support debugger", ""),
        ([], "linux", "", ""),
    ],
)
def test_a_stage_makes_its_groups_and_needs_the_rest_of_what_those_build_on(
    product: Topology, stages: list[str], platform: str, produced: str, inbound: str
) -> None:
    assert names(product.produced_by(stages, platform=platform)) == produced.split()
    assert names(product.inbound_of(stages, platform=platform)) == inbound.split()


def test_an_artifact_is_per_target_only_where_the_file_says_so(product: Topology) -> None:
    assert [artifact.name for artifact in product.artifacts.values() if artifact.is_per_target] == ["blas", "solver"]


def test_a_platform_can_have_an_artifact_always_never_or_on_a_condition(product: Topology) -> None:
    hip, emulator = product.artifacts["hip"], product.artifacts["emulator"]
    assert [hip.exists_on("windows"), hip.is_certain_on("windows"), hip.is_certain_on("linux")] == [True, False, True]
    assert [emulator.exists_on("windows"), emulator.is_certain_on("windows")] == [False, False]


def test_the_producers_of_an_artifact_are_all_stages_that_have_its_group(product: Topology) -> None:
    assert product.producers_of("llvm") == ("foundation",)
    assert product.producers_of("emulator") == ("tools",)
    assert product.producers_of("unknown") == ()
    twice = parse_topology(f"{SMALL}[build_stages.t]\nartifact_groups = ['g', 'g']\n[build_stages.u]".encode())
    assert twice.producers_of("a") == ("s", "t")
    assert names(twice.produced_by(["u"], platform="linux")) == []


@pytest.mark.parametrize("method", ["produced_by", "inbound_of"])
def test_an_unknown_stage_is_told_with_the_nearest_and_all_others(product: Topology, method: str) -> None:
    with pytest.raises(InputError) as caught:
        getattr(product, method)(["math", "maths\n"], platform="linux")
    assert caught.value.what == r"stage 'maths\n' is not in the topology"
    assert caught.value.why == "Did you mean math?"
    assert caught.value.remedy == "Its stages are: foundation, math, tools."
    with pytest.raises(InputError) as caught:
        getattr(product, method)(["zzzzzz"], platform="linux")
    assert caught.value.why == ""


def test_however_many_stages_there_are_the_message_stays_short() -> None:
    none = Topology({}, {}, {})
    with pytest.raises(InputError, match="It has no stages"):
        none.produced_by(["x"], platform="linux")
    many = Topology({}, {}, {f"stage-{number:03}": () for number in range(1000)})
    with pytest.raises(InputError, match="stage-049 and 950 more"):
        many.produced_by(["x"], platform="linux")


def test_cycles_end() -> None:
    text = """
    [build_stages.s]
    artifact_groups = ["g"]
    [artifact_groups.g]
    artifact_group_deps = ["h", "g"]
    [artifact_groups.h]
    artifact_group_deps = ["g"]
    [artifacts.a]
    artifact_group = "g"
    artifact_deps = ["a", "b"]
    [artifacts.b]
    artifact_group = "h"
    artifact_deps = ["c"]
    [artifacts.c]
    artifact_group = "h"
    artifact_deps = ["b", "a"]
    """
    assert names(parse_topology(text.encode()).inbound_of(["s"], platform="linux")) == ["b", "c"]


def test_a_chain_of_any_length_is_followed() -> None:
    chain = "\n".join(f'[artifacts.a{n}]\nartifact_group = "h"\nartifact_deps = ["a{n + 1}"]' for n in range(3000))
    text = f'{SMALL}artifact_deps = ["a0"]\n[artifact_groups.h]\n{chain}\n[artifacts.a3000]\nartifact_group = "h"\n'
    assert len(parse_topology(text.encode()).inbound_of(["s"], platform="linux")) == 3001


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[build_stages.s]", "[build_stage.s]", "[build_stages]: it is not there"),
        ("[artifact_groups.g]", "[[artifact_groups]]", "[artifact_groups]: it must be a table of tables"),
        ("[artifacts.a]", "[artifacts]", "[artifacts.artifact_group]: it must be a table"),
        ('["g"]', '"g"', "[build_stages.s] artifact_groups: it must be a list of strings"),
        ('["g"]', '["g", 1]', "[build_stages.s] artifact_groups: it must be a list of strings"),
        ('["g"]', '["h"]', "[build_stages.s] artifact_groups: there is no artifact group 'h'"),
        ("_deps = []", "_deps = {}", "[artifact_groups.g] artifact_group_deps: it must be a list of strings"),
        ("_deps = []", '_deps = ["x"]', "[artifact_groups.g] artifact_group_deps: there is no artifact group 'x'"),
        (
            "artifact_group_deps = []",
            "disable_platforms = 1",
            "[artifact_groups.g] disable_platforms: it must be a list of strings",
        ),
        ('artifact_group = "g"', "", "[artifacts.a] artifact_group: it is not there"),
        ('artifact_group = "g"', "artifact_group = 1", "[artifacts.a] artifact_group: it must be a string"),
        (
            'artifact_group = "g"',
            'artifact_group = "h"',
            "[artifacts.a] artifact_group: there is no artifact group 'h'",
        ),
    ],
)
def test_a_wrong_shape_is_told_with_table_and_key(old: str, new: str, message: str) -> None:
    assert old in SMALL
    with pytest.raises(InputError) as caught:
        parse_topology(SMALL.replace(old, new).encode())
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("type = 1", "type: it must be a string"),
        ('type = "per-arch"', "type: it is 'per-arch', and must be target-neutral or target-specific"),
        ('artifact_deps = "a"', "artifact_deps: it must be a list of strings"),
        ('artifact_deps = ["a", "b\\u001b"]', r"artifact_deps: there is no artifact 'b\x1b'"),
        ("platform = []", "platform: it must be a string"),
        ('disable_platforms = "windows"', "disable_platforms: it must be a list of strings"),
        ('disable_platforms_if_flags_not_set = ["windows"]', "disable_platforms_if_flags_not_set: it must be a table"),
    ],
)
def test_a_wrong_value_of_an_artifact_is_told_with_table_and_key(line: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_topology(f"{SMALL}{line}\n".encode())
    assert str(caught.value) == f"[artifacts.a] {message}"


def test_a_name_from_the_file_cannot_act_in_a_message() -> None:
    with pytest.raises(InputError) as caught:
        parse_topology(f'{SMALL}[artifacts."a\\n::error::x"]\n'.encode())
    assert str(caught.value) == r"[artifacts.'a\n::error::x'] artifact_group: it is not there"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\xff\xfe", "it is not TOML: 'utf-8' codec"),
        (b"a = \n", "it is not TOML: Invalid value"),
        (b"\x1b[2J", "it is not TOML"),
        (b"a = " + b"9" * 5000, "it is not TOML: Exceeds the limit"),
        (b"a = " + b"[" * 100_000, "it is nested too deeply"),
        (b"a = 1\na = 2", "it is not TOML: Cannot overwrite a value"),
        (b"", "[artifact_groups]: it is not there"),
    ],
)
def test_what_is_no_toml_is_told(data: bytes, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_topology(data)
    assert str(caught.value).startswith(message)
    assert str(caught.value).isascii()


def test_a_file_that_cannot_be_read_is_told_with_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def why(path: Path) -> str:
        with pytest.raises(InputError) as caught:
            load_topology(path)
        assert str(path) in caught.value.what
        return caught.value.why

    path = tmp_path / "topology.toml"
    assert why(path) == "there is no such file"
    assert why(tmp_path) == "there is no such file"
    path.write_text(TEXT.replace('"sysdeps"]', '"sysdep"]'), encoding="utf-8")
    assert why(path) == "[artifact_groups.compiler] artifact_group_deps: there is no artifact group 'sysdep'"
    monkeypatch.setattr(topology_module, "MAX_TOPOLOGY_BYTES", path.stat().st_size - 1)
    assert why(path) == f"it has more than {path.stat().st_size - 1} bytes"
    assert why(tmp_path / ("x" * 300)) == "File name too long"


def test_a_file_of_the_largest_size_is_read(product: Topology, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topology_module, "MAX_TOPOLOGY_BYTES", FILE.stat().st_size)
    assert load_topology(FILE) == product


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "topology.toml"
    os.mkfifo(path)
    with pytest.raises(InputError, match="there is no such file"):
        load_topology(path)


def test_a_link_is_followed(tmp_path: Path, product: Topology) -> None:
    (tmp_path / "topology.toml").symlink_to(FILE)
    assert load_topology(tmp_path / "topology.toml") == product


def toml(value: object) -> str:
    """`value` as a TOML value."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{toml(key)} = {toml(item)}' for key, item in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(toml, value))}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


STRINGS = st.sampled_from(["a", "b", "g", "h", "linux", "windows", "target-neutral", ""]) | st.text(
    st.characters(exclude_categories=["Cs"]), max_size=5
)
VALUES = st.recursive(
    STRINGS | st.integers(-9, 9) | st.booleans() | st.lists(STRINGS, max_size=3),
    lambda children: st.lists(children, max_size=2) | st.dictionaries(STRINGS, children, max_size=2),
    max_leaves=5,
)
KEYS = st.sampled_from(
    [
        "artifact_groups",
        "artifact_group_deps",
        "artifact_group",
        "artifact_deps",
        "type",
        "platform",
        "disable_platforms",
    ]
)
TABLES = st.dictionaries(STRINGS, VALUES | st.dictionaries(KEYS, VALUES, max_size=3), max_size=3)
DOCUMENTS = st.fixed_dictionaries(dict.fromkeys(("build_stages", "artifact_groups", "artifacts"), TABLES | VALUES))


def read_or_refuse(data: bytes) -> None:
    """Parse, ask for everything; nothing but InputError may come, and its text must not act."""
    fault = ""
    try:
        read = parse_topology(data)
    except InputError as error:
        read, fault = Topology({}, {}, {}), str(error)
    assert fault.isascii()
    assert fault.isprintable()
    for platform in ("linux", "windows"):
        for stage in read.stages:
            produced, inbound = (method([stage], platform=platform) for method in (read.produced_by, read.inbound_of))
            assert not set(produced) & set(inbound)
            assert all(artifact.exists_on(platform) for artifact in (*produced, *inbound))
            assert all(stage in read.producers_of(artifact.name) for artifact in produced)
        nobodys = read.inbound_of(read.stages, platform=platform)
        assert not any(read.producers_of(artifact.name) for artifact in nobodys)


@given(DOCUMENTS)
def test_a_document_of_any_shape_is_read_or_refused(document: dict[str, Any]) -> None:
    read_or_refuse("\n".join(f"{key} = {toml(value)}" for key, value in document.items()).encode())


@given(st.integers(0, len(TEXT)), st.integers(0, 40), st.text(max_size=5) | st.sampled_from(['"', "[", "]", "\n", "1"]))
def test_a_file_with_a_part_replaced_is_read_or_refused(start: int, length: int, text: str) -> None:
    read_or_refuse((TEXT[:start] + text + TEXT[start + length :]).encode(errors="surrogatepass"))


@given(st.binary())
@example(b"a = 2026-99-99")
@example(b"a.a.a = 1\na.a = 2")
@example(b'a = "\\UFFFFFFFF"')
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    read_or_refuse(data)


NODES = ["a", "b", "c", "d", "e"]
GRAPHS = st.fixed_dictionaries({node: st.lists(st.sampled_from(NODES), max_size=3) for node in NODES})


@given(GRAPHS, GRAPHS, st.fixed_dictionaries({node: st.sampled_from("abc") for node in NODES}), st.sampled_from("abc"))
def test_inbound_is_the_least_set_that_holds_every_need_of_what_it_holds(
    artifact_deps: dict[str, list[str]], group_deps: dict[str, list[str]], group_of: dict[str, str], stage_group: str
) -> None:
    document = {
        "build_stages": {"s": {"artifact_groups": [stage_group]}},
        "artifact_groups": {node: {"artifact_group_deps": group_deps[node]} for node in NODES},
        "artifacts": {node: {"artifact_group": group_of[node], "artifact_deps": artifact_deps[node]} for node in NODES},
    }
    read = parse_topology("\n".join(f"{key} = {toml(value)}" for key, value in document.items()).encode())
    groups, needed = {stage_group}, set()
    while True:  # by naming everything again and again until nothing is new
        before = len(groups) + len(needed)
        groups |= {dep for group in groups for dep in group_deps[group]}
        needed |= {node for node in NODES if group_of[node] in groups}
        needed |= {dep for node in needed for dep in artifact_deps[node]}
        if len(groups) + len(needed) == before:
            break
    own = {node for node in NODES if group_of[node] == stage_group}
    assert names(read.inbound_of(["s"], platform="linux")) == sorted(needed - own)
    assert names(read.produced_by(["s"], platform="linux")) == sorted(own)
