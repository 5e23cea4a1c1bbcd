#include "qat/quantized_layer.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "framework/ops/relu.h"
#include "kernels/fake_quantize.h"
#include "qat/integer_product.h"

namespace steelyard::qat {
namespace {

// Largest finite |bias| among the channels that share each of `scales` scales.
std::vector<double> largest_biases(const Tensor& bias, std::int64_t scales) {
  std::vector<double> largest(static_cast<std::size_t>(scales), 0.0);
  for (std::int64_t o = 0; bias.defined() && o < bias.dim(0); ++o) {
    const double b = std::abs(static_cast<double>(bias.data<float>()[o]));
    double& slot = largest[scales > 1 ? static_cast<std::size_t>(o) : 0];
    if (std::isfinite(b)) slot = std::max(slot, b);
  }
  return largest;
}

// int32 codes of the bias, undefined without one; NaN and infinite ones are counted and have code
// 0, since a code would hide them, and the largest would overflow the sum.
Tensor quantize_biases(const Variable& bias, const std::vector<float>& scales,
                       FakeQuantize& weight_quantizer) {
  if (!bias.defined()) return {};
  Tensor codes = Tensor::empty(bias.shape(), DType::kI32);
  for (std::size_t o = 0; o < scales.size(); ++o) {
    const float b = bias.value().data<float>()[o];
    const bool finite = std::isfinite(b);
    if (!finite) weight_quantizer.add_non_finite(1);
    codes.data<std::int32_t>()[o] = finite ? kernels::quantize_bias(b, scales[o]) : 0;
  }
  return codes;
}

// The float that is no smaller, of a scale: at most 2^120.
float rounded_up(double scale) {
  const float rounded = static_cast<float>(std::min(scale, 0x1p120));
  return static_cast<double>(rounded) < scale ? std::nextafter(rounded, INFINITY) : rounded;
}

// Lets the quantizer learn from the real values that the accumulators stand for.
void observe_accumulators(FakeQuantize& quantizer, const kernels::Requantize& op,
                          const Tensor& acc) {
  if (acc.size() == 0) return;
  if (quantizer.needs_only_extremes()) {
    observers::Extremes extremes{{0}, {0}, 0};
    kernels::accumulator_min_max(op, acc.data<std::int32_t>(), extremes.lo.data(),
                                 extremes.hi.data());
    if (!std::isfinite(extremes.lo[0]) || !std::isfinite(extremes.hi[0])) {
      extremes = observers::Extremes{{INFINITY}, {-INFINITY}, 1};  // nothing to learn from
    }
    quantizer.observe(extremes);
    return;
  }
  Tensor values = Tensor::empty(acc.shape());
  kernels::dequantize_accumulators(op, acc.data<std::int32_t>(), values.data<float>());
  quantizer.observe(values.span<float>());
}

}  // namespace

Variable apply_activation(const Variable& x, kernels::Activation activation) {
  switch (activation) {
    case kernels::Activation::kRelu:
      return relu(x);
    case kernels::Activation::kRelu6:
      return relu6(x);
    case kernels::Activation::kNone:
      break;
  }
  return x;
}

QuantizedLayer::QuantizedLayer(std::shared_ptr<const Product> product, const Tensor& weight,
                               const Tensor& bias, kernels::Activation activation,
                               const QConfig& config)
    : product_(std::move(product)), activation_(activation) {
  validate(config);
  weight_ = register_parameter("weight", weight);
  if (bias.defined()) bias_ = register_parameter("bias", bias);
  if (config.weights) {
    const std::int64_t outputs = weight.dim(0);
    const std::int64_t scales = observers::scale_count(config.weights->scheme, outputs,
                                                       outputs == 0 ? 0 : weight.size() / outputs);
    weight_slot_ = &register_child(
        "weight_quantizer",
        std::make_shared<FakeQuantize>(*config.weights, QuantizerRole::kWeight, scales));
  }
  if (config.activations) {
    output_slot_ = &register_child(
        "output_quantizer",
        std::make_shared<FakeQuantize>(*config.activations, QuantizerRole::kActivation));
  }
}

void QuantizedLayer::add_input_quantizer(const QuantizerConfig& config) {
  input_slot_ = &register_child("input_quantizer",
                                std::make_shared<FakeQuantize>(config, QuantizerRole::kActivation));
}

FakeQuantize* QuantizedLayer::quantizer(const Slot* slot) {
  return slot == nullptr ? nullptr : static_cast<FakeQuantize*>(slot->module().get());
}

Tensor QuantizedLayer::deployed_weight() const {
  if (!folds_norm()) return weight_.value();
  const NoGradGuard no_grad;
  return norm_->operands(weight_, bias_, ForwardContext{}).weight.value();
}

Variable QuantizedLayer::forward(const Variable& x, ForwardContext& context) {
  const bool needs_codes = input_slot_ != nullptr && !quantized(x);
  const Variable input = needs_codes ? (*input_slot_)(x, context) : x;
  const Epilogue epilogue{activation_, output_quantizer()};
  if (norm_ == nullptr) {
    const Tensor bias = bias_.defined() ? bias_.value() : Tensor();
    return multiply(input, {weight_, bias_, bias}, epilogue, context);
  }
  const ProductOperands operands = norm_->operands(weight_, bias_, context);
  if (!norm_->normalises(context)) return multiply(input, operands, epilogue, context);
  const Variable product = multiply(input, operands, Epilogue{}, context);
  const auto raw_product = [&] { return product_->float_forward(input, weight_, Variable()); };
  const Variable y =
      apply_activation(norm_->normalise(product, bias_, raw_product, context), epilogue.activation);
  return epilogue.output != nullptr ? epilogue.output->forward(y, context) : y;
}

Variable QuantizedLayer::multiply(const Variable& x, const ProductOperands& operands,
                                  const Epilogue& epilogue, ForwardContext& context) {
  const auto codes = quantized(x);
  const FakeQuantize* weights = weight_quantizer();
  const bool integers = codes && weights != nullptr && weights->quantizing() &&
                        weights->config().scheme.strategy != observers::Strategy::kGroup;
  return integers ? integer_forward(x, *codes, operands, epilogue, context)
                  : float_forward(x, operands, epilogue, context);
}

// NUMERICS: a channel without weights but with a bias takes its scale from the bias; every scale is
// large enough that the bias fits int32 and that s_x * s_w is a normal float.
void QuantizedLayer::update_weight_scale(const ProductOperands& operands, float input_scale) {
  FakeQuantize& quantizer = *weight_quantizer();
  quantizer.observe(operands.weight.value().span<float>());
  const auto channels = static_cast<std::int64_t>(quantizer.scale().size());
  const std::vector<double> largest_bias = largest_biases(operands.deployed_bias, channels);
  const double sx = input_scale;
  for (std::int64_t c = 0; c < channels; ++c) {
    const double bias = largest_bias[static_cast<std::size_t>(c)];
    double scale = quantizer.scale()[static_cast<std::size_t>(c)];
    if (quantizer.zero_range(c) && bias > 0) {
      scale = std::exp2(std::ceil(std::log2(bias / (sx * 0x1p20))));
    }
    constexpr double kSmallestNormal = 0x1p-126;
    const double floor = std::max({bias / (sx * 0x1p30), kSmallestNormal / sx, kSmallestNormal});
    quantizer.set_qparams(c, rounded_up(std::max(scale, floor)), 0);
    quantizer.set_scale_floor(c, rounded_up(floor));
  }
}

Variable QuantizedLayer::integer_forward(const Variable& x, const QuantizedValue& codes,
                                         const ProductOperands& operands, const Epilogue& epilogue,
                                         ForwardContext& context) {
  const Variable& bias = operands.bias;
  FakeQuantize& weight_quant = *weight_quantizer();
  if (weight_quant.observes(context) || weight_quant.learns(context)) {
    update_weight_scale(operands, codes.scale);
  }
  weight_quant.begin_learning(context);
  const bool recorded = should_record({x, operands.weight, bias});
  WeightCodes weight = quantize_weight(weight_quant, operands.weight.value(), recorded);
  Variable weight_input = operands.weight;
  if (recorded && weight_quant.learns(context)) {
    const Tensor values = operands.weight.value();
    weight_input = weight_quant.learn(
        Variable(values), operands.weight, std::move(weight.mask), [values] { return values; },
        context);
    weight.mask = Tensor();
  }

  Tensor acc = Tensor::empty(product_->output_shape(x.shape(), weight_.shape()), DType::kI32);
  product_->integer(codes, weight.codes, acc);

  std::vector<float> product_scales;
  for (const float s : weight.scales) product_scales.push_back(codes.scale * s);
  const Tensor bias_codes = quantize_biases(bias, product_scales, weight_quant);
  FakeQuantize* output = epilogue.output;
  const bool quantizes_output = output != nullptr && output->quantizing();
  kernels::Requantize op;
  op.channels = weight_.dim(0);
  op.rows = op.channels == 0 ? 0 : acc.size() / op.channels;
  op.bias = bias.defined() ? bias_codes.data<std::int32_t>() : nullptr;
  op.product_scale = product_scales.data();
  op.activation = quantizes_output ? epilogue.activation : kernels::Activation::kNone;

  const auto finish = [&](Variable y, Tensor mask) {
    if (!recorded) return y;
    return record(std::move(y),
                  std::make_shared<IntegerProductFunction>(product_, codes, weight, bias_codes,
                                                           op.activation, std::move(mask)),
                  {x, weight_input, bias});
  };
  if (!quantizes_output) {
    Tensor y = Tensor::empty(acc.shape());
    kernels::dequantize_accumulators(op, acc.data<std::int32_t>(), y.data<float>());
    const Variable activated = apply_activation(finish(Variable(y), Tensor()), epilogue.activation);
    return output != nullptr ? output->forward(activated, context) : activated;
  }
  if (output->observes(context)) observe_accumulators(*output, op, acc);
  output->require_observed();
  output->begin_learning(context);
  QuantizedValue y{.codes = Tensor::empty(acc.shape(), output->config().scheme.code_dtype()),
                   .scale = output->scale()[0],
                   .zero_point = output->zero_point()[0],
                   .range = output->code_range()};
  Tensor mask;
  if (recorded) mask = Tensor::empty({kernels::mask_bytes(acc.size())}, DType::kU8);
  visit_codes(y.codes.dtype(), [&](auto* tag) {
    using Code = CodeOf<decltype(tag)>;
    kernels::requantize(op, acc.data<std::int32_t>(), y.scale, y.zero_point, y.range,
                        y.codes.data<Code>(), recorded ? mask.data<std::uint8_t>() : nullptr);
  });
  const Variable result = finish(make_variable(std::move(y)), mask);
  const auto values = [op, product_scales, bias_codes, acc]() mutable {
    op.product_scale = product_scales.data();
    op.bias = bias_codes.defined() ? bias_codes.data<std::int32_t>() : nullptr;
    Tensor real = Tensor::empty(acc.shape());
    kernels::dequantize_accumulators(op, acc.data<std::int32_t>(), real.data<float>());
    return real;
  };
  return output->learn_output(result, values, context);
}

Variable QuantizedLayer::float_forward(const Variable& x, const ProductOperands& operands,
                                       const Epilogue& epilogue, ForwardContext& context) {
  Variable weight = operands.weight;
  FakeQuantize* weight_quant = weight_quantizer();
  if (weight_quant != nullptr) {
    if (weight_quant->observes(context)) weight_quant->observe(weight.value().span<float>());
    if (weight_quant->quantizing()) {
      weight_quant->begin_learning(context);
      const bool recorded = should_record({weight});
      WeightCodes codes = quantize_weight(*weight_quant, weight.value(), recorded);
      const Tensor mask = std::exchange(codes.mask, Tensor());
      const Tensor raw = weight.value();
      weight = weight_quant->learn(
          make_weight(std::move(codes)), weight, mask, [raw] { return raw; }, context);
    }
  }
  const Variable y =
      apply_activation(product_->float_forward(x, weight, operands.bias), epilogue.activation);
  return epilogue.output != nullptr ? epilogue.output->forward(y, context) : y;
}

}  // namespace steelyard::qat
