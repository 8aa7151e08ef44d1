// From scores to tokens: the greatest of score + noise, and the greatest few with their probabilities.
//
// Noise costs two logarithms in double precision for every id, and decides between very few of them. So vectors compute
// it to a thousandth first; only ids that come as close to the greatest are drawn exactly. The choice is the exact one.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels.h"
#include "noise.h"
#include "simd.h"

namespace paceline::SET {

// Values of a row are looked through in blocks of so many: a block whose greatest is too small is passed over.
constexpr long kBlock = 64;

// Uniform numbers this close to 0 or 1, in 2^-32, are drawn exactly: there the logarithms need more than 32 bits.
constexpr uint32_t kEdge = 4096;

// How far off the vectors' noise may be, beyond the edges; and what sums of float32 may lose, relatively.
constexpr float kNoiseError = 5e-4f, kSumError = 1e-5f;

constexpr float kNothing = -std::numeric_limits<float>::infinity(), kLeast = std::numeric_limits<float>::lowest();

// ln x for positive normal x, within 2 ulp.
INLINE Vector logarithm(Vector x) {
    constexpr int32_t kRootHalf = 0x3f3504f3;
    const Integers bits = (Integers)x, exponent = (bits - kRootHalf) >> 23;
    const Vector e = __builtin_convertvector(exponent, Vector);
    const Vector f = (Vector)(bits - (exponent << 23)) - 1.0f, square = f * f;
    Vector p = spread(7.0376836292e-2f);
    for (float c : {-1.1514610310e-1f, 1.1676998740e-1f, -1.2420140846e-1f, 1.4249322787e-1f, -1.6668057665e-1f,
                    2.0000714765e-1f, -2.4999993993e-1f, 3.3333331174e-1f})
        p = fma(p, f, spread(c));
    p = fma(p * f, square, e * -2.12194440e-4f);
    return fma(e, spread(0.693359375f), fma(square, spread(-0.5f), p) + f);
}

// A word as a number, in 2^-32.
INLINE Vector fraction(Words word) { return __builtin_convertvector((Integers)(word >> 1), Vector) * 0x1p-31f; }

// Noise of the ids from `first` on, within kNoiseError, but for those whose word in the result is set.
//
// In three sweeps, each of them short: done at once, an id's long chain of steps would leave the processor waiting.
INLINE Words near_gumbels(uint32_t first, uint64_t key, Vector* noise) {
    constexpr int kVectors = kBlock / W;
    Words lanes{}, edge{}, high[kVectors];
    for (int i = 0; i < W; ++i) lanes[i] = first + i;
    for (int i = 0; i < kVectors; ++i) {
        high[i] = uniform(lanes + uint32_t(i * W), key).high;
        edge |= (Words)(high[i] + kEdge < Words{} + 2 * kEdge);
    }
    // -log1p(-v): where v is small by W. Kahan's quotient, since the error of 1 - v is in both of its parts.
    for (int i = 0; i < kVectors; ++i) {
        const Vector value = fraction(high[i]), rest = 1.0f - value;
        const Integers small = value < 0.5f;
        const Vector left = small ? rest : fraction(~high[i]) + 0x1p-32f;
        noise[i] = -logarithm(left) * (small ? value / (1.0f - rest) : spread(1.0f));
    }
    for (int i = 0; i < kVectors; ++i) noise[i] = -logarithm(noise[i]);
    return edge;
}

// scale * score + noise * gumbel of all ids.
struct Values {
    float* at;      // [padded to blocks], -inf behind the last
    float* blocks;  // the greatest of each
    long count;     // of blocks
    float greatest;  // of all; NaN where a score is
};

INLINE float exact(const Draw& draw, long id) {
    const float score = draw.scale * draw.scores[id];
    return draw.noise > 0 ? draw.noise * gumbel(uint32_t(id), draw.key) + score : score;
}

// The values of a block once more, exact where their noise is at an edge.
inline void redraw(const Draw& draw, long first, long last, float* values) {
    for (long i = first; i < first + kBlock; ++i) {
        if (i >= last)
            values[i] = kNothing;
        else if (uniform(uint32_t(i), draw.key).high + kEdge < 2 * kEdge)
            values[i] = exact(draw, i);
    }
}

// The scores of a block, times `scale`; -inf behind the last.
INLINE void scaled(const Draw& draw, long first, long last, float* values) {
    for (long i = first; i < last; ++i) values[i] = draw.scores[i] * draw.scale;
    for (long i = last; i < first + kBlock; ++i) values[i] = kNothing;
}

// The greatest of a block; NaN if one is.
INLINE float greatest_of(const float* values) {
    Vector greatest = load(values);
    Integers numbers = greatest == greatest;
    for (long i = W; i < kBlock; i += W) {
        const Vector value = load(values + i);
        numbers &= value == value;
        greatest = value > greatest ? value : greatest;
    }
    float most = kNothing;
    int32_t all = -1;
    for (int i = 0; i < W; ++i) most = std::max(most, greatest[i]), all &= numbers[i];
    return all ? most : std::numeric_limits<float>::quiet_NaN();
}

INLINE Values values_of(const Draw& draw, float* scratch) {
    const long count = (draw.size + kBlock - 1) / kBlock;
    Values found{scratch, scratch + count * kBlock, count, kNothing};
    for (long block = 0; block < count; ++block) {
        const long first = block * kBlock, last = std::min(first + kBlock, draw.size);
        float* values = found.at + first;
        scaled(draw, first, last, found.at);
        if (draw.noise > 0) {
            Vector noise[kBlock / W];
            const Words edge = near_gumbels(uint32_t(first), draw.key, noise);
            for (int i = 0; i < kBlock / W; ++i) store(values + i * W, noise[i] * draw.noise + load(values + i * W));
            uint32_t edges = 0;
            for (int i = 0; i < W; ++i) edges |= edge[i];
            if (edges) redraw(draw, first, last, found.at);
        }
        found.blocks[block] = greatest_of(values);
        if (found.blocks[block] > found.greatest || std::isnan(found.blocks[block]))
            found.greatest = found.blocks[block];
        if (std::isnan(found.greatest)) return found;
    }
    return found;
}

// Calls take(id) for the ids whose value is at least `least`, in rising order. `least` is finite: -inf is behind the last.
template <class Take>
INLINE void above(const Values& values, float least, Take take) {
    for (long block = 0; block < values.count; ++block) {
        if (values.blocks[block] < least) continue;
        for (long i = block * kBlock; i < (block + 1) * kBlock; ++i)
            if (values.at[i] >= least) take(i);
    }
}

// The lowest id of the greatest value; -1 where that is no number, or infinite.
inline int64_t choose(const Draw& draw, float* scratch) {
    const Values values = values_of(draw, scratch);
    if (!std::isfinite(values.greatest)) return -1;
    const float margin = draw.noise > 0 ? 2 * (draw.noise * kNoiseError + std::fabs(values.greatest) * kSumError) : 0;
    int64_t best = -1;
    float most = kNothing;
    above(values, std::max(kLeast, values.greatest - margin), [&](long id) {
        const float value = exact(draw, id);
        if (value > most) best = id, most = value;
    });
    return best;
}

// The `width` ids of the greatest values in falling order, and the logarithms of their softmax; -inf and 0 where there are
// no more. Returns false where the greatest value is no number, or infinite.
inline bool rank(const Draw& draw, long width, int64_t* ids, float* log_probs, float* scratch) {
    const Values values = values_of(draw, scratch);
    if (!std::isfinite(values.greatest)) return false;
    Vector sums{};
    for (long i = 0; i < values.count * kBlock; i += W) sums += exponential(load(values.at + i) - values.greatest);
    const float log_mass = std::log(sum(sums));

    // At least `width` values are as great as the block that is `width`th among the greatest of blocks.
    float* order = values.blocks + values.count;
    std::copy_n(values.blocks, values.count, order);
    float least = kLeast;
    if (width <= values.count) {
        std::nth_element(order, order + width - 1, order + values.count,
                         [](float a, float b) { return a > b; });  // whose type is of this set alone
        least = std::max(least, order[width - 1]);
    }
    long found = 0;
    above(values, least, [&](long id) {
        // Insertion: few values are as great, and most of them stay behind the others.
        const float value = values.at[id];
        long place = std::min(found, width);
        for (; place > 0 && log_probs[place - 1] < value; --place)
            if (place < width) ids[place] = ids[place - 1], log_probs[place] = log_probs[place - 1];
        if (place < width) ids[place] = id, log_probs[place] = value;
        found = std::min(found + 1, width);
    });
    for (long i = 0; i < width; ++i) {
        if (i >= found) ids[i] = 0;
        log_probs[i] = i < found ? log_probs[i] - values.greatest - log_mass : kNothing;
    }
    return true;
}

// Room for the values of a row, the greatest of blocks, and their order.
inline long scratch_of(long size) { return ((size + kBlock - 1) / kBlock) * (kBlock + 2); }

}  // namespace paceline::SET
