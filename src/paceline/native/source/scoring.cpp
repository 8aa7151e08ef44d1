#include "scoring.h"

#include <algorithm>
#include <limits>

namespace paceline {

// What there is room for is noted at last: memory may run out before.
void Scoring::reserve(const Scored& scored) {
    const long rows = scored.rows.size(), columns = scored.head->columns(0);
    if (rows > rows_) {
        hidden_states_ = allocate<float>(rows * padded(hidden_));
        std::fill_n(hidden_states_.get(), rows * padded(hidden_), 0.0f);
        rows_ = rows;
    }
    if (!scored.scores && rows * columns > scores_size_) {
        scores_ = allocate<float>(rows * columns);
        scores_size_ = rows * columns;
    }
    if (scored.drawn && columns > columns_) {
        scratch_.resize(pool_.threads());
        for (Block<float>& of : scratch_) of = allocate<float>(kernels_.scratch_of(columns));
        columns_ = columns;
    }
}

void Scoring::run(const Scored& scored, int thread) {
    const long rows = scored.rows.size(), columns = scored.head->columns(0);
    float* scores = scored.scores ? scored.scores : scores_.get();
    scored.head->multiply(0, thread, {hidden_states_.get(), padded(hidden_), rows}, {scores, columns, rows}, columns, false);
    if (!scored.drawn) return;
    pool_.meet();
    draw(*scored.drawn, scores, columns, thread);
}

void Scoring::draw(const Drawn& drawn, float* scores, long columns, int thread) {
    const long rows = drawn.draws.size(), width = drawn.width;
    for (long row = thread; row < rows; row += pool_.threads()) {
        float *law = scores + row * columns, *scratch = scratch_[thread].get();
        for (int64_t id : drawn.banned) law[id] = -std::numeric_limits<float>::infinity();
        Draw own = drawn.draws[row];
        own.scores = law;
        own.size = columns;
        if (!width)
            drawn.ids[row] = kernels_.choose(own, scratch);
        else if (!kernels_.rank(own, width, drawn.ids + row * width, drawn.log_probs + row * width, scratch))
            std::fill_n(drawn.ids + row * width, width, -1);
    }
}

}  // namespace paceline
