"""What a worker and its owner say to each other: length-prefixed msgpack frames over a pipe.

A frame is an unsigned 32-bit little-endian length and that many bytes of msgpack. The worker's
first frame says that it is ready, or why it can't be; after it, one reply answers one request.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Mapping

import msgspec

LENGTH_BYTES = 4
FRAME_BYTES_MAX = 2**32 - 1

Handler = Callable[[bytes], bytes]
"""Answers one kind of request."""


class FrameError(Exception):
    """A frame that is cut off, too long, or no message."""


class Request(msgspec.Struct, array_like=True):
    """One call of a handler."""

    kind: str
    payload: bytes


class Trouble(msgspec.Struct, array_like=True):
    """An exception of the worker's side. `is_memory`: it ran out of memory."""

    type_name: str
    message: str
    traceback_text: str
    is_memory: bool = False


class Reply(msgspec.Struct, array_like=True):
    """The answer to one request, or the trouble that it met."""

    payload: bytes = b""
    trouble: Trouble | None = None


_encode = msgspec.msgpack.Encoder().encode
_decode_request = msgspec.msgpack.Decoder(Request).decode
_decode_reply = msgspec.msgpack.Decoder(Reply).decode


def framed(message: Request | Reply) -> bytes:
    """The bytes of one frame. Raises `FrameError` if it is longer than a frame can be."""
    body = _encode(message)
    if len(body) > FRAME_BYTES_MAX:
        raise FrameError(f"a message of {len(body)} bytes is longer than {FRAME_BYTES_MAX}")
    return len(body).to_bytes(LENGTH_BYTES, "little") + body


def frame_length(header: bytes) -> int:
    """The length of the body that follows this header, in bytes."""
    return int.from_bytes(header, "little")


def reply_from(body: bytes) -> Reply:
    """A reply. Raises `FrameError` for bytes that are none."""
    try:
        return _decode_reply(body)
    except msgspec.DecodeError as error:
        raise FrameError(f"not a reply: {error}") from error


def trouble_from(error: BaseException) -> Trouble:
    """What went wrong, as plain text."""
    return Trouble(
        type(error).__qualname__,
        str(error),
        "".join(traceback.format_exception(error)),
        isinstance(error, MemoryError),
    )


def serve(handlers: Mapping[str, Handler], requests: int, replies: int) -> None:
    """Answer requests from one file descriptor on another until the owner closes it."""
    _write(replies, framed(Reply()))
    while (body := _read_frame(requests)) is not None:
        _write(replies, _answer(handlers, body))


def refuse(error: BaseException, replies: int) -> None:
    """Say why the worker can't start, in place of being ready."""
    _write(replies, framed(Reply(trouble=trouble_from(error))))


def _answer(handlers: Mapping[str, Handler], body: bytes) -> bytes:
    try:
        request = _decode_request(body)
        if request.kind not in handlers:
            raise LookupError(f"no handler {request.kind!r}; there are {sorted(handlers)}")
        return framed(Reply(handlers[request.kind](request.payload)))
    except Exception as error:
        return framed(Reply(trouble=trouble_from(error)))


def _read_frame(descriptor: int) -> bytes | None:
    """The next frame's body; None when the other end is closed between frames."""
    header = _read(descriptor, LENGTH_BYTES)
    if not header:
        return None
    length = frame_length(header)
    body = _read(descriptor, length)
    if len(header) < LENGTH_BYTES or len(body) < length:
        raise FrameError("the owner closed the pipe within a frame")
    return body


def _read(descriptor: int, count: int) -> bytes:
    parts = []
    while count > 0 and (part := os.read(descriptor, min(count, 1 << 20))):
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def _write(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]
