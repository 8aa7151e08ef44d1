// Contexts: against plain loops in double precision, and to the bit in other calls and with other threads.
#include "context.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "parts.h"

namespace fuzz {

using namespace paceline;

namespace {

// Of numbers of size 1 or so, where no norm enlarges what rounding did.
constexpr double kTolerance = 5e-5;

struct Case {
    ContextShape shape;
    Floats fc, key_value, bias, norm, key_norms, cos, sin, features;
    bool biased;
    long rows, past, capacity;

    ContextTensors tensors() const {
        const long width = shape.layers * 2 * shape.kv_heads * shape.dim;
        const Matrix first{fc.at(), nullptr, shape.hidden, shape.inputs};
        return {first, {key_value.at(), biased ? bias.at() : nullptr, width, shape.hidden}, norm.at(), key_norms.at()};
    }
    long planes() const { return shape.layers * 2 * shape.kv_heads; }
};

Case random_case(Random& random) {
    const ContextShape shape{random.from(1, 90), random.from(1, 70), random.from(1, 3), random.from(1, 3),
                             2 * random.from(1, 20), 1e-6f};
    const long width = shape.layers * 2 * shape.kv_heads * shape.dim;
    const long rows = random.coin() ? random.from(0, 9) : random.from(500, 530), past = random.from(0, 9);
    return {shape,
            normals(random, shape.hidden * shape.inputs, 1 / std::sqrt(float(shape.inputs))),
            normals(random, width * shape.hidden, 1 / std::sqrt(float(shape.hidden))),
            normals(random, width),
            normals(random, shape.hidden),
            normals(random, shape.layers * shape.dim),
            normals(random, (past + rows) * shape.dim),
            normals(random, (past + rows) * shape.dim),
            normals(random, rows * shape.inputs),
            random.coin(),
            rows,
            past,
            past + rows + random.from(0, 2)};
}

Floats made(Random& random, const Kernels& kernels, const Case& of, long step) {
    Context context(kernels, std::make_shared<Pool>(random.from(1, 3)), of.shape, of.tensors());
    Floats cache(random, of.planes() * of.capacity * of.shape.dim, kNan);
    for (long first = 0; first < of.rows; first += step) {
        std::vector<ContextRow> rows;
        for (long row = first; row < std::min(first + step, of.rows); ++row)
            rows.push_back({of.features.at() + row * of.shape.inputs, cache.at(), of.capacity, of.past + row});
        context.extend(rows, of.cos.at(), of.sin.at());
    }
    return cache;
}

using Row = std::vector<double>;

Row normed(const Row& x, const float* weight, double eps, double& weakest) {
    double squares = 0;
    for (double value : x) squares += value * value;
    const double scale = std::sqrt(squares / x.size() + eps);
    weakest = std::min(weakest, scale);
    Row y(x);
    for (std::size_t i = 0; i < x.size(); ++i) y[i] *= weight[i] / scale;
    return y;
}

template <class Value>
double product(const float* weight, const Value* x, long depth) {
    double sum = 0;
    for (long k = 0; k < depth; ++k) sum += double(weight[k]) * x[k];
    return sum;
}

void check_row(const Case& of, const Floats& cache, long row) {
    const ContextShape& shape = of.shape;
    const long dim = shape.dim, place = of.past + row;
    double weakest = 1;
    Row mixed(shape.hidden);
    for (long i = 0; i < shape.hidden; ++i)
        mixed[i] = product(of.fc.at() + i * shape.inputs, of.features.at() + row * shape.inputs, shape.inputs);
    const Row hidden = normed(mixed, of.norm.at(), shape.eps, weakest);
    for (long plane = 0; plane < of.planes(); ++plane) {
        Row head(dim);
        for (long i = 0; i < dim; ++i)
            head[i] = product(of.key_value.at() + (plane * dim + i) * shape.hidden, hidden.data(), shape.hidden) +
                      (of.biased ? of.bias[plane * dim + i] : 0);
        const long layer = plane / (2 * shape.kv_heads);
        if (plane / shape.kv_heads % 2 == 0) {
            const Row x = normed(head, of.key_norms.at() + layer * dim, shape.eps, weakest);
            for (long i = 0; i < dim; ++i)
                head[i] = x[i] * of.cos[place * dim + i] + x[(i + dim / 2) % dim] * of.sin[place * dim + i];
        }
        for (long i = 0; i < dim; ++i)
            demand(std::fabs(cache[(plane * of.capacity + place) * dim + i] - head[i]) <= kTolerance / weakest,
                  "a row of a context");
    }
}

}  // namespace

void contexts(Random& random, const Kernels& kernels) {
    const Case of = random_case(random);
    const Floats cache = made(random, kernels, of, std::max(of.rows, 1L));
    if (of.rows) check_row(of, cache, random.from(0, of.rows - 1)), check_row(of, cache, of.rows - 1);
    for (long plane = 0; plane < of.planes(); ++plane)
        for (long row = 0; row < of.capacity; ++row)
            demand((row < of.past || row >= of.past + of.rows) ==
                      std::isnan(cache[(plane * of.capacity + row) * of.shape.dim]),
                  "which rows of a cache are written");
    const Floats parts = made(random, kernels, of, random.from(1, 40));
    same(parts.at(), cache.at(), cache.count(), "a context in parts");
}

}  // namespace fuzz
