// Weight matrices packed for the threads of a pool: for each thread one stream, in the order in which it will be read.
#pragma once

#include <vector>

#include "kernels.h"
#include "memory.h"
#include "pool.h"

namespace paceline {

// [columns, depth] and bias [columns] or null, as torch keeps them. Read while packing, and not afterwards.
struct Matrix {
    const float* weight;
    const float* bias;
    long columns, depth;
};

class Weights {
  public:
    // The pool's threads pack what they will read.
    Weights(const Kernels& kernels, Pool& pool, const std::vector<Matrix>& matrices);

    long columns(std::size_t matrix) const { return matrices_[matrix].columns; }
    std::size_t bytes() const { return bytes_; }

    // What `thread` computes of x W^T + bias, written or added to y. y holds `columns` of every row: those of the
    // matrix, or all of its padded ones.
    void multiply(std::size_t matrix, int thread, const Rows& x, const Rows& y, long columns, bool add) const;

    // Which columns that is: [first, last), of the padded ones.
    long first(std::size_t matrix, int thread) const;
    long last(std::size_t matrix, int thread) const;

  private:
    struct Packed {
        long columns;
        Block<float> bias;
        std::vector<Part> parts;  // of every thread
    };

    const Kernels& kernels_;
    std::vector<Packed> matrices_;
    std::vector<Block<std::byte>> streams_;
    std::size_t bytes_ = 0;
};

}  // namespace paceline
