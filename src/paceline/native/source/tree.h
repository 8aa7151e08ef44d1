// The tree of the most probable prefixes of a block whose slots are independent: decode/tree.py's best_first, which is
// the oracle, for numbers as they come out of Drawing::rank.
#pragma once

#include <cstdint>
#include <vector>

namespace paceline {

// The candidates of all slots, in falling order: [slots, width]; -inf, or what is no number, for none.
struct Slots {
    const int64_t* ids;
    const float* log_probs;
    long slots, width;
};

struct Tree {
    std::vector<int64_t> tokens;
    std::vector<long> parents;   // of each node; -1 for the anchor
    std::vector<double> scores;  // log probability of the path down to it
};

// At most `nodes` of them and `candidates` ends, none less probable than e^-most.
Tree grow(const Slots& slots, long nodes, long candidates, double most);

}  // namespace paceline
