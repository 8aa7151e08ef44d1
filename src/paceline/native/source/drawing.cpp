#include "drawing.h"

#include <atomic>

namespace paceline {

Drawing::Drawing(const Kernels& kernels, std::shared_ptr<Pool> pool)
    : kernels_(kernels), pool_(std::move(pool)), scratch_(pool_->threads()) {}

void Drawing::choose(const Draws& draws, int64_t* ids) {
    each_row(draws, [&](const Draw& draw, long row, float* scratch) { ids[row] = kernels_.choose(draw, scratch); });
}

bool Drawing::rank(const Draws& draws, long width, int64_t* ids, float* log_probs) {
    std::atomic<bool> sound = true;
    each_row(draws, [&](const Draw& draw, long row, float* scratch) {
        if (!kernels_.rank(draw, width, ids + row * width, log_probs + row * width, scratch)) sound = false;
    });
    return sound;
}

template <class Work>
void Drawing::each_row(const Draws& draws, const Work& work) {
    const Turn turn = Pool::turn();
    if (draws.size > size_) {
        for (Block<float>& of : scratch_) of = allocate<float>(kernels_.scratch_of(draws.size));
        size_ = draws.size;  // at last: memory may run out before
    }
    const auto some = [&](int thread, int threads) {
        for (long row = thread; row < draws.rows; row += threads)
            work({draws.scores + row * draws.size, draws.size, draws.scale, draws.noise, draws.keys[row]}, row,
                 scratch_[thread].get());
    };
    if (draws.rows == 1) return some(0, 1);  // sooner done than told to others
    pool_->run(turn, [&](int thread) { some(thread, pool_->threads()); });
}

}  // namespace paceline
