// The noise of decode/noise.py for one position: the same bits, and the same numbers to the last of float32.
//
// Scalar and exact; only for kernels.cpp, see simd.h. draw.h has vectors that come close. What is frozen there is frozen here.
#pragma once

#include <cmath>
#include <cstdint>

namespace paceline::SET {

// Words may be one word or a vector of them: `triple32` of C. Wellons' hash-prospector, and its first step alone.
template <class Words>
inline __attribute__((always_inline)) Words scramble(Words bits, int shift, uint32_t factor) {
    return (bits ^ bits >> shift) * factor;
}

template <class Words>
inline __attribute__((always_inline)) Words triple32(Words bits) {
    bits = scramble(scramble(scramble(bits, 17, 0xED5AD4BBu), 11, 0xAC4C1B51u), 15, 0x31848BABu);
    return bits ^ bits >> 14;
}

// The two words that a uniform number is made of: its high 32 bits, and what 21 more are taken from.
template <class Words>
struct Uniform {
    Words high, low;
};

template <class Words>
inline __attribute__((always_inline)) Uniform<Words> uniform(Words id, uint64_t key) {
    const Words low = scramble(triple32(id) ^ static_cast<uint32_t>(key), 16, 0x7FEB352Du);
    return {triple32(low ^ static_cast<uint32_t>(key >> 32)) ^ 0x80000000u, low};
}

// Standard Gumbel noise of a vocabulary id.
inline float gumbel(uint32_t id, uint64_t key) {
    const auto [high, low] = uniform(id, key);
    const double value = high * 0x1p-32 + ((low & 0x1FFFFF) | 1) * 0x1p-53;
    return static_cast<float>(-std::log(-std::log1p(-value)));
}

}  // namespace paceline::SET
