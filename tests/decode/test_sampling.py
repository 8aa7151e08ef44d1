"""Statistical tests are fixed computations; their bounds state how often another seed would have failed them."""

import math

import pytest
import torch
from torch import Tensor

from paceline.decode.noise import NoiseCache, derive_seed
from paceline.decode.sampling import GREEDY_BELOW, choose, is_greedy, probabilities, survivors
from paceline.errors import BadRequest, PacelineError
from paceline.request import Sampling

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
FILTERS = [
    {"top_k": 1},
    {"top_k": 5},
    {"top_p": 0.5678},
    {"top_p": 0.9876},
    {"top_p": 1e-9},
    {"min_p": 0.2345},
    {"min_p": 1.0},
    {"top_k": 5, "top_p": 0.789, "min_p": 0.0567},
    {"top_k": 100, "top_p": 0.9876},
    {"top_k": 10_000, "min_p": 0.0123},
]


def slow_survivors(scores: list[float], sampling: Sampling) -> list[bool]:
    """The rule in words, one row: rank, cut at k, then keep what the mass and the share allow."""
    ranked = sorted((i for i, s in enumerate(scores) if s > -math.inf), key=lambda i: (-scores[i], i))
    ranked = ranked[: sampling.top_k or None]
    weights = [math.exp((scores[i] - scores[ranked[0]]) / sampling.temperature) for i in ranked]
    kept, before = set(), 0.0
    for i, weight in zip(ranked, weights, strict=True):
        if before / sum(weights) < sampling.top_p and weight >= sampling.min_p:
            kept.add(i)
        before += weight
    return [i in kept for i in range(len(scores))]


def sample(law: list[float], sampling: Sampling, draws: int, seed: int = 11) -> Tensor:
    """Tokens at `draws` positions of one seed, all with the same law."""
    scores = torch.tensor(law).log().expand(draws, -1)
    return choose(scores, sampling, NoiseCache(seed, len(law)), range(draws))


def frequencies(tokens: Tensor, vocab_size: int) -> Tensor:
    return tokens.bincount(minlength=vocab_size) / len(tokens)


# --- greedy -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("temperature", [0, 1e-40, 1e-7, 1e-6, 1e-5, 1e-4, 0.01])
def test_tiny_temperatures(dtype: torch.dtype, temperature: float) -> None:
    """Report sampling-02."""
    scores, noise = torch.tensor([[8.0, 7.5, -3.0]], dtype=dtype).expand(20, -1), NoiseCache(1, 3)
    for filters in [{}, *FILTERS]:
        sampling = Sampling(temperature=temperature, **filters)
        assert is_greedy(sampling) == (temperature <= GREEDY_BELOW)
        assert choose(scores, sampling, noise, range(20)).tolist() == [0] * 20
        assert torch.allclose(probabilities(scores, sampling)[:1], torch.eye(3)[:1], rtol=0, atol=1e-20)


def test_a_negative_temperature_is_refused() -> None:
    """Report sampling-02."""
    with pytest.raises(BadRequest) as caught:
        Sampling(temperature=-0.1)
    assert caught.value.http_status == 400


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("vocab_size", [9, 16, 1000, 151_936])
def test_ties_go_to_the_lowest_id(dtype: torch.dtype, vocab_size: int) -> None:
    """Report decode-02: every path breaks exact ties by one rule."""
    scores = torch.full((4, vocab_size), 18.0, dtype=dtype)
    firsts = [3, vocab_size // 2, vocab_size - 3, 0]
    for row, first in enumerate(firsts):
        scores[row, first::2] = 18.125
    noise = NoiseCache(1, vocab_size)
    assert choose(scores, Sampling(), noise, range(4)).tolist() == firsts
    assert choose(scores[1:2], Sampling(), noise, [0]).tolist() == firsts[1:2]
    assert choose(scores, Sampling(temperature=1.0, top_k=1), noise, range(4)).tolist() == firsts


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=1.0), Sampling(temperature=1.0, top_p=0.5)])
def test_scores_that_are_no_numbers_are_an_error(bad: float, sampling: Sampling) -> None:
    scores = torch.zeros(2, 5)
    scores[1, 3] = bad
    with pytest.raises(PacelineError, match="float32"):
        choose(scores, sampling, NoiseCache(1, 5), range(2))
    with pytest.raises(PacelineError, match="ruled out"):
        choose(torch.full((1, 5), -torch.inf), sampling, NoiseCache(1, 5), [0])


# --- filters ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("filters", FILTERS)
@pytest.mark.parametrize("levels", [2, 8, 1000])
@pytest.mark.parametrize("vocab_size", [1, 7, 300, 2000])
def test_survivors_equal_the_rule_in_words(filters: dict[str, float], levels: int, vocab_size: int) -> None:
    """Few levels make many ties; the larger vocabularies are not sorted as a whole."""
    generator = torch.Generator().manual_seed(levels + vocab_size)
    scores = torch.randint(levels, (3, vocab_size), generator=generator, dtype=torch.float64) * (8.1 / levels)
    scores[1, 1::3] = -torch.inf  # ruled out before
    for temperature in (0.6, 1.7):
        sampling = Sampling(temperature=temperature, **filters)
        expected = [slow_survivors(row, sampling) for row in scores.tolist()]
        assert survivors(scores, sampling).tolist() == expected
        assert (probabilities(scores, sampling) > 0).tolist() == expected


