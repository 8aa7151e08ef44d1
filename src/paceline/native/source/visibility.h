// Which rows a row sees: of the past a range, of the new rows a bit set.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace paceline {

// The new rows of one sequence, behind `past` others. `parents`: for each row the row before it, smaller than its own, or
// -1; empty: one row behind the other.
struct Chain {
    long past, rows;
    std::vector<int64_t> parents;
};

// What a layer lets a row see, beside its tree. A window is counted in positions.
struct Reach {
    bool causal;
    std::optional<int64_t> window;
    bool operator==(const Reach&) const = default;
};

struct Visibility {
    std::vector<long> first;    // of every row: the first of the past that it sees
    std::vector<uint64_t> own;  // [rows, words]
    long words;
};

// The position of every new row: one behind the row before it.
std::vector<int64_t> places_of(const Chain& chain);

Visibility visibility(const Chain& chain, const std::vector<int64_t>& places, const Reach& reach);

}  // namespace paceline
