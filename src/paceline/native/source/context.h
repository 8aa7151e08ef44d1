// Keys and values of all layers of a drafter, made of a target's features: models/context.py in torch, which is the oracle.
#pragma once

#include <vector>

#include "kernels.h"
#include "weights.h"

namespace paceline {

struct ContextShape {
    long inputs, hidden, layers, kv_heads, dim;
    float eps;
};

// As torch keeps them. `key_value`: of every layer the rows of its keys, then those of its values.
struct ContextTensors {
    Matrix fc, key_value;
    const float *norm, *key_norms;  // [hidden], [layers, dim]
};

// The next row of a sequence: features, and where in its cache [layers, 2, kv_heads, capacity, dim] it comes to stand.
struct ContextRow {
    const float* features;
    float* cache;
    long capacity, place;
};

class Context {
  public:
    // Everything is copied.
    Context(const Kernels& kernels, std::shared_ptr<Pool> pool, const ContextShape& shape, const ContextTensors& tensors);

    const ContextShape& shape() const { return shape_; }
    std::size_t bytes() const { return weights_.bytes(); }

    // Writes all rows. `cos` and `sin` are [places, dim], sin negated in the first half. The value of a row depends on
    // nothing but itself.
    void extend(const std::vector<ContextRow>& rows, const float* cos, const float* sin);

  private:
    void reserve(long rows);
    void store(const ContextRow& row, long number, long block, const float* cos, const float* sin, float* head);

    const Kernels& kernels_;
    std::shared_ptr<Pool> pool_;
    const ContextShape shape_;
    Weights weights_;
    std::vector<float> norm_, key_norms_;
    long rows_ = 0;  // of the scratch memory, which whoever has the turn uses
    Block<float> x_, mixed_, normed_, made_;
    std::vector<Block<float>> head_;  // of every thread
};

}  // namespace paceline
