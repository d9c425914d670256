"""Workers that crash, hang, exhaust memory, make noise or lose their owner."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from treedrift.harness.remote import (
    RemoteError,
    Worker,
    WorkerCommand,
    WorkerFailure,
    resident_bytes,
    worker_command,
)

HANDLERS = f"{Path(__file__).with_name('worker_handlers.py')}:make_handlers"


def command(core_name: str = "some-core") -> WorkerCommand:
    return worker_command(core_name, handlers=HANDLERS)


@pytest.fixture
def worker() -> Iterator[Worker]:
    with Worker(command()) as started:
        yield started


def test_a_request_comes_back_answered(worker: Worker) -> None:
    assert worker.request("echo", b"abc", seconds=30) == b"abc"
    assert worker.request("name", seconds=30) == b"some-core"


def test_a_message_larger_than_a_pipe_goes_both_ways(worker: Worker) -> None:
    payload = bytes(range(256)) * 20_000
    assert worker.request("echo", payload, seconds=30) == payload


def test_two_workers_work_at_once(worker: Worker) -> None:
    with Worker(command("another")) as other:
        worker.send("name", seconds=30)
        other.send("name", seconds=30)
        assert (worker.receive(), other.receive()) == (b"some-core", b"another")


def test_several_workers_get_ready_at_once() -> None:
    workers = [Worker(command(name)) for name in ("first", "second")]
    for each in workers:
        each.launch()
    with pytest.raises(RuntimeError, match="launched and not started"):
        workers[0].send("name")
    for each in workers:
        with each:
            each.start()
            assert each.request("echo", b"ready", seconds=30) == b"ready"


def test_an_exception_of_a_handler_comes_back_and_the_worker_goes_on(worker: Worker) -> None:
    with pytest.raises(RemoteError, match="ZeroDivisionError") as raised:
        worker.request("fail", seconds=30)
    assert "worker_handlers.py" in raised.value.traceback_text
    assert worker.request("echo", b"still here", seconds=30) == b"still here"


def test_an_unknown_request_is_a_remote_error(worker: Worker) -> None:
    with pytest.raises(RemoteError, match="no handler 'nothing'"):
        worker.request("nothing", seconds=30)


def test_what_libraries_print_does_not_disturb_the_pipe(worker: Worker) -> None:
    assert worker.request("noise", b"intact", seconds=30) == b"intact"
    with pytest.raises(WorkerFailure) as raised:
        worker.request("end", b"0", seconds=30)
    for source in ("Python", "a child", "native code"):
        assert f"noise from {source}" in raised.value.stderr_tail


def test_an_exit_is_a_crash_with_its_code_and_last_words(worker: Worker) -> None:
    with pytest.raises(WorkerFailure, match="exit code 7") as raised:
        worker.request("end", b"7", seconds=30)
    assert (raised.value.kind, raised.value.exit_code) == ("crash", 7)
    assert "last words" in raised.value.stderr_tail
    assert not worker.is_running


def test_a_signal_is_a_crash_with_its_number(worker: Worker) -> None:
    with pytest.raises(WorkerFailure, match="SIGKILL") as raised:
        worker.request("kill", seconds=30)
    assert (raised.value.kind, raised.value.signal_number) == ("crash", signal.SIGKILL)


def test_a_worker_that_does_not_answer_in_time_is_a_hang(worker: Worker) -> None:
    process_id = worker.process_id
    assert process_id is not None
    with pytest.raises(WorkerFailure, match=r"within 0\.1 s") as raised:
        worker.request("hang", seconds=0.1)
    assert raised.value.kind == "hang"
    with pytest.raises(ProcessLookupError):
        os.kill(process_id, 0)


def test_a_failed_worker_can_be_started_again(worker: Worker) -> None:
    with pytest.raises(WorkerFailure):
        worker.request("kill", seconds=30)
    with pytest.raises(RuntimeError, match="isn't running"):
        worker.request("echo", seconds=30)
    worker.restart()
    assert worker.request("echo", b"again", seconds=30) == b"again"


def test_a_worker_beyond_its_memory_is_a_memory_failure() -> None:
    with Worker(command()) as free:
        assert free.process_id is not None
        before = resident_bytes(free.process_id)
    limit = before + 64 * 2**20
    with (
        Worker(command(), memory_bytes_max=limit) as worker,
        pytest.raises(WorkerFailure, match="limit") as raised,
    ):
        worker.request("hold", str(limit).encode(), seconds=60)
    assert raised.value.kind == "memory"


def test_a_memory_error_of_a_handler_is_a_memory_failure(worker: Worker) -> None:
    with pytest.raises(WorkerFailure, match="no room") as raised:
        worker.request("exhaust", seconds=30)
    assert raised.value.kind == "memory"
    assert not worker.is_running


def test_a_worker_that_cannot_host_its_core_says_why() -> None:
    worker = Worker(command("refused"))
    with pytest.raises(RemoteError, match="no such core here"):
        worker.start()
    assert not worker.is_running


def test_a_worker_that_dies_at_start_is_a_crash() -> None:
    with pytest.raises(WorkerFailure, match="exit code 9"):
        Worker(command("dies at start")).start()


def test_an_interpreter_that_does_not_exist_is_a_crash() -> None:
    missing = worker_command("some-core", interpreter="/no/such/python")
    with pytest.raises(WorkerFailure, match="can't run"):
        Worker(missing).start()


def test_closing_twice_is_harmless(worker: Worker) -> None:
    worker.close()
    worker.close()
    assert not worker.is_running


def test_a_worker_adds_nothing_to_the_import_path(worker: Worker) -> None:
    code = "import sys; print(chr(10).join(sys.path), end='')"
    bare = subprocess.run([sys.executable, "-P", "-c", code], stdout=subprocess.PIPE, check=True)
    assert worker.request("path", seconds=30) == bare.stdout


def test_two_workers_hash_strings_alike(worker: Worker) -> None:
    with Worker(command()) as other:
        assert worker.request("hash", seconds=30) == other.request("hash", seconds=30)


OWNER = """
import sys
from treedrift.harness.remote import Worker, worker_command
worker = Worker(worker_command("some-core", handlers=sys.argv[1]))
worker.start()
print(worker.process_id, flush=True)
worker.request("hang")
"""


def test_a_busy_worker_dies_with_its_owner() -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, HANDLERS],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    assert owner.stdout is not None
    worker_id = int(owner.stdout.readline())
    descriptor = os.pidfd_open(worker_id)
    owner.kill()
    owner.wait()
    owner.stdout.close()
    # A process descriptor becomes readable when the process has ended.
    ended, _, _ = select.select([descriptor], [], [], 30)
    os.close(descriptor)
    assert ended
