// Rows as a product takes them: as they are, or rounded to bfloat16 or int8.
//
// What a row becomes depends on nothing but the row. Rounded rows are whole vectors, zeros behind the last input.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels.h"
#include "simd.h"

namespace paceline::SET {

// The nearest bfloat16, ties to the even one, in the high half of each word; a NaN stays one.
INLINE Words halves_of(Vector v) {
    const Words bits = (Words)v;
    return v == v ? (bits + 0x7fffu + (bits >> 16 & 1u)) & 0xffff0000u : (bits | 0x400000u) & 0xffff0000u;
}

INLINE uint32_t half_of(float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    return value == value ? (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16 : (bits | 0x400000u) >> 16;
}

// The first `count` of W numbers, zeros behind.
INLINE Vector some_of(const float* row, long count) { return count >= W ? load(row) : load_some(row, count); }

// Where they are, in float32.
struct AsTheyAre {
    static constexpr bool rounds = false;
};

// As bfloat16, kept as float32.
struct Widened {
    static constexpr bool rounds = true;
    static constexpr long bytes_of(long depth) { return (depth + W - 1) / W * W * 4; }
    static INLINE float round(const float* row, long depth, std::byte* to) {
        for (long k = 0; k < depth; k += W) store(to + 4 * k, halves_of(some_of(row + k, depth - k)));
        return 1;
    }
};

#if defined(__AVX512BF16__)

struct Halves {
    static constexpr bool rounds = true;
    static constexpr long bytes_of(long depth) { return (depth + W - 1) / W * W * 2; }
    static INLINE float round(const float* row, long depth, std::byte* to) {
        for (long k = 0; k < depth; k += W) store(to + 2 * k, _mm512_cvtneps_pbh(some_of(row + k, depth - k)));
        return 1;
    }
};

#endif

// By what a row's numbers are to be multiplied before they are rounded to 8 bits, and the scale that this leaves. The
// scale is no number where one of the row's is none, or infinite.
struct Range {
    float factor, scale;
};

INLINE Range range_within(float largest) {
    // Below, 127 / largest is infinite, and the numbers are next to nothing.
    return largest < 1e-36f ? Range{0, 0} : Range{127 / largest, largest / 127};
}

INLINE Range range_of(const float* row, long depth) {
    Vector largest{}, spoilt{};
    for (long k = 0; k < depth; k += W) {
        const Vector v = some_of(row + k, depth - k), size = v < 0 ? -v : v;
        largest = size > largest ? size : largest;
        spoilt = fma(v, Vector{}, spoilt);
    }
    float lanes[W];
    store(lanes, largest);
    const float spoil = sum(spoilt);
    return spoil == 0 ? range_within(*std::max_element(lanes, lanes + W)) : Range{0, spoil};
}

// The nearest integers, ties to the even one, of numbers below 2^22: where adding 1.5 * 2^23 leaves no fraction.
INLINE Integers nearest(Vector v) {
    const Vector magic = spread(12582912.0f);
    return (Integers)(v + magic) - (Integers)magic;
}

// As int8 with a scale. kOffset is added to every code.
template <int kOffset>
struct Bytes {
    static constexpr bool rounds = true;
    static constexpr long bytes = 4;  // of four inputs
    static constexpr long bytes_of(long depth) { return (depth + W - 1) / W * W; }
    static INLINE float round(const float* row, long depth, std::byte* to) {
        const Range range = range_of(row, depth);
        for (long k = 0; k < depth; k += W) {
            const Vector v = range.factor == 0 ? Vector{} : some_of(row + k, depth - k) * range.factor;
            narrow(nearest(v) + kOffset, to + k);
        }
        return range.scale;
    }
};

#if !defined(__AVX512VNNI__)

// As int8 with a scale, 16 bits wide: inputs 0, 2, 1 and 3 of four.
struct Pairs {
    static constexpr bool rounds = true;
    static constexpr long bytes = 8;
    static constexpr long bytes_of(long depth) { return (depth + W - 1) / W * W * 2; }
    static INLINE float round(const float* row, long depth, std::byte* to) {
        const Range range = range_of(row, depth);
        for (long k = 0; k < depth; k += W) {
            const Vector v = range.factor == 0 ? Vector{} : some_of(row + k, depth - k) * range.factor;
            const Integers codes = nearest(v);
            int16_t shorts[W];
            for (int i = 0; i < W; ++i) shorts[i / 4 * 4 + (i % 2) * 2 + i % 4 / 2] = int16_t(codes[i]);
            std::memcpy(to + 2 * k, shorts, sizeof shorts);
        }
        return range.scale;
    }
};

#endif

}  // namespace paceline::SET
