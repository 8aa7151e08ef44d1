#include "weights.h"

#include <algorithm>
#include <bit>

namespace paceline {

namespace {

// Released checkpoints are bfloat16 nearly always: half the memory to read, and the same sums.
Storage storage_of(const Matrix& matrix) {
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

}  // namespace

Weights::Weights(const Kernels& kernels, Pool& pool, const std::vector<Matrix>& matrices) : kernels_(kernels) {
    const int threads = pool.threads();
    std::vector<std::size_t> lengths(threads, 0);
    std::vector<std::vector<std::size_t>> starts(threads);
    for (const Matrix& matrix : matrices) {
        const Storage storage = storage_of(matrix);
        const long panels = (matrix.columns + kernels.columns - 1) / kernels.columns;
        Packed packed{matrix.columns, padded_bias(matrix, panels * kernels.columns), {}};
        for (int thread = 0; thread < threads; ++thread) {
            const long first = panels * thread / threads, last = panels * (thread + 1) / threads;
            const float* bias = packed.bias ? packed.bias.get() + first * kernels.columns : nullptr;
            packed.parts.push_back({nullptr, bias, matrix.depth, first, last, storage});
            starts[thread].push_back(lengths[thread]);
            lengths[thread] += (last - first) * matrix.depth * kernels.line_bytes(storage);
        }
        matrices_.push_back(std::move(packed));
    }
    for (std::size_t length : lengths) {
        streams_.push_back(allocate<std::byte>(length));
        bytes_ += length;
    }
    pool.run(Pool::turn(), [&](int thread) {
        for (std::size_t i = 0; i < matrices.size(); ++i) {
            Part& part = matrices_[i].parts[thread];
            std::byte* lines = streams_[thread].get() + starts[thread][i];
            part.lines = lines;
            kernels.pack({matrices[i].weight, part.depth, matrices[i].columns, part.storage}, part.first, part.last,
                         lines);
        }
    });
}

void Weights::multiply(std::size_t matrix, int thread, const Rows& x, const Rows& y, long columns, bool add) const {
    kernels_.multiply({matrices_[matrix].parts[thread], x, y, columns, add});
}

long Weights::first(std::size_t matrix, int thread) const {
    return matrices_[matrix].parts[thread].first * kernels_.columns;
}

long Weights::last(std::size_t matrix, int thread) const {
    return matrices_[matrix].parts[thread].last * kernels_.columns;
}

}  // namespace paceline
