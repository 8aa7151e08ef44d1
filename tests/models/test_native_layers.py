"""Which passes are native: those over caches, of a prepared float32 model; and what memory holds of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from compiled import Piece, blocks_of, context_of, filled, needs_native, packed, read
from tiny import tiny_drafter, tiny_drafter_spec, tiny_spec, tiny_transformer, write_checkpoint
from torch import Tensor

from paceline import native
from paceline.models.attention import dense_attention
from paceline.models.drafter import Drafter
from paceline.models.drafter_spec import DFlash2
from paceline.models.load import load_drafter, load_transformer
from paceline.models.native_layers import NativeLayers
from paceline.models.save import save_transformer
from paceline.models.transformer import Transformer, prepare

pytestmark = needs_native


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For every pass whether it was native."""
    found: list[bool] = []
    plain = NativeLayers.states

    def counting(self: NativeLayers, *arguments: object) -> object:
        output = plain(self, *arguments)  # type: ignore[arg-type]
        found.append(output is not None)
        return output

    monkeypatch.setattr(NativeLayers, "states", counting)
    return found


def run(model: Transformer, rows: int) -> Tensor:
    return read(model, [Piece([1] * rows, 3)], [filled(model, 3)]).hidden


def test_any_number_of_rows_is_native(asked: list[bool]) -> None:
    model = packed(tiny_spec())
    for rows in (1, 64, 300):
        run(model, rows)
    assert asked == [True, True, True]


def test_attention_without_a_cache_is_not(asked: list[bool]) -> None:
    model = packed(tiny_spec())
    with torch.inference_mode():
        model(torch.tensor([1, 2]), torch.arange(2), dense_attention(1, (None, None)))
    assert asked == [False]


ARITHMETICS = (native.EXACT, native.Arithmetic("weights", 5), native.Arithmetic("int8"))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_precisions_are_not(dtype: torch.dtype, asked: list[bool]) -> None:
    model = tiny_transformer(tiny_spec(), dtype=dtype)
    prepare(model)
    run(model, 1)
    assert asked == []
    assert model.packed_bytes == 0


def test_a_plain_model_is_not(asked: list[bool]) -> None:
    run(tiny_transformer(tiny_spec(), dtype=torch.float32), 1)
    assert asked == []


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    save_transformer(tiny_transformer(tiny_spec(tied_head=True), dtype=torch.float32), tmp_path, torch.bfloat16)
    return tmp_path


@pytest.mark.parametrize("arithmetic", ARITHMETICS)
def test_without_weights_a_pass_is_the_same(checkpoint: Path, arithmetic: native.Arithmetic) -> None:
    kept = load_transformer(checkpoint, torch.float32, arithmetic=arithmetic)
    lean = load_transformer(checkpoint, torch.float32, arithmetic=arithmetic, keep_weights=False)
    assert lean.packed_bytes == kept.packed_bytes
    hidden = [run(model, 9) for model in (kept, lean)]
    assert torch.equal(*hidden)
    assert torch.equal(kept.head(hidden[0]), lean.head(hidden[1]))


def test_half_products_are_native_beside_attention_in_float32(checkpoint: Path, asked: list[bool]) -> None:
    kept, lean = (
        load_transformer(checkpoint, torch.bfloat16, attention_dtype=torch.float32, keep_weights=keep)
        for keep in (True, False)
    )
    assert torch.equal(run(kept, 9), run(lean, 9))
    assert asked == [True, True]
    assert kept.product_dtype == lean.product_dtype == torch.bfloat16
    assert kept.dtype == lean.dtype == torch.float32


def test_what_is_not_native_says_that_the_weights_were_given_back(checkpoint: Path) -> None:
    lean = load_transformer(checkpoint, torch.float32, keep_weights=False)
    with torch.inference_mode(), pytest.raises(AssertionError, match="given back"):
        lean(torch.tensor([1, 2]), torch.arange(2), dense_attention(1, (None, None)))


