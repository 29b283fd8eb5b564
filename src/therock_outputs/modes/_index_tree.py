"""Puts a listing in key order together to folders, each as soon as it is complete. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from therock_outputs.index_json import JSON_NAME, is_own_json
from therock_outputs.index_page import GENERATOR, OWN_GENERATORS, PAGE_NAME, FileEntry, FolderEntry, generator_of

if TYPE_CHECKING:
    import datetime
    from collections.abc import Callable, Iterable, Iterator

DOCUMENT_NAMES: Final = (PAGE_NAME, JSON_NAME)

RECORDS_FOLDER: Final = "reports"
"""The folder of run records, which change with every step: it is not listed and gets no page."""

Maker = Literal["this", "sibling", "other", "unknown", "new"]
"""Who made a document: the program of these pages, another one of this project, anybody else; it could not be read; or
it was not there yet when documents were read."""


@dataclass(frozen=True, slots=True)
class Item:
    """An object: its name relative to the run, its size, when it was stored and its digest ("" where not known)."""

    name: str
    size_bytes: int
    modified: datetime.datetime
    sha256: str = ""


@dataclass(slots=True)
class Folder:
    """A folder of the run with all that lies directly in it. `path` is relative to the run, "" for the run itself.

    `documents`: who made those of DOCUMENT_NAMES that are there. `kept`: those that must stay as they are; they are
    among `files` where they are another program's.
    """

    path: str
    files: list[FileEntry] = field(default_factory=list)
    folders: list[FolderEntry] = field(default_factory=list)
    documents: dict[str, Maker] = field(default_factory=dict)
    kept: set[str] = field(default_factory=set)

    @property
    def has_content(self) -> bool:
        """Whether anything lies here or below but documents of this project."""
        return bool(self.files or self.folders)

    @property
    def is_siblings(self) -> bool:
        """Whether another program of this project made the page."""
        return self.documents.get(PAGE_NAME) == "sibling"

    @property
    def names_to_write(self) -> tuple[str, ...]:
        """The documents that this folder is to have of the program of these pages.

        Beside a page that stays whatever its folder holds, a list that is there stays right, too.
        """
        if not self.has_content and not (self.is_siblings and self.documents.get(JSON_NAME) == "this"):
            return ()
        left = self.kept | ({PAGE_NAME} if self.is_siblings else set())
        return tuple(name for name in DOCUMENT_NAMES if name not in left)

    @property
    def new_documents(self) -> tuple[str, ...]:
        """Those that appeared and that nobody has read."""
        return tuple(name for name, maker in self.documents.items() if maker == "new")

    @property
    def depth(self) -> int:
        """How many folders of the run it lies in, with itself."""
        return self.path.count("/") + 1 if self.path else 0

    def entry(self) -> FolderEntry:
        """Its row on the page of the folder that it lies in. It has content."""
        return FolderEntry(
            self.path.rpartition("/")[2],
            len(self.files) + sum(folder.file_count for folder in self.folders),
            sum(file.size_bytes for file in self.files) + sum(folder.total_bytes for folder in self.folders),
            max([file.modified for file in self.files] + [folder.modified for folder in self.folders]),
            has_page=PAGE_NAME in self.documents,
        )


def maker_of(name: str, data: bytes) -> Maker:
    """Who made the document `name`, one of DOCUMENT_NAMES."""
    if name == JSON_NAME:
        return "this" if is_own_json(data) else "other"
    generator = generator_of(data)
    if generator == GENERATOR:
        return "this"
    return "sibling" if generator.startswith(OWN_GENERATORS) else "other"


def folders_of(items: Iterable[Item], maker: Callable[[str], Maker], *, top: str, force: bool) -> Iterator[Folder]:
    """Every folder from `top` down, those in a folder before it. `items`, all below `top`, come in key order.

    `maker` says who made the document of a name. `force`: other programs' pages may be replaced. Memory: the rows of
    the open folders.
    """
    stack: list[tuple[Folder, list[FileEntry]]] = []
    for item in items:
        path, _, name = item.name.rpartition("/")
        if not stack or path != stack[-1][0].path:
            while stack and not _is_below(path, stack[-1][0].path):
                yield _close(stack, force=force)
            _open(stack, path, top)
        folder, foreign = stack[-1]
        entry = FileEntry(name, item.size_bytes, item.modified, item.sha256)
        if name not in DOCUMENT_NAMES:
            folder.files.append(entry)
            continue
        folder.documents[name] = maker(item.name)
        if folder.documents[name] in {"other", "unknown"}:
            foreign.append(entry)
    while stack:
        yield _close(stack, force=force)


def parents(path: str) -> Iterator[str]:
    """The folders that `path` lies in, the nearest first; the last is "", the run."""
    while path:
        path = path.rpartition("/")[0]
        yield path


def is_record(name: str) -> bool:
    """Whether the object `name`, relative to the run, is a run record."""
    return name.startswith(f"{RECORDS_FOLDER}/")


def join(path: str, name: str) -> str:
    """The name, relative to the run, of what lies in the folder `path`, "" for the run."""
    return f"{path}/{name}" if path else name


def _open(stack: list[tuple[Folder, list[FileEntry]]], path: str, top: str) -> None:
    """Open the folders from the innermost open one, or `top`, to `path`."""
    if not stack:
        stack.append((Folder(top), []))
    missing = [path, *parents(path)]
    stack.extend((Folder(each), []) for each in reversed(missing[: missing.index(stack[-1][0].path)]))


def _close(stack: list[tuple[Folder, list[FileEntry]]], *, force: bool) -> Folder:
    folder, foreign = stack.pop()
    # A page that is all there is in its folder is what the folder is for.
    is_replaced = force and folder.has_content
    kept = [file for file in foreign if not is_replaced or folder.documents[file.name] == "unknown"]
    folder.kept.update(file.name for file in kept)
    folder.files.extend(kept)
    if stack and folder.has_content:
        stack[-1][0].folders.append(folder.entry())
    return folder


def _is_below(path: str, folder: str) -> bool:
    return not folder or path == folder or path.startswith(f"{folder}/")
