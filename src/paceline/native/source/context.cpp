#include "context.h"

#include <algorithm>

namespace paceline {

namespace {

enum { kFc, kKeyValue };

// At a time: bounds the memory for a long prompt.
constexpr long kMostRows = 512;

long width_of(const ContextShape& shape) { return shape.layers * 2 * shape.kv_heads * shape.dim; }

}  // namespace

Context::Context(const Kernels& kernels, std::shared_ptr<Pool> pool, const ContextShape& shape,
                 const ContextTensors& tensors)
    : kernels_(kernels), pool_(std::move(pool)), shape_(shape),
      weights_(kernels, *pool_, {tensors.fc, tensors.key_value}, 1), norm_(tensors.norm, tensors.norm + shape.hidden),
      key_norms_(tensors.key_norms, tensors.key_norms + shape.layers * shape.dim) {
    weights_.add({tensors.fc, tensors.key_value});
}

void Context::extend(const std::vector<ContextRow>& rows, const float* cos, const float* sin) {
    const Turn turn = Pool::turn();
    reserve(std::min<long>(rows.size(), kMostRows));
    const long threads = pool_->threads(), blocks = 2 * shape_.layers * shape_.kv_heads;
    const auto scratch = [](const Block<float>& of, long size, long count) { return Rows{of.get(), padded(size), count}; };
    for (long first = 0; first < long(rows.size()); first += kMostRows) {
        const ContextRow* own = rows.data() + first;
        const long count = std::min<long>(rows.size() - first, kMostRows);
        const Rows x = scratch(x_, shape_.inputs, count), mixed = scratch(mixed_, shape_.hidden, count);
        const Rows normed = scratch(normed_, shape_.hidden, count), made = scratch(made_, width_of(shape_), count);
        pool_->run(turn, [&](int thread) {
            const long begin = count * thread / threads, end = count * (thread + 1) / threads;
            for (long row = begin; row < end; ++row) std::copy_n(own[row].features, shape_.inputs, x.at + row * x.stride);
            pool_->meet();
            weights_.multiply(kFc, thread, x, mixed, mixed.stride, false);
            pool_->meet();
            for (long row = begin; row < end; ++row)
                kernels_.norm(mixed.at + row * mixed.stride, norm_.data(), shape_.hidden, shape_.eps,
                              normed.at + row * normed.stride);
            pool_->meet();
            weights_.multiply(kKeyValue, thread, normed, made, made.stride, false);
            pool_->meet();
            const long items = count * blocks;
            for (long item = items * thread / threads; item < items * (thread + 1) / threads; ++item)
                store(own[item / blocks], item / blocks, item % blocks, cos, sin, head_[thread].get());
        });
    }
}

// The planes of a cache stand in the order of the heads that the product makes.
void Context::store(const ContextRow& row, long number, long block, const float* cos, const float* sin, float* head) {
    const long dim = shape_.dim;
    const float* from = made_.get() + number * padded(width_of(shape_)) + block * dim;
    float* to = row.cache + (block * row.capacity + row.place) * dim;
    if (block / shape_.kv_heads % 2) {
        std::copy_n(from, dim, to);
        return;
    }
    kernels_.norm(from, key_norms_.data() + block / (2 * shape_.kv_heads) * dim, dim, shape_.eps, head);
    kernels_.rotate(head, cos + row.place * dim, sin + row.place * dim, dim, to);
}

// What there is room for is noted at last: memory may run out before.
void Context::reserve(long rows) {
    if (rows <= rows_) return;
    const auto room = [rows](Block<float>& of, long size) {
        of = allocate<float>(rows * padded(size));
        std::fill_n(of.get(), rows * padded(size), 0.0f);
    };
    room(x_, shape_.inputs);
    room(mixed_, shape_.hidden);
    room(normed_, shape_.hidden);
    room(made_, width_of(shape_));
    head_.resize(pool_->threads());
    for (Block<float>& of : head_) of = allocate<float>(shape_.dim);
    rows_ = rows;
}

}  // namespace paceline
