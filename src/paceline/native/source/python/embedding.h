// What a pass begins with: a row of numbers for each token.
#pragma once

#include <bit>
#include <variant>

#include "arrays.h"

namespace paceline {

using HalfTable = nb::ndarray<const int16_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

// A row for each token, float32 or the bits of bfloat16. Not copied: the array lives as long as this.
class Embedding {
  public:
    Embedding(std::variant<Input<2>, HalfTable> table, float scale) : table_(std::move(table)), scale_(scale) {
        std::visit([this](const auto& of) { values(of), tokens_ = of.shape(0), size_ = of.shape(1); }, table_);
    }

    long tokens() const { return tokens_; }
    long size() const { return size_; }

    // Rows [tokens, size].
    void look_up(const int64_t* tokens, long count, float* to) const {
        std::visit(
            [&](const auto& of) {
                for (long row = 0; row < count; ++row) {
                    const auto* from = of.data() + tokens[row] * size_;
                    for (long i = 0; i < size_; ++i) to[row * size_ + i] = scale_ * widened(from[i]);
                }
            },
            table_);
    }

    void check(const int64_t* tokens, long count) const {
        demand(std::all_of(tokens, tokens + count, [&](int64_t token) { return token >= 0 && token < tokens_; }),
               "A token is not in the embedding.");
    }

  private:
    static float widened(float value) { return value; }
    static float widened(int16_t bits) { return std::bit_cast<float>(uint32_t(uint16_t(bits)) << 16); }

    std::variant<Input<2>, HalfTable> table_;
    float scale_;
    long tokens_ = 0, size_ = 0;
};

}  // namespace paceline
