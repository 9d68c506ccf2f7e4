"""MCP over the standard input and output of an operator's command.

Returns the two streams of messages that a client of the `mcp` package uses. The package's own transport
starts the process in the event loop's thread, which blocks meanwhile; here a thread starts it. At its end its
input is closed, and if it does not exit by itself, it is killed with everything that it started.
"""

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import anyio
import mcp_types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage

from tools.child import Child, start
from tools.mcp.endpoints import StdioEndpoint

_FLUSH_SECONDS = 0.5
_LEAVE_SECONDS = 2.0  # after closing its input, and again after each signal
_MOST_BYTES = 16_000_000  # of one message
_CHUNK = 65_536
_log = logging.getLogger(__name__)

Incoming = SessionMessage | Exception
Streams = tuple[MemoryObjectReceiveStream[Incoming], MemoryObjectSendStream[SessionMessage]]


@asynccontextmanager
async def stdio_streams(endpoint: StdioEndpoint) -> AsyncGenerator[Streams, None]:
    """The streams of a running command. Raises OSError if the command cannot be started."""
    async with _running(endpoint) as (child, reader, writer):
        incoming, read = anyio.create_memory_object_stream[Incoming](0)
        write, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
        flushed = asyncio.Event()
        with incoming, read, write, outgoing:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_take, reader, incoming)
                tasks.start_soon(_send, writer, outgoing, incoming, flushed)
                try:
                    yield read, write
                finally:
                    with anyio.CancelScope(shield=True):
                        read.close()
                        write.close()
                        with anyio.move_on_after(_FLUSH_SECONDS):
                            await flushed.wait()
                        writer.close()
                        await _end(child)
                    tasks.cancel_scope.cancel()


@asynccontextmanager
async def _running(
    endpoint: StdioEndpoint,
) -> AsyncIterator[tuple[Child, asyncio.StreamReader, asyncio.StreamWriter]]:
    """Runs the command. Its standard error goes to this process's, because the operator should read it."""
    child_in, own_out = os.pipe()
    own_in, child_out = os.pipe()
    own_ends = [own_in, own_out]
    try:
        child = await start(
            [endpoint.command, *endpoint.arguments],
            stdin=child_in,
            output=child_out,
            errors=(sys.__stderr__ or sys.stderr).fileno(),
            env=get_default_environment(),
            own_group=True,
        )
    except BaseException:
        _close(own_ends)
        raise
    finally:
        _close([child_in, child_out])
    try:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        # A file object for each pipe, so that closing its transport closes the pipe.
        taking, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(own_ends.pop(0), "rb", 0)
        )
        sending, protocol = await loop.connect_write_pipe(
            asyncio.streams.FlowControlMixin, os.fdopen(own_ends.pop(0), "wb", 0)
        )
        writer = asyncio.StreamWriter(sending, protocol, None, loop)
        try:
            yield child, reader, writer
        finally:
            taking.close()
            sending.close()
    finally:
        _close(own_ends)
        with anyio.CancelScope(shield=True):
            await _end(child)


async def _take(reader: asyncio.StreamReader, incoming: MemoryObjectSendStream[Incoming]) -> None:
    async with incoming:
        try:
            async for line in _lines(reader):
                await incoming.send(_message(line))
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            # The session has ended. A server that still writes must not block before it can exit.
            while await reader.read(_CHUNK):
                pass


async def _lines(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    buffer = bytearray()
    while chunk := await reader.read(_CHUNK):
        searched = len(buffer)
        buffer += chunk
        while (end := buffer.find(b"\n", searched)) >= 0:
            yield bytes(buffer[:end])
            del buffer[: end + 1]
            searched = 0
        if len(buffer) > _MOST_BYTES:
            message = "An MCP server wrote a message of more than %d bytes; its connection is closed."
            _log.error(message, _MOST_BYTES)
            return


def _message(line: bytes) -> Incoming:
    """The message of a line, or the exception, which the session reports."""
    try:
        return SessionMessage(mcp_types.jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as error:
        return error


async def _send(
    writer: asyncio.StreamWriter,
    outgoing: MemoryObjectReceiveStream[SessionMessage],
    incoming: MemoryObjectSendStream[Incoming],
    flushed: asyncio.Event,
) -> None:
    try:
        async with outgoing:
            async for sent in outgoing:
                text = sent.message.model_dump_json(by_alias=True, exclude_unset=True)
                writer.write(text.encode("utf-8", "replace") + b"\n")
                await writer.drain()
    except (ConnectionError, RuntimeError):
        await incoming.aclose()  # nothing reads the pipe: end the session, so that no request waits for ever
    finally:
        flushed.set()


async def _end(child: Child) -> None:
    for number in (None, signal.SIGTERM, signal.SIGKILL):
        if number is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, number)
        with anyio.move_on_after(_LEAVE_SECONDS):
            await child.wait()
            return


def _close(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
