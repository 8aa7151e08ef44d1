// Attention of a few queries that share a key head, over the cached and the new rows of one sequence.
//
// A score is one fixed tree of sums over a head. Values are summed in the order of their rows, which is that of their
// positions, and a masked row has the weight 0, which changes no sum. The softmax's denominator has W lanes: a row adds
// to the one of its position, in the order of positions. So a query gets the same result, to the bit, whether its past is
// cached, stands in its own chain, or is one branch of a tree.
#pragma once

#include <algorithm>
#include <limits>

#include "kernels.h"
#include "simd.h"

namespace paceline::SET {

constexpr float kMasked = -std::numeric_limits<float>::infinity();

// Products of Q queries with W / Q keys that lie dim apart, lane by lane: all of the first query, then all of the next. Keys
// from `count` on repeat the one before.
template <int Q, bool Whole>
INLINE Vector dot_keys(const Attention& a, int query, const float* keys, long count) {
    constexpr int K = W / Q;
    const auto key = [&](long i) __attribute__((always_inline)) {
        return keys + (Whole ? i : std::min(i, count - 1)) * a.dim;
    };
    Vector sums[W];
    UNROLL for (int i = 0; i < W; ++i) sums[i] = Vector{};
    long d = 0;
    for (; d + W <= a.dim; d += W) {
        Vector part[K];
        UNROLL for (int k = 0; k < K; ++k) part[k] = load(key(k) + d);
        UNROLL for (int q = 0; q < Q; ++q) {
            const Vector own = load(a.queries[query + q].at + d);
            UNROLL for (int k = 0; k < K; ++k) sums[q * K + k] = fma(own, part[k], sums[q * K + k]);
        }
    }
    if (d < a.dim)
        UNROLL for (int q = 0; q < Q; ++q) {
            const Vector own = load_some(a.queries[query + q].at + d, a.dim - d);
            UNROLL for (int k = 0; k < K; ++k)
                sums[q * K + k] = fma(own, load_some(key(k) + d, a.dim - d), sums[q * K + k]);
        }
    return fold(sums);
}

INLINE bool sees(const Attention::Query& query, long own) { return query.own[own / 64] >> (own % 64) & 1; }

// Scores of Q queries for the W keys from `key` on. Queries side by side, so that a key is loaded for both.
template <int Q, bool Whole>
INLINE void score_keys(const Attention& a, int query, long key, long base, long end, long stride) {
    constexpr int K = W / Q;
    for (int part = 0; part < Q; ++part) {
        const long first = std::min(key + part * K, end - 1);
        const Vector found = dot_keys<Q, Whole>(a, query, a.keys + first * a.dim, end - first) * a.scale;
        for (int q = 0; q < Q; ++q)
            std::memcpy(a.scores + (query + q) * stride + key + part * K - base,
                        reinterpret_cast<const float*>(&found) + q * K, K * sizeof(float));
    }
}

// Scores of rows base … end - 1 for every query, `stride` apart. Some keys for all queries, before the next keys: they are
// read from memory once.
template <bool Whole>
INLINE void score_all(const Attention& a, long key, long base, long end, long stride) {
    int query = 0;
    for (; query + 2 <= a.count; query += 2) score_keys<2, Whole>(a, query, key, base, end, stride);
    if (query < a.count) score_keys<1, Whole>(a, query, key, base, end, stride);
}

INLINE void score(const Attention& a, long base, long end, long stride) {
    long key = base;
    for (; key + W <= end; key += W) score_all<true>(a, key, base, end, stride);
    if (key < end) score_all<false>(a, key, base, end, stride);
}

// Masks what the query does not see, and what fills the last vector. Returns the largest score.
INLINE float mask(const Attention& a, const Attention::Query& query, long base, long end, float* scores) {
    std::fill(scores, scores + std::max(query.first - base, 0L), kMasked);
    for (long own = 0; own < end - a.past; ++own)
        if (!sees(query, own)) scores[a.past + own - base] = kMasked;
    for (long i = end - base; i % W; ++i) scores[i] = kMasked;
    Vector largest = spread(kMasked);
    for (long i = 0; i < end - base; i += W) {
        const Vector next = load(scores + i);
        largest = next > largest ? next : largest;
    }
    float lanes[W];
    store(lanes, largest);
    return *std::max_element(lanes, lanes + W);
}

// e^(score - largest) in place; their sum.
INLINE float soften(const Attention& a, long base, long end, float largest, float* scores) {
    for (long i = 0; i < end - base; i += W) store(scores + i, exponential(load(scores + i) - largest));
    const long whole = std::max(base, a.past / W * W);
    Vector total{};
    for (long key = base; key < whole; key += W) total += load(scores + key - base);
    float lanes[W];
    store(lanes, total);
    for (long key = whole; key < end; ++key) {
        const long place = key < a.past ? key : a.places[key - a.past];
        lanes[place % W] += scores[key - base];
    }
    return sum(load(lanes));
}

// Rows whose values stay in the nearest cache while all columns are summed.
constexpr long kRowsTogether = 64;

// Q queries x V vectors of a head from `column` on: adds weights times values of rows first … last - 1 to the output, which
// the row at base begins.
template <int Q, int V, bool Whole>
INLINE void weigh(const Attention& a, long base, long first, long last, long stride, long column) {
    const auto output = [&](int q, int v) __attribute__((always_inline)) {
        return a.queries[q].output + column + v * W;
    };
    Vector sums[Q][V] = {};
    if (first > base)
        for (int q = 0; q < Q; ++q)
            for (int v = 0; v < V; ++v)
                sums[q][v] = Whole ? load(output(q, v)) : load_some(output(q, v), a.dim - column);
    for (long key = first; key < last; ++key) {
        const float* values = a.values + key * a.dim + column;
        Vector value[V];
        for (int v = 0; v < V; ++v) value[v] = Whole ? load(values + v * W) : load_some(values, a.dim - column);
        for (int q = 0; q < Q; ++q) {
            const Vector weight = spread(a.scores[q * stride + key - base]);
            for (int v = 0; v < V; ++v) sums[q][v] = fma(weight, value[v], sums[q][v]);
        }
    }
    for (int q = 0; q < Q; ++q)
        for (int v = 0; v < V; ++v)
            Whole ? store(output(q, v), sums[q][v]) : store_some(output(q, v), sums[q][v], a.dim - column);
}

template <int Q>
void weigh_all(const Attention& a, long base, long end, long stride) {
    constexpr int V = Q <= 3 ? 4 : 2;
    for (long first = base; first < end; first += kRowsTogether) {
        const long last = std::min(first + kRowsTogether, end);
        long column = 0;
        for (; column + V * W <= a.dim; column += V * W) weigh<Q, V, true>(a, base, first, last, stride, column);
        for (; column + W <= a.dim; column += W) weigh<Q, 1, true>(a, base, first, last, stride, column);
        if (column < a.dim) weigh<Q, 1, false>(a, base, first, last, stride, column);
    }
}

template <int Q = Attention::kQueries>
void weigh_queries(const Attention& a, long base, long end, long stride) {
    if (a.count == Q) return weigh_all<Q>(a, base, end, stride);
    if constexpr (Q > 1) weigh_queries<Q - 1>(a, base, end, stride);
}

// The last own row that the query sees, and one.
INLINE long end_of(const Attention& a, const Attention::Query& query) {
    long own = a.own;
    while (own > 0 && !sees(query, own - 1)) --own;
    return a.past + own;
}

inline void attend(const Attention& a) {
    long first = a.past, end = a.past;
    for (int q = 0; q < a.count; ++q) {
        first = std::min(first, a.queries[q].first);
        end = std::max(end, end_of(a, a.queries[q]));
    }
    const long base = first / W * W, stride = padded(end - base);
    float totals[Attention::kQueries];
    score(a, base, end, stride);
    for (int q = 0; q < a.count; ++q) {
        float* scores = a.scores + q * stride;
        totals[q] = soften(a, base, end, mask(a, a.queries[q], base, end, scores), scores);
    }
    weigh_queries(a, base, end, stride);
    for (int q = 0; q < a.count; ++q)
        for (long d = 0; d < a.dim; ++d) a.queries[q].output[d] /= totals[q];
}

}  // namespace paceline::SET
