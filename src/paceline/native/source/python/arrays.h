// Arrays from Python, checked before they are read: no call from there reads or writes what is not its own.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>

#include "weights.h"

namespace paceline {

namespace nb = nanobind;

template <int Dimensions>
using Input = nb::ndarray<const float, nb::ndim<Dimensions>, nb::c_contig, nb::device::cpu>;
template <int Dimensions>
using Output = nb::ndarray<float, nb::ndim<Dimensions>, nb::c_contig, nb::device::cpu>;
template <int Dimensions>
using InputIds = nb::ndarray<const int64_t, nb::ndim<Dimensions>, nb::c_contig, nb::device::cpu>;
template <int Dimensions>
using OutputIds = nb::ndarray<int64_t, nb::ndim<Dimensions>, nb::c_contig, nb::device::cpu>;

// Of a model's sizes, so that no product of them overflows.
constexpr long kMostSize = 1L << 24;

inline void demand(bool held, const char* told) {
    if (!held) throw nb::value_error(told);
}

// An argument that is what it has to be, or an error: nanobind would copy and convert others, and results with them.
inline auto given(const char* name) { return nb::arg(name).noconvert(); }

// The values of an array. Those of torch and numpy may begin at any byte; compiled loops rely on whole values.
template <class Array>
auto values(const Array& array) {
    const auto found = array.data();
    demand(reinterpret_cast<std::uintptr_t>(found) % sizeof(*found) == 0, "The values of an array are not aligned.");
    return found;
}

inline Matrix matrix(const Input<2>& weight, const std::optional<Input<1>>& bias, long columns, long depth, long group) {
    demand(long(weight.shape(0)) == columns && long(weight.shape(1)) == depth, "A weight does not have its shape.");
    demand(!bias || long(bias->shape(0)) == columns, "A bias does not have the size of its weight.");
    demand(group >= 0, "group is negative.");
    const float* end = values(weight) + columns * depth;
    demand(!group || std::all_of(values(weight), end, [](float w) { return std::isfinite(w); }),
           "A weight that is to be rounded is not finite.");
    return {values(weight), bias ? values(*bias) : nullptr, columns, depth, std::min(group, std::max(depth, 1L))};
}

inline const float* vector(const Input<1>& weight, long size) {
    demand(long(weight.shape(0)) == size, "The weight of a norm does not have its size.");
    return values(weight);
}

}  // namespace paceline
