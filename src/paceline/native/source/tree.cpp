#include "tree.h"

#include <cmath>
#include <queue>

namespace paceline {

namespace {

// A prefix that may be taken next: the node before it, and the rank of its last token among those of its slot.
struct Prefix {
    double cost;
    long number;  // of discovery: equal ones go in this order
    long parent, slot, rank;
    bool operator<(const Prefix& other) const {  // a heap has the greatest on top
        return cost != other.cost ? cost > other.cost : number > other.number;
    }
};

class Growing {
  public:
    Growing(const Slots& slots, long candidates) : slots_(slots), candidates_(candidates) { find(0.0, -1, 0, 0); }

    bool ended(double most) const { return known_.empty() || known_.top().cost > most; }

    // The most probable prefix becomes a node, if there may be one more end where it would make one.
    void take() {
        const Prefix best = known_.top();
        known_.pop();
        const bool branches = best.parent < 0 || continued_[best.parent];
        if (branches && ends_ == candidates_) return;  // nor may any worse token of this slot
        ends_ += branches;
        if (best.parent >= 0) continued_[best.parent] = true;
        const long node = tree.tokens.size();
        tree.tokens.push_back(slots_.ids[best.slot * slots_.width + best.rank]);
        tree.parents.push_back(best.parent);
        tree.scores.push_back(-best.cost);
        continued_.push_back(false);
        find(best.cost + score(best.slot, best.rank), best.parent, best.slot, best.rank + 1);
        find(best.cost, node, best.slot + 1, 0);
    }

    Tree tree;

  private:
    double score(long slot, long rank) const { return slots_.log_probs[slot * slots_.width + rank]; }

    void find(double base, long parent, long slot, long rank) {
        if (slot == slots_.slots || rank == slots_.width || !std::isfinite(score(slot, rank))) return;
        known_.push({base - score(slot, rank), ++found_, parent, slot, rank});
    }

    const Slots slots_;
    const long candidates_;
    std::priority_queue<Prefix> known_;
    std::vector<bool> continued_;
    long ends_ = 0, found_ = 0;
};

}  // namespace

Tree grow(const Slots& slots, long nodes, long candidates, double most) {
    Growing growing(slots, candidates);
    while (!growing.ended(most) && long(growing.tree.tokens.size()) < nodes) growing.take();
    return std::move(growing.tree);
}

}  // namespace paceline
