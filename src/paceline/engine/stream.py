"""What a request hears: chunks, in order, from the thread that decodes to whoever asked, in a thread or in asyncio.

Knows nothing of decoding.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress

from paceline.completion import Chunk, Completion

__all__ = ["Stream"]


class Stream:
    """The chunks of one answer; the last has its `completion`. Iterate once, with `for` or `async for`.

    Who leaves the loop early cancels the request. An error of the request is raised where its chunks are awaited. A
    cancelled one ends without a completion.
    """

    def __init__(self, cancel: Callable[[Stream], None]) -> None:
        self._cancel = cancel
        self._chunks: deque[Chunk] = deque()
        self._changed = threading.Condition()
        self._wake: Callable[[], object] | None = None
        self._error: BaseException | None = None
        self._ended = False

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        return self._ended

    def cancel(self) -> None:
        """Stop decoding, within one round; safe at any time, from any thread."""
        self._cancel(self)

    def result(self) -> Completion:
        """Wait for the whole answer.

        Raises:
            PacelineError, or whatever the decoder raised: the request failed.
            InterruptedError: it was cancelled.
        """
        for chunk in self:
            if chunk.completion is not None:
                return chunk.completion
        raise InterruptedError("The request was cancelled.")

    def put(self, chunk: Chunk) -> None:
        """Hand over a chunk; the last one ends the stream."""
        with self._changed:
            self._chunks.append(chunk)
            self._ended = chunk.completion is not None
            self._notify()

    def end(self, error: BaseException | None = None) -> None:
        """Nothing more comes, for this reason; without effect on a stream that has ended."""
        with self._changed:
            if not self._ended:
                self._ended, self._error = True, error
                self._notify()

    def _notify(self) -> None:
        self._changed.notify_all()
        if self._wake is not None:
            with suppress(RuntimeError):  # the loop that waited was closed
                self._wake()

    def __iter__(self) -> Iterator[Chunk]:
        """Wait in a thread."""
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(self._ready)
                    chunk = self._next()
                if chunk is None:
                    return
                yield chunk
        finally:
            self.cancel()

    async def __aiter__(self) -> AsyncIterator[Chunk]:
        """Wait in asyncio."""
        loop, came = asyncio.get_running_loop(), asyncio.Event()
        with self._changed:
            self._wake = lambda: loop.call_soon_threadsafe(came.set)
        try:
            while True:
                with self._changed:
                    ready = self._ready()
                    chunk = self._next() if ready else None
                    came.clear()
                if not ready:
                    await came.wait()
                elif chunk is None:
                    return
                else:
                    yield chunk
        finally:
            self._wake = None
            self.cancel()

    def _ready(self) -> bool:
        return bool(self._chunks) or self._ended

    def _next(self) -> Chunk | None:
        """The next chunk; None at the end, which is raised where it is an error."""
        if self._chunks:
            return self._chunks.popleft()
        if self._error is not None:
            raise self._error
        return None
