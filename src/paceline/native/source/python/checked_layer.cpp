#include "checked_layer.h"

namespace paceline {

namespace {

Pair pair_of(const std::optional<Input<3>>& base, const std::optional<Input<2>>& projection, const Shape& shape,
             const Arithmetic& arithmetic) {
    demand(base.has_value() == projection.has_value(), "The base and the projection of a convolution go together.");
    if (!base) return {};
    demand(shape.kernel_size > 0, "The network has no convolutions.");
    demand(base->shape(0) == 2 && long(base->shape(1)) == shape.kernel_size && long(base->shape(2)) == shape.hidden,
           "The base of a convolution is not [2, kernel_size, hidden].");
    const long numbers = 2 * shape.kernel_size * shape.kernel_groups;
    return {values(*base), matrix(*projection, std::nullopt, numbers, shape.hidden, arithmetic)};
}

}  // namespace

Layer checked(const LayerTensors& of, const Shape& shape, const Arithmetic& arithmetic) {
    const long width = shape.heads * shape.dim, all = width + 2 * shape.kv_heads * shape.dim;
    demand(of.query_norm.has_value() == of.key_norm.has_value(), "query_norm and key_norm go together.");
    return {
        vector(of.attention_norm, shape.hidden),
        of.query_norm ? vector(*of.query_norm, shape.dim) : nullptr,
        of.key_norm ? vector(*of.key_norm, shape.dim) : nullptr,
        vector(of.mlp_norm, shape.hidden),
        matrix(of.qkv, of.qkv_bias, all, shape.hidden, arithmetic),
        matrix(of.out, of.out_bias, shape.hidden, width, arithmetic),
        matrix(of.gate_up, of.gate_up_bias, 2 * shape.intermediate, shape.hidden, arithmetic),
        matrix(of.down, of.down_bias, shape.hidden, shape.intermediate, arithmetic),
        pair_of(of.attention_base, of.attention_projection, shape, arithmetic),
        pair_of(of.mlp_base, of.mlp_projection, shape, arithmetic),
    };
}

void bind_layer(nb::module_& module) {
    using Vector = LayerTensors::Vector;
    using Base = std::optional<Input<3>>;
    using Projection = std::optional<Input<2>>;
    nb::class_<LayerTensors>(module, "Layer")
        .def(nb::init<Input<1>, Input<1>, Vector, Vector, Input<2>, Input<2>, Input<2>, Input<2>, Vector, Vector, Vector,
                      Vector, Base, Projection, Base, Projection>(),
             given("attention_norm"), given("mlp_norm"), given("query_norm").none(), given("key_norm").none(),
             given("qkv"), given("out"), given("gate_up"), given("down"), given("qkv_bias").none(),
             given("out_bias").none(), given("gate_up_bias").none(), given("down_bias").none(),
             given("attention_base").none(), given("attention_projection").none(), given("mlp_base").none(),
             given("mlp_projection").none());
}

}  // namespace paceline
