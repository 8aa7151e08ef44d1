// The rows of a pass, as Python gives them.
#pragma once

#include "arrays.h"
#include "network.h"

namespace paceline {

// A segment as Python gives it: cache, rows in it, new rows, the row before each of them (none: a chain).
using SegmentTuple = std::tuple<Output<5>, long, long, std::optional<std::vector<int64_t>>>;

// A pass as Python gives it: tokens, their places in cos and sin, these, the sequences, what each layer lets a row see,
// the taps, and where they go.
using BatchTuple = std::tuple<InputIds<1>, InputIds<1>, Input<2>, Input<2>, std::vector<SegmentTuple>, std::vector<bool>,
                              std::vector<std::optional<int64_t>>, std::vector<long>, std::optional<Output<2>>>;

// A pass that may be made: its rows, and where their features are to go. The arrays live as long as the tuple.
struct CheckedBatch {
    std::vector<int64_t> ids, places;
    const Input<2> &cos, &sin;
    std::vector<Segment> segments;
    std::vector<Reach> reach;
    const std::vector<long>& taps;
    float* features;

    // Cosines or sines of each row's place, [rows, dim].
    Block<float> turned(const Input<2>& table) const;

    // To the row behind, which is what was drawn.
    void advance(const int64_t* drawn, long hidden);
};

// Throws where a pass of the network cannot be made of it; ids are not looked at. `passes`: each a row further than the one
// before, with features of its own.
CheckedBatch checked_batch(const BatchTuple& batch, const Network& network, long passes);

}  // namespace paceline
