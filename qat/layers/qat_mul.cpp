#include "steelyard/qat/layers/qat_mul.h"

#include "steelyard/framework/ops/elementwise/arithmetic.h"
#include "steelyard/framework/ops/moves/permute.h"
#include "steelyard/framework/ops/moves/slice.h"
#include "steelyard/framework/ops/moves/strided.h"
#include "steelyard/framework/ops/products/matmul.h"
#include "steelyard/framework/ops/reductions/reduced_axes.h"
#include "steelyard/framework/tensor/on_device.h"
#include "steelyard/kernels/fake_quantize/fake_quantize.h"
#include "steelyard/kernels/fixed_codes/fixed_codes.h"
#include "steelyard/layers/arithmetic.h"
#include "steelyard/qat/quantizers/codes_of.h"
#include "steelyard/qat/quantizers/straight_through.h"

namespace steelyard::qat {
namespace {

constexpr const char* kName = "quantized_mul";

// In units of `scale`, or real values where that is undefined.
Tensor product(const QuantizedValue& a, const QuantizedValue& b, const Tensor& scale) {
  const Shape shape = ops::broadcast_shape(kName, a.codes.shape(), b.codes.shape());
  Tensor y = Tensor::empty(shape, DType::kF32, a.codes.device());
  visit_codes(a.codes.dtype(), [&](auto* tag_a) {
    visit_codes(b.codes.dtype(), [&](auto* tag_b) {
      using A = CodeOf<decltype(tag_a)>;
      using B = CodeOf<decltype(tag_b)>;
      run(y.device(),
          kernels::MultiplyCodes<A, B>{.n = y.size(),
                                       .a = codes_of<A>(a),
                                       .at_a = ops::broadcast_index(kName, a.codes.shape(), shape),
                                       .b = codes_of<B>(b),
                                       .at_b = ops::broadcast_index(kName, b.codes.shape(), shape),
                                       .scale = data_or_null<float>(scale),
                                       .y = y.data<float>()});
    });
  });
  return y;
}

// The unclamped codes of a product in fixed point.
Tensor fixed_product(const QuantizedValue& a, const QuantizedValue& b, const QuantizedValue& y) {
  const Shape& shape = y.codes.shape();
  Tensor codes = Tensor::empty(shape, DType::kF32, y.codes.device());
  run(codes.device(),
      kernels::FixedMultiplyCodes{.n = codes.size(),
                                  .rounding = y.rounding,
                                  .a = codes_of<std::int8_t>(a),
                                  .at_a = ops::broadcast_index(kName, a.codes.shape(), shape),
                                  .b = codes_of<std::int8_t>(b),
                                  .at_b = ops::broadcast_index(kName, b.codes.shape(), shape),
                                  .scale = y.qparams.scale.data<float>(),
                                  .zero_point = y.qparams.zero_point.data<std::int32_t>(),
                                  .y = codes.data<float>()});
  return codes;
}

// Fills y's codes; the product is in units of its scale already.
void round_product(const Tensor& units, const Tensor& zero_point, const QuantizedValue& y,
                   const Tensor& mask) {
  const Tensor one = Tensor::full({1}, 1, DType::kF32, units.device());
  visit_codes(y.codes.dtype(), [&](auto* tag) {
    using Code = CodeOf<decltype(tag)>;
    run(units.device(), kernels::Quantize<float, Code>{
                            .layout = kernels::ChannelLayout::per_tensor(units.size()),
                            .range = y.range,
                            .x = units.data<float>(),
                            .scale = one.data<float>(),
                            .zero_point = zero_point.data<std::int32_t>(),
                            .codes = y.codes.data<Code>(),
                            .mask = mask.defined() ? mask.data<std::uint8_t>() : nullptr});
  });
}

// Fills y's codes with a product in units of its scale, rounded as QLinearMul does: with the zero
// point added as float before, that of the unsigned byte (docs/numerics.md).
void round_element_product(const Tensor& units, const QuantizedValue& y, const Tensor& mask) {
  const NoGradGuard no_grad;
  const std::int32_t shift = y.codes.dtype() == DType::kI8 ? 128 : 0;
  const Variable zero_point = Variable(y.qparams.zero_point.to(DType::kF32)) + shift;
  const Tensor left = Tensor::full({1}, -shift, DType::kI32, units.device());
  round_product((Variable(units) + zero_point).value(), left, y, mask);
}

// The gradient of an operand of `shape`: grad_output times the other, summed over what repeats.
Tensor gradient(const Tensor& grad_output, const QuantizedValue& other, const Shape& shape) {
  const NoGradGuard no_grad;
  const Variable grad = multiply(Variable(grad_output), Variable(dequantized(other)));
  return ops::summed_to(kName, grad.value(), shape);
}

class MultiplyCodesFunction : public Function {
 public:
  MultiplyCodesFunction(std::shared_ptr<const QuantizedValue> a,
                        std::shared_ptr<const QuantizedValue> b, Tensor mask)
      : a_(std::move(a)), b_(std::move(b)) {
    save(a_->codes);
    save(b_->codes);
    save(std::move(mask));
  }
  std::string name() const override { return kName; }

