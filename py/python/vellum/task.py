"""A run as a task: it holds everything that it depends on, so that any worker can do it, and its result can be found again."""

from __future__ import annotations

import functools
import hashlib
import json
import threading
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from . import _lab
from .load import DriveLike, Load, Tenants, said, whole
from .options import Options
from .outcome import Outcome, comparison
from .own import Policy, PolicyLike, given, packed, unpacked
from .trace import Trace

KEPT_TRACES = 4
"""Traces that a process has read and keeps."""


class WrongEngine(Exception):
    """The worker has another build of the package than the caller."""


@dataclass(frozen=True)
class Task:
    """A run of one load on one drive under one policy."""

    options: tuple[str, ...]
    policy: str
    drive: tuple[str, str]
    """Its name and the text of its file."""
    trace: tuple[str, ...] = ()
    """The digest of the trace's files, what it is called, and the options that it is read with."""
    trace_path: str = ""
    """Where the file is. That is no part of the content."""
    tenants: tuple[tuple[str, tuple[str, ...], str], ...] = ()
    """Traces that share the drive: what each is called, the same of it as `trace`, and where it is."""
    engine: str = ""
    """The digest of the native part that is to do it."""
    own: tuple[str, ...] = ()
    """Of a policy of the caller's own: its name, and the version of its functions or their digest."""
    functions: bytes = b""
    """The functions. Their bytes may differ between two processes, so that their digest finds a result only within one."""
    keeps: bool = True
    """Whether a cache may keep its result: not if it depends on functions of unknown version."""

    @functools.cached_property
    def content(self) -> str:
        """Everything that its result depends on."""
        parts: dict[str, object] = {
            "drive": self.drive,
            "engine": self.engine,
            "options": self.options,
            "policy": self.policy,
            "trace": self.trace,
        }
        if self.own:
            parts["own"] = self.own
        if self.tenants:
            parts["tenants"] = tuple((name, *trace) for name, trace, _ in self.tenants)
        return json.dumps(parts, sort_keys=True)

    @functools.cached_property
    def key(self) -> str:
        """The digest of its content."""
        return hashlib.sha256(self.content.encode()).hexdigest()


class Answer(NamedTuple):
    """The answer to a task: a result, or why it cannot be done."""

    result: bytes | None
    why: str = ""

    @property
    def outcome(self) -> Outcome:
        """The result, parsed."""
        assert self.result is not None
        told = json.loads(zlib.decompress(self.result))
        figures, steps, table = told["each"]
        forms = (told["json"], figures, steps, table, [told["each"]])
        return comparison(forms, told["about"], told["warnings"], {})[0]


def task(load: Load | Tenants, drive: DriveLike, policy: PolicyLike, options: Options) -> Task:
    """Makes the task of a run. Checks it as far as that is possible without running it."""
    own = whole(drive)
    asked = said(load, own, options)
    native = None if asked.trace is None else asked.trace.native
    ((name, *_),) = given([policy])
    _lab.check(asked.words, [name], native, asked.drive, [(of, trace.native) for of, trace in asked.tenants])
    made = Task(tuple(sorted(asked.words)), name, (own.name, own.toml), engine=engine())
    if isinstance(policy, Policy):
        made = _with_functions(made, policy)
    if asked.tenants:
        return replace(made, tenants=tuple((of, *_named(trace)) for of, trace in asked.tenants))
    if asked.trace is None:
        return made
    named, path = _named(asked.trace)
    return replace(made, trace=named, trace_path=path)


def _named(trace: Trace) -> tuple[tuple[str, ...], str]:
    """What identifies a trace, and where it is."""
    if trace.native.changed:
        raise _lab.TraceError(f"{trace.path} has changed since it was read: read it again")
    sha = digest_of_all(trace.path)
    _READ.put((sha, *trace.said), trace.native)
    return (sha, trace.path.name, *trace.said), str(trace.path.resolve())


def _with_functions(task: Task, policy: Policy) -> Task:
    functions = packed(policy)
    if policy.version is not None:
        return replace(task, own=(policy.name, "version", policy.version), functions=functions)
    own = (policy.name, "digest", hashlib.sha256(functions).hexdigest())
    return replace(task, own=own, functions=functions, keeps=False)


def do(task: Task, progress: _lab.Progress | None = None) -> Answer:
    """Does it here. If the lab refuses it, that is its answer, because it would be refused again."""
    if task.engine != engine():
        raise WrongEngine("a worker has another build of vellum than this process: install the same wheel for both")
    try:
        trace = _trace(task.trace, task.trace_path) if task.trace else None
        tenants = [(name, _trace(of, path)) for name, of, path in task.tenants]
        policy = _policy(task)
        forms, (about, warnings), failed = _lab.run(
            list(task.options), given([policy]), trace, task.drive, 1, progress, tenants
        )
    except _lab.Error as error:
        return Answer(None, str(error))
    for _, why in failed:
        return Answer(None, why)
    as_json, _, _, _, (each,) = forms
    told = {"json": as_json, "each": each, "about": about, "warnings": warnings}
    return Answer(zlib.compress(json.dumps(told, sort_keys=True).encode()))


def _policy(task: Task) -> PolicyLike:
    """Its policy. The functions are copies, so that no run sees what another one has left in them."""
    if not task.functions:
        return task.policy
    try:
        return unpacked(task.functions)
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise _lab.RunError(f"policy {task.own[0]}: this worker cannot load its functions: {what}") from error


@functools.cache
def engine() -> str:
    """The digest of the native part: another build is another engine, whose results may differ."""
    return digest(Path(_lab.__file__))


def digest(path: Path) -> str:
    """A file's digest. The file is read again when it has changed."""
    try:
        seen = path.stat()
        return _digest(path, seen.st_size, seen.st_mtime_ns)
    except OSError as error:
        raise _lab.TraceError(f"{path}: it cannot be read: {error.strerror}") from error


def digest_of_all(path: Path) -> str:
    """The digest of a trace. blktrace writes a file for each processor, and any of them stands for all."""
    each = [digest(file) for file in _lab.files(path)]
    return each[0] if len(each) == 1 else hashlib.sha256("\n".join(each).encode()).hexdigest()


@functools.lru_cache(maxsize=2048)
def _digest(path: Path, _size: int, _changed: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class _Read:
    """The traces that were read most recently."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._known: dict[tuple[str, ...], _lab.Trace] = {}

    def put(self, key: tuple[str, ...], trace: _lab.Trace) -> None:
        self._known.pop(key, None)
        self._known[key] = trace
        while len(self._known) > KEPT_TRACES:
            del self._known[next(iter(self._known))]

    def get(self, key: tuple[str, ...]) -> _lab.Trace | None:
        return self._known.get(key)


_READ = _Read()


def _trace(named: tuple[str, ...], where: str) -> _lab.Trace:
    """A trace. A process reads it once."""
    sha, _, *words = named
    # One thread at a time: the second one finds the trace read.
    with _READ.lock:
        known = _READ.get((sha, *words))
        # The file may have changed since it was read.
        if known is None or known.changed:
            path = Path(where)
            if not path.exists():
                raise _lab.TraceError(f"{path} is not there for this worker: put it in a folder that all machines see")
            if digest_of_all(path) != sha:
                raise _lab.TraceError(f"{path} has changed since the sweep began, or is another file for this worker")
            known = _lab.Trace(where, words)
            _READ.put((sha, *words), known)
        return known

