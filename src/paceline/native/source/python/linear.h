// One product, as Python sees it.
#pragma once

#include "arrays.h"

namespace paceline {

class Linear {
  public:
    Linear(std::shared_ptr<Pool> pool, const std::string& set, const Input<2>& weight,
           const std::optional<Input<1>>& bias, const ArithmeticTuple& arithmetic);

    void multiply(const Input<2>& x, const Output<2>& y) const;

    const Pool* pool() const { return pool_.get(); }
    const Weights& weights() const { return *weights_; }
    long depth() const { return depth_; }
    long columns() const { return weights_->columns(0); }

    static void bind(nb::module_& module);

  private:
    std::shared_ptr<Pool> pool_;
    long depth_;
    std::unique_ptr<Weights> weights_;
};

}  // namespace paceline
