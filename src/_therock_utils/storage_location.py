"""One file or folder, in S3 or in a staging directory (specification, "StorageLocation"). Pure."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from _therock_utils._keys import check_bucket, check_key


@dataclass(frozen=True, slots=True)
class StorageLocation:
    """A bucket and an object key (or key prefix), legal by construction.

    `relative_path` has no leading or trailing slash; "" is the bucket's root.
    Raises IllegalLocationError, a ValueError, for anything else.
    """

    bucket: str
    relative_path: str

    def __post_init__(self) -> None:
        """Refuse what is no legal bucket or key."""
        check_bucket(self.bucket)
        check_key(self.relative_path)

    @property
    def s3_uri(self) -> str:
        """`s3://bucket/key`, never percent-encoded."""
        return f"s3://{self.bucket}/{self.relative_path}"

    @property
    def https_url(self) -> str:
        """The object's AWS URL, each segment percent-encoded but for RFC 3986's unreserved characters."""
        return f"https://{self.bucket}.s3.amazonaws.com/{quote(self.relative_path, safe='/~')}"

    @property
    def name(self) -> str:
        """The last segment; "" at the bucket's root."""
        return self.relative_path.rpartition("/")[2]

    @property
    def parent(self) -> StorageLocation:
        """The folder that it lies in; the bucket's root is its own."""
        return StorageLocation(self.bucket, self.relative_path.rpartition("/")[0])

    def local_path(self, staging_dir: Path) -> Path:
        """The same place under `staging_dir`. Lexical: it does not look at the file system."""
        return Path(staging_dir, f"./{self.relative_path}")  # the dot: on Windows a segment `D:` is no drive then

    def child(self, relative_path: str) -> StorageLocation:
        """A location below this one. Raises IllegalLocationError where the result would be illegal."""
        joined = f"{self.relative_path}/{relative_path}" if self.relative_path else relative_path
        check_key(relative_path or "/")
        return StorageLocation(self.bucket, joined)
