"""Streams a bucket's listing: obstore, or boto3 where a key in it is one that obstore refuses to parse.

The objects directly in a folder are found in pages of everything below it, each beginning behind the sub-folder that
the page before ended in. The service's own way, a delimiter, is one that obstore does not stream; boto3 does, and takes
fifteen times as long for a page.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from _therock_utils._errors import NotFoundError, NotPermittedError, OutputsError
from _therock_utils._s3_calls import boto3_call, obstore_call, reading
from _therock_utils._s3_folder_keys import ShownKeys
from _therock_utils._s3_look import tolerant_health
from _therock_utils._s3_workers import affordable_concurrency, call_abandonably, lane, run_lanes

if TYPE_CHECKING:
    import datetime
    from collections.abc import Iterator, Sequence

    from mypy_boto3_s3.client import S3Client
    from mypy_boto3_s3.type_defs import ListObjectsV2RequestTypeDef
    from obstore.store import S3Store

    from _therock_utils._cancel import CancelToken
    from _therock_utils._s3_retry import BucketHealth, Retrier
    from _therock_utils._s3_session import S3Connection

_PAGE_KEYS = 1000
_LAST_CHARACTER = "\U0010ffff"  # what sorts behind it in a folder is met again, and passed over key by key
_MOST_SKIPS = 16
_LOOKS_AT_ONCE: Final = 64
_GRACE_SECONDS: Final = 0.5


class Listed(NamedTuple):
    """One key of a listing, as the service gives it: it may be one that no location can have."""

    key: str
    size_bytes: int
    etag: str
    modified: datetime.datetime


@dataclass(frozen=True, slots=True)
class _Page:
    keys: list[Listed]
    is_last: bool
    is_exact: bool  # keys with a slash at their end have it


class Listing:
    """The keys below a folder, one page (1,000 keys, about 1 MB) in memory at a time.

    A page that fails is asked for again as the Retrier says, from the last key seen on.
    """

    def __init__(
        self,
        connection: S3Connection,
        retrier: Retrier,
        health: BucketHealth,
        *,
        cancel: CancelToken,
        bucket: str,
        folder: str,
        after: str = "",
        direct: bool = False,
        most_pages: int = 0,
    ) -> None:
        """`folder` without its slash, "" for the root; only keys behind `after` are listed.

        With `direct` only what lies directly in the folder. With `most_pages` it ends after so many pages, whatever
        lies behind them.
        """
        self._connection = connection
        self._retrier = retrier
        self._health = health
        self._cancel = cancel
        self._bucket = bucket
        self._prefix = f"{folder}/" if folder else ""
        self._folder = folder
        self._after = after
        self._shown = ShownKeys(after=after)
        self._direct = direct
        self._most_pages = most_pages
        self._skips = 0
        self._stream: Iterator[Sequence[Any]] | None = None
        self._by_boto3 = False
        self._token = ""

    def __iter__(self) -> Iterator[Listed]:
        """Every key in the order of the service, but those with a slash at their end, which stand for folders.

        obstore shows such a key `x/` as `x`. Where what is shown around it does not tell, `x` is looked at if keys
        below it follow, or if it is empty, as what tools store for a folder is (64 looks at a time); any other with
        nothing below it is taken for an object.
        Raises an OutputsError where listing is refused or fails, and CancelledError also while a request hangs.
        """
        held: list[Listed] = []  # the last of the page before: what follows decides
        for page in self._pages():
            keys, doubtful = self._sift(page, held)
            folders = self._folders_of(doubtful)
            if folders:
                keys = [listed for listed in keys if listed not in folders]
            held = [] if page.is_exact else keys[-1:]
            yield from filter(self._is_wanted, keys[: len(keys) - len(held)])
        yield from filter(self._is_wanted, held)

    def _sift(self, page: _Page, held: list[Listed]) -> tuple[list[Listed], set[Listed]]:
        """`held` and the keys of the page that are not known to be folders, and those that may be folders."""
        keys, doubtful = list(held), set(held if page.is_exact else ())
        for listed in page.keys:
            key = listed.key
            if not key.startswith(self._prefix):  # the folder's own key
                continue
            kind = self._shown.take(key)
            if kind == "folder":
                continue
            if not page.is_exact:
                if keys and key.startswith(keys[-1].key):
                    if key.startswith(f"{keys[-1].key}/"):
                        doubtful.add(keys[-1])
                    elif key < f"{keys[-1].key}/":  # had that a slash, it would come behind this one
                        doubtful.discard(keys[-1])
                if kind == "unknown" or not listed.size_bytes:
                    doubtful.add(listed)
            keys.append(listed)
        return keys, doubtful

    def _is_wanted(self, listed: Listed) -> bool:
        return not self._direct or listed.key.find("/", len(self._prefix)) < 0

    def _folders_of(self, doubtful: set[Listed]) -> set[Listed]:
        """Those of the keys under which there is no object: they are shown without their slash."""
        wanted = list(filter(self._is_wanted, doubtful))
        if not wanted:
            return set()
        outcomes: dict[Listed, OutputsError] = {}
        health = tolerant_health()

        def look(listed: Listed) -> None:
            try:
                self._retrier.call(lambda: self._look(listed.key), health)
            except OutputsError as error:
                outcomes[listed] = error

        jobs = [partial(look, listed) for listed in wanted]
        run_lanes(
            [lane(jobs, affordable_concurrency(_LOOKS_AT_ONCE))], cancel=self._cancel, grace_seconds=_GRACE_SECONDS
        )
        self._cancel.check()
        for error in outcomes.values():
            # What may be listed and not be looked at counts as an object.
            if not isinstance(error, (NotFoundError, NotPermittedError)):
                raise error
        return {listed for listed, error in outcomes.items() if isinstance(error, NotFoundError)}

    def _look(self, key: str) -> None:
        def ask(store: S3Store) -> None:
            import obstore

            obstore.head(store, key)

        def request(signed: bool) -> None:  # noqa: FBT001 - the shape that `reading` calls
            obstore_call(self._connection, "look at", self._bucket, key, ask, signed=signed)

        reading(self._connection, self._bucket, request)

    def _pages(self) -> Iterator[_Page]:
        pages = 0
        while True:
            page = call_abandonably(partial(self._retrier.call, self._next_page, self._health), cancel=self._cancel)
            yield page
            pages += 1
            if page.is_last or pages == self._most_pages:
                return
            self._move_behind(page)

    def _move_behind(self, page: _Page) -> None:
        """Where the next page begins. A full page may end in a sub-folder whose rest is passed over."""
        if not page.keys:
            return
        self._after = self._shown.highest
        if self._by_boto3 or not self._direct or len(page.keys) < _PAGE_KEYS:
            return
        name, slash, _ = self._after[len(self._prefix) :].partition("/")
        end = f"{self._prefix}{name}/{_LAST_CHARACTER}"
        if slash and self._after < end:
            self._after, self._stream = end, None
            self._skips += 1
            # A folder of many large folders: there the service passes over them, 1,000 in a request.
            self._by_boto3 = self._skips == _MOST_SKIPS

    def _next_page(self) -> _Page:
        if not self._by_boto3:
            try:
                return reading(self._connection, self._bucket, self._next_chunk)
            except _UnparsableKeyError:
                self._by_boto3 = True
        return self._boto3_page()

    def _next_chunk(self, signed: bool) -> _Page:  # noqa: FBT001 - the shape that `reading` calls
        import obstore
        from obstore.exceptions import InvalidPathError

        def ask(store: S3Store) -> _Page:
            if self._stream is None:
                self._stream = iter(
                    obstore.list(store, self._folder or None, offset=self._after or None, chunk_size=_PAGE_KEYS)
                )
            try:
                chunk = next(self._stream, ())
            except InvalidPathError as error:
                raise _UnparsableKeyError from error
            except BaseException:
                self._stream = None  # it would now say that it has ended
                raise
            keys = [
                Listed(entry["path"], entry["size"], (entry["e_tag"] or "").strip('"'), entry["last_modified"])
                for entry in chunk
            ]
            return _Page(keys, is_last=not keys, is_exact=False)

        return obstore_call(self._connection, "list", self._bucket, self._folder, ask, signed=signed)

    def _boto3_page(self) -> _Page:
        request: ListObjectsV2RequestTypeDef = {"Bucket": self._bucket, "Prefix": self._prefix, "MaxKeys": _PAGE_KEYS}
        if self._direct:
            request["Delimiter"] = "/"
        if self._token:
            request["ContinuationToken"] = self._token
        else:
            request["StartAfter"] = self._after

        def ask(client: S3Client) -> _Page:
            answer = client.list_objects_v2(**request)
            keys = [
                Listed(entry["Key"], entry["Size"], entry["ETag"].strip('"'), entry["LastModified"])
                for entry in answer.get("Contents", [])
            ]
            self._token = answer.get("NextContinuationToken", "")
            return _Page(keys, is_last=not self._token, is_exact=True)

        return reading(
            self._connection,
            self._bucket,
            lambda signed: boto3_call(self._connection, "list", self._bucket, self._folder, ask, signed=signed),
        )


class _UnparsableKeyError(Exception):
    """A listing holds a key such as `a//b`."""
