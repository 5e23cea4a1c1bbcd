#include "framework/ops/dropout.h"

#include "framework/ops/op_support.h"

namespace steelyard {
namespace {

// Eight elements, one byte of mask, two blocks of four random words.
constexpr std::int64_t kGroup = 8;

std::int64_t mask_bytes(std::int64_t n) { return (n + kGroup - 1) / kGroup; }

std::uint8_t keep_bits(const Rng& rng, std::uint64_t first_block, double p) {
  unsigned bits = 0;
  for (unsigned half = 0; half < 2; ++half) {
    const auto words = rng.block(first_block + half);
    for (unsigned i = 0; i < 4; ++i) {
      const double uniform = (words[i] >> 8) * 0x1.0p-24;
      if (uniform >= p) bits |= 1u << (4 * half + i);
    }
  }
  return static_cast<std::uint8_t>(bits);
}

class DropoutFunction : public Function {
 public:
  DropoutFunction(double p, Tensor mask) : p_(p) { save(std::move(mask)); }

  std::string name() const override { return "dropout"; }
  Attributes attributes() const override { return {{"p", ops::number_text(p_)}}; }

  std::vector<Tensor> backward(const Tensor& grad_output) const override {
    return {apply_dropout(grad_output, saved()[0], p_)};
  }

 private:
  double p_;
};

}  // namespace

Tensor dropout_mask(std::int64_t n, double p, Rng& rng) {
  const std::int64_t bytes = mask_bytes(n);
  Tensor mask = Tensor::empty({bytes}, DType::kU8);
  std::uint8_t* out = mask.data<std::uint8_t>();
  const std::uint64_t first = rng.skip_blocks(2 * static_cast<std::uint64_t>(bytes));
  const Rng& source = rng;
#pragma omp parallel for
  for (std::int64_t i = 0; i < bytes; ++i) {
    out[i] = keep_bits(source, first + 2 * static_cast<std::uint64_t>(i), p);
  }
  return mask;
}

// The same map serves values and gradients.
Tensor apply_dropout(const Tensor& x, const Tensor& mask, double p) {
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  const std::uint8_t* bits = mask.data<std::uint8_t>();
  visit_floating(x.dtype(), "dropout", [&](auto zero) {
    using T = decltype(zero);
    const T factor = static_cast<T>(1.0 / (1.0 - p));
    const T* in = x.data<T>();
    T* out = y.data<T>();
#pragma omp parallel for
    for (std::int64_t i = 0; i < x.size(); ++i) {
      out[i] = (bits[i / kGroup] >> (i % kGroup) & 1) != 0 ? in[i] * factor : T{0};
    }
  });
  return y;
}

Variable dropout(const Variable& x, double p, Rng& rng) {
  ops::require_defined("dropout", "a tensor", x);
  if (!(p >= 0.0 && p < 1.0)) ops::fail("dropout", "p in [0, 1)", ops::number_text(p));
  if (p == 0.0) return x;
  const Tensor mask = dropout_mask(x.value().size(), p, rng);
  Tensor y = apply_dropout(x.value(), mask, p);
  if (!should_record({x})) return Variable(y);
  return record(y, std::make_shared<DropoutFunction>(p, mask), {x});
}

}  // namespace steelyard
