from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from paceline.decode.agree import agreed_path
from paceline.decode.noise import NoiseCache
from paceline.decode.processors import TokenCounts, check_bias, process, widen
from paceline.decode.sampling import choose
from paceline.decode.tree import chain
from paceline.errors import BadRequest
from paceline.request import Sampling

VOCAB = 7
token_lists = st.lists(st.integers(0, VOCAB - 1), max_size=6)
logit = st.floats(-30, 30)


def slow_process(
    logits: Sequence[float], sampling: Sampling, prompt: Sequence[int], output: Sequence[int], banned: Sequence[int]
) -> list[float]:
    """One row, token by token, from the whole text."""

    def score(token: int, value: float) -> float:
        if token in prompt or token in output:
            factor = sampling.repetition_penalty
            value = value / factor if value > 0 else value * factor
        value -= sampling.presence_penalty * (token in output)
        value -= sampling.frequency_penalty * output.count(token)
        value += sampling.logit_bias.get(token, 0.0)
        return -torch.inf if token in banned else value

    return [score(token, value) for token, value in enumerate(logits)]


@st.composite
def samplings(draw: st.DrawFn) -> Sampling:
    return Sampling(
        repetition_penalty=draw(st.sampled_from([1.0, 1.3, 0.7])),
        presence_penalty=draw(st.sampled_from([0.0, 0.4, -2.0])),
        frequency_penalty=draw(st.sampled_from([0.0, 0.5, -0.1])),
        logit_bias=draw(st.dictionaries(st.integers(0, VOCAB - 1), st.floats(-100, 100), max_size=3)),
    )


@settings(deadline=None, max_examples=200)
@given(data=st.data(), sampling=samplings(), prompt=token_lists, output=token_lists, path=token_lists)
def test_rows_of_a_chain_equal_token_by_token(
    data: st.DataObject, sampling: Sampling, prompt: list[int], output: list[int], path: list[int]
) -> None:
    rows = st.lists(st.lists(logit, min_size=VOCAB, max_size=VOCAB), min_size=len(path) + 1, max_size=len(path) + 1)
    logits, banned = data.draw(rows), data.draw(token_lists)
    counts = TokenCounts.of_prompt(prompt, VOCAB)
    cut = data.draw(st.integers(0, len(output)))
    counts.commit(output[:cut])
    counts.commit(output[cut:])
    fast = process(tensor(logits), sampling, counts, chain(path), torch.tensor(banned, dtype=torch.int64))
    slow = [slow_process(row, sampling, prompt, output + path[:i], banned) for i, row in enumerate(logits)]
    assert torch.equal(fast, tensor(slow))
    assert counts.output.tolist() == [output.count(token) for token in range(VOCAB)]  # the path leaves no trace


def test_without_a_path_every_row_sees_the_committed_tokens_only() -> None:
    counts = TokenCounts.of_prompt([1], VOCAB)
    counts.commit([2, 2])
    logits, sampling = torch.randn(5, VOCAB), Sampling(frequency_penalty=0.5, repetition_penalty=1.2)
    rows = [process(row[None], sampling, counts) for row in logits]
    assert torch.equal(process(logits, sampling, counts), torch.cat(rows))


def test_nothing_set_returns_the_very_tensor() -> None:
    logits = torch.randn(3, VOCAB, dtype=torch.bfloat16)
    nothing = torch.tensor([], dtype=torch.int64)
    assert process(logits, Sampling(temperature=1.0, top_k=3), drafts=chain([1, 2]), banned=nothing) is logits


@pytest.mark.parametrize("setting", [{"presence_penalty": 0.5}, {"logit_bias": {1: 1.0}}])
def test_the_logits_given_are_left_as_they_were(setting: dict[str, float]) -> None:
    logits = torch.randn(3, VOCAB)
    before, counts = logits.clone(), TokenCounts.of_prompt([1], VOCAB)
    process(logits, Sampling(**setting), counts, chain([1, 2]), torch.tensor([0]))
    assert torch.equal(logits, before)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_widened_before_it_is_changed(dtype: torch.dtype) -> None:
    logits = torch.randn(2, VOCAB).to(dtype)
    sampling = Sampling(repetition_penalty=1.1, logit_bias={3: 0.001})
    counts = TokenCounts.of_prompt([0, 3], VOCAB)
    assert torch.equal(process(logits, sampling, counts), process(logits.float(), sampling, counts))
    assert widen(logits).dtype == torch.float32
    assert widen(logits.double()).dtype == torch.float64


def test_ruled_out_ids_stay_ruled_out() -> None:
    logits = torch.tensor([[-torch.inf, 1.0, 2.0]])
    counts = TokenCounts.of_prompt([0], 3)
    sampling = Sampling(repetition_penalty=2.0, logit_bias={0: 100.0, 2: 100.0})
    assert process(logits, sampling, counts, banned=torch.tensor([2])).tolist() == [[-torch.inf, 1.0, -torch.inf]]


def test_a_bias_outside_the_vocabulary_is_refused() -> None:
    check_bias(Sampling(logit_bias={6: 1.0}), VOCAB)
    with pytest.raises(BadRequest, match=r"7.*ends at 6"):
        check_bias(Sampling(logit_bias={7: 1.0}), VOCAB)


@pytest.mark.parametrize("drafts", [[0], [0] * 3, [0] * 8, [1, 0, 1, 0], []])
def test_frequency_penalty_under_speculation(drafts: list[int]) -> None:
    """Report sampling-03: whatever is drafted, the text is A B A B A B."""
    assert speculate(Sampling(frequency_penalty=0.5, max_tokens=6), drafts) == [0, 1, 0, 1, 0, 1]


@pytest.mark.parametrize("drafts", [[0] * 4, [1] * 4])
def test_a_token_biased_away_never_appears(drafts: list[int]) -> None:
    """Report sampling-03, logit_bias in every slot."""
    assert speculate(Sampling(logit_bias={0: -100.0}, max_tokens=6), drafts) == [1] * 6
    assert speculate(Sampling(logit_bias={0: -100.0}, max_tokens=6, temperature=1.0, seed=1), drafts) == [1] * 6


def speculate(sampling: Sampling, drafts: list[int]) -> list[int]:
    """Rounds of propose, read, agree, commit with a model whose logits are always A: 2.0, B: 1.9."""
    counts, text, noise = TokenCounts.of_prompt([1, 1], 2), list[int](), NoiseCache(sampling.seed or 0, 2)
    while len(text) < sampling.max_tokens:
        read = torch.tensor([[2.0, 1.9]]).expand(len(drafts) + 1, -1)
        positions = range(len(text), len(text) + len(read))
        reference = choose(process(read, sampling, counts, chain(drafts)), sampling, noise, positions).tolist()
        committed = reference[: len(agreed_path(chain(drafts), reference)) + 1]
        counts.commit(committed)
        text += committed
    return text[: sampling.max_tokens]


def tensor(rows: list[list[float]]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)
