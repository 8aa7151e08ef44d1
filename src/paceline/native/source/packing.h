// Weights as torch keeps them, made into panels.
#pragma once

#include <algorithm>
#include <cmath>

#include "formats.h"

namespace paceline::SET {

// Zeros behind the last output and the last input.
INLINE Line line_of(const Source& source, long column, long k) {
    Line line{};
    if (k >= source.depth) return line;
    for (long i = 0; i < std::min(kColumns, source.columns - column); ++i)
        line.outputs[i] = source.weight[(column + i) * source.depth + k];
    return line;
}

// Of every output the largest of the inputs first … last - 1.
inline Line largest_of(const Source& source, long column, long first, long last) {
    Line largest{};
    for (long k = first; k < last; ++k) {
        const Line line = line_of(source, column, k);
        for (long i = 0; i < kColumns; ++i) largest.outputs[i] = std::max(largest.outputs[i], std::abs(line.outputs[i]));
    }
    return largest;
}

template <class S>
void pack_factors(const Source& source, long first, long last, std::byte* to);

template <class S>
void pack_as(const Source& source, long first, long last, std::byte* to) {
    if constexpr (S::header_bytes != 0) return pack_factors<S>(source, first, last, to);
    else
        for (long column = first * kColumns; column < last * kColumns; column += kColumns)
            for (long k = 0; k < lines_of<S>(source.depth) * S::inputs; k += S::inputs, to += S::bytes) {
                Line lines[S::inputs];
                for (long i = 0; i < S::inputs; ++i) lines[i] = line_of(source, column, k + i);
                S::write(lines, to);
            }
}

// The smallest bfloat16 that is no smaller than largest / 127: with it the products of scale and code are exact.
inline float scale_of(float largest) {
    return std::bit_cast<float>((std::bit_cast<uint32_t>(largest / 127.0f) + 0xffffu) & 0xffff0000u);
}

template <>
inline void pack_as<Int8>(const Source& source, long first, long last, std::byte* to) {
    for (long column = first * kColumns; column < last * kColumns; column += kColumns)
        for (long from = 0; from < source.depth; from += source.group) {
            const long end = std::min(from + source.group, source.depth);
            Line scales = largest_of(source, column, from, end);
            for (float& scale : scales.outputs) scale = scale_of(scale);
            Bfloat16::write(&scales, to);
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

// Codes and scales of outputs as `range_of` has those of rows.
template <class S>
void pack_factors(const Source& source, long first, long last, std::byte* to) {
    for (long column = first * kColumns; column < last * kColumns; column += kColumns) {
        const Line largest = largest_of(source, column, 0, source.depth);
        float scales[kColumns], factors[kColumns];
        for (long i = 0; i < kColumns; ++i) {
            const Range range = range_within(largest.outputs[i]);
            scales[i] = range.scale, factors[i] = range.factor;
        }
        std::byte* const header = to;
        std::memcpy(header, scales, sizeof scales);
        int32_t starts[kColumns] = {};
        to += S::header_bytes;
        for (long k = 0; k < lines_of<S>(source.depth) * S::inputs; k += S::inputs, to += S::bytes) {
            int8_t codes[kColumns][S::inputs];
            for (long j = 0; j < S::inputs; ++j) {
                const Line line = line_of(source, column, k + j);
                for (long i = 0; i < kColumns; ++i) {
                    codes[i][j] = int8_t(std::nearbyint(line.outputs[i] * factors[i]));
                    starts[i] -= S::offset * codes[i][j];
                }
            }
            std::memcpy(to, codes, sizeof codes);
        }
        std::memcpy(header + sizeof scales, starts, sizeof starts);
    }
}

}  // namespace paceline::SET
