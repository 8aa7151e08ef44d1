"""The byte-level BPE of the zoo, and how a document becomes token ids.

Knows the special tokens and the chat format; does not know where documents come from.
Control ids come only from the structure of a document: text that spells a special token is
encoded as ordinary text. In chats `<|im_end|>` ends a turn; `<|endoftext|>` ends every document.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from tokenizers import Regex, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split
from tokenizers.trainers import BpeTrainer

from paceline.errors import ConfigError
from paceline.zoo.documents import Document, Message

SPECIALS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|mask|>",
    "<|pad|>",
    "<|reserved_0|>",
    "<|reserved_1|>",
    "<|reserved_2|>",
)
END_OF_TEXT, IM_START, IM_END, MASK, PAD = range(5)
VOCAB_SIZE = 8192
MAX_TOKENS = 2048
# Contractions; a word with one character before it; one digit; punctuation; a line break with the
# indentation after it; other blanks.
PATTERN = (
    r"'(?:s|d|m|t|ll|ve|re)(?!\p{L})|[^\r\n\p{L}\p{N}]?\p{L}+| ?\p{N}| ?[^\s\p{L}\p{N}]+"
    r"|\s*\n\s*|\s+(?!\S)|\s+"
)
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def train_tokenizer(documents: Iterable[Document], vocab_size: int = VOCAB_SIZE) -> Tokenizer:
    """A tokenizer with exactly `vocab_size` entries; the specials hold ids 0..7."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = Sequence(
        [Split(Regex(PATTERN), behavior="isolated"), ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = ByteLevelDecoder()
    trainer = BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIALS),
        initial_alphabet=ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_plain_texts(documents), trainer)
    if tokenizer.get_vocab_size() != vocab_size:
        raise ValueError(
            f"too little text: vocabulary of {tokenizer.get_vocab_size()}, wanted {vocab_size};"
            " pass more documents or a smaller vocab_size"
        )
    return tokenizer


def save(tokenizer: Tokenizer, folder: Path) -> None:
    """Write `tokenizer.json` and `tokenizer_config.json` as transformers reads them."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": MAX_TOKENS,
        "bos_token": None,
        "eos_token": SPECIALS[END_OF_TEXT],
        "pad_token": SPECIALS[PAD],
        "mask_token": SPECIALS[MASK],
        "additional_special_tokens": [SPECIALS[IM_START], SPECIALS[IM_END], *SPECIALS[5:]],
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def load(folder: Path) -> Tokenizer:
    """The tokenizer that `save` wrote.

    Raises:
        ConfigError: another tokenizer, whose control tokens have other ids.
    """
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    for token_id, text in enumerate(SPECIALS):
        if tokenizer.token_to_id(text) != token_id:
            found = tokenizer.token_to_id(text)
            raise ConfigError(
                f"{folder}: {text} has id {found}, not {token_id}.", remedy="Use a tokenizer of `paceline zoo corpus`."
            )
    return tokenizer


def encode_text(tokenizer: Tokenizer, text: str) -> list[int]:
    """Ids of ordinary text: never a control id, whatever the text spells."""
    return encode_texts(tokenizer, [text])[0]


def encode_texts(tokenizer: Tokenizer, texts: list[str]) -> list[list[int]]:
    """`encode_text` of many texts at once."""
    before = tokenizer.encode_special_tokens
    tokenizer.encode_special_tokens = True  # that is: spell them out, do not recognise them
    try:
        return [list(one.ids) for one in tokenizer.encode_batch(texts, add_special_tokens=False)]
    finally:
        tokenizer.encode_special_tokens = before


def encode_chat(tokenizer: Tokenizer, messages: Iterable[Message], add_generation_prompt: bool = False) -> list[int]:
    """ChatML ids, equal to the chat template's text with its control tokens recognised."""
    line_end = encode_text(tokenizer, "\n")
    ids: list[int] = []
    for message in messages:
        turn = encode_text(tokenizer, f"{message['role']}\n{message['content']}")
        ids += [IM_START, *turn, IM_END, *line_end]
    if add_generation_prompt:
        ids += [IM_START, *encode_text(tokenizer, "assistant\n")]
    return ids


def encode_document(tokenizer: Tokenizer, document: Document) -> list[int]:
    """Ids of one training document, ending with `<|endoftext|>`."""
    if document.messages:
        return [*encode_chat(tokenizer, document.messages), END_OF_TEXT]
    return [*encode_text(tokenizer, document.text), END_OF_TEXT]


def _plain_texts(documents: Iterable[Document]) -> Iterator[str]:
    for document in documents:
        yield document.text
        for message in document.messages:
            yield f"{message['role']}\n{message['content']}"
