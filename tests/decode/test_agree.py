import pytest
import torch

from paceline.decode.agree import agreed_path, equal_prefix, product, surviving
from paceline.decode.tree import Proposal, chain


@pytest.mark.parametrize(
    ("proposed", "reference", "agreed"),
    [
        ([], [5], 0),
        ([5, 6, 7], [5, 6, 7, 8], 3),
        ([5, 6, 7], [5, 9, 7, 8], 1),  # what agrees after a disagreement does not count
        ([5, 6, 7], [9, 6, 7, 8], 0),
    ],
)
def test_a_chain_agrees_up_to_the_first_difference(proposed: list[int], reference: list[int], agreed: int) -> None:
    assert agreed_path(chain(proposed), reference) == list(range(agreed))


@pytest.mark.parametrize(
    ("reference", "path"),
    [
        ([5, 0, 0, 0, 0, 0], [0]),  # 0: 5
        ([6, 0, 8, 0, 0, 0], [1, 3]),  # 1: 6, with 7 and 8 behind it
        ([6, 0, 7, 9, 0, 0], [1, 2, 4]),
        ([7, 7, 7, 9, 0, 0], []),  # 7 stands elsewhere, and is right there
        ([5, 7, 7, 9, 9, 9], [0]),  # only what stands behind what agreed
    ],
)
def test_a_tree_agrees_along_one_path(reference: list[int], path: list[int]) -> None:
    tree = Proposal((5, 6, 7, 8, 9), (-1, -1, 1, 1, 2))
    assert agreed_path(tree, reference) == path


@pytest.mark.parametrize(
    ("draft", "reference", "committed"),
    [([7], [9, 1], [9]), ([9, 7], [9, 6, 1], [9, 6])],
)
def test_the_first_draft_is_judged_by_the_token_after_the_anchor(
    draft: list[int], reference: list[int], committed: list[int]
) -> None:
    """Report decode-01."""
    agreed = len(agreed_path(chain(draft), reference))
    assert agreed == len(committed) - 1
    assert reference[: agreed + 1] == committed


def test_a_missing_bonus_token_is_our_bug() -> None:
    with pytest.raises(AssertionError, match="reference tokens"):
        agreed_path(chain([1, 2]), [1, 2])


@pytest.mark.parametrize(
    ("reference", "most", "carried"),
    [
        ([9, 6, 7, 8, 1], 9, (6, 7, 8)),  # 5 was wrong, 9 stands in its place; behind 5 both say 6 7 8
        ([9, 6, 7, 8, 1], 2, (6, 7)),
        ([9, 6, 0, 8, 1], 9, (6,)),  # the target would not go on with 7
        ([5, 9, 7, 8, 1], 9, (7, 8)),  # 6 was wrong
        ([5, 6, 7, 8, 1], 9, ()),  # all was right
        ([5, 6, 7, 9, 1], 9, ()),  # nothing behind the rejected 8
    ],
)
def test_what_both_say_behind_a_rejected_draft_survives(
    reference: list[int], most: int, carried: tuple[int, ...]
) -> None:
    draft = chain([5, 6, 7, 8])
    assert surviving(draft, reference, agreed_path(draft, reference), most) == carried


def test_the_branch_of_the_likeliest_draft_survives() -> None:
    """7 is first behind 6; 5 and what is behind it had nothing to do with the place."""
    tree = Proposal((5, 6, 7, 8, 1, 2), (-1, -1, 1, 1, 2, 3))
    assert surviving(tree, [6, 0, 9, 1, 2, 0, 0], [1], 4) == (1,)


@pytest.mark.parametrize(("one", "other", "equal"), [([], [], 0), ([5], [5], 1), ([5, 6, 7], [5, 9, 7], 1)])
def test_equal_prefix(one: list[int], other: list[int], equal: int) -> None:
    assert equal_prefix(one, other) == equal


def test_the_product_is_the_normalised_power_of_both_laws() -> None:
    p, q = torch.tensor([[0.6, 0.3, 0.1, 0.0], [0.1, 0.2, 0.3, 0.4]], dtype=torch.float64).split(1)
    expected = p**0.3 * q**0.7
    found = product(p.log() + 3.0, q.log() - 5.0, 0.3).softmax(-1)
    assert torch.allclose(found, expected / expected.sum(), rtol=1e-14)


def test_at_both_ends_the_product_is_the_model_itself() -> None:
    """So that a choice from it is the model's own, to the bit, and what is ruled out stays so."""
    one, other = torch.tensor([[1.0, -torch.inf]]), torch.tensor([[2.0, -torch.inf]])
    assert product(one, other, 1.0) is one
    assert product(one, other, 0.0) is other
    assert product(one, other, 0.5)[0, 1] == -torch.inf


def test_half_precision_is_mixed_in_single() -> None:
    """A product of bfloat16 would be rounded to 3 digits, and tokens that differ would tie."""
    dllm, verifier = torch.randn(2, 3, 50, generator=torch.Generator().manual_seed(1)).bfloat16().unbind()
    assert torch.equal(product(dllm, verifier, 0.3), product(dllm.float(), verifier.float(), 0.3))
