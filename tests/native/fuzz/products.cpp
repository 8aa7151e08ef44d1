// Packed weights and their products; norms, rotations and gates.
#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "weights.h"
#include "parts.h"

namespace fuzz {

using paceline::Arithmetic;
using paceline::Kernels;
using paceline::Matrix;
using paceline::Pool;
using paceline::Rounding;
using paceline::Weights;

namespace {

// Sums of n terms in float32 are within n * 2^-24 of the sum of their sizes, in any order (Higham, 2002, 3.1). Twice.
constexpr double kRounding = 0x1p-23;

struct Case {
    long rows, depth, columns, stride;
    Arithmetic arithmetic;
    bool add, biased;
    Floats bias, x, weight;
};

Arithmetic random_arithmetic(Random& random, long depth) {
    const auto rounding = Rounding(random.from(0, 3));
    const long group = random.from(1, random.coin() ? 9 : std::max(depth, 1L));
    return {rounding, rounding == Rounding::weights ? std::min(group, std::max(depth, 1L)) : 0};
}

Case random_case(Random& random) {
    const long rows = random.from(0, 64), depth = random.from(0, random.coin() ? 9 : 300);
    const long columns = random.from(1, random.coin() ? 9 : 150);
    const long stride = random.coin() ? paceline::padded(columns) : columns;
    const bool add = random.coin(), shorter = random.coin(), biased = random.coin();
    Floats weight = normals(random, columns * depth, 1, shorter);
    return {rows, depth, columns, stride, random_arithmetic(random, depth), add, biased, normals(random, columns),
            normals(random, rows * depth), std::move(weight)};
}

// What int8 holds of weights that share a scale: the smallest bfloat16 that is at least their largest / 127.
void round_group(float* weight, long count) {
    float largest = 0;
    for (long i = 0; i < count; ++i) largest = std::max(largest, std::fabs(weight[i]));
    const float wanted = largest / 127;
    uint32_t bits = std::bit_cast<uint32_t>(wanted) & 0xffff0000u;
    if (std::bit_cast<float>(bits) < wanted) bits += 0x10000u;
    const float scale = std::bit_cast<float>(bits);
    for (long i = 0; i < count; ++i) weight[i] = scale > 0 ? std::nearbyint(weight[i] / scale) * scale : 0;
}

// The nearest bfloat16, ties to the even one.
void round_to_bfloat16(Floats& numbers) {
    for (long i = 0; i < numbers.count(); ++i) {
        const uint32_t bits = std::bit_cast<uint32_t>(numbers[i]);
        numbers[i] = std::bit_cast<float>((bits + 0x7fffu + (bits >> 16 & 1u)) & 0xffff0000u);
    }
}

// Codes from -127 to 127 for each row of `depth` numbers, and their scale.
void round_to_int8(Floats& numbers, long depth) {
    for (long first = 0; first < numbers.count(); first += depth) {
        float largest = 0;
        for (long i = first; i < first + depth; ++i) largest = std::max(largest, std::fabs(numbers[i]));
        const float factor = 127 / largest, scale = largest / 127;
        for (long i = first; i < first + depth; ++i) numbers[i] = std::nearbyint(numbers[i] * factor) * scale;
    }
}

void round_all(Case& of) {
    const auto [rounding, group] = of.arithmetic;
    if (rounding == Rounding::bfloat16) round_to_bfloat16(of.weight), round_to_bfloat16(of.x);
    if (rounding == Rounding::int8 && of.depth) round_to_int8(of.weight, of.depth), round_to_int8(of.x, of.depth);
    if (rounding != Rounding::weights) return;
    for (long row = 0; row < of.columns; ++row)
        for (long k = 0; k < of.depth; k += group)
            round_group(of.weight.at() + row * of.depth + k, std::min(group, of.depth - k));
}

void multiply(const Weights& weights, Pool& pool, const Case& of, long row, long rows, float* y) {
    pool.run(Pool::turn(), [&](int thread) {
        const paceline::Rows x{of.x.at() + row * of.depth, of.depth, rows};
        weights.multiply(0, thread, x, {y, of.stride, rows}, of.stride, of.add);
    });
}

void check(const Case& of, const Floats& before, const Floats& y) {
    for (long row = 0; row < of.rows; ++row)
        for (long column = 0; column < of.columns; ++column) {
            const long at = row * of.stride + column;
            double sum = of.biased ? of.bias[column] : 0, size = std::fabs(sum);
            if (of.add) sum += before[at], size += std::fabs(before[at]);
            for (long k = 0; k < of.depth; ++k) {
                const double term = double(of.x[row * of.depth + k]) * of.weight[column * of.depth + k];
                sum += term, size += std::fabs(term);
            }
            near(y[at], sum, kRounding * (of.depth + 2) * size, "a product");
        }
}

}  // namespace

void products(Random& random, const Kernels& kernels) {
    Case of = random_case(random);
    const std::vector matrices{
        Matrix{of.weight.at(), of.biased ? of.bias.at() : nullptr, of.columns, of.depth, of.arithmetic}};
    Pool pool(random.from(1, 3)), other(random.from(1, 3));
    Weights weights(kernels, pool, matrices, 1), again(kernels, other, matrices, 1);
    weights.add(matrices), again.add(matrices);
    const Floats before = normals(random, of.rows * of.stride);
    Floats y(random, before.count()), alone(random, before.count());
    for (long i = 0; i < before.count(); ++i) y[i] = alone[i] = before[i];
    multiply(weights, pool, of, 0, of.rows, y.at());
    for (long row = 0; row < of.rows; ++row) multiply(again, other, of, row, 1, alone.at() + row * of.stride);
    same(alone.at(), y.at(), y.count(), "a product of a row alone");
    round_all(of);
    check(of, before, y);
}

void rows(Random& random, const Kernels& kernels) {
    const long size = 2 * random.from(1, 70), gated = random.from(1, 6) * kernels.columns;
    const Floats x = normals(random, size), weight = normals(random, size), cos = normals(random, size);
    const Floats sin = normals(random, size), gates = normals(random, gated, 20), ups = normals(random, gated);
    Floats normed(random, size), turned(random, size), inner(random, gated);
    kernels.norm(x.at(), weight.at(), size, 1e-6f, normed.at());
    kernels.rotate(x.at(), cos.at(), sin.at(), size, turned.at());
    kernels.gate(gates.at(), ups.at(), gated, inner.at());
    double squares = 0;
    for (long i = 0; i < size; ++i) squares += double(x[i]) * x[i];
    for (long i = 0; i < size; ++i) {
        const double y = x[i] / std::sqrt(squares / size + 1e-6) * weight[i];
        near(normed[i], y, kRounding * (size + 4) * std::fabs(y), "a norm");
        const double a = double(x[i]) * cos[i], b = double(x[(i + size / 2) % size]) * sin[i];
        near(turned[i], a + b, kRounding * 2 * (std::fabs(a) + std::fabs(b)), "a rotation");
    }
    for (long i = 0; i < gated; ++i) {
        const double y = gates[i] / (1 + std::exp(-double(gates[i]))) * ups[i];
        near(inner[i], y, kRounding * 8 * std::fabs(y) + 1e-35, "a gate");
    }
}

}  // namespace fuzz
