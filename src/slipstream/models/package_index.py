"""Where a file of the Python package index lies: the Simple API, JSON (PEP 691) or HTML (PEP 503).

The index is the one that pip would ask: PIP_INDEX_URL, ``index-url`` of pip's configuration files,
or pypi.org. A file is named exactly and pinned by digest; this module never picks a version.
"""

from __future__ import annotations

import configparser
import http.client
import json
import os
import sys
import urllib.parse
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Final

import platformdirs

from slipstream.errors import DownloadError
from slipstream.models.download import describe_failure, open_url

_DEFAULT_INDEX: Final = "https://pypi.org/simple"
_JSON: Final = "application/vnd.pypi.simple.v1+json"


def find_file(project: str, filename: str, sha256: str) -> str:
    """URL of a file of a project.

    Args:
        sha256: the pinned digest; an index that states another one is refused at once.

    Raises:
        DownloadError: index unreachable, file not there, or another digest.
    """
    page = f"{index_url().rstrip('/')}/{project}/"
    try:
        with open_url(page, {"Accept": f"{_JSON}, text/html;q=0.5"}) as response:
            body = response.read()
            base = response.geturl()
            is_json = response.headers.get_content_type() == _JSON
        files = dict(_from_json(body) if is_json else _from_html(body))
    except (OSError, http.client.HTTPException) as error:
        raise DownloadError(
            f"the package index can't be asked for {project}: {describe_failure(page, error)}"
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise DownloadError(f"the package index's answer about {project} can't be read") from None
    if filename not in files:
        raise DownloadError(f"the package index has no file {filename} of {project}")
    url, stated = files[filename]
    if stated is not None and stated != sha256:
        raise DownloadError(
            f"the package index states SHA-256 {stated} for {filename}, not the pinned {sha256}"
        )
    return _with_credentials(urllib.parse.urljoin(base, url), page)


def index_url() -> str:
    """The index that pip would use."""
    if url := os.environ.get("PIP_INDEX_URL"):
        return url
    found = None
    for file in _pip_configuration():
        parser = configparser.RawConfigParser()
        try:
            parser.read(file, encoding="utf-8")
            for section in ("global", "install", "download"):
                found = parser.get(section, "index-url", fallback=found)
        except (configparser.Error, UnicodeDecodeError):
            continue  # pip complains about it, not we
    return found or _DEFAULT_INDEX


def _pip_configuration() -> list[Path]:
    """pip's configuration files, later ones win."""
    if (only := os.environ.get("PIP_CONFIG_FILE")) is not None:
        return [] if only == os.devnull else [Path(only)]
    name = "pip.ini" if sys.platform == "win32" else "pip.conf"
    return [
        Path("/etc") / name,
        Path.home() / ("pip" if sys.platform == "win32" else ".pip") / name,
        Path(platformdirs.user_config_dir("pip", appauthor=False, roaming=True)) / name,
        Path(sys.prefix) / name,
    ]


def _from_json(body: bytes) -> Iterator[tuple[str, tuple[str, str | None]]]:
    for file in json.loads(body)["files"]:
        yield file["filename"], (file["url"], file.get("hashes", {}).get("sha256"))


def _from_html(body: bytes) -> Iterator[tuple[str, tuple[str, str | None]]]:
    links = _Links()
    links.feed(body.decode("utf-8"))
    for url in links.urls:
        url, _, fragment = url.partition("#")
        name = urllib.parse.unquote(urllib.parse.urlsplit(url).path.rpartition("/")[2])
        kind, _, digest = fragment.partition("=")
        yield name, (url, digest if kind == "sha256" else None)


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.urls: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.urls += [value for key, value in attrs if key == "href" and value]


def _with_credentials(url: str, index: str) -> str:
    """A private index wants its password for the file as well, if it lies on the same host."""
    file, page = urllib.parse.urlsplit(url), urllib.parse.urlsplit(index)
    login, at, host = page.netloc.rpartition("@")
    same = at and file.netloc == host and file.scheme == page.scheme
    return file._replace(netloc=f"{login}@{host}").geturl() if same else url
