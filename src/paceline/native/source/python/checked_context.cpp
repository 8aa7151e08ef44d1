#include "checked_context.h"

#include <nanobind/stl/pair.h>

#include "context.h"
#include "instructions.h"

namespace paceline {

using namespace nb::literals;

namespace {

// Features of a sequence's next rows, part by part, its cache, and the rows that it holds.
using Unread = std::tuple<std::vector<Input<2>>, Output<5>, long>;

class CheckedContext {
  public:
    CheckedContext(std::shared_ptr<Pool> pool, const std::string& set, long layers, long kv_heads, float eps,
                   const Input<2>& fc, const std::optional<Input<1>>& fc_bias, const Input<1>& norm,
                   const Input<2>& key_value, const std::optional<Input<1>>& key_value_bias, const Input<2>& key_norms,
                   Input<2> cos, Input<2> sin, const ArithmeticTuple& arithmetic)
        : cos_(std::move(cos)), sin_(std::move(sin)) {
        const ContextShape shape{long(fc.shape(1)), long(norm.shape(0)), layers, kv_heads, long(key_norms.shape(1)), eps};
        demand(layers > 0 && kv_heads > 0 && shape.hidden > 0 && shape.inputs > 0, "A size is not positive.");
        demand(shape.dim > 0 && shape.dim % 2 == 0, "head_dim is not even.");
        demand(std::max({layers, kv_heads, shape.dim, shape.hidden, shape.inputs}) <= kMostSize &&
                   layers * kv_heads <= kMostSize && layers * kv_heads * shape.dim <= kMostSize,
               "A size is larger than a model has.");
        demand(long(key_norms.shape(0)) == layers, "key_norms is not [layers, head_dim].");
        demand(long(cos_.shape(1)) == shape.dim && long(sin_.shape(1)) == shape.dim && cos_.shape(0) == sin_.shape(0),
               "cos and sin are not both [places, head_dim].");
        values(cos_), values(sin_);
        const Arithmetic rounded = arithmetic_of(arithmetic);
        const ContextTensors tensors{
            matrix(fc, fc_bias, shape.hidden, shape.inputs, rounded),
            matrix(key_value, key_value_bias, layers * 2 * kv_heads * shape.dim, shape.hidden, rounded),
            vector(norm, shape.hidden), values(key_norms)};
        const nb::gil_scoped_release release;
        context_ = std::make_unique<Context>(kernels_for(set), std::move(pool), shape, tensors);
    }

    void extend(const std::vector<Unread>& unread) {
        std::vector<ContextRow> rows;
        for (const auto& [parts, cache, past] : unread) add(rows, parts, cache, past);
        const nb::gil_scoped_release release;
        context_->extend(rows, cos_.data(), sin_.data());
    }

    std::size_t bytes() const { return context_->bytes(); }

  private:
    void add(std::vector<ContextRow>& rows, const std::vector<Input<2>>& parts, const Output<5>& cache, long past) const {
        const ContextShape& shape = context_->shape();
        demand(long(cache.shape(0)) == shape.layers && cache.shape(1) == 2 && long(cache.shape(2)) == shape.kv_heads &&
                   long(cache.shape(4)) == shape.dim,
               "A cache is not [layers, 2, kv_heads, capacity, head_dim].");
        demand(past >= 0, "A cache holds less than no rows.");
        const long capacity = cache.shape(3), most = std::min<long>(capacity, cos_.shape(0));
        for (const Input<2>& part : parts) {
            demand(long(part.shape(1)) == shape.inputs, "Features are not [rows, inputs of fc].");
            demand(past <= most - long(part.shape(0)), "A cache, or cos and sin, have no room for its rows.");
            for (std::size_t row = 0; row < part.shape(0); ++row)
                rows.push_back({values(part) + row * shape.inputs, values(cache), capacity, past++});
        }
    }

    const Input<2> cos_, sin_;
    std::unique_ptr<Context> context_;
};

}  // namespace

void bind_context(nb::module_& module) {
    using Bias = std::optional<Input<1>>;
    nb::class_<CheckedContext>(module, "Context")
        .def(nb::init<std::shared_ptr<Pool>, const std::string&, long, long, float, const Input<2>&, const Bias&,
                      const Input<1>&, const Input<2>&, const Bias&, const Input<2>&, Input<2>, Input<2>,
                      const ArithmeticTuple&>(),
             "pool"_a, "instructions"_a, "layers"_a, "kv_heads"_a, "eps"_a, given("fc"), given("fc_bias").none(),
             given("norm"), given("key_value"), given("key_value_bias").none(), given("key_norms"), given("cos"),
             given("sin"), "arithmetic"_a)
        .def("extend", &CheckedContext::extend, given("unread"))
        .def_prop_ro("nbytes", &CheckedContext::bytes);
}

}  // namespace paceline
