#include "qat/quantized_layer.h"

#include <vector>

#include "framework/ops/relu.h"
#include "kernels/quantizer_state.h"
#include "qat/integer_product.h"

namespace steelyard::qat {
namespace {

// The scales of the accumulators and, with a bias, its int32 codes.
struct BiasCodes {
  std::vector<float> product_scales;
  Tensor codes;  // undefined without a bias

  const std::int32_t* data() const {
    return codes.defined() ? codes.data<std::int32_t>() : nullptr;
  }
};

// Biases that are not finite are counted.
BiasCodes quantize_biases(const Variable& bias, float x_scale, const std::vector<float>& scales,
                          FakeQuantize& weight_quantizer) {
  BiasCodes result{std::vector<float>(scales.size()), {}};
  if (bias.defined()) result.codes = Tensor::empty(bias.shape(), DType::kI32);
  const auto outputs = static_cast<std::int64_t>(scales.size());
  std::int64_t non_finite = 0;
  kernels::quantize_biases(outputs, bias.defined() ? bias.value().data<float>() : nullptr, &x_scale,
                           outputs, scales.data(), result.product_scales.data(),
                           bias.defined() ? result.codes.data<std::int32_t>() : nullptr,
                           &non_finite);
  weight_quantizer.add_non_finite(non_finite);
  return result;
}

// Lets the quantizer learn from the real values that the accumulators stand for.
void observe_accumulators(FakeQuantize& quantizer, const kernels::Requantize& op, const Tensor& acc,
                          const BiasCodes& bias) {
  if (acc.size() == 0) return;
  if (quantizer.needs_only_extremes()) {
    observers::Extremes extremes{{0}, {0}, 0};
    kernels::accumulator_min_max(op, acc.data<std::int32_t>(), bias.data(),
                                 bias.product_scales.data(), extremes.lo.data(), extremes.hi.data(),
                                 &extremes.non_finite);
    quantizer.observe(extremes);
    return;
  }
  Tensor values = Tensor::empty(acc.shape());
  kernels::dequantize_accumulators(op, acc.data<std::int32_t>(), bias.data(),
                                   bias.product_scales.data(), values.data<float>());
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
  const Tensor& bias = operands.deployed_bias;
  const auto size = static_cast<std::size_t>(channels);
  std::vector<float> scale(quantizer.scale().begin(), quantizer.scale().end()), floor(size);
  std::vector<std::uint8_t> zero_range(size);
  for (std::size_t c = 0; c < size; ++c) {
    zero_range[c] = quantizer.zero_range(static_cast<std::int64_t>(c));
  }
  kernels::fit_weight_scales(operands.weight.dim(0), bias.defined() ? bias.data<float>() : nullptr,
                             &input_scale, channels, zero_range.data(), scale.data(), floor.data());
  for (std::int64_t c = 0; c < channels; ++c) {
    quantizer.set_qparams(c, scale[static_cast<std::size_t>(c)], 0);
    quantizer.set_scale_floor(c, floor[static_cast<std::size_t>(c)]);
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

  const BiasCodes biases = quantize_biases(bias, codes.scale, weight.scales, weight_quant);
  FakeQuantize* output = epilogue.output;
  const bool quantizes_output = output != nullptr && output->quantizing();
  kernels::Requantize op;
  op.channels = weight_.dim(0);
  op.rows = op.channels == 0 ? 0 : acc.size() / op.channels;
  op.activation = quantizes_output ? epilogue.activation : kernels::Activation::kNone;

  const auto finish = [&](Variable y, Tensor mask) {
    if (!recorded) return y;
    return record(std::move(y),
                  std::make_shared<IntegerProductFunction>(product_, codes, weight, biases.codes,
                                                           op.activation, std::move(mask)),
                  {x, weight_input, bias});
  };
  if (!quantizes_output) {
    Tensor y = Tensor::empty(acc.shape());
    kernels::dequantize_accumulators(op, acc.data<std::int32_t>(), biases.data(),
                                     biases.product_scales.data(), y.data<float>());
    const Variable activated = apply_activation(finish(Variable(y), Tensor()), epilogue.activation);
    return output != nullptr ? output->forward(activated, context) : activated;
  }
  if (output->observes(context)) observe_accumulators(*output, op, acc, biases);
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
    kernels::requantize(op, acc.data<std::int32_t>(), biases.data(), biases.product_scales.data(),
                        &y.scale, &y.zero_point, y.range, y.codes.data<Code>(),
                        recorded ? mask.data<std::uint8_t>() : nullptr);
  });
  const Variable result = finish(make_variable(std::move(y)), mask);
  const auto values = [op, biases, acc] {
    Tensor real = Tensor::empty(acc.shape());
    kernels::dequantize_accumulators(op, acc.data<std::int32_t>(), biases.data(),
                                     biases.product_scales.data(), real.data<float>());
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
