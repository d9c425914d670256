"""The owner's end of a worker process: start it, ask it, bound it in time and memory, end it.

A crash, a hang past its limit and exhausted memory come out as `WorkerFailure`, an exception of a
handler as `RemoteError`. Hides pipes, deadlines and process groups. Nothing here waits without a
limit unless the caller says so.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import IO, TYPE_CHECKING, Literal, NoReturn

import treedrift

from . import frames

if TYPE_CHECKING:
    from ..backends.registry import BackendName

START_SECONDS_MAX = 180.0
STOP_SECONDS_MAX = 5.0
MEMORY_CHECK_SECONDS = 0.1
STDERR_TAIL_BYTES = 16 * 1024
# A reply that has begun to arrive isn't a hang, even when its reader came late.
REPLY_GRACE_SECONDS = 10.0

FailureKind = Literal["crash", "hang", "memory"]


class WorkerFailure(Exception):  # noqa: N818 -- a kind of divergence, not a mistake of the caller
    """A worker that ended or had to be ended. `exit_code` or `signal` says how, if it was known."""

    def __init__(
        self,
        kind: FailureKind,
        message: str,
        *,
        exit_code: int | None = None,
        signal_number: int | None = None,
        stderr_tail: str = "",
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.exit_code = exit_code
        self.signal_number = signal_number
        self.stderr_tail = stderr_tail


class RemoteError(Exception):
    """An exception in a worker's handler; the worker goes on."""

    def __init__(self, trouble: frames.Trouble) -> None:
        super().__init__(f"{trouble.type_name}: {trouble.message}")
        self.type_name = trouble.type_name
        self.message = trouble.message
        self.traceback_text = trouble.traceback_text


