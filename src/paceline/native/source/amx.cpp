// Products of rounded factors in the tile registers of AMX; everything else is AVX-512's.
//
// A tile of weights is sixteen lines deep and half a panel wide; one instruction multiplies it with up to sixteen rows. That is
// sixteen times what a vector of AVX-512 does, so a product of few rows takes as long as reading its weights. Lines are padded
// to whole tiles. What a row becomes depends on nothing but the row: each has an accumulator of its own.
#define SET amx
#define LANES 16

#include "kernels.h"
#include "packing.h"
#include "place.h"

namespace paceline::SET {

namespace {

constexpr long kTileRows = 16, kTileBytes = 64, kTileLines = 16;

// Tiles are named by numbers, in the text of instructions: 0 and 1 are sums of a block of rows with the two halves of a
// panel, 2 and 3 those of the next block, 4 and 5 the rows of both, 6 and 7 the halves.
struct Bfloat16Tiles : Bfloat16Factors {
    static constexpr long together = kTileLines;
    static INLINE Vector finish(Sum sum, const std::byte*, int, const float* bias, float) {
        return bias ? sum + load(bias) : sum;
    }
    static INLINE void low() { _tile_dpbf16ps(0, 4, 6); }
    static INLINE void high() { _tile_dpbf16ps(1, 4, 7); }
    static INLINE void next_low() { _tile_dpbf16ps(2, 5, 6); }
    static INLINE void next_high() { _tile_dpbf16ps(3, 5, 7); }
};

struct Int8Tiles : Int8Factors {
    static constexpr long together = kTileLines;
    static constexpr int offset = 0;
    using Rounded = Bytes<offset>;
    static INLINE void low() { _tile_dpbssd(0, 4, 6); }
    static INLINE void high() { _tile_dpbssd(1, 4, 7); }
    static INLINE void next_low() { _tile_dpbssd(2, 5, 6); }
    static INLINE void next_high() { _tile_dpbssd(3, 5, 7); }
};

struct alignas(64) Configuration {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {};

    explicit Configuration(int of_sums) {
        for (int tile = 0; tile < 6; ++tile) rows[tile] = of_sums;
        rows[6] = rows[7] = kTileLines;
    }
};

// Tiles as a product wants them, and afterwards as they were: other libraries, ggml for one, configure a thread once and
// take it that they stay so.
class Configured {
  public:
    explicit Configured(const Configuration& wanted) {
        _tile_storeconfig(&before_);
        _tile_loadconfig(&wanted);
    }
    ~Configured() {
        if (before_[0]) _tile_loadconfig(&before_);
        else _tile_release();
    }
    Configured(const Configured&) = delete;
    Configured& operator=(const Configured&) = delete;

  private:
    alignas(64) uint8_t before_[64];  // begins with the palette, 0 where there was none
};

// Rows in tiles: of each block of `block` rows one tile after the other, zeros behind the last row and the last input.
struct Tiles {
    std::byte* at;
    float* scales;
    long block, depth;  // depth in tiles