def test_memory_holds_a_weight_once(checkpoint: Path) -> None:
    lean = load_transformer(checkpoint, torch.float32, keep_weights=False)
    held = sum(parameter.numel() for parameter in lean.parameters() if not parameter.is_meta)
    norms = sum(parameter.numel() for name, parameter in lean.named_parameters() if "norm" in name)
    assert held == norms + lean.embed.weight.numel()


@pytest.fixture
def drafter_checkpoint(tmp_path: Path) -> Path:
    target = tiny_transformer(tiny_spec(), dtype=torch.float32)
    return write_checkpoint(tmp_path, tiny_drafter(tiny_drafter_spec(target.spec, v2=DFlash2(3, 8, 4, 5)), target))


@pytest.mark.parametrize("arithmetic", ARITHMETICS)
def test_a_drafter_of_version_2_without_weights(
    drafter_checkpoint: Path, arithmetic: native.Arithmetic, asked: list[bool]
) -> None:
    target = packed(tiny_spec())
    kept, lean = (
        load_drafter(drafter_checkpoint, target, torch.float32, arithmetic=arithmetic, keep_weights=keep)
        for keep in (True, False)
    )
    assert torch.equal(block_states(kept), block_states(lean))
    assert asked == [True, True]
    held = {name for name, parameter in lean.named_parameters() if not parameter.is_meta}
    assert not [name for name in held if "projection" in name]
    assert len([name for name in held if name.startswith("couplings")]) == 2  # bases: no products


def block_states(drafter: Drafter) -> Tensor:
    pieces = [Piece([3, 63, 63], 4), Piece([1, 63, 63, 63], 6)]
    caches = [context_of(drafter, piece.past) for piece in pieces]
    with torch.inference_mode():
        states: Tensor = drafter(*blocks_of(drafter, pieces, caches))
    return states


def test_torch_keeps_what_it_has_to_compute_with(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(native.VARIABLE, "off")
    plain = load_transformer(checkpoint, torch.float32, keep_weights=False)
    assert not any(parameter.is_meta for parameter in plain.parameters())
    run(plain, 9)


MEASURED = """
import sys
import threading
from pathlib import Path
import torch
from paceline.models.load import load_transformer
from paceline.native import Arithmetic


def held():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


torch.ones(3) @ torch.ones(3)
before, most, done = held(), 0, threading.Event()


def watch():
    global most
    while not done.wait(0.002):
        most = max(most, held())


watcher = threading.Thread(target=watch)
watcher.start()
arithmetic = Arithmetic(sys.argv[2], int(sys.argv[3]))
model = load_transformer(Path(sys.argv[1]), torch.float32, keep_weights=False, arithmetic=arithmetic)
after = held()
done.set()
watcher.join()
print(after - before, most - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="/proc/self/status is Linux's")
@pytest.mark.parametrize("arithmetic", [native.EXACT, native.Arithmetic("weights", 32), native.Arithmetic("int8")])
def test_a_loaded_model_takes_what_its_file_takes(arithmetic: native.Arithmetic, tmp_path: Path) -> None:
    """50 M parameters: 100 MB in bfloat16. torch alone would hold 300 MB."""
    sizes = {"hidden_size": 512, "intermediate_size": 2048, "num_heads": 8, "num_kv_heads": 4, "head_dim": 64}
    spec = tiny_spec(**sizes, num_layers=12, vocab_size=1000, windows=(None,) * 12)
    save_transformer(tiny_transformer(spec, dtype=torch.float32), tmp_path, torch.bfloat16)
    size = sum(path.stat().st_size for path in tmp_path.glob("*.safetensors"))
    assert size > 90e6
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, tmp_path, *map(str, arithmetic)], capture_output=True, text=True, check=True
    )
    after, most = map(int, done.stdout.split())
    assert most < size + 64e6
    assert after < (size if arithmetic == native.EXACT else 0.6 * size) + 32e6