@dataclass(frozen=True)
class WorkerCommand:
    """How a worker is run. `environment` is the whole environment of the process."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


def worker_command(
    core_name: str,
    interpreter: str | Path = sys.executable,
    environment: Mapping[str, str] | None = None,
    handlers: str | None = None,
) -> WorkerCommand:
    """The command of a worker that hosts `core_name` in an interpreter.

    `environment` replaces this process's one. `handlers` as in `worker.DEFAULT_HANDLERS`.
    """
    script = Path(treedrift.__file__).parent / "harness" / "worker.py"
    arguments = [str(interpreter), "-P", str(script), core_name]
    if handlers is not None:
        arguments += ["--handlers", handlers]
    given = dict(os.environ if environment is None else environment)
    # The same trace gives the same result on every machine: one hash seed, one thread.
    given |= {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
    return WorkerCommand(tuple(arguments), given)


def core_command(name: BackendName) -> WorkerCommand:
    """The command of a worker that hosts a core where its name says that it lives.

    Raises `MissingEnvironmentError`.
    """
    place = name.place()
    if place is None:
        return worker_command(name.name)
    return worker_command(name.name, place.interpreter, place.process_environment())


class Worker:
    """A worker process and the pipe to it. Use it as a context manager, or close it."""

    def __init__(
        self,
        command: WorkerCommand,
        *,
        memory_bytes_max: int | None = None,
        start_seconds_max: float = START_SECONDS_MAX,
    ) -> None:
        self._command = command
        self._memory_bytes_max = memory_bytes_max
        self._start_seconds_max = start_seconds_max
        self._process: subprocess.Popen[bytes] | None = None
        self._lifeline = -1
        self._is_ready = False
        self._deadline: float | None = None
        self._seconds: float | None = None
        self._stderr = _Tail()

    # --- Life -----------------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        """Whether the worker was started and hasn't failed or been closed."""
        return self._process is not None

    @property
    def process_id(self) -> int | None:
        """The worker's process id while it runs."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the process and wait until it is ready; nothing if it is.

        Raises `WorkerFailure` if it ends or hangs before it is ready, `RemoteError` if it says
        why it can't host its core.
        """
        self.launch()
        if self._is_ready:
            return
        try:
            self._receive()
        except RemoteError:
            self.close()
            raise
        self._is_ready = True

    def launch(self) -> None:
        """Start the process without waiting, so that several get ready at once.

        `start` still has to follow. Raises `WorkerFailure` if the interpreter can't be run.
        """
        if self._process is not None:
            return
        read_end, write_end = os.pipe()
        try:
            self._process = subprocess.Popen(
                [*self._command.arguments, "--lifeline", str(read_end)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                env=dict(self._command.environment),
                pass_fds=(read_end,),
                start_new_session=True,
            )
        except OSError as error:
            os.close(write_end)
            raise WorkerFailure("crash", f"can't run {self._command.arguments[0]}: {error}") from (
                error
            )
        finally:
            os.close(read_end)
        self._lifeline = write_end
        assert self._process.stdin is not None
        os.set_blocking(self._process.stdin.fileno(), False)
        assert self._process.stderr is not None
        self._stderr = _Tail(self._process.stderr)
        self._is_ready = False
        self._limit(self._start_seconds_max)

    def restart(self) -> None:
        """End the process, if it runs, and start a fresh one."""
        self.close()
        self.start()

    def close(self) -> None:
        """End the worker: ask it by closing its pipe, then by force. May be called twice."""
        process = self._process
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS_MAX)
        self._bury()

    def __enter__(self) -> Worker:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if self._process is not None:
            self._bury()

    # --- Asking ---------------------------------------------------------------------------

    def request(self, kind: str, payload: bytes = b"", seconds: float | None = None) -> bytes:
        """Call a handler and wait for its answer, at most `seconds`.

        Raises `RemoteError` for the handler's exception, `WorkerFailure` if the worker crashed,
        hung past its limit or exhausted its memory; it must then be started again.
        """
        self.send(kind, payload, seconds)
        return self.receive()

    def send(self, kind: str, payload: bytes = b"", seconds: float | None = None) -> None:
        """Begin a request, so that several workers can work at once; `receive` ends it."""
        process = self._running()
        if not self._is_ready:
            raise RuntimeError("the worker was launched and not started")
        self._limit(seconds)
        left = memoryview(frames.framed(frames.Request(kind, payload)))
        assert process.stdin is not None
        descriptor = process.stdin.fileno()
        while left:
            self._wait(descriptor, select.POLLOUT)
            try:
                left = left[os.write(descriptor, left) :]
            except BlockingIOError:
                continue
            except BrokenPipeError:
                self._ended()

    def receive(self) -> bytes:
        """The answer to the request that `send` began. Raises as `request` does."""
        self._running()
        return self._receive()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError("the worker isn't running; start it first")
        return self._process

    def _receive(self) -> bytes:
        length = frames.frame_length(self._read(frames.LENGTH_BYTES))
        if self._deadline is not None:
            self._deadline = max(self._deadline, monotonic() + REPLY_GRACE_SECONDS)
        try:
            reply = frames.reply_from(self._read(length))
        except frames.FrameError as error:
            self._fail("crash", f"the worker sent {error}")
        if reply.trouble is None:
            return reply.payload
        if reply.trouble.is_memory:
            self._fail("memory", f"the worker ran out of memory: {reply.trouble.message}")
        raise RemoteError(reply.trouble)

    def _read(self, count: int) -> bytes:
        process = self._running()
        assert process.stdout is not None
        descriptor = process.stdout.fileno()
        parts = []
        while count > 0:
            self._wait(descriptor, select.POLLIN)
            part = os.read(descriptor, min(count, 1 << 20))
            if not part:
                self._ended()
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    # --- Limits ---------------------------------------------------------------------------

    def _limit(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._deadline = None if seconds is None else monotonic() + seconds

    def _wait(self, descriptor: int, event: int) -> None:
        """Return when the descriptor is ready or closed; fail at a limit."""
        poll = select.poll()
        poll.register(descriptor, event)
        while True:
            remaining = None if self._deadline is None else max(0.0, self._deadline - monotonic())
            step = remaining
            if self._memory_bytes_max is not None:
                step = MEMORY_CHECK_SECONDS if step is None else min(step, MEMORY_CHECK_SECONDS)
            if poll.poll(None if step is None else step * 1000):
                return
            self._check_memory()
            if remaining == 0.0:
                self._fail("hang", f"the worker didn't answer within {self._seconds:g} s")

    def _check_memory(self) -> None:
        if self._memory_bytes_max is None or self._process is None:
            return
        used = resident_bytes(self._process.pid)
        if used > self._memory_bytes_max:
            self._fail(
                "memory", f"the worker holds {used} bytes; its limit is {self._memory_bytes_max}"
            )

    # --- Failing --------------------------------------------------------------------------

    def _ended(self) -> NoReturn:
        """The worker closed its end of the pipe: find out how it ended."""
        process = self._running()
        try:
            code = process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._fail("crash", "the worker closed its pipe and went on")
        if code < 0:
            self._fail("crash", f"the worker was ended by {_signal_name(-code)}", code)
        self._fail("crash", f"the worker ended with exit code {code}", code)

    def _fail(self, kind: FailureKind, message: str, code: int | None = None) -> NoReturn:
        tail = self._bury()
        raise WorkerFailure(
            kind,
            message,
            exit_code=code if code is not None and code >= 0 else None,
            signal_number=-code if code is not None and code < 0 else None,
            stderr_tail=tail,
        )

    def _bury(self) -> str:
        """End the process by force with all that it started; returns the end of its log."""
        process, self._process = self._process, None
        if process is None:
            return ""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        tail = self._stderr.text()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()
        os.close(self._lifeline)
        return tail


class _Tail:
    """The end of a stream, read in the background so that its writer never blocks."""

    def __init__(self, stream: IO[bytes] | None = None) -> None:
        self._parts: deque[bytes] = deque()
        self._size = 0
        self._thread: threading.Thread | None = None
        if stream is not None:
            self._thread = threading.Thread(target=self._drain, args=(stream,), daemon=True)
            self._thread.start()

    def _drain(self, stream: IO[bytes]) -> None:
        with stream:
            while part := stream.read(4096):
                self._parts.append(part)
                self._size += len(part)
                while self._size - len(self._parts[0]) >= STDERR_TAIL_BYTES:
                    self._size -= len(self._parts.popleft())

    def text(self) -> str:
        """The last bytes of the stream once its writers are gone, as text."""
        if self._thread is not None:
            self._thread.join(STOP_SECONDS_MAX)
        return b"".join(list(self._parts))[-STDERR_TAIL_BYTES:].decode("utf-8", "replace")


def resident_bytes(process_id: int) -> int:
    """Memory that a process holds, in bytes; 0 once it is gone or where nothing tells."""
    try:
        pages = int(Path(f"/proc/{process_id}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
