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

std::int64_t mask_bytes(std::int64_t elements) { return (elements + kGroup - 1) / kGroup; }

Tensor mask_of(std::int64_t n, double p, Rng& rng, Device device) {
  const std::int64_t bytes = mask_bytes(n);
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

}  // namespace

Tensor dropout_mask(const Shape& shape, const DropoutOptions& options, Rng& rng, Device device) {
  require_probability(options.p);
  const std::int64_t elements = shape_size(shape);
  if (options.unit == DropoutUnit::kElement) return mask_of(elements, options.p, rng, device);
  if (shape.size() < 2 || elements == 0) {
    ops::fail("dropout", "two dimensions or more, none of 0, for units of many elements",
              shape_string(shape));
  }
  const bool of_channels = options.unit == DropoutUnit::kChannel;
  const std::int64_t samples = shape[0], channels = of_channels ? shape.back() : 1;
  const Tensor units = mask_of(samples * channels, options.p, rng, device);
  Tensor mask = Tensor::empty({mask_bytes(elements)}, DType::kU8, device);
  run(device, kernels::SpreadMask{.n = mask.size(),
                                  .elements = elements,
                                  .block = elements / samples,
                                  .channels = channels,
                                  .units = units.data<std::uint8_t>(),
                                  .mask = mask.data<std::uint8_t>()});
  return mask;
}

// Applies a mask to values or to gradients: the map is the same.
Tensor apply_dropout(const Tensor& x, const Tensor& mask, double p) {
  ops::require_defined("dropout", "a tensor", x);
  ops::require_defined("dropout", "a mask", mask);
  require_probability(p);
  const std::int64_t bytes = mask_bytes(x.size());
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

Variable dropout(const Variable& x, const DropoutOptions& options, Rng& rng) {
  ops::require_defined("dropout", "a tensor", x);
  if (options.p == 0.0) return x;
  const Tensor mask = dropout_mask(x.shape(), options, rng, x.value().device());
  Tensor y = apply_dropout(x.value(), mask, options.p);
  if (!should_record({x})) return Variable(y);
  return record(y, std::make_shared<DropoutFunction>(options.p, mask), {x});
}

}  // namespace steelyard