@pytest.mark.parametrize("filters", [{}, *FILTERS])
@pytest.mark.parametrize("dtype", DTYPES)
def test_choice_is_the_argmax_of_the_noisy_survivors(filters: dict[str, float], dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(5)
    scores = (3 * torch.randn(12, 500, generator=generator)).to(dtype)
    sampling, noise = Sampling(temperature=0.8, **filters), NoiseCache(9, 500)
    wide = scores if dtype == torch.float64 else scores.float()
    perturbed = wide + 0.8 * noise.at(range(30, 42)).to(wide.dtype)
    perturbed[~survivors(scores, sampling)] = -torch.inf
    assert torch.equal(choose(scores, sampling, noise, range(30, 42)), perturbed.argmax(-1))


def test_a_row_is_chosen_alike_alone_and_among_others() -> None:
    scores = 3 * torch.randn(16, 3000, generator=torch.Generator().manual_seed(6))
    for filters in [{}, *FILTERS]:
        sampling = Sampling(temperature=1.3, **filters)
        together = choose(scores, sampling, NoiseCache(9, 3000), range(16))
        alone = [choose(scores[i : i + 1], sampling, NoiseCache(9, 3000), [i]).item() for i in range(16)]
        assert together.tolist() == alone


# --- laws -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0.7, 1.0, 1.5])
def test_tokens_follow_the_softmax(temperature: float) -> None:
    """Chi-square over 40 ids, 150,000 positions, z = 5: false alarm 3e-7 for each temperature."""
    scores = 1.5 * torch.randn(1, 40, generator=torch.Generator().manual_seed(8))
    sampling, draws = Sampling(temperature=temperature), 150_000
    tokens = choose(scores.expand(draws, -1), sampling, NoiseCache(21, 40), range(draws))
    expected = draws * (scores[0].double() / temperature).softmax(-1)
    rare = expected < 5
    observed = tokens.bincount(minlength=40).double()
    terms = (observed - expected) ** 2 / expected
    freedom = int((~rare).sum()) - 1
    assert rare.sum() < 10
    assert ((terms[~rare].sum().item() / freedom) ** (1 / 3) - 1 + 2 / (9 * freedom)) < 5 * math.sqrt(2 / (9 * freedom))


@pytest.mark.parametrize("filters", [{"top_k": 2}, {"top_p": 0.75}, {"min_p": 0.5}])
def test_filtered_target_law_whatever_is_drafted(filters: dict[str, float]) -> None:
    """Report sampling-01: 5 sigma at 200,000 draws, 0.0055 at most: false alarm 6e-7 for each number."""
    sampling, draws = Sampling(temperature=1.0, **filters), 200_000
    emitted = sample([0.5, 0.3, 0.2], sampling, draws)
    drafted = sample([0.4, 0.35, 0.25], sampling, draws) if filters == {"top_k": 2} else emitted
    for mean, share in zip([0.625, 0.375, 0.0], frequencies(emitted, 3).tolist(), strict=True):
        assert abs(share - mean) <= 5 * math.sqrt(mean * (1 - mean) / draws)
    if filters == {"top_k": 2}:  # with two ids left the shared noise agrees as often as any coupling can: 1 - TV
        share = (emitted == drafted).double().mean().item()
        assert abs(share - 0.9083333) < 5 * math.sqrt(0.9083333 * 0.0916667 / draws)


def test_one_noise_for_draft_and_target_does_not_bend_the_law() -> None:
    """Report sampling-05: 400,000 draws within 0.004, which is 5 sigma: false alarm 6e-7 for each number.

    The emitted token is the target's own with that noise, agreed or not. The second check shows that the test sees
    the fault: a replacement drawn from the residual law with the same noise, where the draft was refused.
    """
    draws, sampling = 400_000, Sampling(temperature=1.0)
    target, draft = [0.2, 0.5, 0.3], [0.6, 0.3, 0.1]
    emitted, drafted = sample(target, sampling, draws), sample(draft, sampling, draws)
    assert (frequencies(emitted, 3) - torch.tensor(target)).abs().max() < 0.004

    ratio = torch.tensor(target) / torch.tensor(draft)
    accepted = torch.rand(draws, generator=torch.Generator().manual_seed(1)) < ratio[drafted]
    faulty = torch.where(accepted, drafted, sample([0.0, 0.2, 0.2], sampling, draws))
    assert (frequencies(faulty, 3) - torch.tensor(target)).abs().max() > 0.02


def test_seeds_make_choices() -> None:
    """Report sampling-04, as far as one sequence can show it."""
    scores, sampling = torch.zeros(40, 50), Sampling(temperature=1.0)

    def text(seed: int) -> list[int]:
        return choose(scores, sampling, NoiseCache(seed, 50), range(40)).tolist()

    assert text(7) == text(7)
    assert len({tuple(text(derive_seed(7, i))) for i in range(4)}) == 4