    std::byte* tile(long number, long k) const { return at + (number * depth + k) * block * kTileBytes; }
};

template <class S>
constexpr std::size_t scratch_bytes(long depth) {
    return kRounded * sizeof(float) + (kRounded + kTileRows + 1) * lines_of<S>(depth) * S::factor_bytes;
}

// Rows first, first + 1, … of x, rounded into the scratch memory. Blocks of equal size, as no more than the last rows of a
// block are then multiplied for nothing.
template <class S>
Tiles round_rows(const Product& product, long first, long rows) {
    const long depth = product.part.depth, bytes = lines_of<S>(depth) * S::factor_bytes;
    const long blocks = (rows + kTileRows - 1) / kTileRows;
    const auto scales = reinterpret_cast<float*>(product.scratch);
    std::byte* const row_at = product.scratch + kRounded * sizeof(float);
    const Tiles tiles{row_at + bytes, scales, (rows + blocks - 1) / blocks, bytes / kTileBytes};
    for (long row = 0; row < blocks * tiles.block; ++row) {
        std::fill(row_at + (row < rows ? S::Rounded::bytes_of(depth) : 0), row_at + bytes, std::byte{});
        if (row < rows) scales[row] = S::Rounded::round(product.x.at + (first + row) * product.x.stride, depth, row_at);
        for (long k = 0; k < tiles.depth; ++k)
            std::memcpy(tiles.tile(row / tiles.block, k) + row % tiles.block * kTileBytes, row_at + k * kTileBytes, kTileBytes);
    }
    return tiles;
}

// Sums of `Blocks` blocks of rows with one panel. With Fetch, asks for weights to come.
template <class S, int Blocks, bool Fetch>
INLINE void multiply_panel(const std::byte* lines, const Tiles& rows, long block, std::byte* sums) {
    _tile_zero(0);
    _tile_zero(1);
    if constexpr (Blocks == 2) {
        _tile_zero(2);
        _tile_zero(3);
    }
    const std::byte* ahead = lines + kAhead;
    const auto ask = [&](long part) __attribute__((always_inline)) {
        if constexpr (Fetch)
            for (long line = 8 * part; line < 8 * part + 8; ++line) __builtin_prefetch(ahead + line * kTileBytes);
    };
    for (long k = 0; k < rows.depth; ++k, lines += kTileLines * S::bytes, ahead += kTileLines * S::bytes) {
        _tile_loadd(4, rows.tile(block, k), kTileBytes);
        ask(0);
        _tile_loadd(6, lines, S::bytes);
        ask(1);
        S::low();
        _tile_loadd(7, lines + kTileBytes, S::bytes);
        ask(2);
        S::high();
        if constexpr (Blocks == 2) {
            _tile_loadd(5, rows.tile(block + 1, k), kTileBytes);
            S::next_low();
        }
        ask(3);
        if constexpr (Blocks == 2) S::next_high();
    }
    constexpr long row_bytes = 2 * kTileBytes;
    _tile_stored(0, sums, row_bytes);
    _tile_stored(1, sums + kTileBytes, row_bytes);
    if constexpr (Blocks == 2) {
        _tile_stored(2, sums + rows.block * row_bytes, row_bytes);
        _tile_stored(3, sums + rows.block * row_bytes + kTileBytes, row_bytes);
    }
}

template <class S>
void finish_rows(const Product& product, const std::byte* panel, const float* bias, long column, const Tiles& rows, long first,
                 long last, const std::byte* sums) {
    for (long row = first; row < last; ++row, sums += 2 * kTileBytes)
        for (int h = 0; h < 2; ++h) {
            const auto sum = load<typename S::Sum>(sums + h * kTileBytes);
            const Vector value = S::finish(sum, panel, h, bias ? bias + h * W : nullptr, rows.scales[row]);
            const long at = column + h * W;
            put(product.y.at + row * product.y.stride + at, value, product.columns - at, product.add);
        }
}

// All panels for rows of y that were rounded.
template <class S>
void multiply_rounded(const Product& product, const Tiles& rows) {
    const Part& part = product.part;
    const long count = product.y.rows, size = panel_bytes<S>(part.depth, part.group);
    alignas(64) std::byte sums[2 * kTileRows * 2 * kTileBytes];
    for (long number = 0; number < part.last - part.first; ++number) {
        const std::byte *panel = part.lines + number * size, *lines = panel + S::header_bytes;
        const float* bias = part.bias ? part.bias + number * kColumns : nullptr;
        for (long block = 0; block * rows.block < count; block += 2) {
            const long first = block * rows.block, last = std::min(first + 2 * rows.block, count);
            const bool one = last - first <= rows.block;
            if (block == 0 && one) multiply_panel<S, 1, true>(lines, rows, block, sums);
            else if (block == 0) multiply_panel<S, 2, true>(lines, rows, block, sums);
            else if (one) multiply_panel<S, 1, false>(lines, rows, block, sums);
            else multiply_panel<S, 2, false>(lines, rows, block, sums);
            finish_rows<S>(product, panel, bias, (part.first + number) * kColumns, rows, first, last, sums);
        }
    }
}

template <class S>
void multiply_as(const Product& product) {
    for (long first = 0; first < product.x.rows; first += kRounded) {
        Product part = product;
        part.x.rows = part.y.rows = std::min(kRounded, product.x.rows - first);
        part.y.at += first * product.y.stride;
        const Tiles rows = round_rows<S>(product, first, part.x.rows);
        const Configured configured{Configuration(int(rows.block))};
        multiply_rounded<S>(part, rows);
    }
}

// `call` of the format where it is computed in tiles, and otherwise `plain`.
template <class Call, class Plain>
auto with_format(Storage storage, const Call& call, const Plain& plain) {
    switch (storage) {
        case Storage::bfloat16_factors: return call(Bfloat16Tiles{});
        case Storage::int8_factors: return call(Int8Tiles{});
        default: return plain(avx512::kernels());
    }
}

std::size_t bytes_of_panel(Storage storage, long depth, long group) {
    return with_format(
        storage, [&]<class S>(S) -> std::size_t { return panel_bytes<S>(depth, group); },
        [&](const Kernels& other) { return other.panel_bytes(storage, depth, group); });
}

std::size_t bytes_of_scratch(Storage storage, long depth) {
    return with_format(
        storage, [&]<class S>(S) { return scratch_bytes<S>(depth); },
        [&](const Kernels& other) { return other.scratch_bytes(storage, depth); });
}

void pack(const Source& source, long first, long last, std::byte* to) {
    with_format(
        source.storage, [&]<class S>(S) { pack_as<S>(source, first, last, to); },
        [&](const Kernels& other) { other.pack(source, first, last, to); });
}

void multiply(const Product& product) {
    with_format(
        product.part.storage, [&]<class S>(S) { multiply_as<S>(product); },
        [&](const Kernels& other) { other.multiply(product); });
}

}  // namespace

const Kernels& kernels() {
    static const Kernels table = [] {
        Kernels of = avx512::kernels();
        of.name = "amx";
        of.panel_bytes = bytes_of_panel;
        of.scratch_bytes = bytes_of_scratch;
        of.pack = pack;
        of.multiply = multiply;
        return of;
    }();
    return table;
}

}  // namespace paceline::SET
