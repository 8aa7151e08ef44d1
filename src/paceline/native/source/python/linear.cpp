#include "linear.h"

#include "instructions.h"

namespace paceline {

using namespace nb::literals;

Linear::Linear(std::shared_ptr<Pool> pool, const std::string& set, const Input<2>& weight,
               const std::optional<Input<1>>& bias, const ArithmeticTuple& arithmetic)
    : pool_(std::move(pool)), depth_(weight.shape(1)) {
    const std::vector matrices{matrix(weight, bias, weight.shape(0), depth_, arithmetic_of(arithmetic))};
    const nb::gil_scoped_release release;
    weights_ = std::make_unique<Weights>(kernels_for(set), *pool_, matrices, 1);
    weights_->add(matrices);
}

void Linear::multiply(const Input<2>& x, const Output<2>& y) const {
    const long rows = x.shape(0);
    demand(long(x.shape(1)) == depth_, "x does not have as many columns as the weight.");
    demand(long(y.shape(0)) == rows && long(y.shape(1)) == columns(), "y is not [rows of x, outputs].");
    const Rows from{const_cast<float*>(values(x)), depth_, rows}, to{values(y), columns(), rows};
    const nb::gil_scoped_release release;
    pool_->run(Pool::turn(), [&](int thread) { weights_->multiply(0, thread, from, to, columns(), false); });
}

void Linear::bind(nb::module_& module) {
    nb::class_<Linear>(module, "Linear")
        .def(nb::init<std::shared_ptr<Pool>, const std::string&, const Input<2>&, const std::optional<Input<1>>&,
                      const ArithmeticTuple&>(),
             "pool"_a, "instructions"_a, given("weight"), given("bias").none(), "arithmetic"_a)
        .def("multiply", &Linear::multiply, given("x"), given("y"))
        .def_prop_ro("nbytes", [](const Linear& self) { return self.weights_->bytes(); });
}

}  // namespace paceline
