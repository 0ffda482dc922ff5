"""A folder that the driver and all executors see: of this machine, or in shared storage."""

from __future__ import annotations

import os
import re
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyarrow import fs

from laps.errors import ConfigError, quote

_SCHEME: Final = re.compile(r"^([a-zA-Z][a-zA-Z0-9+.-]+):")


class Place:
    """A folder by its path, or by a URL that Arrow has a file system for."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        scheme = _SCHEME.match(url)
        self._local: Path | None = None
        self._remote: fs.FileSystem | None = None
        self._root = ""
        if scheme is None or scheme[1].lower() == "file":
            path = url if scheme is None else re.sub(r"^file:(//[^/]*)?", "", url, flags=re.I)
            self._local = Path(path)
            return
        try:
            address = re.sub(r"^s3[an]:", "s3:", self.url)
            self._remote, self._root = fs.FileSystem.from_uri(address)
        except (OSError, pa.ArrowException, ValueError) as error:
            raise ConfigError(
                f"option checkpoint {quote(url)} cannot be used: {error}; give a folder that all "
                "machines of the cluster see, like file:///mnt/shared/laps or s3://bucket/laps"
            ) from None

    def has(self, name: str) -> bool:
        """Whether a file is there."""
        if self._local is not None:
            return (self._local / name).is_file()
        return bool(self._files.get_file_info(self._path(name)).type is fs.FileType.File)

    def read(self, name: str) -> bytes | None:
        """All of a small file; None if it is not there."""
        try:
            if self._local is not None:
                return (self._local / name).read_bytes()
            with self._files.open_input_stream(self._path(name)) as source:
                data: bytes = source.read()
                return data
        except FileNotFoundError:
            return None

    def write(self, name: str, data: bytes) -> None:
        """Write a small file; when it returns the file outlives a crash of the machine."""
        if self._local is None:
            with self._files.open_output_stream(self._path(name)) as sink:
                sink.write(data)
            return
        with self._below(name).open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def open_output(self, name: str) -> Any:
        """A large file, to be written."""
        if self._local is not None:
            return pa.OSFile(str(self._below(name)), "wb")
        if isinstance(self._files, fs.HadoopFileSystem):
            self._files.create_dir(self._path(name).rpartition("/")[0])
        return self._files.open_output_stream(self._path(name))

    def keep(self, name: str) -> None:
        """See to it that a file which has been written outlives a crash of the machine."""
        if self._local is not None:
            descriptor = os.open(self._local / name, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def open_input(self, name: str) -> Any:
        """A large file, to be read; FileNotFoundError."""
        if self._local is not None:
            return pa.memory_map(str(self._local / name))
        return self._files.open_input_file(self._path(name))

    def folders(self, name: str) -> list[str]:
        """The folders in a folder."""
        if self._local is not None:
            place = self._local / name
            return [p.name for p in place.iterdir() if p.is_dir()] if place.is_dir() else []
        wanted = fs.FileSelector(self._path(name), allow_not_found=True)
        return [
            info.base_name
            for info in self._files.get_file_info(wanted)
            if info.type is fs.FileType.Directory
        ]

    def remove(self, name: str) -> None:
        """Remove a file or a folder; one that is not there is no error."""
        if self._local is not None:
            path = self._local / name
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
            return
        path_ = self._path(name)
        with suppress(FileNotFoundError):
            if self._files.get_file_info(path_).type is fs.FileType.Directory:
                self._files.delete_dir(path_)
            else:
                self._files.delete_file(path_)

    def remove_empty(self, name: str) -> None:
        """Remove a folder that has nothing in it, where folders are more than a part of names."""
        if self._local is not None:
            with suppress(OSError):
                (self._local / name).rmdir()

    def _below(self, name: str) -> Path:
        """The path of a file of this machine, whose folder is made."""
        assert self._local is not None  # noqa: S101 - it is asked for where it is
        path = self._local / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except FileNotFoundError:  # one above it was empty, and has just been removed
            path.parent.mkdir(parents=True, exist_ok=True)
        return path

    @property
    def _files(self) -> fs.FileSystem:
        assert self._remote is not None  # noqa: S101 - it is one or the other
        return self._remote

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"
