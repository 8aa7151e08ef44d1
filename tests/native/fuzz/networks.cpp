// Whole passes: against a plain one in double precision, and to the bit against other threads, company and cuts.
#include "network.h"

#include <algorithm>

#include "parts.h"
#include "plain_network.h"

namespace fuzz {

using namespace paceline;

namespace {

long odd(Random& random, long most) { return random.from(1, random.coin() ? 9 : most); }

Model random_model(Random& random) {
    const long kv_heads = random.from(1, 3), heads = kv_heads * random.from(1, 4), dim = 2 * odd(random, 36);
    Shape shape{odd(random, 70), odd(random, 90), heads, kv_heads, dim, 1e-6f};
    if (random.coin()) {
        shape.kernel_size = random.from(1, 6);
        do shape.kernel_groups = random.from(1, shape.hidden);
        while (shape.hidden % shape.kernel_groups);
    }
    Model model{shape, {}, {}, {}};
    const bool shorter = random.coin();
    const auto numbers = [&](long count, float scale) {
        model.numbers.push_back(normals(random, count, scale, shorter));
        return model.numbers.back().at();
    };
    const auto matrix = [&](long columns, long depth) {
        const float scale = 1 / std::sqrt(float(depth));
        const float* weight = numbers(columns * depth, scale);
        return Matrix{weight, random.coin() ? numbers(columns, 0.3f) : nullptr, columns, depth};
    };
    // Kernels that leave rows as large as they are.
    const auto pair = [&] {
        if (!shape.kernel_size || !random.from(0, 2)) return Pair{};
        const long kernels = 2 * shape.kernel_size, columns = kernels * shape.kernel_groups;
        const float scale = 0.7f / std::sqrt(float(shape.kernel_size));
        const float* weight = numbers(columns * shape.hidden, scale / std::sqrt(float(shape.hidden)));
        return Pair{numbers(kernels * shape.hidden, scale), {weight, nullptr, columns, shape.hidden}};
    };
    for (long layer = 0, count = random.from(1, 3); layer < count; ++layer) {
        const bool head_norms = random.coin();
        model.layers.push_back({numbers(shape.hidden, 1), head_norms ? numbers(dim, 1) : nullptr,
                                head_norms ? numbers(dim, 1) : nullptr, numbers(shape.hidden, 1),
                                matrix((heads + 2 * kv_heads) * dim, shape.hidden), matrix(shape.hidden, heads * dim),
                                matrix(2 * shape.intermediate, shape.hidden), matrix(shape.hidden, shape.intermediate),
                                pair(), pair()});
    }
    model.norm = numbers(shape.hidden, 1);
    return model;
}

Chain random_chain(Random& random, long most) {
    const long past = random.from(0, random.coin() ? 4 : 80), rows = std::min<long>(most, random.coin() ? 4 : 64);
    Chain chain{past, random.from(0, rows), {}};
    if (random.coin())
        for (long row = 0; row < chain.rows; ++row) chain.parents.push_back(random.from(-1, row - 1));
    return chain;
}

// Past rows hold numbers; what is behind them must not be read before it is written.
Floats random_cache(Random& random, const Model& model, const Chain& chain, long capacity) {
    const long planes = model.layers.size() * 2 * model.shape.kv_heads, dim = model.shape.dim;
    Floats cache(random, planes * capacity * dim, kNan);
    for (long plane = 0; plane < planes; ++plane)
        for (long i = 0; i < chain.past * dim; ++i) cache[plane * capacity * dim + i] = random.normal();
    return cache;
}

Given random_pass(Random& random, const Model& model) {
    Given given;
    for (long left = 64, count = random.from(1, 4); count > 0; --count) {
        const Chain chain = random_chain(random, left);
        const long capacity = chain.past + chain.rows + random.from(0, 3);
        given.parts.push_back({chain, capacity, given.rows, random_cache(random, model, chain, capacity)});
        given.rows += chain.rows;
        left -= chain.rows;
    }
    for (std::size_t layer = 0; layer < model.layers.size(); ++layer) {
        const bool windowed = random.coin();
        given.reach.push_back({random.coin(), windowed ? std::optional<int64_t>(random.from(1, 40)) : std::nullopt});
        if (random.coin()) given.taps.push_back(layer);
    }
    given.x = std::make_unique<Floats>(normals(random, given.rows * model.shape.hidden));
    given.cos = std::make_unique<Floats>(normals(random, given.rows * model.shape.dim));
    given.sin = std::make_unique<Floats>(normals(random, given.rows * model.shape.dim));
    return given;
}

Floats copy(Random& random, const Floats& of) {
    Floats found(random, of.count());
    std::copy_n(of.at(), of.count(), found.at());
    return found;
}

// Rows first … first + segments' rows - 1 of what is given.
Found run(Random& random, Network& network, const Given& given, long first, const std::vector<Segment>& segments) {
    long rows = 0;
    for (const Segment& segment : segments) rows += segment.chain.rows;
    const long hidden = network.shape().hidden, dim = network.shape().dim, taps = given.taps.size();
    Found found{Floats(random, rows * hidden), Floats(random, rows * taps * hidden)};
    network.run({given.x->at() + first * hidden, given.cos->at() + first * dim, given.sin->at() + first * dim, segments,
                 given.reach, given.taps, found.hidden.at(), found.features.at(), {nullptr, {}, nullptr, nullptr}});
    return found;
}

// All sequences in one pass, with caches of their own.
Found run_all(Random& random, Network& network, const Given& given, std::vector<Floats>& caches) {
    std::vector<Segment> segments;
    for (const Section& part : given.parts) {
        caches.push_back(copy(random, part.cache));
        segments.push_back({part.chain, caches.back().at(), part.capacity});
    }
    return run(random, network, given, 0, segments);
}

// Past rows are as they were, new ones are numbers, and nothing is written behind them.
void check_cache(const Model& model, const Section& part, const Floats& after) {
    const long dim = model.shape.dim, planes = after.count() / std::max(1L, part.capacity * dim);
    for (long plane = 0; plane < planes; ++plane)
        for (long row = 0; row < part.capacity; ++row) {
            const long at = (plane * part.capacity + row) * dim, own = row - part.chain.past;
            const bool written = own >= 0 && own < part.chain.rows;
            if (!written) same(after.at() + at, part.cache.at() + at, dim, "a row of the cache that is not the pass's");
        }
}

// Every sequence on its own gives the rows and the cache that it gave in the batch.
void check_alone(Random& random, Network& network, const Given& given, const Found& together,
                 const std::vector<Floats>& caches) {
    for (std::size_t i = 0; i < given.parts.size(); ++i) {
        const Section& part = given.parts[i];
        const Floats cache = copy(random, part.cache);
        const Found found = run(random, network, given, part.start, {{part.chain, cache.at(), part.capacity}});
        const long hidden = network.shape().hidden, taps = given.taps.size();
        same(found.hidden.at(), together.hidden.at() + part.start * hidden, found.hidden.count(), "a sequence alone");
        same(found.features.at(), together.features.at() + part.start * taps * hidden, found.features.count(),
             "the features of a sequence alone");
        same(cache.at(), caches[i].at(), cache.count(), "the cache of a sequence alone");
    }
}

// The path down to a row, read one row after the other, gives the rows that it has in its chain or tree. Not so where
// convolutions see the rows before it in the same pass.
void check_path(Random& random, Network& network, const Given& given, const Found& together) {
    if (network.shape().kernel_size) return;
    for (const Section& part : given.parts) {
        if (part.chain.rows == 0 || !(part.chain.parents.size() || all_causal(given))) continue;
        const Floats cache = copy(random, part.cache);
        long past = part.chain.past;
        for (long row : path_to(part.chain, random.from(0, part.chain.rows - 1))) {
            const Found found =
                run(random, network, given, part.start + row, {{{past++, 1, {}}, cache.at(), part.capacity}});
            same(found.hidden.at(), together.hidden.at() + (part.start + row) * network.shape().hidden,
                 found.hidden.count(), "a row of a path");
        }
    }
}

// The head on some rows, in the same call, makes of them what it makes of their hidden states.
void check_scores(Random& random, const Kernels& kernels, const Model& model, const Given& given, const Found& found) {
    const auto pool = std::make_shared<Pool>(random.from(1, 3));
    Network network(kernels, pool, model.shape, model.norm, model.layers.size());
    for (const Layer& layer : model.layers) network.add(layer);
    const long hidden = model.shape.hidden, columns = odd(random, 70);
    const Floats weight = normals(random, columns * hidden);
    const std::vector<Matrix> matrices{{weight.at(), nullptr, columns, hidden}};
    Weights head(kernels, *pool, matrices, 1);
    head.add(matrices);
    std::vector<long> rows;
    for (long row = 0; row < given.rows; ++row)
        if (random.coin()) rows.push_back(row);
    std::vector<Floats> caches;
    std::vector<Segment> segments;
    for (const Section& part : given.parts) {
        caches.push_back(copy(random, part.cache));
        segments.push_back({part.chain, caches.back().at(), part.capacity});
    }
    const Floats scores(random, rows.size() * columns), features(random, found.features.count());
    const Floats states(random, rows.size() * hidden);
    network.run({given.x->at(), given.cos->at(), given.sin->at(), segments, given.reach, given.taps, nullptr,
                 features.at(), {&head, rows, scores.at(), nullptr, states.at()}});
    same(features.at(), found.features.at(), features.count(), "features beside scores");
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const Floats alone(random, columns);
        pool->run(Pool::turn(), [&](int thread) {
            head.multiply(0, thread, {found.hidden.at() + rows[i] * hidden, hidden, 1}, {alone.at(), columns, 1}, columns,
                          false);
        });
        same(scores.at() + i * columns, alone.at(), columns, "the scores of a row");
        same(states.at() + i * hidden, found.hidden.at() + rows[i] * hidden, hidden, "a hidden state beside its scores");
    }
}

// What is no number in one sequence does not reach the others.
void check_isolation(Random& random, Network& network, Given& given, const Found& together) {
    const Section& bad = given.parts[0];
    const long hidden = network.shape().hidden;
    if (bad.chain.rows == 0) return;
    (*given.x)[bad.start * hidden + random.from(0, bad.chain.rows * hidden - 1)] = random.coin() ? kNan : kInfinity;
    std::vector<Floats> caches;
    const Found found = run_all(random, network, given, caches);
    const long first = bad.chain.rows * hidden;
    const long rest = found.hidden.count() - first;
    same(found.hidden.at() + first, together.hidden.at() + first, rest, "what is beside no number");
}

}  // namespace

void networks(Random& random, const Kernels& kernels) {
    const Model model = random_model(random);
    const long count = model.layers.size();
    Network network(kernels, std::make_shared<Pool>(random.from(1, 3)), model.shape, model.norm, count);
    Network other(kernels, std::make_shared<Pool>(random.from(1, 3)), model.shape, model.norm, count);
    for (const paceline::Layer& layer : model.layers) network.add(layer), other.add(layer);
    for (int pass = 0; pass < 2; ++pass) {  // the second in scratch memory of another size
        Given given = random_pass(random, model);
        std::vector<Floats> caches;
        const Found found = run_all(random, network, given, caches);
        for (std::size_t i = 0; i < caches.size(); ++i) check_cache(model, given.parts[i], caches[i]);
        check_plain(model, given, found);
        check_alone(random, other, given, found, caches);
        check_path(random, other, given, found);
        check_scores(random, kernels, model, given, found);
        check_isolation(random, network, given, found);
    }
}

}  // namespace fuzz
