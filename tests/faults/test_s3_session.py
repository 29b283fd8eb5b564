"""Whose credentials, which region, endpoint and certificate a request uses, seen by the server that gets it."""

from __future__ import annotations

import datetime
import http.server
import ipaddress
import ssl
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import obstore
import pytest
from botocore.credentials import Credentials, RefreshableCredentials
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from _therock_utils import _errors
from _therock_utils._s3_calls import head_facts, obstore_call
from _therock_utils._s3_session import S3Connection
from _therock_utils._transfer_types import DownloadItem
from _therock_utils.s3_buckets import REGION
from _therock_utils.storage_backend import S3StorageBackend
from _therock_utils.storage_location import StorageLocation
from fakes.s3_environment import ACCESS_KEY_ID, clean_aws_environment
from fakes.s3_fault_proxy import Answer, s3_error

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fakes.s3_fault_proxy import Fault, Request
    from faults.conftest import Bucket

INVENTORY_BUCKET = "therock-ci-artifacts"
PLACES = ["argument", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "services", "profile"]


def _connection(**options: object) -> S3Connection:
    return S3Connection(request_timeout_seconds=5, retry_seconds=0.2, **options)  # type: ignore[arg-type] # tests name them right


def _put(connection: S3Connection, bucket: str = "bucket") -> None:
    obstore.put(connection.store(bucket), "key", b"data", use_multipart=False)


def _signer(request: Request) -> str:
    """Access key, date, region and service that a request was signed with; "" for an anonymous one."""
    _, _, scope = request.headers.get("authorization", "").partition("Credential=")
    return scope.partition(",")[0]


def _accept(_: Request) -> Fault:
    return Answer(200, b"", {"ETag": '"x"'})


@pytest.mark.parametrize("place", PLACES)
def test_the_endpoint_is_found_where_boto3_finds_it(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: str
) -> None:
    bucket.proxy.rule = _accept
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3")
    url = bucket.proxy.url
    config = tmp_path / "config"
    config.write_text(
        f"[profile there]\nendpoint_url = {url}\n"
        "[profile service]\nendpoint_url = http://127.0.0.1:1\nservices = here\n"
        f"[services here]\ns3 =\n  endpoint_url = {url}\n"
    )
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    if place.startswith("AWS_"):
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
        monkeypatch.setenv(place, url)
    elif place != "argument":
        monkeypatch.setenv("AWS_PROFILE", "there" if place == "profile" else "service")
    _put(_connection(endpoint_url=url if place == "argument" else ""))
    assert [request.path for request in bucket.proxy.requests] == ["/bucket/key"]


def test_an_endpoint_that_is_to_be_ignored_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    clean_aws_environment(monkeypatch)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true")
    assert not _connection().endpoint


