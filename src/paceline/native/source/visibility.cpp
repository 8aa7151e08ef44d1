#include "visibility.h"

#include <algorithm>
#include <cstdlib>

namespace paceline {

namespace {

// Whether each row sees each other but for windows: [rows, words].
std::vector<uint64_t> connected(const Chain& chain, bool causal, long words) {
    std::vector<uint64_t> bits(chain.rows * words, 0);
    for (long row = 0; row < chain.rows; ++row) {
        uint64_t* own = &bits[row * words];
        if (!chain.parents.empty()) {
            if (const int64_t parent = chain.parents[row]; parent >= 0) std::copy_n(&bits[parent * words], words, own);
            own[row / 64] |= uint64_t{1} << (row % 64);
            continue;
        }
        for (long other = 0; other < (causal ? row + 1 : chain.rows); ++other)
            own[other / 64] |= uint64_t{1} << (other % 64);
    }
    return bits;
}

}  // namespace

std::vector<int64_t> places_of(const Chain& chain) {
    std::vector<int64_t> places(chain.rows);
    for (long row = 0; row < chain.rows; ++row) {
        const int64_t parent = chain.parents.empty() ? row - 1 : chain.parents[row];
        places[row] = parent < 0 ? chain.past : places[parent] + 1;
    }
    return places;
}

Visibility visibility(const Chain& chain, const std::vector<int64_t>& places, const Reach& reach) {
    const long words = (chain.rows + 63) / 64;
    Visibility seen{std::vector<long>(chain.rows, 0), connected(chain, reach.causal, words), words};
    if (!reach.window) return seen;
    for (long row = 0; row < chain.rows; ++row) {
        seen.first[row] = std::clamp<long>(places[row] - *reach.window + 1, 0, chain.past);
        for (long other = 0; other < chain.rows; ++other)
            if (std::abs(places[row] - places[other]) >= *reach.window)
                seen.own[row * words + other / 64] &= ~(uint64_t{1} << (other % 64));
    }
    return seen;
}

}  // namespace paceline
