// How weights lie in memory, packed for one product: lines of panels, and what multiplies a line.
//
// A panel is two vectors of outputs wide. A line holds the weights of one, two or four inputs for all its outputs. A format
// says how a line is read, by what of a row it is multiplied, and how sums begin and end.
#pragma once

#include <algorithm>
#include <cmath>

#include "factors.h"
#include "kernels.h"
#include "simd.h"

namespace paceline::SET {

constexpr long kColumns = 2 * W;

// What all outputs of a panel weigh one input with.
struct Line {
    float outputs[kColumns];
};

// Float32 sums of rows that are taken as they are, one input to a line.
struct Exact {
    static constexpr long inputs = 1, together = 1, factor_bytes = 4, header_bytes = 0;
    using Sum = Vector;
    using Word = Vector;
    using Factor = Vector;
    using Rounded = AsTheyAre;

    static INLINE Sum start(const std::byte*, int, const float* bias) { return bias ? load(bias) : Vector{}; }
    static INLINE Factor factor(const std::byte* row) {
        float value;
        std::memcpy(&value, row, sizeof value);
        return spread(value);
    }
    static INLINE Sum add(Factor factor, Word word, Sum sum) { return fma(factor, word, sum); }
    static INLINE Vector finish(Sum sum, const std::byte*, int, const float*, float) { return sum; }
};

// What a line of exact weights is multiplied by: nothing.
struct NoScales {
    static constexpr long scale_bytes = 0;
    struct Scales {};
    static INLINE Scales scales(const std::byte*) { return {}; }
};

// A line of float32: the outputs in order.
struct Float32 : Exact, NoScales {
    static constexpr long bytes = kColumns * 4;
    static INLINE void read(const std::byte* line, Scales, Vector& low, Vector& high) {
        low = load(line);
        high = load(line + 4 * W);
    }
    static void write(const Line* line, std::byte* to) { std::memcpy(to, line->outputs, bytes); }
};

// A line of bfloat16: word i holds output i in its low half and output i + W in its high half, so that a shift and a
// mask widen a line. Weights that are not bfloat16 are rounded.
struct Bfloat16 : Exact, NoScales {
    static constexpr long bytes = kColumns * 2;
    static INLINE void read(const std::byte* line, Scales, Vector& low, Vector& high) {
        const Words words = load<Words>(line);
        low = (Vector)(words << 16);
        high = (Vector)(words & 0xffff0000u);
    }
    static void write(const Line* line, std::byte* to) {
        uint32_t words[W];
        for (int i = 0; i < W; ++i) words[i] = half_of(line->outputs[i]) | half_of(line->outputs[i + W]) << 16;
        std::memcpy(to, words, sizeof words);
    }
};

// A line of int8: the outputs in order, to be multiplied by the scales of their group, a line of bfloat16 in front of it.
struct Int8 : Exact {
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

#if defined(__AVX512BF16__)

// Products of bfloat16, two inputs to a line: of every output a pair.
struct Bfloat16Factors : NoScales {
    static constexpr long inputs = 2, together = 1, bytes = kColumns * 4, factor_bytes = 4, header_bytes = 0;
    using Sum = Vector;
    using Word = Words;
    using Factor = Words;
    using Rounded = Halves;

    static INLINE Sum start(const std::byte*, int, const float* bias) { return bias ? load(bias) : Vector{}; }
    static INLINE void read(const std::byte* line, Scales, Word& low, Word& high) {
        low = load<Words>(line);
        high = load<Words>(line + 4 * W);
    }
    static INLINE Factor factor(const std::byte* row) {
        uint32_t pair;
        std::memcpy(&pair, row, sizeof pair);
        return pair - Words{};
    }
    static INLINE Sum add(Factor factor, Word word, Sum sum) {
        return _mm512_dpbf16_ps(sum, (__m512bh)word, (__m512bh)factor);
    }
    static INLINE Vector finish(Sum sum, const std::byte*, int, const float*, float) { return sum; }
    static void write(const Line* lines, std::byte* to) {
        uint32_t pairs[kColumns];
        for (int i = 0; i < kColumns; ++i) pairs[i] = half_of(lines[0].outputs[i]) | half_of(lines[1].outputs[i]) << 16;
        std::memcpy(to, pairs, sizeof pairs);
    }
};

#else

// The same numbers, multiplied as float32.
struct Bfloat16Factors : Bfloat16 {
    using Rounded = Widened;
};

#endif

// Products of int8, four inputs to a line: of every output a word. In front of a panel's lines stand the scales of its
// outputs and what their sums begin with.
struct Int8Factors : NoScales {
    static constexpr long inputs = 4, together = 1, bytes = kColumns * 4, header_bytes = kColumns * 8;
    using Sum = Integers;

#if defined(__AVX512VNNI__)
    // The instruction takes the row's codes without sign: 128 is added, and taken from what sums begin with.
    static constexpr int offset = 128;
    using Rounded = Bytes<offset>;
    using Word = Integers;
    using Factor = Integers;
    static INLINE void read(const std::byte* line, Scales, Word& low, Word& high) {
        low = load<Integers>(line);
        high = load<Integers>(line + 4 * W);
    }
    static INLINE Factor factor(const std::byte* row) {
        int32_t codes;
        std::memcpy(&codes, row, sizeof codes);
        return codes - Integers{};
    }
    static INLINE Sum add(Factor factor, Word word, Sum sum) {
        return (Integers)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)factor, (__m512i)word);
    }
#else
    static constexpr int offset = 0;
    using Rounded = Pairs;
    // Inputs 0 and 2 of a word, and 1 and 3: pairs of 16 bits.
    struct Word {
        Integers even, odd;
    };
    using Factor = Word;
    static INLINE void read(const std::byte* line, Scales, Word& low, Word& high) {
        low = split(load<Integers>(line));
        high = split(load<Integers>(line + 4 * W));
    }
    static INLINE Word split(Integers codes) {
        return {(Integers)((Shorts)codes << 8 >> 8), (Integers)((Shorts)codes >> 8)};
    }
    static INLINE Factor factor(const std::byte* row) {
        int32_t pairs[2];
        std::memcpy(pairs, row, sizeof pairs);
        return {pairs[0] - Integers{}, pairs[1] - Integers{}};
    }
    static INLINE Sum add(Factor factor, Word word, Sum sum) {
        return sum + products(factor.even, word.even) + products(factor.odd, word.odd);
    }
#endif

    static constexpr long factor_bytes = Rounded::bytes;

    static INLINE Sum start(const std::byte* panel, int half, const float*) {
        return load<Integers>(panel + kColumns * 4 + half * 4 * W);
    }
    static INLINE Vector finish(Sum sum, const std::byte* panel, int half, const float* bias, float scale) {
        const Vector scaled = __builtin_convertvector(sum, Vector) * (load(panel + half * 4 * W) * scale);
        return bias ? scaled + load(bias) : scaled;
    }
};

// As many as hold the inputs, in groups of those that are multiplied together.
template <class S>
constexpr long lines_of(long depth) {
    const long inputs = S::inputs * S::together;
    return (depth + inputs - 1) / inputs * S::together;
}

template <class S>
constexpr long panel_bytes(long depth, long group) {
    const long lines = S::header_bytes + lines_of<S>(depth) * S::bytes;
    if constexpr (S::scale_bytes == 0) return lines;
    else return lines + (depth + group - 1) / group * S::scale_bytes;
}

}  // namespace paceline::SET
