"""Packed networks from files and from addresses: what is right is loaded, all else is refused, nothing of it used."""

import contextlib
import hashlib
import http.server
import json
import shutil
import socket
import ssl
import stat
import subprocess
import threading
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from commands import store
from pennpde import checkpoints
from pennsharing import packed
from pennsharing.packed import PackedError
from pennsharing.packing import pack


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv(packed.CACHE, str(tmp_path / "cache"))
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def good(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("packed")
    pack(store(folder / "net", "gradient"), folder / "mine.zip", licence="CC-BY-4.0")
    return folder / "mine.zip"


def weights(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: values.clone() for name, values in model.state_dict().items()}


def test_a_packed_network_is_the_network(good):
    found = weights(checkpoints.load_pretrained(good))
    expected = weights(checkpoints.load(good.parent / "net"))
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in found)


def test_it_is_unpacked_once_and_again_where_the_cache_was_spoilt(good, cache):
    folder = packed.unpacked(good)
    before = (folder / "model.safetensors").stat().st_mtime_ns
    assert packed.unpacked(good) == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == before
    (folder / "config.json").write_text("{}")
    checkpoints.load_pretrained(good)
    assert json.loads((folder / "config.json").read_text())["network"] == "gradient"
    assert not list(cache.rglob(".part-*"))


def test_a_cache_that_cannot_be_written_is_told_with_the_remedy(good, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(packed.CACHE, str(tmp_path / "file" / "below"))
    with pytest.raises(OSError, match=packed.CACHE):
        checkpoints.load_pretrained(good)


# Archives that must not be


def entries(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def zipped(path: Path, content: dict[str, bytes], listed: bool = True) -> Path:
    """An archive of these files, with a list that fits them."""
    content = dict(content)
    if listed:
        rest = {name: each for name, each in content.items() if name != packed.MANIFEST}
        content[packed.MANIFEST] = json.dumps(packed.listing(rest)).encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, each in content.items():
            archive.writestr(name, each)
    return path


def refused(path: Path, words: str, cache: Path) -> None:
    before = sorted(path.parent.rglob("*"))
    with pytest.raises(PackedError, match=words):
        checkpoints.load_pretrained(path)
    assert not list((cache / "networks").glob("*"))
    assert sorted(each for each in path.parent.rglob("*") if cache not in (each, *each.parents)) == before


@pytest.mark.parametrize(
    "name",
    [
        "../evil.json",
        "/etc/evil.json",
        "pictures/../../evil.png",
        "C:\\evil.json",
        "a\\..\\b.json",
        ".hidden.json",
        "x/y.json",
    ],
)
def test_paths_that_lead_elsewhere_are_refused(name, good, tmp_path, cache):
    path = zipped(tmp_path / "bad.zip", entries(good) | {name: b"{}"})
    refused(path, "which is no file that may be in a packed network", cache)


@pytest.mark.parametrize("name", ["setup.py", "model.pt", "weights.pkl", "run.sh", "library.so", "page.html", "noname"])
def test_files_of_other_kinds_are_refused(name, good, tmp_path, cache):
    path = zipped(tmp_path / "bad.zip", entries(good) | {name: b"import os"})
    refused(path, "a packed network has only files that end in", cache)


def test_a_link_is_refused(good, tmp_path, cache):
    path = zipped(tmp_path / "bad.zip", entries(good))
    with zipfile.ZipFile(path, "a") as archive:
        link = zipfile.ZipInfo("link.json")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
    refused(path, "'link.json', which is no file", cache)


def test_a_bomb_is_refused_by_what_it_announces_and_by_what_it_holds(good, tmp_path, cache, monkeypatch):
    path = zipped(tmp_path / "bad.zip", entries(good) | {"big.txt": bytes(3_000_000)})
    assert path.stat().st_size < 100_000
    monkeypatch.setattr(packed, "MOST_BYTES", 1_000_000)
    refused(path, r"unpacks to 3,\d+,\d+ bytes; a packed network has at most 1,000,000", cache)
    # The size in the directory is made small; the content stays as it was.
    content = path.read_bytes()
    lying = content.replace((3_000_000).to_bytes(4, "little"), (1000).to_bytes(4, "little"))
    assert lying != content
    path.write_bytes(lying)
    refused(path, "damaged", cache)


def test_too_many_files_are_refused(good, tmp_path, cache):
    many = {f"note_{number}.txt": b"" for number in range(packed.MOST_FILES)}
    refused(zipped(tmp_path / "bad.zip", entries(good) | many), "holds 10[0-9] files", cache)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "README.md"])
