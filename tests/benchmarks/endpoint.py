"""A fast S3 endpoint on 127.0.0.1 for benchmarks: nginx moves the bodies, a small helper answers what is rare.

nginx stores PUT bodies below a folder in memory, serves GET and HEAD from it, and copies objects where it has its Lua
module. Starting, completing, aborting and listing multipart uploads and listing objects go to a helper thread of this
module's process. It checks no signature and no digest: it measures clients, it does not test them. A second port adds a
delay to every answer (and to every `100 Continue`), as a distant region does.

A completed multipart object is an empty file of the true size (HEAD and listings are right); its parts stay where they
are and `stored_digest` reads them in order, so that completing costs the clients under measurement no copying.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import os
import secrets
import shutil
import socket
import string
import subprocess
import threading
import time
import urllib.parse
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
PAGE_KEYS = 1000  # ListObjectsV2: at most 1,000 keys a page
UPLOADS = ".uploads"  # no bucket can begin with a dot
BUFFER_BYTES = 1024 * 1024
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
START_SECONDS = 10.0

NGINX_CONFIGURATION = string.Template("""
$lua_modules
user root;
worker_processes $workers;
daemon off;
pid $home/nginx.pid;
error_log $home/error.log warn;
events { worker_connections 2048; }
http {
  access_log off;
  default_type application/octet-stream;
  sendfile on;
  tcp_nopush on;
  tcp_nodelay on;
  keepalive_requests 10000000;
  keepalive_timeout 300;
  client_max_body_size 0;
  client_body_buffer_size 128k;
  client_body_temp_path $data/.temporary;
  proxy_temp_path $home/proxy;
  fastcgi_temp_path $home/fastcgi;
  uwsgi_temp_path $home/uwsgi;
  scgi_temp_path $home/scgi;
  upstream helper { server 127.0.0.1:$helper_port; keepalive 8; }
  # Everything but plain PUT, GET, HEAD and DELETE of an object: POST, listings, open uploads, requests on the bucket.
  map "$$request_method $$request_uri" $$rare {
    default 0;
    "~^POST " 1;
    "~^[A-Z]+ /[^/?]*/?([?]|$$)" 1;
    "~[?&](list-type|uploads|location)(=|&|$$)" 1;
    "~^DELETE .*[?&]uploadId=" 1;
  }
  map $$args $$part {
    default "";
    "~(^|&)partNumber=(?<number>[0-9]+)(&.*)?$$" $$number;
  }
  map $$args $$upload {
    default "";
    "~(^|&)uploadId=(?<identifier>[0-9a-f]+)(&.*)?$$" $$identifier;
  }
  map $$request_method $$stored_etag { default $$sent_http_etag; PUT '"$etag"'; }
  server {
    listen 127.0.0.1:$port backlog=2048;
    include $home/objects.conf;
  }
  $delayed_server
}
""")

OBJECTS_CONFIGURATION = string.Template("""
    root $data;
    error_page 404 /.missing;
    location / {
      if ($$rare) { rewrite ^ /.helper last; }
      if ($$http_x_amz_copy_source) { rewrite ^ /.copy last; }
      if ($$part) { rewrite ^ /.uploads/$$upload/$$part last; }
      if (-d $$request_filename) { return 404; }
      dav_methods PUT DELETE;
      create_full_put_path on;
      dav_access user:rw;
      add_header ETag $$stored_etag always;
    }
    location /.uploads/ {
      internal;
      dav_methods PUT;
      dav_access user:rw;
      add_header ETag $$stored_etag always;
    }
    location = /.helper {
      internal;
      proxy_pass http://helper$$request_uri;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
    }
    $copies
    location = /.missing {
      internal;
      default_type application/xml;
      return 404 '<?xml version="1.0"?><Error><Code>NoSuchKey</Code><Message>The key does not exist.</Message></Error>';
    }
