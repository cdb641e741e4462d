"""One file over HTTP, resumable, with its size and SHA-256 known beforehand.

Bytes go straight to the target, which the caller names so that it can't be mistaken for a finished
file. A cut connection is taken up again where it broke if the server honours ranges, else from the
start; a target left by an earlier call is continued the same way. Promises that on return the file
is complete and has the pinned digest. Proxies and certificates are those of the environment.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from email.message import Message
from pathlib import Path
from typing import Final

from slipstream.errors import DownloadError

_BLOCK: Final = 1 << 18
_TIMEOUT: Final = 30.0  # seconds without a byte
_ATTEMPTS: Final = 4


def fetch(
    url: str,
    target: Path,
    *,
    size: int,
    sha256: str,
    progress: Callable[[int, int], None],
) -> None:
    """Download to ``target`` and verify.

    Args:
        size: bytes of the whole file.
        progress: called with (bytes done, size).

    Raises:
        DownloadError: unreachable, refused or cut short (what came so far stays, to be resumed);
            or other bytes than the pinned ones (nothing stays).
    """
    cut = ""
    for _ in range(_ATTEMPTS):
        have = target.stat().st_size if target.exists() else 0
        if have > size:
            target.unlink()
            have = 0
        if have == size:
            break
        try:
            _continue(url, target, have, size, progress)
        except DownloadError:
            target.unlink(missing_ok=True)
            raise
        except (http.client.HTTPException, OSError) as error:
            if isinstance(error, urllib.error.URLError):  # no connection at all, or an HTTP error
                raise DownloadError(describe_failure(url, error)) from None
            cut = f" ({_reason(error)})"
    have = target.stat().st_size if target.exists() else 0
    if have < size:
        raise DownloadError(
            f"the download from {_public(url)} was cut after {have} of {size} bytes{cut}; "
            "run it again to continue"
        )
    digest = hashlib.sha256()
    with target.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    if digest.hexdigest() != sha256:
        target.unlink()
        raise DownloadError(
            f"{_public(url)} has SHA-256 {digest.hexdigest()}, not the pinned {sha256}; discarded"
        )


def open_url(url: str, headers: dict[str, str]) -> http.client.HTTPResponse:
    """A GET request; credentials in the URL are sent as such.

    Raises:
        OSError: urllib's errors among them.
    """
    parts = urllib.parse.urlsplit(url)
    if parts.username:
        password = urllib.parse.unquote(parts.password or "")
        login = f"{urllib.parse.unquote(parts.username)}:{password}"
        headers = {
            **headers,
            "Authorization": "Basic " + base64.b64encode(login.encode()).decode(),
        }
        url = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    request = urllib.request.Request(url, headers={"User-Agent": "slipstream", **headers})
    try:
        response: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=_TIMEOUT)
    except urllib.error.HTTPError as error:
        error.close()  # it holds the connection and a page for people
        raise
    return response


def describe_failure(url: str, error: Exception) -> str:
    """What went wrong where, in a line without credentials."""
    return f"{_public(url)}: {_reason(error)}"


def _continue(
    url: str, target: Path, have: int, size: int, progress: Callable[[int, int], None]
) -> None:
    """Get the rest of the file, or all of it from a server without ranges."""
    try:
        response = open_url(url, {"Range": f"bytes={have}-"} if have else {})
    except urllib.error.HTTPError as error:
        if error.code != 416 or not have:
            raise
        response = open_url(url, {})  # it doesn't take our range: all of it, then
    with response:
        resumed = have and response.status == 206 and _starts_at(response.headers, have)
        with target.open("ab" if resumed else "wb") as file:
            done = file.tell()
            while block := response.read(_BLOCK):
                if done + len(block) > size:
                    raise DownloadError(f"{_public(url)} is longer than the pinned {size} bytes")
                file.write(block)
                done += len(block)
                progress(done, size)


def _starts_at(headers: Message, offset: int) -> bool:
    return headers.get("Content-Range", "").startswith(f"bytes {offset}-")


def _public(url: str) -> str:
    """The URL without a password or a signed query."""
    parts = urllib.parse.urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"HTTP {error.code} {error.reason}"
    if isinstance(error, urllib.error.URLError):
        return str(error.reason)
    return str(error) or type(error).__name__
