// The oracle of a pass: the same layers in double precision, row by row, with masks from their definition.
#pragma once

#include <memory>
#include <vector>

#include "network.h"
#include "given.h"

namespace fuzz {

struct Model {
    paceline::Shape shape;
    std::vector<paceline::Layer> layers;
    const float* norm;
    std::vector<Floats> numbers;  // what all of them point to
};

// The rows of one sequence, from row `start` of the pass on, and its cache before it.
struct Section {
    paceline::Chain chain;
    long capacity, start;
    Floats cache;
};

struct Given {
    std::vector<Section> parts;
    std::vector<paceline::Reach> reach;
    std::vector<long> taps;
    long rows = 0;
    std::unique_ptr<Floats> x, cos, sin;
};

struct Found {
    Floats hidden, features;
};

bool all_causal(const Given& given);

// The rows from the anchor down to `row`, in order.
std::vector<long> path_to(const paceline::Chain& chain, long row);

// Throws where a number of the pass is further from the oracle's than rounding explains.
void check_plain(const Model& model, const Given& given, const Found& found);

}  // namespace fuzz
