// One call of the convolution of a row: any size, channels in groups, some channels of a row.
#include <algorithm>

#include "parts.h"

namespace fuzz {

using paceline::Convolution;
using paceline::Kernels;
using paceline::padded;

namespace {

struct Case {
    long size, seen, channels, group, stride;
    Floats base, added, x, before;  // x: rows in their order, the last of them convolved
};

long divisor(Random& random, long of) {
    for (;;)
        if (const long found = random.from(1, of); of % found == 0) return found;
}

Case random_case(Random& random) {
    const long size = random.from(1, 6), channels = random.coin() ? 16 * random.from(1, 9) : random.from(1, 150);
    const long seen = random.from(1, size), group = divisor(random, channels), stride = padded(channels);
    return {size, seen, channels, group, stride, normals(random, size * stride), normals(random, size * channels / group),
            normals(random, seen * stride), normals(random, stride)};
}

// Channels first … last - 1.
void convolve(const Kernels& kernels, const Case& of, const Floats& x, float* y, bool add, long first, long last) {
    const float* row = x.at() + (of.seen - 1) * of.stride;
    kernels.convolve({of.base.at(), of.added.at(), row, of.stride, of.seen, of.channels, of.group, first, last, y, add});
}

// A sum of n terms, each of three roundings, is off by less than n + 4 of its sizes' sum.
void check(const Case& of, const Floats& y, bool add) {
    for (long i = 0; i < of.channels; ++i) {
        double sum = add ? of.before[i] : 0, size = std::fabs(sum);
        for (long o = 0; o < of.seen; ++o) {
            const double kernel = of.base[o * of.stride + i], own = of.added[o * (of.channels / of.group) + i / of.group];
            const double x = of.x[(of.seen - 1 - o) * of.stride + i];
            sum += (kernel + own) * x, size += (std::fabs(kernel) + std::fabs(own)) * std::fabs(x);
        }
        near(y[i], sum, 0x1p-23 * (of.seen + 4) * size, "a convolution");
    }
}

Floats copy(Random& random, const Floats& of) {
    Floats found(random, of.count());
    std::copy_n(of.at(), of.count(), found.at());
    return found;
}

}  // namespace

void neighbours(Random& random, const Kernels& kernels) {
    const Case of = random_case(random);
    const bool add = random.coin();
    const Floats whole = copy(random, of.before), parts = copy(random, of.before), place = copy(random, of.x);
    convolve(kernels, of, of.x, whole.at(), add, 0, of.channels);
    check(of, whole, add);
    for (long first = 0; first < of.channels;) {
        const long last = std::min(of.channels, first + random.from(1, 3) * kernels.columns);
        convolve(kernels, of, of.x, parts.at(), add, first, last);
        first = last;
    }
    same(parts.at(), whole.at(), of.channels, "a convolution in parts");
    if (add) return;
    float* row = place.at() + (of.seen - 1) * of.stride;
    convolve(kernels, of, place, row, false, 0, of.channels);
    same(row, whole.at(), of.channels, "a convolution in place");
}

}  // namespace fuzz
