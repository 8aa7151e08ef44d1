#include "network.h"

#include <algorithm>
#include <cmath>

namespace paceline {

namespace {

// The matrices of a layer, in the order in which they are read.
enum { kAttentionKernels, kQkv, kOut, kMlpKernels, kGate, kUp, kDown, kMatrices };

std::vector<Matrix> matrices_of(const Layer& layer) {
    const Matrix& both = layer.gate_up;
    const long half = both.columns / 2;
    const Matrix gate{both.weight, both.bias, half, both.depth, both.arithmetic};
    const Matrix up{both.weight + half * both.depth, both.bias ? both.bias + half : nullptr, half, both.depth, both.arithmetic};
    return {layer.attention.projection, layer.qkv, layer.out, layer.mlp.projection, gate, up, layer.down};
}

// Of every layer, in the order of `matrices_of`.
std::vector<Matrix> shapes_of(const Shape& of) {
    const long width = of.heads * of.dim, all = width + 2 * of.kv_heads * of.dim;
    const long numbers = 2 * of.kernel_size * of.kernel_groups;
    const auto shape = [](long columns, long depth) { return Matrix{nullptr, nullptr, columns, depth}; };
    return {shape(numbers, of.hidden), shape(all, of.hidden), shape(of.hidden, width), shape(numbers, of.hidden),
            shape(of.intermediate, of.hidden), shape(of.intermediate, of.hidden), shape(of.hidden, of.intermediate)};
}

std::vector<float> copied(const float* from, long count) {
    return from ? std::vector<float>(from, from + count) : std::vector<float>();
}

}  // namespace

struct Network::Batch {
    long rows = 0, longest = 0;
    std::vector<Seen> seen;      // of every segment
    std::vector<long> lefts;     // of every row: how many of its segment stand to its left
    std::vector<long> kind_of;   // of every layer
    std::vector<Item> items;
};

Network::Network(const Kernels& kernels, std::shared_ptr<Pool> pool, const Shape& shape, const float* norm, long layers)
    : kernels_(kernels), pool_(std::move(pool)), shape_(shape), layers_(layers),
      weights_(kernels, *pool_, shapes_of(shape), layers), norm_(copied(norm, shape.hidden)),
      convolutions_(kernels, shape.hidden, shape.kernel_size, shape.kernel_groups), scoring_(kernels, *pool_, shape.hidden) {}

void Network::add(const Layer& layer) {
    weights_.add(matrices_of(layer));
    rowwise_.push_back({copied(layer.attention_norm, shape_.hidden), copied(layer.mlp_norm, shape_.hidden),
                        copied(layer.query_norm, shape_.dim), copied(layer.key_norm, shape_.dim),
                        convolutions_.base_of(layer.attention.base), convolutions_.base_of(layer.mlp.base)});
}

void Network::run(const Pass& pass) {
    const Turn turn = Pool::turn();
    const Batch batch = batch_of(pass);
    if (batch.rows == 0) return;
    reserve(batch.rows, batch.longest);
    convolutions_.reserve(batch.rows);
    if (pass.scored.head) scoring_.reserve(pass.scored);
    const long wide = padded(shape_.hidden);
    for (long row = 0; row < batch.rows; ++row)
        std::copy_n(pass.x + row * shape_.hidden, shape_.hidden, x_.get() + row * wide);
    pool_->run(turn, [&](int thread) {
        for (long index = 0; index < layers_; ++index) layer(pass, batch, index, thread);
        finish(pass, batch, thread);
        if (pass.scored.head) scoring_.run(pass.scored, thread);
    });
}

void Network::layer(const Pass& pass, const Batch& batch, long index, int thread) {
    const auto rows_in = [&](const Block<float>& of, long size) { return Rows{of.get(), padded(size), batch.rows}; };
    const long first_matrix = kMatrices * index;
    const auto multiply = [&](long which, const Rows& x, const Rows& y) {
        weights_.multiply(first_matrix + which, thread, x, y, y.stride, false);
    };
    const Rows normed = rows_in(normed_[thread], shape_.hidden);
    const Rows gates = rows_in(gates_, shape_.intermediate), ups = rows_in(ups_, shape_.intermediate);
    const Rows inner = rows_in(inner_, shape_.intermediate);
    const long width = shape_.heads * shape_.dim;
    const Rowwise& own = rowwise_[index];

    norm_rows(own.attention_norm, batch.rows, thread);
    enter(batch, first_matrix + kAttentionKernels, own.attention_base, thread);
    multiply(kQkv, normed, rows_in(qkv_, width + 2 * shape_.kv_heads * shape_.dim));
    pool_->meet();
    turn(pass, batch, index, thread);
    pool_->meet();
    attend(pass, batch, index, thread);
    pool_->meet();
    leave(batch, first_matrix + kOut, own.attention_base, rows_in(attended_, width), thread);
    pool_->meet();
    norm_rows(own.mlp_norm, batch.rows, thread);
    enter(batch, first_matrix + kMlpKernels, own.mlp_base, thread);
    multiply(kGate, normed, gates);
    multiply(kUp, normed, ups);
    const long matrix = first_matrix + kGate, first = weights_.first(matrix, thread);
    for (long row = 0, at = first; row < batch.rows; ++row, at += gates.stride)
        kernels_.gate(gates.at + at, ups.at + at, weights_.last(matrix, thread) - first, inner.at + at);
    pool_->meet();
    leave(batch, first_matrix + kDown, own.mlp_base, inner, thread);
    pool_->meet();
    if (index + 1 < layers_) tap(pass, batch, index, thread);
}

// What goes into a part, convolved where the part has a pair: like its norm, by every thread for itself.
void Network::enter(const Batch& batch, long matrix, const std::vector<float>& base, int thread) {
    if (base.empty()) return;
    const Rows normed{normed_[thread].get(), padded(shape_.hidden), batch.rows}, numbers = convolutions_.numbers(batch.rows);
    weights_.multiply(matrix, thread, normed, numbers, numbers.stride, false);
    pool_->meet();
    convolutions_.ahead(base, batch.lefts, normed);
}

// x += the product that a part ends with, convolved where it has a pair: a thread's own columns, so that none waits.
void Network::leave(const Batch& batch, long matrix, const std::vector<float>& base, const Rows& from, int thread) {
    const Rows x{x_.get(), padded(shape_.hidden), batch.rows};
    if (base.empty()) return weights_.multiply(matrix, thread, from, x, x.stride, true);
    const Rows made = convolutions_.made(batch.rows);
    weights_.multiply(matrix, thread, from, made, made.stride, false);
    convolutions_.behind(base, batch.lefts, x, weights_.first(matrix, thread), weights_.last(matrix, thread));
}

// Norms and turns the heads: queries stay where they are, keys and values go to the cache.
void Network::turn(const Pass& pass, const Batch& batch, long index, int thread) {
    const long dim = shape_.dim, kv_heads = shape_.kv_heads, heads = shape_.heads + 2 * kv_heads;
    float* head = head_[thread].get();
    for (std::size_t number = 0; number < pass.segments.size(); ++number) {
        const Segment& segment = pass.segments[number];
        const long items = segment.chain.rows * heads, threads = pool_->threads();
        for (long item = items * thread / threads; item < items * (thread + 1) / threads; ++item) {
            const long own = item / heads, which = item % heads, row = batch.seen[number].start + own;
            float* from = qkv_.get() + row * padded(heads * dim) + which * dim;
            float* to = from;
            if (const long kv = which - shape_.heads; kv >= 0) {
                const long plane = (2 * index + kv / kv_heads) * kv_heads + kv % kv_heads;
                to = segment.cache + (plane * segment.capacity + segment.chain.past + own) * dim;
                if (kv >= kv_heads) {
                    std::copy_n(from, dim, to);
                    continue;
                }
            }
            const std::vector<float>& weight = which < shape_.heads ? rowwise_[index].query_norm : rowwise_[index].key_norm;
            if (weight.empty()) std::copy_n(from, dim, head);
            else kernels_.norm(from, weight.data(), dim, shape_.eps, head);
            kernels_.rotate(head, pass.cos + row * dim, pass.sin + row * dim, dim, to);
        }
    }
}

void Network::attend(const Pass& pass, const Batch& batch, long index, int thread) {
    const long dim = shape_.dim, group = shape_.heads / shape_.kv_heads;
    const long wide = padded((shape_.heads + 2 * shape_.kv_heads) * dim), width = padded(shape_.heads * dim);
    const long items = batch.items.size(), threads = pool_->threads();
    // In a row, so that a thread meets the same keys again.
    for (long i = items * thread / threads; i < items * (thread + 1) / threads; ++i) {
        const Item& item = batch.items[i];
        const Segment& segment = pass.segments[item.segment];
        const Seen& seen = batch.seen[item.segment];
        const Visibility& kind = seen.kinds[batch.kind_of[index]];
        const float* keys = segment.cache + (2 * index * shape_.kv_heads + item.head) * segment.capacity * dim;
        Attention a{{}, int(item.count), keys, keys + shape_.kv_heads * segment.capacity * dim, seen.places.data(),
                    segment.chain.past, segment.chain.rows, dim, 0.0f, scores_[thread].get()};
        a.scale = 1.0f / std::sqrt(float(dim));
        for (long q = 0; q < item.count; ++q) {
            const long own = (item.query + q) / group, head = item.head * group + (item.query + q) % group;
            const long row = seen.start + own;
            a.queries[q] = {qkv_.get() + row * wide + head * dim, attended_.get() + row * width + head * dim,
                            &kind.own[own * kind.words], kind.first[own]};
        }
        kernels_.attend(a);
    }
}

// After a layer, x is read only until the next attention has been added: this thread's share of the rows, at once.
void Network::tap(const Pass& pass, const Batch& batch, long index, int thread) {
    const long hidden = shape_.hidden, taps = pass.taps.size(), threads = pool_->threads();
    for (long at = 0; at < taps; ++at) {
        if (pass.taps[at] != index) continue;
        for (long row = batch.rows * thread / threads; row < batch.rows * (thread + 1) / threads; ++row)
            std::copy_n(x_.get() + row * padded(hidden), hidden, pass.features + (row * taps + at) * hidden);
    }
}

void Network::finish(const Pass& pass, const Batch& batch, int thread) {
    const long hidden = shape_.hidden, taps = pass.taps.size(), threads = pool_->threads();
    const auto norm = [&](long row, float* to) {
        kernels_.norm(x_.get() + row * padded(hidden), norm_.data(), hidden, shape_.eps, to);
    };
    for (long row = batch.rows * thread / threads; row < batch.rows * (thread + 1) / threads; ++row) {
        if (pass.hidden) norm(row, pass.hidden + row * hidden);
        for (long at = 0; at < taps; ++at)
            if (pass.taps[at] == layers_ - 1) norm(row, pass.features + (row * taps + at) * hidden);
    }
    if (!pass.scored.head) return;
    const long scored = pass.scored.rows.size();
    for (long i = scored * thread / threads; i < scored * (thread + 1) / threads; ++i) {
        norm(pass.scored.rows[i], scoring_.hidden(i));
        if (pass.scored.hidden) std::copy_n(scoring_.hidden(i), hidden, pass.scored.hidden + i * hidden);
    }
    pool_->meet();
}

Network::Batch Network::batch_of(const Pass& pass) const {
    Batch batch;
    std::vector<Reach> kinds;
    for (const Reach& reach : pass.reach) {
        const auto found = std::find(kinds.begin(), kinds.end(), reach);
        batch.kind_of.push_back(found - kinds.begin());
        if (found == kinds.end()) kinds.push_back(reach);
    }
    const long group = shape_.heads / shape_.kv_heads;
    for (std::size_t number = 0; number < pass.segments.size(); ++number) {
        const Chain& chain = pass.segments[number].chain;
        Seen seen{places_of(chain), {}, batch.rows};
        for (const Reach& reach : kinds) seen.kinds.push_back(visibility(chain, seen.places, reach));
        batch.seen.push_back(std::move(seen));
        batch.rows += chain.rows;
        for (long row = 0; shape_.kernel_size && row < chain.rows; ++row) batch.lefts.push_back(row);
        batch.longest = std::max(batch.longest, chain.past + chain.rows);
        for (long head = 0; head < shape_.kv_heads; ++head)
            for (long query = 0; query < chain.rows * group; query += Attention::kQueries)
                batch.items.push_back({long(number), head, query,
                                       std::min<long>(Attention::kQueries, chain.rows * group - query)});
    }
    return batch;
}

// Every thread norms all rows for itself, which is cheaper than to wait for what others normed.
void Network::norm_rows(const std::vector<float>& weight, long rows, int thread) {
    const long wide = padded(shape_.hidden);
    for (long row = 0; row < rows; ++row)
        kernels_.norm(x_.get() + row * wide, weight.data(), shape_.hidden, shape_.eps, normed_[thread].get() + row * wide);
}

// What there is room for is noted at last: memory may run out before.
void Network::reserve(long rows, long longest) {
    const auto room = [&](Block<float>& of, long size) {
        of = allocate<float>(rows * padded(size));
        std::fill_n(of.get(), rows * padded(size), 0.0f);
    };
    if (rows > rows_) {
        room(x_, shape_.hidden);
        room(qkv_, (shape_.heads + 2 * shape_.kv_heads) * shape_.dim);
        room(attended_, shape_.heads * shape_.dim);
        for (Block<float>* of : {&gates_, &ups_, &inner_}) room(*of, shape_.intermediate);
        normed_.resize(pool_->threads());
        for (Block<float>& of : normed_) room(of, shape_.hidden);
        rows_ = rows;
    }
    if (longest > longest_) {
        scores_.resize(pool_->threads());
        head_.resize(pool_->threads());
        for (Block<float>& of : scores_) of = allocate<float>(Attention::kQueries * padded(2 * longest + kPad));
        for (Block<float>& of : head_) of = allocate<float>(shape_.dim);
        longest_ = 2 * longest;
    }
}

}  // namespace paceline
