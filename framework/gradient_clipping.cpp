#include "framework/gradient_clipping.h"

#include <cmath>
#include <stdexcept>

#include "kernels/elementwise.h"

namespace steelyard {
namespace {

constexpr double kNormGuard = 1e-6;  // PyTorch's, against a zero norm

double sum_of_squares(const Tensor& grad) {
  return visit_floating(grad.dtype(), "clip_grad_norm", [&](auto zero) {
    using T = decltype(zero);
    return kernels::sum_of_squares<T>(grad.size(), grad.data<T>());
  });
}

void scale_in_place(const Tensor& grad, double factor) {
  visit_floating(grad.dtype(), "clip_grad_norm", [&](auto zero) {
    using T = decltype(zero);
    kernels::scale<T>(grad.size(), grad.data<T>(), static_cast<T>(factor), grad.data<T>());
  });
}

bool all_finite(const Tensor& grad) {
  return visit_floating(grad.dtype(), "first_non_finite_gradient", [&](auto zero) {
    using T = decltype(zero);
    return kernels::count_non_finite<T>(grad.size(), grad.data<T>()) == 0;
  });
}

}  // namespace

double clip_grad_norm(const std::vector<NamedParameter>& parameters, double max_norm) {
  if (!(max_norm > 0.0)) {
    throw std::invalid_argument("[clip_grad_norm] expected max_norm above 0, got " +
                                std::to_string(max_norm));
  }
  double sum = 0.0;
  for (const NamedParameter& p : parameters) {
    if (p.variable.grad().defined()) sum += sum_of_squares(p.variable.grad());
  }
  const double norm = std::sqrt(sum);
  const double factor = max_norm / (norm + kNormGuard);
  if (!std::isfinite(norm) || factor >= 1.0) return norm;
  for (const NamedParameter& p : parameters) {
    if (p.variable.grad().defined()) scale_in_place(p.variable.grad(), factor);
  }
  return norm;
}

std::optional<std::string> first_non_finite_gradient(
    const std::vector<NamedParameter>& parameters) {
  for (const NamedParameter& p : parameters) {
    if (p.variable.grad().defined() && !all_finite(p.variable.grad())) return p.name;
  }
  return std::nullopt;
}

}  // namespace steelyard
