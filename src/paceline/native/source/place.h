// What a product does to its place in y; and what the products of all instruction sets have in common.
#pragma once

#include "simd.h"

namespace paceline::SET {

// Weights are asked for so many bytes before they are used; measured.
constexpr long kAhead = 8192;

// Rows that are rounded at once: each is then multiplied with all panels, so weights are read again for the next ones.
constexpr long kRounded = 256;

INLINE void put(float* to, Vector v, long columns, bool add) {
    if (columns >= W) return store(to, add ? load(to) + v : v);
    if (columns > 0) store_some(to, add ? load_some(to, columns) + v : v, columns);
}

}  // namespace paceline::SET
