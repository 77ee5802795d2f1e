"""Kept results: one file for each, named by the content of its task."""

from __future__ import annotations

import hashlib
import os
import tempfile
import warnings
from pathlib import Path

from . import _lab
from .task import Answer, Task

FORM = b"vellum run 1"


class Cache:
    """A folder of results. Several processes may use the same one."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = Path(folder)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=self._folder).close()
        except OSError as error:
            raise _lab.OptionError(f"cache {self._folder}: it is no folder to write to: {error.strerror}") from error

    def path(self, task: Task) -> Path:
        """The path of a task's result."""
        return self._folder / f"{task.key}.run"

    def get(self, task: Task) -> Answer | None:
        """The kept result, or none. A damaged one is none, and a warning says so."""
        if not task.keeps:
            return None
        path = self.path(task)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            warnings.warn(f"cache: {path} cannot be read ({error.strerror}): it is run again", stacklevel=2)
            return None
        head, _, result = content.partition(b"\n")
        if head != _head(task, result):
            warnings.warn(f"cache: {path} is damaged: it is run again", stacklevel=2)
            return None
        return Answer(result)

    def put(self, task: Task, answer: Answer) -> None:
        """Keeps a result. A reader sees all of it, or nothing."""
        if answer.result is None or not task.keeps:
            return
        try:
            with tempfile.NamedTemporaryFile(dir=self._folder, prefix=".", delete=False) as file:
                try:
                    file.write(_head(task, answer.result) + b"\n" + answer.result)
                    file.close()
                    os.replace(file.name, self.path(task))
                except BaseException:
                    os.unlink(file.name)
                    raise
        except OSError as error:
            warnings.warn(f"cache: {self.path(task)}: {error.strerror}: results are not kept", stacklevel=2)


def _head(task: Task, result: bytes) -> bytes:
    """The first line: the task, and the digest of the result."""
    of_both = hashlib.sha256(task.key.encode() + result).hexdigest()
    return b" ".join([FORM, of_both.encode()])
