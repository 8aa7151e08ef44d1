#include "checked_batch.h"

namespace paceline {

namespace {

void check_tree(const std::vector<int64_t>& tree, long rows) {
    demand(long(tree.size()) == rows, "A tree does not name as many rows as its segment has.");
    for (long row = 0; row < rows; ++row)
        demand(tree[row] >= -1 && tree[row] < row, "A row of a tree does not stand behind the row before it.");
}

std::vector<Segment> segments_of(const std::vector<SegmentTuple>& tuples, const Network& network, long rows, long passes) {
    const Shape& shape = network.shape();
    std::vector<Segment> segments;
    long found = 0;
    for (const auto& [cache, past, own, tree] : tuples) {
        demand(long(cache.shape(0)) == network.layers() && cache.shape(1) == 2 && long(cache.shape(2)) == shape.kv_heads &&
                   long(cache.shape(4)) == shape.dim,
               "A cache is not [layers, 2, kv_heads, capacity, head_dim].");
        demand(past >= 0 && own >= 0 && past <= long(cache.shape(3)) - own - (passes - 1),
               "A cache has no room for its rows.");
        if (tree) check_tree(*tree, own);
        const Chain chain{past, own, tree.value_or(std::vector<int64_t>{})};
        segments.push_back({chain, values(cache), long(cache.shape(3))});
        found += own;
    }
    demand(found == rows, "The rows of the segments are not those of x.");
    return segments;
}

void check_places(const InputIds<1>& places, const Input<2>& cos, const Input<2>& sin, long rows, long dim, long passes) {
    demand(long(places.shape(0)) == rows, "There are not as many places as tokens.");
    demand(long(cos.shape(1)) == dim && long(sin.shape(1)) == dim && cos.shape(0) == sin.shape(0),
           "cos and sin are not both [places, head_dim].");
    const int64_t *at = values(places), last = int64_t(cos.shape(0)) - passes;
    demand(std::all_of(at, at + rows, [&](int64_t place) { return place >= 0 && place <= last; }),
           "A place is not in cos and sin.");
}

std::vector<Reach> reach_of(const std::vector<bool>& causal, const std::vector<std::optional<int64_t>>& windows, long layers) {
    demand(long(causal.size()) == layers && long(windows.size()) == layers,
           "causal and windows do not name every layer once.");
    std::vector<Reach> reach;
    for (long layer = 0; layer < layers; ++layer) {
        demand(!windows[layer] || *windows[layer] > 0, "A window is not positive.");
        reach.push_back({causal[layer], windows[layer]});
    }
    return reach;
}

}  // namespace

Block<float> CheckedBatch::turned(const Input<2>& table) const {
    const long dim = table.shape(1);
    const float* from = values(table);
    Block<float> found = allocate<float>(places.size() * dim);
    for (std::size_t row = 0; row < places.size(); ++row) std::copy_n(from + places[row] * dim, dim, found.get() + row * dim);
    return found;
}

void CheckedBatch::advance(const int64_t* drawn, long hidden) {
    ids.assign(drawn, drawn + ids.size());
    for (int64_t& place : places) ++place;
    for (Segment& segment : segments) ++segment.chain.past;
    if (features) features += ids.size() * taps.size() * hidden;
}

CheckedBatch checked_batch(const BatchTuple& batch, const Network& network, long passes) {
    const auto& [tokens, places, cos, sin, tuples, causal, windows, taps, features] = batch;
    const Shape& shape = network.shape();
    const long rows = tokens.shape(0);
    check_places(places, cos, sin, rows, shape.dim, passes);
    demand(features ? is(*features, passes * rows, long(taps.size()) * shape.hidden) : taps.empty(),
           "features is not [rows, taps * hidden].");
    for (long tap : taps) demand(tap >= 0 && tap < network.layers(), "A tap is no layer.");
    const int64_t *ids = values(tokens), *at = values(places);
    return {{ids, ids + rows}, {at, at + rows}, cos, sin, segments_of(tuples, network, rows, passes),
            reach_of(causal, windows, network.layers()), taps, features ? values(*features) : nullptr};
}

}  // namespace paceline