def test_a_changed_file_is_refused(name, good, tmp_path, cache):
    content = entries(good)
    content[name] = content[name][:-1] + bytes([content[name][-1] ^ 1])
    refused(zipped(tmp_path / "bad.zip", content, listed=False), "not have the size or hash that pack.json", cache)


def test_a_list_with_negative_sizes_is_refused(good, tmp_path, cache):
    content = entries(good)
    found = json.loads(content[packed.MANIFEST])
    found["files"]["config.json"]["bytes"] = -1
    content[packed.MANIFEST] = json.dumps(found).encode()
    refused(zipped(tmp_path / "bad.zip", content, listed=False), "a file of a negative size", cache)


def test_a_file_that_is_not_listed_or_missing_is_refused(good, tmp_path, cache):
    more = entries(good) | {"more.txt": b"hello"}
    refused(zipped(tmp_path / "more.zip", more, listed=False), r"do not have the same files: more\.txt", cache)
    less = {name: each for name, each in entries(good).items() if name != "README.md"}
    refused(zipped(tmp_path / "less.zip", less, listed=False), r"do not have the same files: README\.md", cache)


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        (b"", "damaged"),
        (b"[]", "damaged"),
        (b'{"format": "pennpde packed network", "format_version": 99, "files": {}}', "Install a newer pennpde"),
        (b'{"format": "other", "format_version": 1, "files": {}}', "has format 'other'"),
        (b'{"format": "pennpde packed network", "format_version": 1, "files": {"a": 1}}', "damaged"),
        (b"[" * 100_000, "damaged"),
    ],
)
def test_a_list_that_is_none_is_refused(manifest, words, good, tmp_path, cache):
    refused(zipped(tmp_path / "bad.zip", entries(good) | {packed.MANIFEST: manifest}, listed=False), words, cache)


def test_other_archives_and_noise_are_refused_in_words(good, tmp_path, cache):
    refused(
        zipped(tmp_path / "other.zip", {"a.txt": b"hello"}, listed=False), "has no pack.json. `penn pack` makes", cache
    )
    whole = good.read_bytes()
    generator = np.random.default_rng(0)
    path = tmp_path / "bad.zip"
    for number in range(60):
        content = bytearray(whole if number % 2 else whole[: generator.integers(len(whole))])
        for place in generator.integers(max(len(content), 1), size=3 * (len(content) > 0)):
            content[place] = generator.integers(256)
        path.write_bytes(bytes(content))
        with contextlib.suppress(PackedError, checkpoints.CheckpointError):
            checkpoints.load_pretrained(path)  # dates and the like may change without harm


# Addresses


class Site:
    """A server on this machine; what it answers by path, and the paths that it was asked for."""

    def __init__(self, context: ssl.SSLContext | None = None):
        self.pages: dict[str, tuple[int, dict[str, str], bytes]] = {}
        self.asked: list[str] = []
        site = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.asked.append(self.path)
                code, headers, body = site.pages.get(self.path, (404, {}, b""))
                self.send_response(code)
                for name, value in ({"Content-Length": str(len(body))} | headers).items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if context is not None:
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.scheme = "http" if context is None else "https"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def address(self, path: str) -> str:
        return f"{self.scheme}://127.0.0.1:{self.server.server_port}{path}"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def site(good):
    made = Site()
    made.pages["/mine.zip"] = (200, {}, good.read_bytes())
    yield made
    made.close()


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_network_comes_from_an_address_once_if_its_hash_is_given(site, good):
    address = f"{site.address('/mine.zip')}#sha256={digest(good)}"
    for _ in range(3):
        assert checkpoints.config_of(checkpoints.load_pretrained(address)) is not None
    assert site.asked == ["/mine.zip"]


def test_without_a_hash_it_is_fetched_each_time_and_the_hash_is_told(site, good):
    for _ in range(2):
        with pytest.warns(UserWarning, match=f"#sha256={digest(good)}"):
            checkpoints.load_pretrained(site.address("/mine.zip"))
    assert len(site.asked) == 2


def test_another_network_than_was_meant_is_refused(site, cache):
    with pytest.raises(PackedError, match=f"expected is {'0' * 64}: it is damaged, or not the network that was meant"):
        checkpoints.load_pretrained(f"{site.address('/mine.zip')}#sha256={'0' * 64}")
    assert not list(cache.rglob("*.safetensors"))


@pytest.mark.parametrize(
    "address",
    ["http://example.org/mine.zip", "ftp://127.0.0.1/mine.zip", "file:///etc/passwd", "https://user@example.org/a.zip",
     "https:///a.zip", "https://a b/c.zip", "http://127.0.0.1.example.org/a.zip", "https://[::1/a.zip", "HTTP://example.org/a"],
)  # fmt: skip
def test_addresses_of_other_kinds_are_refused_without_asking(address):
    with pytest.raises(PackedError, match=r"refused|is not an address"):
        checkpoints.load_pretrained(address)


