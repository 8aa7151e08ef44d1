"""What a model, its drafter or verifier, and their tokenizers have in common, and what ends an answer.

Goes by their descriptions, so that it can be asked before any weights are read. Knows nothing of methods.
"""

from __future__ import annotations

from pathlib import Path

from paceline.models.drafter_spec import DrafterSpec
from paceline.models.json_file import read_json
from paceline.models.load import check_same_tokens, shared_vocabulary
from paceline.models.spec import Spec
from paceline.text import Tokenizer, load_tokenizer

__all__ = ["end_tokens", "usable_tokens"]


def usable_tokens(
    model: Spec, partner: DrafterSpec | Spec | None, tokenizer: Tokenizer | None, folder: Path | None
) -> int:
    """How many ids may be drawn: those that the model, its drafter or verifier, and the tokenizers share.

    A diffusion language model may have more tokens than its verifier, at the end: its mask, for one.

    Args:
        partner: the drafter or the verifier, from `folder`.

    Raises:
        VocabularyMismatch: two models of other tokens, or a table smaller than the tokenizer.
    """
    own = model.vocab_size
    table = partner.vocab_size if isinstance(partner, Spec) else own
    if tokenizer is None:  # a drafter borrows the target's embedding and head, so its own size says nothing
        return min(own, table)
    size, other = tokenizer.size, None if folder is None else load_tokenizer(folder)
    if other is not None:
        check_same_tokens(tokenizer.vocabulary, other.vocabulary, more=isinstance(partner, Spec))
        size = min(size, other.size)
    if isinstance(partner, DrafterSpec):
        table = partner.block.vocab_size
    return shared_vocabulary(own, table, size)


def end_tokens(folder: Path, declared: tuple[int, ...], tokenizer: Tokenizer | None) -> frozenset[int]:
    """What ends an answer: chat models often declare a second end token in generation_config.json only."""
    path = folder / "generation_config.json"
    found = read_json(path).get("eos_token_id") if path.is_file() else None
    more = found if isinstance(found, list) else [] if found is None else [found]
    own = frozenset() if tokenizer is None else tokenizer.eos_ids
    return frozenset(declared) | own | frozenset(token for token in more if isinstance(token, int))
