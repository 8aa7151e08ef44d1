// One call of the attention kernel: queries that share a key head, each with any mask.
#include <algorithm>
#include <vector>

#include "parts.h"

namespace fuzz {

using paceline::Attention;
using paceline::Kernels;

namespace {

struct Case {
    long past, own, dim, words;
    Floats keys, values;
    Array<int64_t> places;
    std::vector<Floats> queries;
    std::vector<long> first;
    Array<uint64_t> seen;  // [queries, words]
};

Case random_case(Random& random) {
    const long past = random.from(0, random.coin() ? 5 : 90), own = random.from(1, random.coin() ? 5 : 70);
    const long dim = random.from(1, random.coin() ? 9 : 130), words = (own + 63) / 64, count = random.from(1, 6);
    Case of{past, own, dim, words, normals(random, (past + own) * dim), normals(random, (past + own) * dim),
            Array<int64_t>(random, own), {}, {}, Array<uint64_t>(random, count * words)};
    for (long row = 0; row < own; ++row) of.places[row] = past + random.from(0, row);
    for (long q = 0; q < count; ++q) {
        of.queries.push_back(normals(random, dim));
        of.first.push_back(random.from(0, past));
        for (long row = 0; row < own; ++row) of.seen[q * words + row / 64] |= (random.bits() & 1) << (row % 64);
        const long itself = random.from(0, own - 1);
        of.seen[q * words + itself / 64] |= uint64_t{1} << (itself % 64);
    }
    return of;
}

bool sees(const Case& of, long q, long row) {
    if (row < of.past) return row >= of.first[q];
    const long own = row - of.past;
    return of.seen[q * of.words + own / 64] >> (own % 64) & 1;
}

// The queries from `first` on, `count` of them, in one call.
void attend(Random& random, const Kernels& kernels, const Case& of, long first, long count, Floats* outputs) {
    const Floats scores(random, Attention::kQueries * paceline::padded(of.past + of.own + paceline::kPad));
    Attention a{{}, int(count), of.keys.at(), of.values.at(), of.places.at(), of.past, of.own, of.dim,
                1 / std::sqrt(float(of.dim)), scores.at()};
    for (long q = 0; q < count; ++q)
        a.queries[q] = {of.queries[first + q].at(), outputs[q].at(), of.seen.at() + (first + q) * of.words,
                        of.first[first + q]};
    kernels.attend(a);
}

// Scores are off by some dim roundings of their terms, weights relatively by as much, and sums by as many as their rows.
void check(const Case& of, long q, const Floats& output) {
    std::vector<double> weights(of.past + of.own), sums(of.dim);
    double total = 0, largest = 0, most = 0;
    for (long row = 0; row < of.past + of.own; ++row) {
        if (!sees(of, q, row)) continue;
        double score = 0, size = 0;
        for (long d = 0; d < of.dim; ++d) {
            const double term = double(of.queries[q][d]) * of.keys[row * of.dim + d] / std::sqrt(double(of.dim));
            score += term, size += std::fabs(term);
            most = std::max(most, std::fabs(double(of.values[row * of.dim + d])));
        }
        largest = std::max(largest, size);
        total += weights[row] = std::exp(score);
        for (long d = 0; d < of.dim; ++d) sums[d] += weights[row] * of.values[row * of.dim + d];
    }
    const double bound = 0x1p-22 * (of.dim * largest + of.past + of.own + 16) * most;
    for (long d = 0; d < of.dim; ++d) near(output[d], sums[d] / total, bound, "attention");
}

}  // namespace

void attention(Random& random, const Kernels& kernels) {
    const Case of = random_case(random);
    const long count = of.queries.size();
    std::vector<Floats> together, alone;
    for (long q = 0; q < count; ++q) {
        together.emplace_back(random, of.dim, kNan);
        alone.emplace_back(random, of.dim, kNan);
    }
    attend(random, kernels, of, 0, count, together.data());
    for (long q = 0; q < count; ++q) {
        check(of, q, together[q]);
        attend(random, kernels, of, q, 1, &alone[q]);
        same(alone[q].at(), together[q].at(), of.dim, "attention of a query alone");
    }
}

}  // namespace fuzz
