// The product of a few rows with a packed weight matrix: packing, and tiles of rows x panels held in registers.
//
// A panel is two vectors of outputs wide. Its lines follow each other in the order of depth, so a tile reads one stream;
// a single row takes four panels at once, since one panel would wait for each fused multiply-add. Tiles are exact: no row
// or panel is computed for nothing. They differ in how many elements they hold, and never in how one is summed.
#pragma once

#include <algorithm>
#include <cmath>

#include "kernels.h"
#include "simd.h"

namespace paceline::SET {

constexpr long kColumns = 2 * W;

// Rows of a tile: what 16 or 32 registers hold beside a line of weights.
constexpr int kTileRows = W == 16 ? 12 : 6;

constexpr long kCacheLine = 64;

// Weights are asked for so many bytes before they are used; measured.
constexpr long kAhead = 8192;

// What a line of exact weights is multiplied by: nothing.
struct NoScales {
    static constexpr long scale_bytes = 0;
    struct Scales {};
    static INLINE Scales scales(const std::byte*) { return {}; }
};

// A line of float32: the outputs in order.
struct Float32 : NoScales {
    static constexpr long bytes = kColumns * 4;
    static INLINE void read(const std::byte* line, Scales, Vector& low, Vector& high) {
        low = load(line);
        high = load(line + 4 * W);
    }
    static void write(const float* outputs, std::byte* line) { std::memcpy(line, outputs, bytes); }
};

// A line of bfloat16: word i holds output i in its low half and output i + W in its high half, so that a shift and a
// mask widen a line.
struct Bfloat16 : NoScales {
    static constexpr long bytes = kColumns * 2;
    static INLINE void read(const std::byte* line, Scales, Vector& low, Vector& high) {
        const Words words = load<Words>(line);
        low = (Vector)(words << 16);
        high = (Vector)(words & 0xffff0000u);
    }
    static void write(const float* outputs, std::byte* line) {
        uint32_t bits[kColumns], words[W];
        std::memcpy(bits, outputs, sizeof bits);
        for (int i = 0; i < W; ++i) words[i] = (bits[i] >> 16) | (bits[i + W] & 0xffff0000u);
        std::memcpy(line, words, sizeof words);
    }
};

// A line of int8: the outputs in order, to be multiplied by the scales of their group, a line of bfloat16 in front of it.
struct Int8 {
    static constexpr long bytes = kColumns, scale_bytes = Bfloat16::bytes;
    struct Scales {
        Vector low, high;
    };
    static INLINE Scales scales(const std::byte* line) {
        Scales of;
        Bfloat16::read(line, {}, of.low, of.high);
        return of;
    }
    static INLINE void read(const std::byte* line, const Scales& of, Vector& low, Vector& high) {
        low = widen(line) * of.low;
        high = widen(line + W) * of.high;
    }
};

template <class S>
constexpr long panel_bytes(long depth, long group) {
    if constexpr (S::scale_bytes == 0) return depth * S::bytes;
    else return depth * S::bytes + (depth + group - 1) / group * S::scale_bytes;
}

// The weights of one line, zeros behind the last output.
struct Line {
    float outputs[kColumns];
};

INLINE Line line_of(const Source& source, long column, long k) {
    Line line{};
    for (long i = 0; i < std::min(kColumns, source.columns - column); ++i)
        line.outputs[i] = source.weight[(column + i) * source.depth + k];
    return line;
}

template <class S>
void pack_as(const Source& source, long first, long last, std::byte* to) {
    for (long column = first * kColumns; column < last * kColumns; column += kColumns)
        for (long k = 0; k < source.depth; ++k, to += S::bytes) S::write(line_of(source, column, k).outputs, to);
}

// The smallest bfloat16 that is no smaller than largest / 127: with it the products of scale and code are exact.
inline float scale_of(float largest) {
    uint32_t bits;
    const float wanted = largest / 127.0f;
    std::memcpy(&bits, &wanted, sizeof bits);
    bits = (bits + 0xffffu) & 0xffff0000u;
    float scale;
    std::memcpy(&scale, &bits, sizeof bits);
    return scale;
}

template <>
inline void pack_as<Int8>(const Source& source, long first, long last, std::byte* to) {
    for (long column = first * kColumns; column < last * kColumns; column += kColumns)
        for (long from = 0; from < source.depth; from += source.group) {
            const long end = std::min(from + source.group, source.depth);
            Line scales{};
            for (long k = from; k < end; ++k) {
                const Line line = line_of(source, column, k);
                for (long i = 0; i < kColumns; ++i)
                    scales.outputs[i] = std::max(scales.outputs[i], std::abs(line.outputs[i]));
            }
            for (float& scale : scales.outputs) scale = scale_of(scale);
            Bfloat16::write(scales.outputs, to);
            to += Int8::scale_bytes;
            for (long k = from; k < end; ++k, to += Int8::bytes) {
                const Line line = line_of(source, column, k);
                int8_t codes[kColumns] = {};
                for (long i = 0; i < kColumns; ++i)
                    if (scales.outputs[i] > 0) codes[i] = int8_t(std::nearbyint(line.outputs[i] / scales.outputs[i]));
                std::memcpy(to, codes, sizeof codes);
            }
        }
}

// What a tile does to its place in y.
struct Place {
    float* at;
    long stride;
    long columns;  // left of y from here
    bool add;
};

INLINE void put(float* to, Vector v, long columns, bool add) {
    if (columns >= W) return store(to, add ? load(to) + v : v);
    if (columns > 0) store_some(to, add ? load_some(to, columns) + v : v, columns);
}

// R rows x P panels. With Fetch, asks for weights to come: those of the panels behind these, near the end.
template <class S, int R, int P, bool Fetch>
INLINE void tile(const std::byte* lines, const Part& part, const Rows& x, const float* bias, const Place& y) {
    const long panel = panel_bytes<S>(part.depth, part.group);
    Vector sums[R][P][2];
    for (int r = 0; r < R; ++r)
        for (int p = 0; p < P; ++p)
            for (int h = 0; h < 2; ++h) sums[r][p][h] = bias ? load(bias + p * kColumns + h * W) : Vector{};

    typename S::Scales scales[P];
    const auto step = [&](long k) __attribute__((always_inline)) {
        for (int p = 0; p < P; ++p) {
            Vector line[2];
            S::read(lines + p * panel + k * S::bytes, scales[p], line[0], line[1]);
            for (int r = 0; r < R; ++r) {
                const Vector value = spread(x.at[r * x.stride + k]);
                for (int h = 0; h < 2; ++h) sums[r][p][h] = fma(value, line[h], sums[r][p][h]);
            }
        }
    };
    // Few rows have registers for several steps at once, and many have none to spare.
    constexpr long together = R <= 2 ? 4 : R < kTileRows ? 2 : 1;
    const auto steps = [&](long k, long end, long ahead) __attribute__((always_inline)) {
        for (; k + together <= end; k += together) {
            if constexpr (Fetch)
                for (int p = 0; p < P; ++p)
                    for (long next = 0; next < together * S::bytes; next += kCacheLine)
                        __builtin_prefetch(lines + p * panel + k * S::bytes + ahead + next);
            for (int i = 0; i < together; ++i) step(k + i);
        }
        for (; k < end; ++k) step(k);
    };
    const long early = std::min(part.depth, kAhead / (P * S::bytes));
    for (long from = 0; from < part.depth; from += part.group) {
        const long end = std::min(from + part.group, part.depth), middle = std::clamp(part.depth - early, from, end);
        for (int p = 0; p < P; ++p) scales[p] = S::scales(lines + p * panel + from * S::bytes);
        lines += S::scale_bytes;  // of this group and the earlier ones: where line 0 would be
        steps(from, middle, early * S::bytes);
        steps(middle, end, early * S::bytes + (P - 1) * panel);
    }

    for (int r = 0; r < R; ++r)
        for (int p = 0; p < P; ++p)
            for (int h = 0; h < 2; ++h) {
                const long column = p * kColumns + h * W;
                put(y.at + r * y.stride + column, sums[r][p][h], y.columns - column, y.add);
            }
}

// Panels that a tile of so many rows takes at once: enough sums that none waits for the one before.
constexpr int panels_of(int rows) {
    if (W == 16) return rows <= 2 ? 4 : rows <= 6 ? 2 : 1;
    return rows == 1 ? 4 : rows == 2 ? 2 : 1;
}

// Panels first … last - 1 for R rows.
template <class S, int R, bool Fetch, int P = panels_of(R)>
void run_panels(const Product& product, long first, long last, long row) {
    const Part& part = product.part;
    const Rows x{product.x.at + row * product.x.stride, product.x.stride, R};
    for (; first + P <= last; first += P) {
        const long done = first - part.first, column = first * kColumns;
        const Place y{product.y.at + row * product.y.stride + column, product.y.stride, product.columns - column,
                      product.add};
        tile<S, R, P, Fetch>(part.lines + done * panel_bytes<S>(part.depth, part.group), part, x,
                             part.bias ? part.bias + done * kColumns : nullptr, y);
    }
    if constexpr (P > 1)
        if (first < last) run_panels<S, R, Fetch, P / 2>(product, first, last, row);
}

template <class S, int R = kTileRows>
void run_rows(const Product& product, long first, long last, long row, long rows) {
    if (rows == R) return row ? run_panels<S, R, false>(product, first, last, row)
                              : run_panels<S, R, true>(product, first, last, row);
    if constexpr (R > 1) run_rows<S, R - 1>(product, first, last, row, rows);
}

// Panel by panel, all rows of the one before the next: a panel is read from memory once, and then from the cache.
template <class S>
void multiply_as(const Product& product) {
    const Part& part = product.part;
    const long rows = product.x.rows, tiles = (rows + kTileRows - 1) / kTileRows;
    if (rows == 0) return;
    const long together = tiles > 1 ? panels_of(rows / tiles) : part.last - part.first;
    for (long panel = part.first; panel < part.last; panel += together)
        for (long i = 0; i < tiles; ++i) {
            const long row = rows * i / tiles, next = rows * (i + 1) / tiles;
            run_rows<S>(product, panel, std::min(panel + together, part.last), row, next - row);
        }
}

}  // namespace paceline::SET
