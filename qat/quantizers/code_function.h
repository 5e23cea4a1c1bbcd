// Recorded operations on codes.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "steelyard/framework/autograd/autograd.h"
#include "steelyard/framework/ops/reductions/reduced_axes.h"
#include "steelyard/framework/tensor/describes.h"
#include "steelyard/qat/quantizers/quantized_value.h"

namespace steelyard::qat {

// A recorded operation on codes: its gradient is a function of the saved tensors alone.
class CodeFunction : public Function {
 public:
  // grad of the output, the input's shape, saved tensors -> grad of each input.
  using Gradient = std::function<Tensor(const Tensor&, const Shape&, const std::vector<Tensor>&)>;

  // takes_bf16: `gradient` takes gradients in bf16, too.
  CodeFunction(std::string name, Gradient gradient, std::vector<Tensor> saved_tensors,
               bool takes_bf16 = false)
      : name_(std::move(name)), gradient_(std::move(gradient)), takes_bf16_(takes_bf16) {
    for (Tensor& tensor : saved_tensors) save(std::move(tensor));
  }
  std::string name() const override { return name_; }
  bool takes_bf16_gradients() const override { return takes_bf16_; }

  std::vector<Tensor> backward(const Tensor& grad_output) const override {
    // Every input of these operations has the same gradient, but for what repeats: one input, or
    // the two of a sum.
    const Tensor grad = gradient_(grad_output, inputs()[0]->shape, saved());
    std::vector<Tensor> grads;
    for (const auto& input : inputs()) {
      grads.push_back(ops::summed_to(name_.c_str(), grad, input->shape));
    }
    return grads;
  }

 private:
  std::string name_;
  Gradient gradient_;
  bool takes_bf16_;
};

// One with a description of its operation, for exports.
template <typename T>
class DescribedCodeFunction : public CodeFunction, public Describes<T> {
 public:
  DescribedCodeFunction(std::string name, T what, Gradient gradient,
                        std::vector<Tensor> saved_tensors, bool takes_bf16 = false)
      : CodeFunction(std::move(name), std::move(gradient), std::move(saved_tensors), takes_bf16),
        what_(std::move(what)) {}
  T described() const override { return what_; }

 private:
  T what_;
};

// Codes of another shape with the parameters of `x`.
inline QuantizedValue with_codes(const QuantizedValue& x, Tensor codes) {
  return {
      .codes = std::move(codes), .qparams = x.qparams, .range = x.range, .rounding = x.rounding};
}

}  // namespace steelyard::qat