  std::vector<Tensor> backward(const Tensor& grad_output) const override {
    const Tensor passed = masked_gradient(grad_output, saved()[2]);
    std::vector<Tensor> grads(2);
    if (needs_grad(0)) grads[0] = gradient(passed, *b_, a_->codes.shape());
    if (needs_grad(1)) grads[1] = gradient(passed, *a_, b_->codes.shape());
    return grads;
  }

 private:
  std::shared_ptr<const QuantizedValue> a_, b_;
};

// --- of matrices

constexpr const char* kMatrices = "quantized_matmul";

// float(code - zero point).
Variable centred(const QuantizedValue& x) {
  QuantizedValue in_codes = x;
  in_codes.qparams.scale = Tensor::full({1}, 1, DType::kF32, x.codes.device());
  return Variable(dequantized(in_codes));
}

// Positions [first, first + count) of a dimension, counted from the end.
Variable some_of(const Variable& x, std::size_t from_end, std::int64_t first, std::int64_t count) {
  std::vector<TakenAxis> axes;
  for (const std::int64_t extent : x.shape()) axes.push_back({0, extent, 1});
  axes[axes.size() - from_end] = {first, count, 1};
  return slice(x, axes);
}

// The exact integer sums, rounded to f32: products of floats are exact in parts of so many terms.
Tensor sums_of_codes(const QuantizedValue& a, const QuantizedValue& b) {
  constexpr std::int64_t kLargest = 255 * 255, kExact = std::int64_t{1} << 24;
  constexpr std::int64_t kTerms = kExact / kLargest;
  const NoGradGuard no_grad;
  const Variable left = centred(a), right = centred(b);
  const std::int64_t terms = left.dim(-1);
  if (terms > INT32_MAX / kLargest) {
    throw std::invalid_argument(std::string("[") + kMatrices + "] expected sums of at most " +
                                std::to_string(INT32_MAX / kLargest) +
                                " products, so that they fit int32, got " + std::to_string(terms));
  }
  if (terms <= kTerms) return matmul(left, right).value();
  Variable sums;
  for (std::int64_t first = 0; first < terms; first += kTerms) {
    const std::int64_t count = std::min(kTerms, terms - first);
    const Variable part(matmul(some_of(left, 1, first, count), some_of(right, 2, first, count))
                            .value()
                            .to(DType::kF64));
    sums = sums.defined() ? sums + part : part;
  }
  return sums.value().to(DType::kF32);
}

// The sums in units of `scale`, or as real values where that is undefined.
Tensor scaled_sums(const Tensor& sums, const QuantizedValue& a, const QuantizedValue& b,
                   const Tensor& scale) {
  const NoGradGuard no_grad;
  Variable factor = Variable(a.qparams.scale) * Variable(b.qparams.scale);
  if (scale.defined()) factor = factor / Variable(scale);
  return (Variable(sums) * factor).value();
}

class MultiplyMatricesFunction : public Function {
 public:
  MultiplyMatricesFunction(std::shared_ptr<const QuantizedValue> a,
                           std::shared_ptr<const QuantizedValue> b, Tensor mask)
      : a_(std::move(a)), b_(std::move(b)) {
    save(a_->codes);
    save(b_->codes);
    save(std::move(mask));
  }
  std::string name() const override { return kMatrices; }

  std::vector<Tensor> backward(const Tensor& grad_output) const override {
    const NoGradGuard no_grad;
    const Variable passed(masked_gradient(grad_output, saved()[2]));
    const auto turned = [](const QuantizedValue& x) {
      return transpose(Variable(dequantized(x)), -2, -1);
    };
    std::vector<Tensor> grads(2);
    if (needs_grad(0)) grads[0] = matmul(passed, turned(*b_)).value();
    if (needs_grad(1)) grads[1] = matmul(turned(*a_), passed).value();
    return grads;
  }

