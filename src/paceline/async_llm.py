"""LLMs for many tasks at once: the `LLM` of scripts, behind the engine that a server needs.

Knows nothing of protocols.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import TracebackType

from paceline.completion import Completion
from paceline.engine.engine import Engine, Served
from paceline.engine.loop import Job
from paceline.engine.scheduler import Limits
from paceline.engine.stream import Stream
from paceline.errors import BadRequest
from paceline.llm import LLM
from paceline.request import Prompt, Sampling

__all__ = ["AsyncLLM"]


class AsyncLLM:
    """Answers whoever asks, in asyncio or in threads; requests decode together, and give what `LLM.generate` gives.

        async with AsyncLLM(LLM()) as llm:
            one, other = await asyncio.gather(llm.generate("Hello"), llm.generate("Goodbye"))

    Args:
        models: one, or several by the names that requests give.
        limits: of the queue and of what decodes together.
    """

    def __init__(self, models: LLM | Mapping[str, LLM], limits: Limits | None = None) -> None:
        self._models = {"": models} if isinstance(models, LLM) else dict(models)
        served = {
            name: Served(model.decoder, model.tokenizer, model.end_token_ids) for name, model in self._models.items()
        }
        self._engine = Engine(served, limits)

    async def __aenter__(self) -> AsyncLLM:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)

    @property
    def load(self) -> tuple[int, int]:
        """Requests that wait, and answers that decode."""
        return self._engine.load

    async def generate(self, prompt: Prompt, sampling: Sampling | None = None, model: str = "") -> list[Completion]:
        """The `sampling.n` answers to one prompt, in order; cancelled with the task that waits for it.

        Raises:
            BadRequest, QueueFull, Unavailable: nothing has been decoded then.
        """
        streams = [self._engine.submit(job, model) for job in self._jobs(prompt, sampling, model)]
        try:
            return [await _completion(stream) for stream in streams]
        finally:
            for stream in streams:
                stream.cancel()

    def stream(self, prompt: Prompt, sampling: Sampling | None = None, model: str = "") -> Stream:
        """One answer round by round: `for` it, or `async for` it; `sampling.n` must be 1.

        Raises:
            BadRequest, QueueFull, Unavailable: as `generate`.
        """
        jobs = self._jobs(prompt, sampling, model)
        if len(jobs) != 1:
            raise BadRequest("stream gives one answer.", remedy="Use n = 1, or generate.", param="n")
        return self._engine.submit(jobs[0], model)

    def drain(self, timeout: float | None = None) -> bool:
        """Take no more requests, and wait for those that were; False where that took longer."""
        return self._engine.drain(timeout)

    def close(self) -> None:
        """Cancel what is left, and end. Safe to call again."""
        self._engine.close()

    def _jobs(self, prompt: Prompt, sampling: Sampling | None, model: str) -> list[Job]:
        if model not in self._models:
            there = ", ".join(map(repr, self._models))
            raise BadRequest(f"model is {model!r:.80}.", remedy=f"There are: {there}.", param="model")
        return self._models[model].jobs([prompt], sampling)


async def _completion(stream: Stream) -> Completion:
    async for chunk in stream:
        if chunk.completion is not None:
            return chunk.completion
    raise InterruptedError("The request was cancelled.")
