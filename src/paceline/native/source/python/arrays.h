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

// Products of two int8, one of them without sign, of which the sum is less than 2^31.
constexpr long kMostExact = (1L << 31) / (255 * 127);

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

template <class Array>
bool is(const Array& array, long rows, long columns) {
    return long(array.shape(0)) == rows && long(array.shape(1)) == columns;
}

// An arithmetic as Python gives it: what is rounded, and the inputs that share a scale.
using ArithmeticTuple = std::tuple<std::string, long>;

inline Arithmetic arithmetic_of(const ArithmeticTuple& tuple) {
    const auto& [name, group] = tuple;
    constexpr const char* names[] = {"none", "weights", "bfloat16", "int8"};
    const auto found = std::find(std::begin(names), std::end(names), name);
    demand(found != std::end(names), "There is no such rounding.");
    const auto rounding = Rounding(found - std::begin(names));
    demand(rounding == Rounding::weights ? group > 0 : group == 0, "A group is one of weights, and positive.");
    return {rounding, group};
}

inline Matrix matrix(const Input<2>& weight, const std::optional<Input<1>>& bias, long columns, long depth,
                     Arithmetic arithmetic) {
    demand(long(weight.shape(0)) == columns && long(weight.shape(1)) == depth, "A weight does not have its shape.");
    demand(!bias || long(bias->shape(0)) == columns, "A bias does not have the size of its weight.");
    const float* end = values(weight) + columns * depth;
    const bool exact = arithmetic.rounding == Rounding::none || arithmetic.rounding == Rounding::bfloat16;
    demand(arithmetic.rounding != Rounding::int8 || depth <= kMostExact, "Sums of so many products of int8 overflow.");
    demand(exact || std::all_of(values(weight), end, [](float w) { return std::isfinite(w); }),
           "A weight that is to be rounded is not finite.");
    arithmetic.group = std::min(arithmetic.group, std::max(depth, 1L));
    return {values(weight), bias ? values(*bias) : nullptr, columns, depth, arithmetic};
}

inline const float* vector(const Input<1>& weight, long size) {
    demand(long(weight.shape(0)) == size, "The weight of a norm does not have its size.");
    return values(weight);
}

}  // namespace paceline
