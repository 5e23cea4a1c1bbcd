#include "steelyard/framework/ops/elementwise/rotary.h"

#include "steelyard/framework/autograd/shapes_only.h"
#include "steelyard/framework/ops/op_support.h"
#include "steelyard/kernels/rotary/rotary.h"

namespace steelyard {
namespace {

// Cosines and sines [rows, width / 2] of the angles of all positions, or, where these have starts,
// of each sample's.
struct Angles {
  Tensor cosines, sines;
};

Angles angles_of(const Tensor& x, const RotaryOptions& options) {
  const std::int64_t pairs = options.width / 2, length = x.dim(1);
  const Tensor &factors = options.factors, &starts = options.starts;
  const std::int64_t rows = starts.defined() ? starts.size() : length;
  Angles angles{Tensor::empty({rows, pairs}, x.dtype(), x.device()),
                Tensor::empty({rows, pairs}, x.dtype(), x.device())};
  visit_floating(x.dtype(), "rotary", [&](auto zero) {
    using T = decltype(zero);
    run(x.device(), kernels::RotaryAngles<T>{.n = rows * pairs,
                                             .pairs = pairs,
                                             .first = options.first,
                                             .length = length,
                                             .base = options.base,
                                             .factors = data_or_null<float>(factors),
                                             .starts = data_or_null<T>(starts),
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
                                       .length = angles.cosines.dim(0),
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
  if (options.first < 0) {
    ops::fail("rotary", "a first position of at least 0", std::to_string(options.first));
  }
  const Tensor &input = x.value(), &starts = options.starts;
  if (starts.defined() && (starts.dtype() != x.dtype() || options.first != 0 ||
                           starts.shape() != Shape{x.dim(0), x.dim(1)})) {
    ops::fail("rotary",
              "starts " + std::string(dtype_name(x.dtype())) + " " +
                  shape_string({x.dim(0), x.dim(1)}) + " and a first position of 0",
              std::string(dtype_name(starts.dtype())) + " " + shape_string(starts.shape()) +
                  " and " + std::to_string(options.first));
  }
  if (shapes_only()) return Variable(Tensor::zeros(x.shape(), x.dtype(), input.device()));
  Angles angles = angles_of(input, options);
  Tensor y = rotated(input, angles, options.pairs, 1);
  if (!should_record({x})) return Variable(y);
  return record(y, std::make_shared<RotaryFunction>(options.pairs, std::move(angles)), {x});
}

Tensor document_starts(const Tensor& tokens, std::int64_t border) {
  ops::require_defined("document_starts", "tokens", tokens);
  if (tokens.rank() != 2) {
    ops::fail("document_starts", "tokens [samples, length]", shape_string(tokens.shape()));
  }
  if (shapes_only()) return Tensor::zeros(tokens.shape(), tokens.dtype(), tokens.device());
  const Tensor starts = Tensor::empty(tokens.shape(), tokens.dtype(), tokens.device());
  visit_floating(tokens.dtype(), "document_starts", [&](auto zero) {
    using T = decltype(zero);
    run(tokens.device(), kernels::DocumentStarts<T>{.n = tokens.size(),
                                                    .length = tokens.dim(1),
                                                    .border = static_cast<T>(border),
                                                    .tokens = tokens.data<T>(),
                                                    .starts = starts.data<T>()});
  });
  return starts;
}

}  // namespace steelyard
