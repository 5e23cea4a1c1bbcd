#include "steelyard/framework/train/gradient_clipping.h"

#include <stdexcept>

#include "steelyard/framework/tensor/on_device.h"
#include "steelyard/kernels/elementwise/elementwise.h"
#include "steelyard/kernels/optimizer_step/optimizer_step.h"

namespace steelyard {
namespace {

template <typename T>
std::vector<kernels::ValueTensor<T>> gradients_of(const std::vector<NamedParameter>& parameters) {
  std::vector<kernels::ValueTensor<T>> gradients;
  for (const NamedParameter& p : parameters) {
    const Tensor& grad = p.variable.grad();
    if (!grad.defined() || grad.dtype() != DTypeOf<T>::value) continue;
    gradients.push_back({grad.size(), grad.data<T>()});
  }
  return gradients;
}

void require_gradient_dtype(const NamedParameter& p) {
  const Tensor& grad = p.variable.grad();
  if (!grad.defined() || grad.dtype() == DType::kF32 || grad.dtype() == DType::kF64) return;
  throw std::invalid_argument("[clip_grad_norm] expected a gradient f32 or f64 of '" + p.name +
                              "', got " + std::string(dtype_name(grad.dtype())));
}

Device device_of_gradients(const std::vector<NamedParameter>& parameters) {
  for (const NamedParameter& p : parameters) {
    if (p.variable.grad().defined()) return p.variable.grad().device();
  }
  return {};
}

}  // namespace

Tensor clip_grad_norm(const std::vector<NamedParameter>& parameters, double max_norm) {
  if (!(max_norm > 0.0)) {
    throw std::invalid_argument("[clip_grad_norm] expected max_norm above 0, got " +
                                std::to_string(max_norm));
  }
  const std::vector<NamedParameter> each = distinct(parameters);
  for (const NamedParameter& p : each) require_gradient_dtype(p);
  const Device device = device_of_gradients(each);
  const auto floats = gradients_of<float>(each);
  const auto doubles = gradients_of<double>(each);
  const Tensor sums = Tensor::empty({2}, DType::kF64, device);
  const Tensor factor = Tensor::empty(Shape{}, DType::kF64, device);
  Tensor norm = Tensor::empty(Shape{}, DType::kF64, device);
  double* sum = sums.data<double>();
  const double* by = factor.data<double>();
  run(device, kernels::SumOfSquares<float>{.tensors = floats, .sum = sum});
  run(device, kernels::SumOfSquares<double>{.tensors = doubles, .sum = sum + 1});
  run(device, kernels::ClipFactor{.count = 2,
                                  .sums = sum,
                                  .max_norm = max_norm,
                                  .norm = norm.data<double>(),
                                  .factor = factor.data<double>()});
  run(device, kernels::ScaleAll<float>{.tensors = floats, .factor = by});
  run(device, kernels::ScaleAll<double>{.tensors = doubles, .factor = by});
  return norm;
}

bool has_non_finite(const Tensor& tensor) {
  if (!tensor.defined() || !is_floating(tensor.dtype())) return false;
  const Tensor count = Tensor::empty(Shape{}, DType::kI64, tensor.device());
  visit_floating(tensor.dtype(), "finite", [&](auto zero) {
    using T = decltype(zero);
    run(tensor.device(),
        kernels::CountNonFinite<T>{
            .n = tensor.size(), .x = tensor.data<T>(), .count = count.data<std::int64_t>()});
  });
  return count.item() > 0;
}

std::optional<std::string> first_non_finite_gradient(
    const std::vector<NamedParameter>& parameters) {
  for (const NamedParameter& p : parameters) {
    if (has_non_finite(p.variable.grad())) return p.name;
  }
  return std::nullopt;
}

}  // namespace steelyard
