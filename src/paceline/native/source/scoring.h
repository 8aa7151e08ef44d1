// The end of a pass: a head's scores of some rows, and what is drawn from them.
#pragma once

#include <memory>
#include <vector>

#include "kernels.h"
#include "memory.h"
#include "pool.h"
#include "weights.h"

namespace paceline {

// What is drawn from the scores of rows.
struct Drawn {
    std::vector<Draw> draws;      // of every row; what they are drawn from is not known yet
    std::vector<int64_t> banned;  // ids that are never drawn
    long width;                   // how many; 0: the greatest alone
    int64_t* ids;                 // [rows], or [rows, width]; -1 where the greatest is no number, or infinite
    float* log_probs;             // [rows, width], or null
};

// What the head makes of some rows, rising. No head: nothing is asked.
struct Scored {
    const Weights* head = nullptr;
    const std::vector<long>& rows;
    float* scores;       // [rows, columns of the head], or null
    const Drawn* drawn;  // from the scores, or null
    float* hidden = nullptr;  // [rows, hidden], after the final norm, or null
};

class Scoring {
  public:
    Scoring(const Kernels& kernels, Pool& pool, long hidden) : kernels_(kernels), pool_(pool), hidden_(hidden) {}

    // Makes room, for what `scored` asks; before the threads begin.
    void reserve(const Scored& scored);

    // Where the hidden state of a scored row is to be put.
    float* hidden(long number) const { return hidden_states_.get() + number * padded(hidden_); }

    // What `thread` does, once all of them are there.
    void run(const Scored& scored, int thread);

  private:
    void draw(const Drawn& drawn, float* scores, long columns, int thread);

    const Kernels& kernels_;
    Pool& pool_;
    const long hidden_;
    long rows_ = 0, columns_ = 0, scores_size_ = 0;  // of the scratch memory, which whoever has the turn uses
    Block<float> hidden_states_, scores_;
    std::vector<Block<float>> scratch_;  // of every thread
};

}  // namespace paceline
