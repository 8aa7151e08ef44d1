// Draws for the rows of a batch, each thread some of them.
#pragma once

#include <memory>
#include <vector>

#include "kernels.h"
#include "memory.h"
#include "pool.h"

namespace paceline {

// Scores [rows, size], and the 64-bit key of every row's position.
struct Draws {
    const float* scores;
    long rows, size;
    float scale, noise;
    const std::vector<uint64_t>& keys;
};

class Drawing {
  public:
    Drawing(const Kernels& kernels, std::shared_ptr<Pool> pool);
    Drawing(const Drawing&) = delete;
    Drawing& operator=(const Drawing&) = delete;

    // Of every row the lowest id of the greatest value; -1 where that is no number, or infinite.
    void choose(const Draws& draws, int64_t* ids);

    // Of every row the `width` greatest, as Kernels::rank. Returns whether all rows have a finite greatest.
    bool rank(const Draws& draws, long width, int64_t* ids, float* log_probs);

  private:
    template <class Work>
    void each_row(const Draws& draws, const Work& work);

    const Kernels& kernels_;
    std::shared_ptr<Pool> pool_;
    long size_ = 0;
    std::vector<Block<float>> scratch_;  // of every thread, for whoever has the turn
};

}  // namespace paceline
