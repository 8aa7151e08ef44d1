// Norms, rotations, gates and convolutions: what happens to one row at a time.
//
// Every element of the result takes the same path through vectors or behind them, so it does not depend on other rows.
#pragma once

#include <algorithm>
#include <cmath>

#include "kernels.h"
#include "simd.h"

namespace paceline::SET {

INLINE float sum_of_squares(const float* x, long size) {
    Vector sums{};
    long i = 0;
    for (; i + W <= size; i += W) sums = fma(load(x + i), load(x + i), sums);
    if (i < size) sums = fma(load_some(x + i, size - i), load_some(x + i, size - i), sums);
    return sum(sums);
}

// RMSNorm (arXiv 1910.07467): y = x / sqrt(mean(x²) + eps) * weight. y may be x.
inline void norm(const float* x, const float* weight, long size, float eps, float* y) {
    const float scale = 1.0f / std::sqrt(sum_of_squares(x, size) / static_cast<float>(size) + eps);
    for (long i = 0; i < size; ++i) y[i] = x[i] * scale * weight[i];
}

// Rotary positions (arXiv 2104.09864): element i pairs with i + size / 2; sin is negated in the first half. y is not x.
inline void rotate(const float* x, const float* cos, const float* sin, long size, float* y) {
    const long half = size / 2;
    for (long i = 0; i < half; ++i) {
        y[i] = x[i] * cos[i] + x[i + half] * sin[i];
        y[i + half] = x[i + half] * cos[i + half] + x[i] * sin[i + half];
    }
}

// SwiGLU (arXiv 2002.05202): y = silu(gate) * up; size is a multiple of W.
inline void gate(const float* gates, const float* ups, long size, float* y) {
    for (long i = 0; i < size; i += W) {
        const Vector g = load(gates + i);
        store(y + i, g / (exponential(-g) + 1.0f) * load(ups + i));
    }
}

// The numbers of W channels from `channel` on: one for all channels of a group, zeros behind the last.
INLINE Vector of_groups(const float* numbers, long channel, long channels, long group) {
    long number = channel / group, left = group - channel % group;
    float lanes[W] = {};
    for (long i = 0; i < std::min<long>(W, channels - channel); ++i) {
        lanes[i] = numbers[number];
        if (--left == 0) ++number, left = group;
    }
    return load(lanes);
}

// A convolution of DFlash 2. Whole vectors: what they hold behind the last channel is padding.
inline void convolve(const Convolution& of) {
    const long groups = of.channels / of.group;
    for (long i = of.first; i < of.last; i += W) {
        const long number = i / of.group;
        Vector sums{};
        for (long o = 0; o < of.seen; ++o) {
            const float* own = of.added + o * groups;
            const Vector added = of.group % W ? of_groups(own, i, of.channels, of.group) : spread(own[number]);
            sums = fma(load(of.base + o * of.stride + i) + added, load(of.x - o * of.stride + i), sums);
        }
        store(of.y + i, of.add ? load(of.y + i) + sums : sums);
    }
}

}  // namespace paceline::SET
