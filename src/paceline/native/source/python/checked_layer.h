// A layer of the network, as Python gives it.
#pragma once

#include "arrays.h"
#include "network.h"

namespace paceline {

// The tensors of a layer. Of a pair of convolutions there are both, or none.
struct LayerTensors {
    using Vector = std::optional<Input<1>>;
    Input<1> attention_norm, mlp_norm;
    Vector query_norm, key_norm;
    Input<2> qkv, out, gate_up, down;
    Vector qkv_bias, out_bias, gate_up_bias, down_bias;
    std::optional<Input<3>> attention_base;
    std::optional<Input<2>> attention_projection;
    std::optional<Input<3>> mlp_base;
    std::optional<Input<2>> mlp_projection;
};

// Throws where they do not have their shapes.
Layer checked(const LayerTensors& of, const Shape& shape, const Arithmetic& arithmetic);

void bind_layer(nb::module_& module);

}  // namespace paceline
