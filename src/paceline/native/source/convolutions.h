// What lets rows know their left neighbours: a pair of convolutions around a part of a layer, of what goes in and of what
// comes out (DFlash 2). models/convolution.py has them in torch, which is the oracle.
//
// A row's neighbours are the rows before it in its own segment, and nothing stands before the first. Does not know layers,
// nor the projections that make the numbers a row adds to its kernels.
#pragma once

#include <vector>

#include "kernels.h"
#include "memory.h"

namespace paceline {

class Convolutions {
  public:
    // `size`: rows that a convolution sees, 0: there are none; `groups`: of channels, each with one number of a row.
    Convolutions(const Kernels& kernels, long hidden, long size, long groups)
        : kernels_(kernels), hidden_(hidden), size_(size), groups_(groups) {}

    // Kernels [2, size, hidden] of a pair, their rows as far apart as those they act on; null: none.
    std::vector<float> base_of(const float* kernels) const;

    // Makes room; before the threads begin.
    void reserve(long rows);

    // Where to put what a projection makes of rows, [rows, 2 * size * groups], and what a part does, [rows, hidden].
    Rows numbers(long rows) const { return {numbers_.get(), padded(2 * size_ * groups_), rows}; }
    Rows made(long rows) const { return {made_.get(), padded(hidden_), rows}; }

    // What goes in, in place. `lefts`: how many rows of its own segment stand to the left of each.
    void ahead(const std::vector<float>& base, const std::vector<long>& lefts, const Rows& x) const;

    // x += what comes out, convolved; channels first … last - 1.
    void behind(const std::vector<float>& base, const std::vector<long>& lefts, const Rows& x, long first, long last) const;

  private:
    Convolution convolution(const std::vector<float>& base, long row, long left, bool out) const;

    const Kernels& kernels_;
    const long hidden_, size_, groups_;
    long rows_ = 0;  // of the scratch memory, which whoever has the turn uses
    Block<float> numbers_, made_;
};

}  // namespace paceline