def test_a_wrong_hash_in_an_address_is_wrong_usage(site):
    with pytest.raises(PackedError, match="a hash is given as #sha256= and 64 digits"):
        checkpoints.load_pretrained(site.address("/mine.zip#md5=abc"))
    assert site.asked == []


def test_redirects_are_followed_only_where_the_address_could_have_been_given(site, good):
    site.pages["/here"] = (302, {"Location": "/mine.zip"}, b"")
    site.pages["/away"] = (302, {"Location": "http://example.org/mine.zip"}, b"")
    site.pages["/file"] = (302, {"Location": "file:///etc/passwd"}, b"")
    site.pages["/ring"] = (302, {"Location": "/ring"}, b"")
    checkpoints.load_pretrained(f"{site.address('/here')}#sha256={digest(good)}")
    for path in ("/away", "/file"):
        with pytest.raises(PackedError, match=r"https addresses only|is not allowed"):
            checkpoints.load_pretrained(site.address(path))
    with pytest.raises(PackedError, match="cannot be fetched"):
        checkpoints.load_pretrained(site.address("/ring"))


def test_answers_that_are_no_network_are_told_in_words(site, good, monkeypatch):
    site.pages["/page"] = (200, {"Content-Type": "text/html"}, b"<html>Sign in</html>")
    site.pages["/short"] = (200, {"Content-Length": "10"}, b"PK")
    with pytest.raises(PackedError, match="says 404"):
        checkpoints.load_pretrained(site.address("/absent.zip"))
    with pytest.raises(PackedError, match="damaged, or not a packed network"):
        checkpoints.load_pretrained(site.address("/page"))
    monkeypatch.setattr(packed, "MOST_BYTES", 1000)
    with pytest.raises(PackedError, match="more than 1,000 bytes"):
        checkpoints.load_pretrained(site.address("/mine.zip"))
    site.close()
    with pytest.raises(PackedError, match="cannot be fetched"):
        checkpoints.load_pretrained(site.address("/mine.zip"))


@pytest.mark.parametrize("answer", [b"no words of HTTP\r\n\r\n", b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000, b""])
def test_an_answer_that_is_not_http_is_told_in_words(answer):
    listening = socket.create_server(("127.0.0.1", 0))

    def respond() -> None:
        connection, _ = listening.accept()
        with connection:
            connection.recv(10_000)
            connection.sendall(answer)

    server = threading.Thread(target=respond)
    server.start()
    with pytest.raises(PackedError, match="cannot be fetched"):
        checkpoints.load_pretrained(f"http://127.0.0.1:{listening.getsockname()[1]}/mine.zip")
    server.join()
    listening.close()


def test_a_server_that_drips_is_given_up_at_the_deadline(monkeypatch):
    """Its body comes byte by byte, each long before the socket's own limit."""
    monkeypatch.setattr(packed, "_SECONDS", 0.5)
    listening, over = socket.create_server(("127.0.0.1", 0)), threading.Event()

    def drip() -> None:
        connection, _ = listening.accept()
        with connection:
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n")
            while not over.wait(0.05):
                try:
                    connection.sendall(b"H")
                except OSError:
                    return

    server = threading.Thread(target=drip)
    server.start()
    begun = time.monotonic()
    try:
        with pytest.raises(PackedError, match="takes more than"):
            checkpoints.load_pretrained(f"http://127.0.0.1:{listening.getsockname()[1]}/mine.zip")
        assert time.monotonic() - begun < 5
    finally:
        over.set()
        server.join()
        listening.close()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory) -> Path:
    """A certificate for this machine that nobody knows."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    path = tmp_path_factory.mktemp("certificate") / "both.pem"
    wanted = "-x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=127.0.0.1"
    wanted += f" -addext subjectAltName=IP:127.0.0.1 -keyout {path} -out {path}.crt"
    subprocess.run(["openssl", "req", *wanted.split()], check=True, capture_output=True)
    return path


def test_https_needs_a_certificate_that_this_machine_trusts(certificate, good, monkeypatch):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(f"{certificate}.crt", certificate)
    site = Site(context)
    site.pages["/mine.zip"] = (200, {}, good.read_bytes())
    address = f"{site.address('/mine.zip')}#sha256={digest(good)}"
    try:
        with pytest.raises(PackedError, match="certificate"):
            checkpoints.load_pretrained(address)
        monkeypatch.setenv("SSL_CERT_FILE", f"{certificate}.crt")
        assert checkpoints.load_pretrained(address) is not None
    finally:
        site.close()
