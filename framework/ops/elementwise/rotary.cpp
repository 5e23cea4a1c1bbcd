#include "steelyard/framework/ops/elementwise/rotary.h"

#include "steelyard/framework/autograd/shapes_only.h"
#include "steelyard/framework/ops/op_support.h"
#include "steelyard/kernels/rotary/rotary.h"

namespace steelyard {
namespace {

// Cosines and sines [length, width / 2] of the angles of all positions.
struct Angles {
  Tensor cosines, sines;
};

Angles angles_of(std::int64_t length, const RotaryOptions& options, DType dtype, Device device) {
  const std::int64_t pairs = options.width / 2;
  Angles angles{Tensor::empty({length, pairs}, dtype, device),
                Tensor::empty({length, pairs}, dtype, device)};
  visit_floating(dtype, "rotary", [&](auto zero) {
    using T = decltype(zero);
    const Tensor& factors = options.factors;
    run(device,
        kernels::RotaryAngles<T>{.n = length * pairs,
                                 .pairs = pairs,
                                 .base = options.base,
                                 .factors = factors.defined() ? factors.data<float>() : nullptr,
                                 .cosines = angles.cosines.data<T>(),
                                 .sines = angles.sines.data<T>()});
  });
  return angles;
}

Tensor rotated(const Tensor& x, const Angles& angles, RotaryPairs pairing, int direction) {
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  const std::int64_t pairs = angles.cosines.dim(1);
  visit_floating(x.dtype(), "rotary", [&](auto zero) {
    using T = decltype(zero);
    run(x.device(), kernels::Rotate<T>{.n = x.size() / 2,
                                       .length = x.dim(1),
                                       .heads = x.dim(2) / (2 * pairs),
                                       .pairs = pairs,
                                       .halves = pairing == RotaryPairs::kHalves,
                                       .x = x.data<T>(),
                                       .cosines = angles.cosines.data<T>(),
                                       .sines = angles.sines.data<T>(),
                                       .direction = static_cast<T>(direction),
                                       .y = y.data<T>()});
  });
  return y;
}

class RotaryFunction : public Function {
 public:
  RotaryFunction(RotaryPairs pairing, Angles angles) : pairing_(pairing) {
    save(std::move(angles.cosines));
    save(std::move(angles.sines));
  }

  std::string name() const override { return "rotary"; }

  std::vector<Tensor> backward(const Tensor& grad_output) const override {
    return {rotated(grad_output, {saved()[0], saved()[1]}, pairing_, -1)};
  }

 private:
  RotaryPairs pairing_;
};

}  // namespace

Variable rotary(const Variable& x, const RotaryOptions& options) {
  ops::require_defined("rotary", "an input", x);
  const std::int64_t width = options.width;
  if (width < 2 || width % 2 != 0) {
    ops::fail("rotary", "heads of an even width of at least 2", std::to_string(width));
  }
  if (x.shape().size() != 3 || x.dim(2) % width != 0) {
    ops::fail("rotary", "input [samples, length, heads * " + std::to_string(width) + "]",
              shape_string(x.shape()));
  }
  if (!(options.base > 0)) ops::fail("rotary", "a base above 0", ops::number_text(options.base));
  const Tensor& factors = options.factors;
  if (factors.defined() &&
      (factors.dtype() != DType::kF32 || factors.shape() != Shape{width / 2})) {
    ops::fail("rotary", "factors f32 [" + std::to_string(width / 2) + "]",
              std::string(dtype_name(factors.dtype())) + " " + shape_string(factors.shape()));
  }
  const Tensor& input = x.value();
  if (shapes_only()) return Variable(Tensor::zeros(x.shape(), x.dtype(), input.device()));
  Angles angles = angles_of(x.dim(1), options, x.dtype(), input.device());
  Tensor y = rotated(input, angles, options.pairs, 1);
  if (!should_record({x})) return Variable(y);
  return record(y, std::make_shared<RotaryFunction>(options.pairs, std::move(angles)), {x});
}

}  // namespace steelyard
