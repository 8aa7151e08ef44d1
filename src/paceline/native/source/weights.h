// Weight matrices packed for the threads of a pool: for each thread one stream, in the order in which it will be read.
#pragma once

#include <vector>

#include "kernels.h"
#include "memory.h"
#include "pool.h"

namespace paceline {

// What is rounded before it is multiplied: nothing, the weights to int8, or weights and rows to bfloat16 or int8.
enum class Rounding : uint8_t { none, weights, bfloat16, int8 };

struct Arithmetic {
    Rounding rounding = Rounding::none;
    long group = 0;  // inputs that share a scale, where weights alone are rounded
};

// [columns, depth] and bias [columns] or null, as torch keeps them. Read while packing, and not afterwards.
struct Matrix {
    const float* weight;
    const float* bias;
    long columns, depth;
    Arithmetic arithmetic{};
};

class Weights {
  public:
    // With room for so many matrices of these shapes, one after the other; what they turn out not to need is never touched.
    Weights(const Kernels& kernels, Pool& pool, const std::vector<Matrix>& shapes, long times);

    // Packs the next ones; each of the pool's threads what it will read.
    void add(const std::vector<Matrix>& matrices);

    long columns(std::size_t matrix) const { return matrices_[matrix].columns; }
    std::size_t bytes() const;

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
    struct Stream {
        Block<std::byte> lines;
        std::size_t used = 0;
    };

    Packed placed(const Matrix& matrix);
    void reserve(const Part& part);

    const Kernels& kernels_;
    Pool& pool_;
    std::vector<Packed> matrices_;
    std::vector<Stream> streams_;  // of every thread
    std::vector<Block<std::byte>> scratch_;  // likewise
    std::size_t scratch_bytes_ = 0;
};

}  // namespace paceline
