#include "steelyard/framework/ops/elementwise/dropout.h"

#include "steelyard/framework/ops/op_support.h"
#include "steelyard/kernels/dropout/dropout.h"

namespace steelyard {
namespace {

constexpr std::int64_t kGroup = 8;  // elements of a byte of mask, words of two blocks

class DropoutFunction : public Function {
 public:
  DropoutFunction(double p, Tensor mask) : p_(p) { save(std::move(mask)); }

  std::string name() const override { return "dropout"; }

  std::vector<Tensor> backward(const Tensor& grad_output) const override {
    return {apply_dropout(grad_output, saved()[0], p_)};
  }

 private:
  double p_;
};

void require_probability(double p) {
  if (!(p >= 0.0 && p < 1.0)) ops::fail("dropout", "p in [0, 1)", ops::number_text(p));
}

}  // namespace

Tensor dropout_mask(std::int64_t n, double p, Rng& rng, Device device) {
  require_probability(p);
  if (n < 0) ops::fail("dropout", "0 elements or more", std::to_string(n));
  const std::int64_t bytes = (n + kGroup - 1) / kGroup;
  Tensor mask = Tensor::empty({bytes}, DType::kU8, device);
  const Rng::Blocks blocks = rng.take_blocks(2 * static_cast<std::uint64_t>(bytes), device);
  const kernels::MaskSource source{blocks.seed, blocks.stream, blocks.first};
  run(device, kernels::DropoutMask{.n = bytes,
                                   .p = p,
                                   .source = source,
                                   .step = blocks.step,
                                   .mask = mask.data<std::uint8_t>()});
  return mask;
}

// Applies a mask to values or to gradients: the map is the same.
Tensor apply_dropout(const Tensor& x, const Tensor& mask, double p) {
  ops::require_defined("dropout", "a tensor", x);
  ops::require_defined("dropout", "a mask", mask);
  require_probability(p);
  const std::int64_t bytes = (x.size() + kGroup - 1) / kGroup;
  if (mask.dtype() != DType::kU8 || mask.size() != bytes) {
    ops::fail("dropout", "a mask of " + std::to_string(bytes) + " bytes",
              shape_string(mask.shape()) + " of " + std::string(dtype_name(mask.dtype())));
  }
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  visit_floating(x.dtype(), "dropout", [&](auto zero) {
    using T = decltype(zero);
    run(x.device(), kernels::ApplyDropout<T>{.n = x.size(),
                                             .mask = mask.data<std::uint8_t>(),
                                             .factor = static_cast<T>(1.0 / (1.0 - p)),
                                             .x = x.data<T>(),
                                             .y = y.data<T>()});
  });
  return y;
}

Variable dropout(const Variable& x, double p, Rng& rng) {
  ops::require_defined("dropout", "a tensor", x);
  if (p == 0.0) return x;
  const Tensor mask = dropout_mask(x.value().size(), p, rng, x.value().device());
  Tensor y = apply_dropout(x.value(), mask, p);
  if (!should_record({x})) return Variable(y);
  return record(y, std::make_shared<DropoutFunction>(p, mask), {x});
}

}  // namespace steelyard