@pytest.mark.parametrize(
    "url",
    [
        "ftp://x",
        "nonsense",
        "http://",
        "http://a:b@c/",
        "http://[",
        "http://x/?y",
        "http://x/#y",
        "http://127.0.0.1:99999",
        "http://127.0.0.1:0",
        "http://127.0.0.1:x",
        "http://a b/",
        "http://a/\x01",
        "http://a\nb/",
        "http://\u00e4.example/",
        "http://a^b/",
    ],
)
def test_an_endpoint_that_is_no_url_is_an_input_error(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    clean_aws_environment(monkeypatch)
    monkeypatch.setenv("AWS_ENDPOINT_URL", url)
    with pytest.raises(_errors.InputError, match="AWS_ENDPOINT_URL"):
        _ = _connection().endpoint


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/ \n", "http://[::1]:9000", "https://my_host", "http://x.y/path"])
def test_an_endpoint_is_used_without_blanks_around_it(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    clean_aws_environment(monkeypatch)
    monkeypatch.setenv("AWS_ENDPOINT_URL", url)
    assert _connection().endpoint == url.strip().rstrip("/")
    _connection().store("bucket", signed=False)


@pytest.mark.parametrize("region", ["us east", "us-east-1\x00", "us/east", "-", "\u00fcs", "a" * 64])
def test_a_region_that_is_none_is_an_input_error(monkeypatch: pytest.MonkeyPatch, region: str) -> None:
    clean_aws_environment(monkeypatch)
    connection = _connection(region=region)
    with pytest.raises(_errors.InputError, match="region"):
        connection.store("bucket", signed=False)


def test_a_region_is_used_without_blanks_around_it(monkeypatch: pytest.MonkeyPatch) -> None:
    clean_aws_environment(monkeypatch)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1\n")
    assert _connection().region("bucket") == "eu-west-1"


def test_what_the_url_library_refuses_is_an_error_and_no_panic(monkeypatch: pytest.MonkeyPatch) -> None:
    clean_aws_environment(monkeypatch)
    monkeypatch.setattr("_therock_utils._s3_session.checked_endpoint", lambda _: "http://127.0.0.1:99999")
    connection = _connection(credentials_for=lambda _: Credentials("AKIAGIVEN", "made-up"))
    with pytest.raises(_errors.ServiceError, match="AWS settings"):
        obstore_call(connection, "store", "bucket", "key", _put_to)


def test_what_only_boto3_takes_for_no_host_is_an_input_error(monkeypatch: pytest.MonkeyPatch) -> None:
    clean_aws_environment(monkeypatch)
    connection = _connection(
        endpoint_url="http://my_host", credentials_for=lambda _: Credentials("AKIAGIVEN", "made-up")
    )
    with pytest.raises(_errors.InputError, match="AWS settings"):
        head_facts(connection, "bucket", "key")


def _put_to(store: obstore.store.S3Store) -> None:
    obstore.put(store, "key", b"data", use_multipart=False)


@pytest.mark.parametrize(
    ("name", "virtual_hosted", "url"),
    [
        (INVENTORY_BUCKET, "true", f"https://{INVENTORY_BUCKET}.s3.us-east-2.amazonaws.com"),
        ("some-bucket", "true", "https://some-bucket.s3.eu-west-1.amazonaws.com"),
        ("dotted.bucket", "false", "https://s3.eu-west-1.amazonaws.com"),
    ],
)
def test_at_aws_the_bucket_is_in_the_host_name_where_the_certificate_allows_it(
    monkeypatch: pytest.MonkeyPatch, name: str, virtual_hosted: str, url: str
) -> None:
    clean_aws_environment(monkeypatch)
    monkeypatch.setenv("AWS_REGION", "ap-south-1")  # botocore itself reads AWS_DEFAULT_REGION
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    config = _connection().store(name, signed=False).config
    assert (config["virtual_hosted_style_request"], config["endpoint"]) == (virtual_hosted, url)


def test_the_region_of_an_inventory_bucket_is_known_and_any_other_is_the_sessions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clean_aws_environment(monkeypatch)
    assert _connection().region("some-bucket") == "us-east-1"
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    assert _connection().region(INVENTORY_BUCKET) == REGION
    assert _connection().region("some-bucket") == "eu-west-1"
    assert _connection(endpoint_url="http://127.0.0.1:1").region(INVENTORY_BUCKET) == "eu-west-1"
    assert _connection(region="sa-east-1").region(INVENTORY_BUCKET) == "sa-east-1"


def test_settings_that_only_obstore_would_read_from_the_environment_play_no_part(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.proxy.rule = _accept
    for name, value in {
        "AWS_SKIP_SIGNATURE": "true",
        "AWS_S3_EXPRESS": "true",
        "AWS_UNSIGNED_PAYLOAD": "true",
        "AWS_CHECKSUM_ALGORITHM": "crc64nvme",
        "AWS_REQUEST_PAYER": "true",
        "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "true",
        "AWS_ALLOW_INVALID_CERTIFICATES": "true",
    }.items():
        monkeypatch.setenv(name, value)
    connection = _connection()
    _put(connection)
    request = bucket.proxy.requests[0]
    assert request.path == "/bucket/key"
    assert _signer(request).split("/")[2:4] == ["us-east-1", "s3"]
    assert "x-amz-checksum-sha256" in request.headers
    assert request.headers["x-amz-content-sha256"] != "UNSIGNED-PAYLOAD"
    assert "x-amz-request-payer" not in request.headers
    options = connection.store("bucket").client_options or {}
    assert options["allow_invalid_certificates"] == "false"


def test_credentials_come_from_the_profile(bucket: Bucket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bucket.proxy.rule = _accept
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    (tmp_path / "credentials").write_text("[other]\naws_access_key_id = AKIAPROFILE\naws_secret_access_key = made-up\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_PROFILE", "other")
    _put(_connection())
    assert _signer(bucket.proxy.requests[0]).startswith("AKIAPROFILE/")


def test_half_of_a_pair_of_credentials_is_a_credentials_error(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    result = S3StorageBackend().upload([bucket.item("a")])
    assert [type(item.error) for item in result.failed] == [_errors.CredentialsError]
    assert "AWS_SECRET_ACCESS_KEY" in result.failed[0].error.why


@pytest.mark.parametrize("name", ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"])
def test_a_line_end_after_a_part_of_the_credentials_plays_no_part(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "made-up")
    monkeypatch.setenv(name, f" {ACCESS_KEY_ID}\n")
    connection = _connection()
    bucket.proxy.rule = _accept
    _put(connection)
    with suppress(_errors.OutputsError):
        head_facts(connection, "bucket", "key")
    assert [request.method for request in bucket.proxy.requests] == ["PUT", "HEAD"]
    assert all(_signer(request).startswith("AKIATEST") for request in bucket.proxy.requests)
    token = ACCESS_KEY_ID if name == "AWS_SESSION_TOKEN" else "made-up"
    assert {request.headers["x-amz-security-token"] for request in bucket.proxy.requests} == {token}


@pytest.mark.parametrize("value", ["hid\nden", "hid den", "hidd\u00e9n", "hid\x7fden", " "])
@pytest.mark.parametrize("name", ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"])
def test_credentials_that_no_header_can_carry_are_told_and_not_shown(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    if name == "AWS_SESSION_TOKEN" and not value.strip():
        return  # no token at all
    result = S3StorageBackend().upload([bucket.item("a")])
    error = result.failed[0].error
    assert type(error) is _errors.CredentialsError
    assert name in error.remedy
    assert "hid" not in str(error)
    assert bucket.proxy.requests == []


def test_renewed_credentials_that_no_header_can_carry_are_told_and_not_shown(bucket: Bucket) -> None:
    expiry = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=9)
    answer = {"access_key": "AKIA", "secret_key": "x", "token": "hid\nden", "expiry_time": expiry.isoformat()}
    credentials = RefreshableCredentials.create_from_metadata(answer, lambda: answer, "oidc")
    result = S3StorageBackend(credentials_for=lambda _: credentials, retry_seconds=1).upload([bucket.item("a")])
    assert type(result.failed[0].error) is _errors.CredentialsError
    assert "session token" in result.failed[0].error.why
    assert "hid" not in str(result.failed[0].error)


def test_a_profile_that_does_not_exist_is_a_credentials_error(monkeypatch: pytest.MonkeyPatch) -> None:
    clean_aws_environment(monkeypatch)
    monkeypatch.setenv("AWS_PROFILE", "missing")
    with pytest.raises(_errors.CredentialsError, match="AWS_PROFILE"):
        _ = _connection().session


def test_credentials_of_one_bucket_are_used_for_that_bucket_by_both_clients(bucket: Bucket) -> None:
    given = Credentials("AKIAGIVEN", "made-up", method="oidc")
    connection = _connection(credentials_for=lambda name: given if name == bucket.name else None)
    _put(connection, bucket.name)
    head_facts(connection, bucket.name, "key")
    bucket.proxy.rule = _accept
    _put(connection, "other-bucket")
    assert [_signer(request).partition("/")[0] for request in bucket.proxy.requests] == [
        "AKIAGIVEN",
        "AKIAGIVEN",
        "AKIATESTTESTTEST1234",
    ]


def test_credentials_that_run_out_are_renewed_for_both_clients(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in an upload that outlasts its role session. The lifetime that obstore is told is cut, to not wait for it."""
    monkeypatch.setattr("_therock_utils._s3_session._CREDENTIAL_TTL", datetime.timedelta(seconds=-1))
    renewals: list[str] = []

    def renew() -> dict[str, str]:
        renewals.append(f"AKIARENEWED{len(renewals)}")
        expiry = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=1)  # at once too short for botocore
        return {
            "access_key": renewals[-1],
            "secret_key": "made-up",
            "token": "made-up",
            "expiry_time": expiry.isoformat(),
        }

    credentials = RefreshableCredentials.create_from_metadata(renew(), renew, "oidc")
    connection = _connection(credentials_for=lambda _: credentials)
    _put(connection, bucket.name)
    _put(connection, bucket.name)
    head_facts(connection, bucket.name, "key")
    signers = [_signer(request).partition("/")[0] for request in bucket.proxy.requests]
    assert len(set(signers)) == 3
    assert set(signers) <= set(renewals)


def test_a_denial_says_whose_the_credentials_are(
    bucket: Bucket, moto_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", moto_url)
    bucket.proxy.rule = lambda _: s3_error(403, "AccessDenied")
    result = S3StorageBackend().upload([bucket.item("a"), bucket.item("b")])
    assert "which are arn:aws:sts::123456789012:user/moto" in result.failed[0].error.remedy


def test_a_denial_is_told_though_nobody_says_whose_the_credentials_are(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", "http://127.0.0.1:1")
    bucket.proxy.rule = lambda _: s3_error(403, "AccessDenied")
    result = S3StorageBackend().upload([bucket.item("a")])
    assert type(result.failed[0].error) is _errors.NotPermittedError


def test_a_denial_of_another_service_is_not_asked_about_at_that_service(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", bucket.proxy.url)
    bucket.proxy.rule = lambda _: s3_error(403, "AccessDenied")
    result = S3StorageBackend().upload([bucket.item("a")])
    assert type(result.failed[0].error) is _errors.NotPermittedError
    assert bucket.proxy.count(lambda request: request.method == "POST") == 0


@pytest.mark.parametrize(
    "answer",
    [
        Answer(200, b"<html>log in</html>"),
        Answer(200, b"nothing of XML"),
        Answer(200),
        Answer(500, b"<Error/>"),
        s3_error(403, "AccessDenied"),
        Answer(200, b"<GetCallerIdentityResponse><GetCallerIdentityResult/></GetCallerIdentityResponse>"),
    ],
)
def test_a_denial_is_told_whatever_the_service_of_identities_answers(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch, answer: Answer
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", bucket.proxy.url)
    bucket.proxy.rule = lambda request: answer if request.method == "POST" else s3_error(403, "AccessDenied")
    result = S3StorageBackend().upload([bucket.item("a")])
    assert type(result.failed[0].error) is _errors.NotPermittedError
    assert "which are" not in result.failed[0].error.remedy
    assert bucket.proxy.count(lambda request: request.method == "POST") == 1


def test_credentials_that_cannot_be_renewed_are_told_as_such(bucket: Bucket) -> None:
    def renew() -> dict[str, str]:
        message = "the role said no"
        raise ZeroDivisionError(message)

    long_ago = datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC).isoformat()
    metadata = {"access_key": "AKIAOLD", "secret_key": "x", "token": "x", "expiry_time": long_ago}
    credentials = RefreshableCredentials.create_from_metadata(metadata, renew, "oidc")
    backend = S3StorageBackend(credentials_for=lambda _: credentials)
    result = backend.upload([bucket.item("a"), bucket.item("b")])
    assert {type(item.error) for item in result.failed} == {_errors.CredentialsError}
    assert "the role said no" in result.failed[0].error.why


def _listing(keys: list[str]) -> bytes:
    entries = "".join(
        f"<Contents><Key>{key}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>&quot;x&quot;</ETag>"
        f"<Size>4</Size></Contents>"
        for key in keys
    )
    return f"<ListBucketResult><IsTruncated>false</IsTruncated>{entries}</ListBucketResult>".encode()


def test_a_public_inventory_bucket_is_read_without_credentials(bucket: Bucket) -> None:
    bucket.proxy.rule = lambda _: Answer(200, _listing(["run/a"]))
    listed = S3StorageBackend().list_objects(StorageLocation(INVENTORY_BUCKET, "run"))
    assert [entry.location.relative_path for entry in listed] == ["run/a"]
    assert {_signer(request) for request in bucket.proxy.requests} == {""}


def test_an_inventory_bucket_that_denies_anonymous_reads_is_asked_signed_from_then_on(
    bucket: Bucket, tmp_path: Path
) -> None:
    bucket.proxy.rule = lambda request: (
        Answer(200, b"data", {"ETag": '"x"', "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"})
        if _signer(request)
        else s3_error(403, "AccessDenied")
    )
    backend = S3StorageBackend()
    for name in ("a", "b"):
        item = DownloadItem(StorageLocation(INVENTORY_BUCKET, name), tmp_path / name)
        assert not backend.download([item]).failed
    assert [bool(_signer(request)) for request in bucket.proxy.requests] == [False, True, True]


def test_one_process_has_clients_for_several_buckets_and_asks_sts(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", bucket.proxy.url)
    bucket.proxy.rule = lambda request: s3_error(403, "AccessDenied") if "/denied" in request.path else None
    backend = S3StorageBackend()
    denied = StorageLocation("denied-bucket", "a")
    (error,) = backend.describe([denied])
    assert isinstance(error, _errors.NotPermittedError)
    assert "arn:aws:" in error.remedy
    bucket.client.put_object(Bucket=bucket.name, Key="a", Body=b"x")
    assert [getattr(facts, "size_bytes", facts) for facts in backend.describe([bucket.at("a")])] == [1]


def test_any_other_bucket_is_read_signed(bucket: Bucket) -> None:
    bucket.client.put_object(Bucket=bucket.name, Key="run/a", Body=b"")
    assert [entry.size_bytes for entry in S3StorageBackend().list_objects(bucket.at("run"))] == [0]
    assert all(_signer(request) for request in bucket.proxy.requests)


def test_without_credentials_reads_are_anonymous(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    bucket.proxy.rule = lambda _: s3_error(403, "AccessDenied")
    with pytest.raises(_errors.NotPermittedError, match="without credentials"):
        list(S3StorageBackend().list_objects(bucket.at("run")))
    assert [_signer(request) for request in bucket.proxy.requests] == [""]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an authority's certificate `ca.pem`, and `leaf.pem` for 127.0.0.1 signed by it."""
    folder = tmp_path_factory.mktemp("authority")
    now = datetime.datetime.now(datetime.UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tests' own authority")])
    key, leaf_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    builder = (
        x509.CertificateBuilder()
        .issuer_name(name)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
    )
    ca = (
        builder.subject_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    leaf = (
        builder.subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")]))
        .public_key(leaf_key.public_key())
        .serial_number(2)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    other = builder.subject_name(name).public_key(leaf_key.public_key()).serial_number(3).sign(key, hashes.SHA256())
    pem = serialization.Encoding.PEM
    secret = leaf_key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "other.pem").write_bytes(other.public_bytes(pem))
    (folder / "ca.pem").write_bytes(ca.public_bytes(pem))
    (folder / "leaf.pem").write_bytes(leaf.public_bytes(pem) + secret)
    return folder


@contextmanager
def _tls_server(certificate: Path) -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response_only(200)
            self.send_header("ETag", '"x"')
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
            """Say nothing."""

    class Server(http.server.ThreadingHTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            """A client that refuses the certificate is part of the tests."""

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with Server(("127.0.0.1", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"https://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("place", ["AWS_CA_BUNDLE", "ca_bundle"])
def test_a_private_authority_is_trusted_where_the_settings_name_it(
    monkeypatch: pytest.MonkeyPatch, bucket: Bucket, authority: Path, tmp_path: Path, place: str
) -> None:
    if place == "AWS_CA_BUNDLE":
        monkeypatch.setenv(place, str(authority / "ca.pem"))
    else:
        (tmp_path / "config").write_text(f"[default]\nca_bundle = {authority / 'ca.pem'}\n")
        monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    with _tls_server(authority / "leaf.pem") as url:
        _put(_connection(endpoint_url=url))


def test_a_certificate_that_nobody_vouches_for_is_refused_with_the_setting_to_make(
    bucket: Bucket, authority: Path
) -> None:
    with _tls_server(authority / "leaf.pem") as url:
        error = _upload_error(bucket, url)
    assert type(error) is _errors.ServiceError
    assert "AWS_CA_BUNDLE" in error.remedy


def test_a_certificate_file_that_cannot_be_read_is_named(
    monkeypatch: pytest.MonkeyPatch, bucket: Bucket, tmp_path: Path
) -> None:
    monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "missing.pem"))
    error = _upload_error(bucket, bucket.proxy.url)
    assert type(error) is _errors.LocalFileError
    assert "missing.pem" in error.what


@pytest.mark.parametrize(
    "content",
    [b"nothing", b"-----BEGIN CERTIFICATE-----\nnot base64!!\n-----END CERTIFICATE-----\n", b"", b"\x30\x82\xff"],
)
def test_a_certificate_file_that_is_no_pem_is_named(
    monkeypatch: pytest.MonkeyPatch, bucket: Bucket, tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "bad.pem").write_bytes(content)
    monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "bad.pem"))
    error = _upload_error(bucket, bucket.proxy.url)
    assert type(error) is _errors.LocalFileError
    assert "bad.pem" in error.what
    assert "AWS_CA_BUNDLE" in error.remedy


def test_every_certificate_of_a_bundle_is_trusted(
    monkeypatch: pytest.MonkeyPatch, bucket: Bucket, authority: Path, tmp_path: Path
) -> None:
    bundle = "# \u00fcber\n".encode() + (authority / "other.pem").read_bytes() + (authority / "ca.pem").read_bytes()
    (tmp_path / "bundle.pem").write_bytes(bundle)
    monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "bundle.pem"))
    with _tls_server(authority / "leaf.pem") as url:
        _put(_connection(endpoint_url=url))


def _upload_error(bucket: Bucket, url: str) -> _errors.OutputsError:
    backend = S3StorageBackend(endpoint_url=url, retry_seconds=0.2, request_timeout_seconds=5)
    return backend.upload([bucket.item("a")]).failed[0].error
