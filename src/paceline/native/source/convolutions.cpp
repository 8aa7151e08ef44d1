#include "convolutions.h"

#include <algorithm>

namespace paceline {

std::vector<float> Convolutions::base_of(const float* kernels) const {
    if (!kernels) return {};
    std::vector<float> base(2 * size_ * padded(hidden_));
    for (long row = 0; row < 2 * size_; ++row)
        std::copy_n(kernels + row * hidden_, hidden_, base.begin() + row * padded(hidden_));
    return base;
}

// What there is room for is noted at last: memory may run out before.
void Convolutions::reserve(long rows) {
    if (!size_ || rows <= rows_) return;
    for (const auto& [of, stride] : {std::pair{&numbers_, numbers(rows).stride}, std::pair{&made_, made(rows).stride}}) {
        *of = allocate<float>(rows * stride);
        std::fill_n(of->get(), rows * stride, 0.0f);
    }
    rows_ = rows;
}

// From the last row on, as each reads those to its left.
void Convolutions::ahead(const std::vector<float>& base, const std::vector<long>& lefts, const Rows& x) const {
    for (long row = x.rows - 1; row >= 0; --row) {
        Convolution of = convolution(base, row, lefts[row], false);
        of.x = of.y = x.at + row * x.stride;
        of.last = hidden_;
        kernels_.convolve(of);
    }
}

void Convolutions::behind(const std::vector<float>& base, const std::vector<long>& lefts, const Rows& x, long first,
                          long last) const {
    for (long row = 0; row < x.rows; ++row) {
        Convolution of = convolution(base, row, lefts[row], true);
        of.x = made_.get() + row * x.stride;
        of.y = x.at + row * x.stride;
        of.first = first;
        of.last = std::min(last, hidden_);
        kernels_.convolve(of);
    }
}

// Of one row; what it acts on is not known yet.
Convolution Convolutions::convolution(const std::vector<float>& base, long row, long left, bool out) const {
    const long wide = padded(hidden_), kernels = out * size_;
    const float* added = numbers_.get() + row * padded(2 * size_ * groups_) + kernels * groups_;
    return {base.data() + kernels * wide, added, nullptr, wide, std::min(left + 1, size_), hidden_, hidden_ / groups_,
            0, 0, nullptr, out};
}

}  // namespace paceline