""")

# CopyObject of a small object into a folder that is there.
COPIES = string.Template("""
    location = /.copy {
      internal;
      content_by_lua_block {
        local there = ngx.unescape_uri(ngx.var.http_x_amz_copy_source:gsub("^/", ""))
        local here = ngx.unescape_uri(ngx.var.request_uri:match("^/([^?]*)"))
        local source = io.open("$data/" .. there, "rb")
        if not source then
          return ngx.exec("/.missing")
        end
        local data = source:read("*a")
        source:close()
        local target = assert(io.open("$data/" .. here, "wb"))
        target:write(data)
        target:close()
        ngx.header["Content-Type"] = "application/xml"
        ngx.print('<?xml version="1.0"?><CopyObjectResult><ETag>"$etag"</ETag>',
                  '<LastModified>2026-01-01T00:00:00.000Z</LastModified></CopyObjectResult>')
      }
    }
""")

DELAYED_SERVER = string.Template("""
  server {
    listen 127.0.0.1:$port backlog=2048;
    # Once for the answer, and once more for the `100 Continue` where the client waits for one.
    client_body_in_file_only clean;
    access_by_lua_block {
      ngx.sleep($delay_seconds)
      if ngx.req.get_headers()["expect"] then
        ngx.req.read_body()
        ngx.sleep($delay_seconds)
      end
    }
    include $home/objects.conf;
  }
""")


class EndpointError(Exception):
    """The endpoint cannot start, or was used wrongly; the message says what to do."""


@dataclass(frozen=True)
class _Upload:
    bucket: str
    key: str


class _Store:
    """What the helper knows: open uploads, completed ones, and the folder with the objects."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.open: dict[str, _Upload] = {}
        self.completed: dict[tuple[str, str], tuple[Path, ...]] = {}
        self.pages: dict[str, str] | None = None  # rendered pages by their query, where nothing changes any more
        self._listings: dict[tuple[str, str], list[str]] = {}
        self._lock = threading.Lock()

    def start(self, bucket: str, key: str) -> str:
        identifier = secrets.token_hex(16)
        (self.data / UPLOADS / identifier).mkdir(parents=True)
        with self._lock:
            self.open[identifier] = _Upload(bucket, key)
        return identifier

    def complete(self, identifier: str, part_numbers: list[int]) -> bool:
        """Whether every named part was there; the object then has their joined size."""
        parts = tuple(self.data / UPLOADS / identifier / str(number) for number in part_numbers)
        upload = self.open.get(identifier)
        if upload is None or not parts or not all(part.is_file() for part in parts):
            return False
        target = self.data / upload.bucket / upload.key
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as stream:
            stream.truncate(sum(part.stat().st_size for part in parts))
        with self._lock:
            self.completed[upload.bucket, upload.key] = parts
            del self.open[identifier]
        return True

    def abort(self, identifier: str) -> bool:
        with self._lock:
            known = self.open.pop(identifier, None)
        shutil.rmtree(self.data / UPLOADS / identifier, ignore_errors=True)
        return known is not None

    def keys(self, bucket: str, prefix: str, after: str) -> list[str]:
        """Keys with `prefix` after `after` in key order; one walk serves all pages of a listing."""
        with self._lock:
            if after and (bucket, prefix) in self._listings:
                found = self._listings[bucket, prefix]
            else:
                root = self.data / bucket
                start = root / prefix.rpartition("/")[0]
                found = sorted(
                    (key for path in _files(start) if (key := path[len(str(root)) + 1 :]).startswith(prefix)),
                    key=lambda key: key.encode(),
                )
                self._listings = {(bucket, prefix): found}
        return [key for key in found if key.encode() > after.encode()] if after else found

    def parts_of(self, bucket: str, key: str) -> tuple[Path, ...]:
        """The files that hold an object's bytes, in order."""
        return self.completed.get((bucket, key), (self.data / bucket / key,))

    def clear(self) -> None:
        with self._lock:
            self.open.clear()
            self.completed.clear()
            self._listings.clear()
            self.pages = None


