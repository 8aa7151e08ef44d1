#include "plain_network.h"

#include <algorithm>

namespace fuzz {

using paceline::Chain;
using paceline::Layer;
using paceline::Matrix;
using paceline::Pair;
using paceline::Reach;
using paceline::Shape;

namespace {

using Row = std::vector<double>;

// Of hidden states of size 1, where no norm enlarges what rounding did: some hundred roundings in each of their sums.
constexpr double kTolerance = 5e-5;

struct Pass {
    const Model& model;
    const Section& part;
    double weakest = 1;       // the least root mean square that a norm divided by: it enlarges errors as well
    std::vector<Row> x;       // of every row
    std::vector<Row> keys, values;  // [kv_heads * (past + own)] of a layer
};

Row times(const Matrix& matrix, const Row& x) {
    Row y(matrix.columns);
    for (long column = 0; column < matrix.columns; ++column) {
        y[column] = matrix.bias ? matrix.bias[column] : 0;
        for (long k = 0; k < matrix.depth; ++k) y[column] += matrix.weight[column * matrix.depth + k] * x[k];
    }
    return y;
}

Row normed(Pass& pass, const Row& x, const float* weight) {
    double squares = 0;
    for (double value : x) squares += value * value;
    const double scale = std::sqrt(squares / x.size() + pass.model.shape.eps);
    pass.weakest = std::min(pass.weakest, scale);
    Row y(x);
    for (std::size_t i = 0; i < x.size(); ++i) y[i] *= weight[i] / scale;
    return y;
}

std::vector<Row> all_normed(Pass& pass, const float* weight) {
    std::vector<Row> found;
    for (const Row& x : pass.x) found.push_back(normed(pass, x, weight));
    return found;
}

void add(Pass& pass, const std::vector<Row>& outputs) {
    for (std::size_t row = 0; row < outputs.size(); ++row)
        for (std::size_t i = 0; i < outputs[row].size(); ++i) pass.x[row][i] += outputs[row][i];
}

// Every row of a part's input (0) or output (1) with those to its left, by kernels that `normed` rows add to.
std::vector<Row> convolved(const Shape& shape, const Pair& pair, const std::vector<Row>& normed,
                           const std::vector<Row>& x, long which) {
    if (!pair.base) return x;
    const long size = shape.kernel_size, groups = shape.kernel_groups, hidden = shape.hidden;
    std::vector<Row> found(x.size(), Row(hidden));
    for (long row = 0; row < long(x.size()); ++row) {
        const Row added = times(pair.projection, normed[row]);
        for (long o = 0; o < std::min(size, row + 1); ++o)
            for (long i = 0; i < hidden; ++i) {
                const long kernel = which * size + o, group = i * groups / hidden;
                found[row][i] += (pair.base[kernel * hidden + i] + added[kernel * groups + group]) * x[row - o][i];
            }
    }
    return found;
}

Row turned(Pass& pass, const Given& given, const Row& head, const float* weight, long row) {
    const Row x = weight ? normed(pass, head, weight) : head;
    const long dim = x.size(), at = (pass.part.start + row) * dim;
    Row y(dim);
    for (long i = 0; i < dim; ++i) y[i] = x[i] * (*given.cos)[at + i] + x[(i + dim / 2) % dim] * (*given.sin)[at + i];
    return y;
}

Row slice(const Row& of, long index, long size) {
    return Row(of.begin() + index * size, of.begin() + (index + 1) * size);
}

long place(const Chain& chain, long row) { return chain.past + path_to(chain, row).size() - 1; }

// Whether new row `row` sees row `other` of all.
bool sees(const Chain& chain, const Reach& reach, long row, long other) {
    const long own = other - chain.past;
    const std::vector<long> path = path_to(chain, row);
    const bool connected = own < 0 || (chain.parents.empty() && !reach.causal) ||
                           std::find(path.begin(), path.end(), own) != path.end();
    const long there = own < 0 ? other : place(chain, own);
    return connected && (!reach.window || std::labs(place(chain, row) - there) < *reach.window);
}

Row attended(const Pass& pass, const Row& query, const std::vector<bool>& seen, long head) {
    const long all = seen.size();
    Row sums(query.size());
    double total = 0;
    for (long other = 0; other < all; ++other) {
        if (!seen[other]) continue;
        double score = 0;
        for (std::size_t d = 0; d < query.size(); ++d) score += query[d] * pass.keys[head * all + other][d];
        const double weight = std::exp(score / std::sqrt(double(query.size())));
        total += weight;
        for (std::size_t d = 0; d < query.size(); ++d) sums[d] += weight * pass.values[head * all + other][d];
    }
    for (double& sum : sums) sum /= total;
    return sums;
}

void read_cache(Pass& pass, long index) {
    const Section& part = pass.part;
    const long heads = pass.model.shape.kv_heads, dim = pass.model.shape.dim;
    const long all = part.chain.past + part.chain.rows;
    for (auto* rows : {&pass.keys, &pass.values}) {
        rows->assign(heads * all, Row(dim));
        for (long head = 0; head < heads; ++head)
            for (long row = 0; row < part.chain.past; ++row) {
                const long plane = (2 * index + (rows == &pass.values)) * heads + head;
                const float* from = part.cache.at() + (plane * part.capacity + row) * dim;
                std::copy_n(from, dim, (*rows)[head * all + row].begin());
            }
    }
}

void attend(Pass& pass, const Given& given, long index) {
    const Shape& shape = pass.model.shape;
    const Layer& layer = pass.model.layers[index];
    const Chain& chain = pass.part.chain;
    const long all = chain.past + chain.rows;
    const std::vector<Row> normed = all_normed(pass, layer.attention_norm);
    const std::vector<Row> inputs = convolved(shape, layer.attention, normed, normed, 0);
    std::vector<Row> qkv, outputs;
    read_cache(pass, index);
    for (long row = 0; row < chain.rows; ++row) {
        qkv.push_back(times(layer.qkv, inputs[row]));
        for (long head = 0; head < shape.kv_heads; ++head) {
            const Row key = slice(qkv[row], shape.heads + head, shape.dim);
            pass.keys[head * all + chain.past + row] = turned(pass, given, key, layer.key_norm, row);
            const long value = shape.heads + shape.kv_heads + head;
            pass.values[head * all + chain.past + row] = slice(qkv[row], value, shape.dim);
        }
    }
    for (long row = 0; row < chain.rows; ++row) {
        std::vector<bool> seen(all);
        for (long other = 0; other < all; ++other) seen[other] = sees(chain, given.reach[index], row, other);
        Row heads;
        for (long head = 0; head < shape.heads; ++head) {
            const Row query = turned(pass, given, slice(qkv[row], head, shape.dim), layer.query_norm, row);
            const Row found = attended(pass, query, seen, head * shape.kv_heads / shape.heads);
            heads.insert(heads.end(), found.begin(), found.end());
        }
        outputs.push_back(times(layer.out, heads));
    }
    add(pass, convolved(shape, layer.attention, normed, outputs, 1));
}

void feed_forward(Pass& pass, const Layer& layer) {
    const Shape& shape = pass.model.shape;
    const std::vector<Row> normed = all_normed(pass, layer.mlp_norm);
    std::vector<Row> outputs;
    for (const Row& x : convolved(shape, layer.mlp, normed, normed, 0)) {
        const Row both = times(layer.gate_up, x);
        Row inner(both.size() / 2);
        for (std::size_t i = 0; i < inner.size(); ++i)
            inner[i] = both[i] / (1 + std::exp(-both[i])) * both[inner.size() + i];
        outputs.push_back(times(layer.down, inner));
    }
    add(pass, convolved(shape, layer.mlp, normed, outputs, 1));
}

void check_rows(const float* found, long stride, const std::vector<Row>& expected, double bound) {
    for (std::size_t row = 0; row < expected.size(); ++row)
        for (std::size_t i = 0; i < expected[row].size(); ++i)
            near(found[row * stride + i], expected[row][i], bound * (1 + std::fabs(expected[row][i])), "a hidden state");
}

}  // namespace

bool all_causal(const Given& given) {
    return std::all_of(given.reach.begin(), given.reach.end(), [](const Reach& reach) { return reach.causal; });
}

std::vector<long> path_to(const Chain& chain, long row) {
    std::vector<long> path;
    for (; row >= 0; row = chain.parents.empty() ? row - 1 : chain.parents[row]) path.insert(path.begin(), row);
    return path;
}

void check_plain(const Model& model, const Given& given, const Found& found) {
    const long hidden = model.shape.hidden, taps = given.taps.size(), layers = model.layers.size();
    for (const Section& part : given.parts) {
        Pass pass{model, part, 1, {}, {}, {}};
        std::vector<std::vector<Row>> after;
        for (long row = part.start; row < part.start + part.chain.rows; ++row)
            pass.x.emplace_back(given.x->at() + row * hidden, given.x->at() + (row + 1) * hidden);
        for (long index = 0; index < layers; ++index) {
            attend(pass, given, index);
            feed_forward(pass, model.layers[index]);
            if (index + 1 == layers)
                for (Row& x : pass.x) x = normed(pass, x, model.norm);
            after.push_back(pass.x);
        }
        const double bound = kTolerance / pass.weakest;
        check_rows(found.hidden.at() + part.start * hidden, hidden, pass.x, bound);
        for (long tap = 0; tap < taps; ++tap)
            check_rows(found.features.at() + (part.start * taps + tap) * hidden, taps * hidden, after[given.taps[tap]],
                       bound);
    }
}

}  // namespace fuzz
