#include "steelyard/qat/qat_mul.h"

#include "steelyard/framework/on_device.h"
#include "steelyard/framework/ops/arithmetic.h"
#include "steelyard/framework/ops/strided.h"
#include "steelyard/kernels/fake_quantize/fake_quantize.h"
#include "steelyard/layers/arithmetic.h"
#include "steelyard/qat/straight_through.h"

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
                                       .a = a.codes.data<A>(),
                                       .at_a = ops::broadcast_index(kName, a.codes.shape(), shape),
                                       .scale_a = a.qparams.scale.data<float>(),
                                       .zero_point_a = a.qparams.zero_point.data<std::int32_t>(),
                                       .b = b.codes.data<B>(),
                                       .at_b = ops::broadcast_index(kName, b.codes.shape(), shape),
                                       .scale_b = b.qparams.scale.data<float>(),
                                       .zero_point_b = b.qparams.zero_point.data<std::int32_t>(),
                                       .scale = scale.defined() ? scale.data<float>() : nullptr,
                                       .y = y.data<float>()});
    });
  });
  return y;
}

// Fills y's codes; the product is in units of its scale already.
void round_product(const Tensor& units, const QuantizedValue& y, const Tensor& mask) {
  const Tensor one = Tensor::full({1}, 1, DType::kF32, units.device());
  visit_codes(y.codes.dtype(), [&](auto* tag) {
    using Code = CodeOf<decltype(tag)>;
    run(units.device(), kernels::Quantize<float, Code>{
                            .layout = kernels::ChannelLayout::per_tensor(units.size()),
                            .range = y.range,
                            .x = units.data<float>(),
                            .scale = one.data<float>(),
                            .zero_point = y.qparams.zero_point.data<std::int32_t>(),
                            .codes = y.codes.data<Code>(),
                            .mask = mask.defined() ? mask.data<std::uint8_t>() : nullptr});
  });
}

// The gradient of an operand of `shape`: grad_output times the other, summed over what repeats.
Tensor gradient(const Tensor& grad_output, const QuantizedValue& other, const Shape& shape) {
  const NoGradGuard no_grad;
  const Variable grad = multiply(Variable(grad_output), Variable(dequantized(other)));
  std::vector<std::int64_t> repeated;
  const std::size_t added = grad.shape().size() - shape.size();
  for (std::size_t i = 0; i < grad.shape().size(); ++i) {
    if (i < added || shape[i - added] != grad.shape()[i]) {
      repeated.push_back(static_cast<std::int64_t>(i));
    }
  }
  return repeated.empty() ? grad.value() : sum(grad, repeated).value().reshape(shape);
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

}  // namespace

Variable multiply_codes(const Variable& a, const Variable& b, ActivationQuantizer& output,
                        ForwardContext& context) {
  const auto of_a = quantized(a), of_b = quantized(b);
  const std::function<Tensor()> values = [of_a, of_b] { return product(*of_a, *of_b, {}); };
  const Shape shape = ops::broadcast_shape(kName, a.shape(), b.shape());
  QuantizedValue y = output.empty_output(shape, values, context);
  const bool recorded = should_record({a, b});
  const Tensor mask = recorded ? empty_mask(y.codes.size(), y.codes.device()) : Tensor();
  round_product(product(*of_a, *of_b, y.qparams.scale), y, mask);
  const Variable result = make_variable(std::move(y));
  if (!recorded) return result;
  return output.learn_output(
      record(result, std::make_shared<MultiplyCodesFunction>(of_a, of_b, mask), {a, b}), values,
      context);
}

QatMul::QatMul(const QuantizerConfig& output)
    : output_(std::make_shared<ActivationQuantizer>(output)) {
  register_child("output_quantizer", output_);
}

Variable QatMul::join(const std::vector<Variable>& inputs, ForwardContext& context) {
  const Variable &a = inputs.at(0), &b = inputs.at(1);
  const auto bytes = [](const Variable& x) {
    const auto codes = quantized(x);
    return codes != nullptr && !codes->wide() && !codes->dynamic;
  };
  if (bytes(a) && bytes(b) && output_->quantizing() && !output_->scheme().wide()) {
    return multiply_codes(a, b, *output_, context);
  }
  return output_->forward(multiply(a, b), context);
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
