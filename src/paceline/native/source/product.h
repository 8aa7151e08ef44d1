// The product of a few rows with a packed weight matrix: tiles of rows x panels held in registers.
//
// The lines of a panel follow each other in the order of depth, so a tile reads one stream; a single row takes four panels at
// once, since one panel would wait for each fused multiply-add. Tiles are exact: no row or panel is computed for nothing. They
// differ in how many elements they hold, and never in how one is summed.
#pragma once

#include <algorithm>

#include "formats.h"
#include "kernels.h"
#include "place.h"
#include "simd.h"

namespace paceline::SET {

// Rows of a tile: what 16 or 32 registers hold beside a line of weights.
constexpr int kTileRows = W == 16 ? 12 : 6;

constexpr long kCacheLine = 64;

// What a tile does to its place in y.
struct Place {
    float* at;
    long stride;
    long columns;  // left of y from here
    bool add;
};

// Rows as they are multiplied, `stride` bytes apart; of each, where it was rounded, the scale that this left.
struct Factors {
    const std::byte* at;
    long stride;
    const float* scales;
};

// R rows x P panels. With Fetch, asks for weights to come: those of the panels behind these, near the end.
template <class S, int R, int P, bool Fetch>
INLINE void tile(const std::byte* panels, const Part& part, const Factors& x, const float* bias, const Place& y) {
    const long panel = panel_bytes<S>(part.depth, part.group), depth = lines_of<S>(part.depth);
    const auto bias_of = [&](int p, int h) { return bias ? bias + p * kColumns + h * W : nullptr; };
    typename S::Sum sums[R][P][2];
    for (int r = 0; r < R; ++r)
        for (int p = 0; p < P; ++p)
            for (int h = 0; h < 2; ++h) sums[r][p][h] = S::start(panels + p * panel, h, bias_of(p, h));

    const std::byte* lines = panels + S::header_bytes;
    typename S::Scales scales[P];
    const auto step = [&](long k) __attribute__((always_inline)) {
        for (int p = 0; p < P; ++p) {
            typename S::Word line[2];
            S::read(lines + p * panel + k * S::bytes, scales[p], line[0], line[1]);
            for (int r = 0; r < R; ++r) {
                const typename S::Factor factor = S::factor(x.at + r * x.stride + k * S::factor_bytes);
                for (int h = 0; h < 2; ++h) sums[r][p][h] = S::add(factor, line[h], sums[r][p][h]);
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
    const long early = std::min(depth, kAhead / (P * S::bytes)), group = lines_of<S>(part.group);
    for (long from = 0; from < depth; from += group) {
        const long end = std::min(from + group, depth), middle = std::clamp(depth - early, from, end);
        for (int p = 0; p < P; ++p) scales[p] = S::scales(lines + p * panel + from * S::bytes);
        lines += S::scale_bytes;  // of this group and the earlier ones: where line 0 would be
        steps(from, middle, early * S::bytes);
        steps(middle, end, early * S::bytes + (P - 1) * panel);
    }

    for (int r = 0; r < R; ++r)
        for (int p = 0; p < P; ++p)
            for (int h = 0; h < 2; ++h) {
                const long column = p * kColumns + h * W;
                const float scale = S::Rounded::rounds ? x.scales[r] : 1;
                const Vector sum = S::finish(sums[r][p][h], panels + p * panel, h, bias_of(p, h), scale);
                put(y.at + r * y.stride + column, sum, y.columns - column, y.add);
            }
}

// Panels that a tile of so many rows takes at once: enough sums that none waits for the one before.
constexpr int panels_of(int rows) {
    if (W == 16) return rows <= 2 ? 4 : rows <= 6 ? 2 : 1;
    return rows == 1 ? 4 : rows == 2 ? 2 : 1;
}

// Panels first … last - 1 for R rows from `row` on.
template <class S, int R, bool Fetch, int P = panels_of(R)>
void run_panels(const Product& product, const Factors& x, long first, long last, long row) {
    const Part& part = product.part;
    const Factors own{x.at + row * x.stride, x.stride, x.scales + row};
    for (; first + P <= last; first += P) {
        const long done = first - part.first, column = first * kColumns;
        const Place y{product.y.at + row * product.y.stride + column, product.y.stride, product.columns - column,
                      product.add};
        tile<S, R, P, Fetch>(part.lines + done * panel_bytes<S>(part.depth, part.group), part, own,
                             part.bias ? part.bias + done * kColumns : nullptr, y);
    }
    if constexpr (P > 1)
        if (first < last) run_panels<S, R, Fetch, P / 2>(product, x, first, last, row);
}

template <class S, int R = kTileRows>
void run_rows(const Product& product, const Factors& x, long first, long last, long row, long rows) {
    if (rows == R) return row ? run_panels<S, R, false>(product, x, first, last, row)
                              : run_panels<S, R, true>(product, x, first, last, row);
    if constexpr (R > 1) run_rows<S, R - 1>(product, x, first, last, row, rows);
}

// Panel by panel, all rows of the one before the next: a panel is read from memory once, and then from the cache.
template <class S>
void run_all(const Product& product, const Factors& x) {
    const Part& part = product.part;
    const long rows = product.x.rows, tiles = (rows + kTileRows - 1) / kTileRows;
    const long together = tiles > 1 ? panels_of(rows / tiles) : part.last - part.first;
    for (long panel = part.first; panel < part.last; panel += together)
        for (long i = 0; i < tiles; ++i) {
            const long row = rows * i / tiles, next = rows * (i + 1) / tiles;
            run_rows<S>(product, x, panel, std::min(panel + together, part.last), row, next - row);
        }
}

template <class S>
constexpr std::size_t scratch_bytes(long depth) {
    if constexpr (S::Rounded::rounds) return kRounded * (sizeof(float) + S::Rounded::bytes_of(depth));
    else return 0;
}

// Rows first, first + 1, … of x, no more than kRounded, rounded into the scratch memory.
template <class S>
Factors round_rows(const Product& product, long first, long rows) {
    const long stride = S::Rounded::bytes_of(product.part.depth);
    float* scales = reinterpret_cast<float*>(product.scratch);
    std::byte* to = product.scratch + kRounded * sizeof(float);
    for (long row = 0; row < rows; ++row)
        scales[row] = S::Rounded::round(product.x.at + (first + row) * product.x.stride, product.part.depth, to + row * stride);
    return {to, stride, scales};
}

template <class S>
void multiply_as(const Product& product) {
    if constexpr (!S::Rounded::rounds) {
        const Rows& x = product.x;
        if (x.rows) run_all<S>(product, {reinterpret_cast<const std::byte*>(x.at), x.stride * long(sizeof(float)), nullptr});
    } else {
        for (long first = 0; first < product.x.rows; first += kRounded) {
            Product part = product;
            part.x.rows = part.y.rows = std::min(kRounded, product.x.rows - first);
            part.y.at += first * product.y.stride;
            run_all<S>(part, round_rows<S>(product, first, part.x.rows));
        }
    }
}

}  // namespace paceline::SET