def _files(folder: Path) -> Iterator[str]:
    for root, _, names in os.walk(folder):
        for name in names:
            yield f"{root}/{name}"


class _Helper(http.server.BaseHTTPRequestHandler):
    """The rare requests, which nginx passes on."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # headers and body in one write
    store: _Store
    timeout = 600

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
        """Say nothing: a line a request would be measured too."""

    def _target(self) -> tuple[str, str, dict[str, str]]:
        parts = urllib.parse.urlsplit(self.path)
        bucket, _, key = urllib.parse.unquote(parts.path).lstrip("/").partition("/")
        return bucket, key, dict(urllib.parse.parse_qsl(parts.query, keep_blank_values=True))

    def _answer(self, body: str, status: int = 200) -> None:
        data = ('<?xml version="1.0" encoding="UTF-8"?>' + body).encode() if body else b""
        self.send_response(status)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _refuse(self, status: int, code: str) -> None:
        self._answer(f"<Error><Code>{code}</Code><Message>{code}</Message></Error>", status)

    def do_POST(self) -> None:
        bucket, key, query = self._target()
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if "uploads" in query:
            identifier = self.store.start(bucket, key)
            self._answer(
                f'<InitiateMultipartUploadResult xmlns="{NAMESPACE}"><Bucket>{bucket}</Bucket><Key>{escape(key)}</Key>'
                f"<UploadId>{identifier}</UploadId></InitiateMultipartUploadResult>"
            )
            return
        numbers = [
            int(number.text or 0)
            for number in ET.fromstring(body).iter()  # noqa: S314 - our own clients on 127.0.0.1 send it
            if number.tag.rpartition("}")[2] == "PartNumber"
        ]
        if not self.store.complete(query.get("uploadId", ""), numbers):
            self._refuse(400, "InvalidPart")
            return
        self._answer(
            f'<CompleteMultipartUploadResult xmlns="{NAMESPACE}"><Location>{escape(key)}</Location>'
            f"<Bucket>{bucket}</Bucket><Key>{escape(key)}</Key><ETag>&quot;{ETAG}-{len(numbers)}&quot;</ETag>"
            "</CompleteMultipartUploadResult>"
        )

    def do_DELETE(self) -> None:
        if self.store.abort(self._target()[2].get("uploadId", "")):
            self._answer("", 204)
        else:
            self._refuse(404, "NoSuchUpload")

    def do_PUT(self) -> None:
        self._answer("")  # CreateBucket: a bucket is a folder, made by the first object

    def do_HEAD(self) -> None:
        self._answer("")  # HeadBucket: every bucket is there

    def do_GET(self) -> None:
        bucket, _, query = self._target()
        if "location" in query:
            self._answer(f'<LocationConstraint xmlns="{NAMESPACE}">us-east-2</LocationConstraint>')
        elif "uploads" in query:
            uploads = "".join(
                f"<Upload><Key>{escape(upload.key)}</Key><UploadId>{identifier}</UploadId></Upload>"
                for identifier, upload in sorted(self.store.open.items())
                if upload.bucket == bucket and upload.key.startswith(query.get("prefix", ""))
            )
            self._answer(
                f'<ListMultipartUploadsResult xmlns="{NAMESPACE}"><Bucket>{bucket}</Bucket>'
                f"<IsTruncated>false</IsTruncated>{uploads}</ListMultipartUploadsResult>"
            )
        else:
            self._answer(self._page(bucket, query))

    def _page(self, bucket: str, query: dict[str, str]) -> str:
        pages = self.store.pages
        page = pages.get(self.path) if pages is not None else None
        if page is None:
            page = _listing(self.store, bucket, query)
            if pages is not None:
                pages[self.path] = page
        return page


def _listing(store: _Store, bucket: str, query: Mapping[str, str]) -> str:
    """One page of ListObjectsV2 (or of ListObjects, which no client here pages)."""
    prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
    after = query.get("continuation-token") or query.get("start-after") or ""
    limit = min(int(query.get("max-keys") or PAGE_KEYS), PAGE_KEYS)
    encode = urllib.parse.quote if query.get("encoding-type") == "url" else escape
    entries: dict[str, str] = {}
    last, truncated = "", False
    for key in store.keys(bucket, prefix, after):
        head, found, _ = key[len(prefix) :].partition(delimiter) if delimiter else ("", "", "")
        folder = prefix + head + delimiter if found else ""
        if folder and (folder in entries or after.startswith(folder)):
            last = key
            continue
        if len(entries) == limit:
            truncated = True
            break
        last = key
        if folder:
            entries[folder] = f"<CommonPrefixes><Prefix>{encode(folder)}</Prefix></CommonPrefixes>"
        else:
            entries[key] = _contents(store.data / bucket / key, encode(key))
    token = f"<NextContinuationToken>{escape(last)}</NextContinuationToken>" if truncated else ""
    return (
        f'<ListBucketResult xmlns="{NAMESPACE}"><Name>{bucket}</Name><Prefix>{encode(prefix)}</Prefix>'
        f"<KeyCount>{len(entries)}</KeyCount><MaxKeys>{limit}</MaxKeys>"
        f"{'<EncodingType>url</EncodingType>' if encode is urllib.parse.quote else ''}"
        f"<IsTruncated>{str(truncated).lower()}</IsTruncated>{token}{''.join(entries.values())}</ListBucketResult>"
    )


def _contents(path: Path, key: str) -> str:
    status = path.stat()
    modified = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(status.st_mtime))
    # The ETag is the one that nginx gives the file.
    return (
        f"<Contents><Key>{key}</Key><LastModified>{modified}</LastModified>"
        f"<ETag>&quot;{int(status.st_mtime):x}-{status.st_size:x}&quot;</ETag><Size>{status.st_size}</Size>"
        "<StorageClass>STANDARD</StorageClass></Contents>"
    )


ETAG = hashlib.md5(b"", usedforsecurity=False).hexdigest()


class Endpoint:
    """The running endpoint, as a context manager. `folder` must be in memory and belong to it alone.

    `url` answers at once, `delayed_url` after `latency_seconds` ("" where that is 0). With `copies` it copies objects.
    Raises EndpointError where nginx, or for a delay or copies its Lua module, is missing or does not start.
    """

    def __init__(self, folder: Path, *, latency_seconds: float = 0.0, workers: int = 2, copies: bool = False) -> None:
        self.data = folder / "data"
        self._home = folder / "nginx"
        self._latency_seconds = latency_seconds
        self._needs_lua = copies
        self._workers = workers
        self._store = _Store(self.data)
        self._stack = contextlib.ExitStack()
        self._process: subprocess.Popen[bytes] | None = None
        self.url = self.delayed_url = ""

    def __enter__(self) -> Self:
        """Start both servers and wait until they answer."""
        with contextlib.ExitStack() as stack:
            self.data.mkdir(parents=True)
            self._home.mkdir()
            handler = type("Handler", (_Helper,), {"store": self._store})
            helper = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
            helper.daemon_threads = True
            threading.Thread(target=helper.serve_forever, daemon=True).start()
            stack.callback(helper.server_close)
            stack.callback(helper.shutdown)
            ports = [_free_port() for _ in range(2 if self._latency_seconds else 1)]
            self._configure(helper.server_address[1], ports)
            self._process = subprocess.Popen([_nginx(), "-p", str(self._home), "-c", str(self._home / "nginx.conf")])
            stack.callback(self._stop)
            for port in ports:
                self._wait(port)
            self.url = f"http://127.0.0.1:{ports[0]}"
            self.delayed_url = f"http://127.0.0.1:{ports[1]}" if self._latency_seconds else ""
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop both servers; the folder stays for its owner to remove."""
        self._stack.close()

    def _configure(self, helper_port: int, ports: list[int]) -> None:
        delayed = modules = copies = ""
        folder = Path("/usr/lib/nginx/modules")
        names = [folder / "ndk_http_module.so", folder / "ngx_http_lua_module.so"]
        if all(name.is_file() for name in names):
            modules = "\n".join(f"load_module {name};" for name in names)
            copies = COPIES.substitute(data=self.data, etag=ETAG)
        elif self._needs_lua or len(ports) > 1:
            msg = "copies and a delay need nginx's Lua module: apt-get install libnginx-mod-http-lua"
            raise EndpointError(msg)
        if len(ports) > 1:
            delayed = DELAYED_SERVER.substitute(port=ports[1], delay_seconds=self._latency_seconds, home=self._home)
        (self._home / "objects.conf").write_text(OBJECTS_CONFIGURATION.substitute(data=self.data, copies=copies))
        (self._home / "nginx.conf").write_text(
            NGINX_CONFIGURATION.substitute(
                lua_modules=modules,
                workers=self._workers,
                home=self._home,
                data=self.data,
                helper_port=helper_port,
                port=ports[0],
                delayed_server=delayed,
                etag=ETAG,
            )
        )

    def _stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(START_SECONDS)

    def _wait(self, port: int) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self._process is None or self._process.poll() is not None:
                break
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                return
            time.sleep(0.02)
        log = self._home / "error.log"
        raise EndpointError(f"nginx did not start: {log.read_text() if log.exists() else 'see its message above'}")

    def cpu_seconds(self) -> float:
        """Processor time that nginx has used so far, its workers included."""
        if self._process is None:
            return 0.0
        ticks = 0
        for status in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):  # a process that ends meanwhile is none of nginx's
                fields = status.read_text().rpartition(")")[2].split()
                if str(self._process.pid) in {status.parent.name, fields[1]}:  # field 4 of the line: the parent
                    ticks += int(fields[11]) + int(fields[12])  # fields 14 and 15: user and system time
        return ticks / CLOCK_TICKS

    def publish(self, bucket: str, prefix: str, source: Path) -> None:
        """Make the files below `source` downloadable below `prefix`, as hard links: they take no more memory."""
        target = self.data / bucket / prefix
        shutil.copytree(source, target, copy_function=os.link)

    def sizes(self, bucket: str, prefix: str) -> dict[str, int]:
        """Size in bytes of every stored object, by its key below `prefix`."""
        root = self.data / bucket / prefix
        return {path[len(str(root)) + 1 :]: Path(path).stat().st_size for path in _files(root)}

    def stored_digest(self, bucket: str, key: str) -> str:
        """SHA-256 of the bytes that arrived for one object."""
        digest = hashlib.sha256()
        for part in self._store.parts_of(bucket, key):
            with part.open("rb") as stream:
                while block := stream.read(BUFFER_BYTES):
                    digest.update(block)
        return digest.hexdigest()

    def lay(self, bucket: str, keys: Iterable[str], data: bytes) -> None:
        """Make an object of each key."""
        for key in keys:
            path = self.data / bucket / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

    def make_folder(self, bucket: str, prefix: str) -> None:
        """Make the folder that objects are copied to."""
        (self.data / bucket / prefix).mkdir(parents=True, exist_ok=True)

    def keep_listings(self) -> None:
        """From now on render each page of a listing once: nothing changes until `remove`."""
        self._store.pages = {}

    def open_uploads(self) -> int:
        """How many multipart uploads were neither completed nor aborted."""
        return len(self._store.open)

    def remove(self, bucket: str, prefix: str) -> None:
        """Remove every object below `prefix` and all parts."""
        shutil.rmtree(self.data / bucket / prefix, ignore_errors=True)
        shutil.rmtree(self.data / UPLOADS, ignore_errors=True)
        self._store.clear()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _nginx() -> str:
    found = shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
    if found is None:
        msg = "nginx is missing: apt-get install nginx libnginx-mod-http-lua"
        raise EndpointError(msg)
    return found
