#include "weights.h"

#include <algorithm>
#include <bit>

namespace paceline {

namespace {

// Released checkpoints are bfloat16 nearly always: half the memory to read, and the same sums.
Storage storage_of(const Matrix& matrix) {
    switch (matrix.arithmetic.rounding) {
        case Rounding::weights: return Storage::int8;
        case Rounding::bfloat16: return Storage::bfloat16_factors;
        case Rounding::int8: return Storage::int8_factors;
        case Rounding::none: break;
    }
    const float* end = matrix.weight + matrix.columns * matrix.depth;
    const bool held = std::all_of(matrix.weight, end, [](float w) { return (std::bit_cast<uint32_t>(w) & 0xffff) == 0; });
    return held ? Storage::bfloat16 : Storage::float32;
}

Block<float> padded_bias(const Matrix& matrix, long columns) {
    if (!matrix.bias) return nullptr;
    Block<float> bias = allocate<float>(columns);
    std::fill(std::copy_n(matrix.bias, matrix.columns, bias.get()), bias.get() + columns, 0.0f);
    return bias;
}

// Of a panel, however it will be kept.
std::size_t most_bytes(const Kernels& kernels, long depth) {
    std::size_t most = 0;
    for (Storage storage : {Storage::float32, Storage::bfloat16_factors, Storage::int8_factors})
        most = std::max(most, kernels.panel_bytes(storage, depth, depth));
    return most;
}

// A thread's share of so many panels, in whole ones.
long share(long panels, int thread, int threads) { return panels * thread / threads; }

}  // namespace

Weights::Weights(const Kernels& kernels, Pool& pool, const std::vector<Matrix>& shapes, long times)
    : kernels_(kernels), pool_(pool) {
    const int threads = pool.threads();
    for (int thread = 0; thread < threads; ++thread) {
        std::size_t most = 0;
        for (const Matrix& matrix : shapes) {
            const long panels = (matrix.columns + kernels.columns - 1) / kernels.columns;
            const long own = share(panels, thread + 1, threads) - share(panels, thread, threads);
            most += own * most_bytes(kernels, matrix.depth);
        }
        streams_.push_back({allocate<std::byte>(times * most)});
    }
}

void Weights::add(const std::vector<Matrix>& matrices) {
    const std::size_t before = matrices_.size();
    for (const Matrix& matrix : matrices) matrices_.push_back(placed(matrix));
    pool_.run(Pool::turn(), [&](int thread) {
        for (std::size_t i = 0; i < matrices.size(); ++i) {
            const Matrix& from = matrices[i];
            const Part& part = matrices_[before + i].parts[thread];
            kernels_.pack({from.weight, part.depth, part.group, from.columns, part.storage}, part.first, part.last,
                          const_cast<std::byte*>(part.lines));
        }
    });
}

// Where its panels will be; nothing has been packed yet.
Weights::Packed Weights::placed(const Matrix& matrix) {
    const Storage storage = storage_of(matrix);
    const long group = storage == Storage::int8 ? matrix.arithmetic.group : std::max(matrix.depth, 1L);
    const long panels = (matrix.columns + kernels_.columns - 1) / kernels_.columns;
    Packed packed{matrix.columns, padded_bias(matrix, panels * kernels_.columns), {}};
    const int threads = pool_.threads();
    for (int thread = 0; thread < threads; ++thread) {
        const long first = share(panels, thread, threads), last = share(panels, thread + 1, threads);
        const float* bias = packed.bias ? packed.bias.get() + first * kernels_.columns : nullptr;
        Stream& stream = streams_[thread];
        packed.parts.push_back({stream.lines.get() + stream.used, bias, matrix.depth, group, first, last, storage});
        stream.used += (last - first) * kernels_.panel_bytes(storage, matrix.depth, group);
    }
    reserve(packed.parts.front());
    return packed;
}

void Weights::reserve(const Part& part) {
    const std::size_t bytes = kernels_.scratch_bytes(part.storage, part.depth);
    if (bytes <= scratch_bytes_) return;
    scratch_.clear();
    for (int thread = 0; thread < pool_.threads(); ++thread) scratch_.push_back(allocate<std::byte>(bytes));
    scratch_bytes_ = bytes;
}

std::size_t Weights::bytes() const {
    std::size_t all = 0;
    for (const Stream& stream : streams_) all += stream.used;
    return all;
}

void Weights::multiply(std::size_t matrix, int thread, const Rows& x, const Rows& y, long columns, bool add) const {
    std::byte* scratch = scratch_.empty() ? nullptr : scratch_[thread].get();
    kernels_.multiply({matrices_[matrix].parts[thread], x, y, columns, add, scratch});
}

long Weights::first(std::size_t matrix, int thread) const {
    return matrices_[matrix].parts[thread].first * kernels_.columns;
}

long Weights::last(std::size_t matrix, int thread) const {
    return matrices_[matrix].parts[thread].last * kernels_.columns;
}

}  // namespace paceline