 private:
  std::shared_ptr<const QuantizedValue> a_, b_;
};

// Codes of 8 bits or fewer with one scale.
bool has_bytes(const Variable& x) {
  const auto codes = quantized(x);
  return codes != nullptr && !codes->wide() && !codes->dynamic;
}

}  // namespace

Variable multiply_matrices(const Variable& a, const Variable& b, ActivationQuantizer& output,
                           ForwardContext& context) {
  const auto of_a = quantized(a), of_b = quantized(b);
  const Tensor sums = sums_of_codes(*of_a, *of_b);
  const std::function<Tensor()> values = [of_a, of_b, sums] {
    return scaled_sums(sums, *of_a, *of_b, {});
  };
  QuantizedValue y = output.empty_output(sums.shape(), values, context);
  const bool recorded = should_record({a, b});
  const Tensor mask = recorded ? empty_mask(y.codes.size(), y.codes.device()) : Tensor();
  round_product(scaled_sums(sums, *of_a, *of_b, y.qparams.scale), y.qparams.zero_point, y, mask);
  const Variable result = make_variable(std::move(y));
  if (!recorded) return result;
  return output.learn_output(
      record(result, std::make_shared<MultiplyMatricesFunction>(of_a, of_b, mask), {a, b}),
      {values, {sums}}, context);
}

Variable multiply_codes(const Variable& a, const Variable& b, ActivationQuantizer& output,
                        ForwardContext& context) {
  const auto of_a = quantized(a), of_b = quantized(b);
  const std::function<Tensor()> values = [of_a, of_b] { return product(*of_a, *of_b, {}); };
  const Shape shape = ops::broadcast_shape(kName, a.shape(), b.shape());
  QuantizedValue y = output.empty_output(shape, values, context);
  const bool recorded = should_record({a, b});
  const Tensor mask = recorded ? empty_mask(y.codes.size(), y.codes.device()) : Tensor();
  if (kernels::is_fixed_point(y.rounding)) {
    const Tensor left = Tensor::full({1}, 0, DType::kI32, y.codes.device());
    round_product(fixed_product(*of_a, *of_b, y), left, y, mask);
  } else {
    round_element_product(product(*of_a, *of_b, y.qparams.scale), y, mask);
  }
  const Variable result = make_variable(std::move(y));
  if (!recorded) return result;
  return output.learn_output(
      record(result, std::make_shared<MultiplyCodesFunction>(of_a, of_b, mask), {a, b}),
      {values, {of_a->codes, of_b->codes}}, context);
}

QatMul::QatMul(const QuantizerConfig& output)
    : output_(std::make_shared<ActivationQuantizer>(output)) {
  register_child("output_quantizer", output_);
}

Variable QatMul::join(const std::vector<Variable>& inputs, ForwardContext& context) {
  const Variable &a = inputs.at(0), &b = inputs.at(1);
  if (has_bytes(a) && has_bytes(b) && output_->quantizing() && !output_->scheme().wide()) {
    return multiply_codes(a, b, *output_, context);
  }
  return output_->forward(multiply(a, b), context);
}

QatMatMul::QatMatMul(const QuantizerConfig& output)
    : output_(std::make_shared<ActivationQuantizer>(output)) {
  register_child("output_quantizer", output_);
}

Variable QatMatMul::join(const std::vector<Variable>& inputs, ForwardContext& context) {
  const Variable &a = inputs.at(0), &b = inputs.at(1);
  if (has_bytes(a) && has_bytes(b) && output_->quantizing() && !output_->scheme().wide()) {
    return multiply_matrices(a, b, *output_, context);
  }
  return output_->forward(matmul(a, b), context);
}

QuantizedForm matmul_form() {
  QuantizedForm form =
      form_of<MatMul>("MatMul", FormKind::kJoins,
                      [](const MatMul&, const FormRequest& request) -> std::shared_ptr<Module> {
                        return std::make_shared<QatMatMul>(request.output);
                      });
  form.note = "of the product";
  form.float_operands = SIZE_MAX;
  form.reader = "a product reads it";
  return form;
}

QuantizedForm mul_form() {
  QuantizedForm form;
  form.type = "Mul";
  form.kind = FormKind::kJoins;
  form.matches = [](const Module& module) {
    const auto* pair = dynamic_cast<const PairArithmetic*>(&module);
    return pair != nullptr && pair->operation() == Arithmetic::kMultiply;
  };
  form.make = [](const Module&, const FormRequest& request) -> std::shared_ptr<Module> {
    return std::make_shared<QatMul>(request.output);
  };
  form.note = "of the product";
  form.float_operands = SIZE_MAX;
  form.reader = "a product reads it";
  return form;
}

}  // namespace steelyard::qat
