#include "steelyard/qat/quantizers/soft_rounding.h"

#include <algorithm>
#include <cmath>

#include "steelyard/framework/ops/elementwise/activations.h"
#include "steelyard/framework/ops/elementwise/arithmetic.h"
#include "steelyard/framework/ops/elementwise/relu.h"
#include "steelyard/framework/ops/elementwise/unary.h"
#include "steelyard/kernels/affine.h"

namespace steelyard::qat {
namespace {

// The rectified sigmoid reaches beyond [0, 1] by as much (zeta = 1.1, gamma = -0.1 in the paper).
constexpr double kStretch = 0.1;

// Where the rectified sigmoid is `part`, a number in [0, 1].
double inverse(double part) {
  const double sigmoid = (part + kStretch) / (1 + 2 * kStretch);
  return std::log(sigmoid / (1 - sigmoid));
}

}  // namespace

SoftRounding::SoftRounding(const Tensor& weight, const WeightCodes& nearest,
                           kernels::CodeRange range) {
  const Device device = weight.device();
  const Tensor host = weight.to(Device{});
  scale_ = nearest.qparams.scale.to(Device{});
  zero_point_ = nearest.qparams.zero_point.defined() ? nearest.qparams.zero_point.to(Device{})
                                                     : Tensor::zeros({scale_.size()}, DType::kI32);
  below_ = Tensor::empty(weight.shape(), DType::kI8);
  above_ = Tensor::empty(weight.shape(), DType::kI8);
  const Tensor start = Tensor::empty(weight.shape());
  const std::int64_t share = std::max<std::int64_t>(1, weight.size() / scale_.size());
  for (std::int64_t i = 0; i < weight.size(); ++i) {
    const std::int32_t zero_point = zero_point_.data<std::int32_t>()[i / share];
    const float steps = host.data<float>()[i] / scale_.data<float>()[i / share];
    const float floor = std::floor(steps);
    const auto code = [&](float of) {
      return static_cast<std::int8_t>(std::clamp(of + static_cast<float>(zero_point),
                                                 static_cast<float>(range.qmin),
                                                 static_cast<float>(range.qmax)));
    };
    below_.data<std::int8_t>()[i] = code(floor);
    above_.data<std::int8_t>()[i] = code(floor + 1);
    start.data<float>()[i] = static_cast<float>(inverse(double{steps} - double{floor}));
  }
  variable_ = Variable(start.to(device), /*requires_grad=*/true);
  const Tensor base = values(below_), step = values(above_);
  for (std::int64_t i = 0; i < step.size(); ++i) step.data<float>()[i] -= base.data<float>()[i];
  base_ = Variable(base.to(device));
  step_ = Variable(step.to(device));
}

Variable SoftRounding::rounding() const {
  return clamp(affine(sigmoid(variable_), 1 + 2 * kStretch, -kStretch), 0, 1);
}

Variable SoftRounding::weight() const { return base_ + step_ * rounding(); }

Variable SoftRounding::regularizer(double beta) const {
  const Variable whole = pow(abs(affine(rounding(), 2, -1)), beta);
  return static_cast<double>(variable_.value().size()) - sum(whole);
}

Tensor SoftRounding::codes() const {
  const NoGradGuard no_grad;
  const Tensor part = rounding().value().to(Device{});
  Tensor chosen = below_.clone();
  for (std::int64_t i = 0; i < part.size(); ++i) {
    if (part.data<float>()[i] >= 0.5F)
      chosen.data<std::int8_t>()[i] = above_.data<std::int8_t>()[i];
  }
  return chosen;
}

Tensor SoftRounding::values(const Tensor& codes) const {
  Tensor real = Tensor::empty(codes.shape());
  const std::int64_t share = std::max<std::int64_t>(1, codes.size() / scale_.size());
  for (std::int64_t i = 0; i < codes.size(); ++i) {
    real.data<float>()[i] =
        kernels::dequantize_code(static_cast<float>(codes.data<std::int8_t>()[i]),
                                 static_cast<float>(zero_point_.data<std::int32_t>()[i / share]),
                                 scale_.data<float>()[i / share]);
  }
  return real;
}

}  // namespace steelyard::qat
