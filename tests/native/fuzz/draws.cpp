// Tokens drawn and ranked, and trees grown from them, against plain loops over all ids and prefixes.
#include "drawing.h"

#include <algorithm>
#include <vector>

#include "tree.h"
#include "parts.h"

namespace fuzz {

using paceline::Drawing;
using paceline::Draws;
using paceline::Kernels;
using paceline::Pool;

namespace {

uint32_t scrambled(uint32_t bits, int shift, uint32_t factor) { return (bits ^ bits >> shift) * factor; }

uint32_t triple32(uint32_t bits) {
    bits = scrambled(scrambled(scrambled(bits, 17, 0xED5AD4BBu), 11, 0xAC4C1B51u), 15, 0x31848BABu);
    return bits ^ bits >> 14;
}

// The noise as decode/noise.py defines it, id by id.
float gumbel(uint32_t id, uint64_t key) {
    const uint32_t low = scrambled(triple32(id) ^ uint32_t(key), 16, 0x7FEB352Du);
    const uint32_t high = triple32(low ^ uint32_t(key >> 32)) ^ 0x80000000u;
    const double value = high * 0x1p-32 + ((low & 0x1FFFFF) | 1) * 0x1p-53;
    return float(-std::log(-std::log1p(-value)));
}

// Scores as they come, and as they should not.
float score(Random& random, long kind) {
    const float limits[] = {-std::numeric_limits<float>::max(), std::numeric_limits<float>::max(), kInfinity, kNan};
    switch (kind) {
        case 0: return random.normal();
        case 1: return random.coin() ? -kInfinity : random.normal() * 5;
        case 2: return limits[0];
        case 3: return random.from(0, 40) ? 0 : limits[random.from(0, 3)];
        default: return -kInfinity;
    }
}

std::vector<float> values(const Draws& draws, long row) {
    std::vector<float> found(draws.size);
    for (long id = 0; id < draws.size; ++id) {
        const float score = draws.scale * draws.scores[row * draws.size + id];
        found[id] = draws.noise > 0 ? draws.noise * gumbel(uint32_t(id), draws.keys[row]) + score : score;
    }
    return found;
}

bool is_sound(const std::vector<float>& values) {
    const bool numbers = std::none_of(values.begin(), values.end(), [](float value) { return std::isnan(value); });
    return numbers && std::isfinite(*std::max_element(values.begin(), values.end()));
}

void check_choice(const Draws& draws, const Array<int64_t>& ids) {
    for (long row = 0; row < draws.rows; ++row) {
        const std::vector<float> exact = values(draws, row);
        const long best = std::max_element(exact.begin(), exact.end()) - exact.begin();
        demand(ids[row] == (is_sound(exact) ? best : -1), "a token is another");
    }
}

// Noise is within a thousandth, and so is each value beside the greatest and their mass.
void check_rank(const Draws& draws, long row, long width, const int64_t* ids, const float* log_probs) {
    const std::vector<float> exact = values(draws, row);
    std::vector<float> sorted = exact;
    std::sort(sorted.begin(), sorted.end(), std::greater<>());
    double mass = 0;
    for (float value : sorted) mass += std::exp(double(value) - sorted[0]);
    std::vector<bool> taken(draws.size);
    for (long i = 0; i < width; ++i) {
        const double law = i < draws.size ? double(sorted[i]) - sorted[0] - std::log(mass) : -kInfinity;
        if (!(law > -std::numeric_limits<float>::max() / 2)) continue;
        const double bound = 2e-3 * draws.noise + 1e-4 + std::fabs(law) * 1e-5;
        near(log_probs[i], law, bound, "a ranked probability");
        demand(ids[i] >= 0 && ids[i] < draws.size && !taken[ids[i]], "a ranked id is none, or ranked before");
        near(exact[ids[i]], sorted[i], bound + std::fabs(sorted[i]) * 1e-5, "a ranked value");
        taken[ids[i]] = true;
    }
}

}  // namespace

void draws(Random& random, const Kernels& kernels) {
    const long count = random.from(1, 5), size = random.from(1, random.coin() ? 9 : 700), kind = random.from(0, 4);
    const long width = random.from(1, 20);
    const float noise = random.coin() ? 0.0f : float(random.from(1, 30)) / 10;
    Floats scores(random, count * size);
    for (long i = 0; i < scores.count(); ++i) scores[i] = score(random, kind);
    std::vector<uint64_t> keys;
    for (long row = 0; row < count; ++row) keys.push_back(random.bits());
    Drawing drawing(kernels, std::make_shared<Pool>(random.from(1, 3)));
    Array<int64_t> ids(random, count), ranked(random, count * width);
    Floats log_probs(random, count * width);
    const Draws plain{scores.at(), count, size, 1, noise, keys}, scaled{scores.at(), count, size, 0.7f, noise, keys};
    drawing.choose(plain, ids.at());
    check_choice(plain, ids);
    const bool sound = drawing.rank(scaled, width, ranked.at(), log_probs.at());
    if (!sound) return;
    for (long row = 0; row < count; ++row) demand(is_sound(values(scaled, row)), "an unsound row is not told");
    for (long row = 0; row < count; ++row)
        check_rank(scaled, row, width, ranked.at() + row * width, log_probs.at() + row * width);
}

namespace {

struct Prefix {
    double cost;
    long parent, slot, rank;
};

// The best of all known prefixes, looked for one by one; of equals the first found.
paceline::Tree plain_tree(const paceline::Slots& slots, long nodes, long candidates, double most) {
    paceline::Tree tree;
    std::vector<Prefix> known;
    std::vector<bool> continued;
    long ends = 0;
    const auto find = [&](double base, long parent, long slot, long rank) {
        if (slot >= slots.slots || rank >= slots.width) return;
        const float log_prob = slots.log_probs[slot * slots.width + rank];
        if (std::isfinite(log_prob)) known.push_back({base - log_prob, parent, slot, rank});
    };
    find(0, -1, 0, 0);
    while (!known.empty() && long(tree.tokens.size()) < nodes) {
        const auto best = std::min_element(known.begin(), known.end(),
                                           [](const Prefix& a, const Prefix& b) { return a.cost < b.cost; });
        const Prefix taken = *best;
        if (taken.cost > most) break;
        known.erase(best);
        const bool branches = taken.parent < 0 || continued[taken.parent];
        if (branches && ends == candidates) continue;
        ends += branches;
        if (taken.parent >= 0) continued[taken.parent] = true;
        const long node = tree.tokens.size();
        tree.tokens.push_back(slots.ids[taken.slot * slots.width + taken.rank]);
        tree.parents.push_back(taken.parent);
        tree.scores.push_back(-taken.cost);
        continued.push_back(false);
        const float log_prob = slots.log_probs[taken.slot * slots.width + taken.rank];
        find(taken.cost + log_prob, taken.parent, taken.slot, taken.rank + 1);
        find(taken.cost, node, taken.slot + 1, 0);
    }
    return tree;
}

}  // namespace

void trees(Random& random, const Kernels&) {
    const long slots = random.from(0, 6), width = random.from(0, 6), nodes = random.from(0, 50);
    const long candidates = random.from(0, 12);
    Array<int64_t> ids(random, slots * width);
    Floats log_probs(random, slots * width);
    for (long slot = 0; slot < slots; ++slot) {
        float least = 0;
        for (long rank = 0; rank < width; ++rank) {
            ids[slot * width + rank] = random.from(0, 99);
            least -= float(random.from(0, 8)) / 4;  // often equal
            const bool none = random.from(0, 15) == 0;
            log_probs[slot * width + rank] = none ? (random.coin() ? kNan : -kInfinity) : least;
        }
    }
    const paceline::Slots given{ids.at(), log_probs.at(), slots, width};
    const double most = random.coin() ? kInfinity : double(random.from(0, 20)) / 4;
    const paceline::Tree found = grow(given, nodes, candidates, most);
    const paceline::Tree expected = plain_tree(given, nodes, candidates, most);
    demand(found.tokens == expected.tokens && found.parents == expected.parents && found.scores == expected.scores,
           "a tree is another");
}

}  // namespace fuzz
