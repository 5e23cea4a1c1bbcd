#include "steelyard/qat/forms/quantized_layer.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "steelyard/framework/ops/elementwise/relu.h"
#include "steelyard/framework/ops/op_support.h"
#include "steelyard/framework/tensor/on_device.h"
#include "steelyard/qat/forms/integer_product.h"
#include "steelyard/qat/forms/wide_codes.h"
#include "steelyard/qat/quantizers/dynamic_quantize.h"
#include "steelyard/qat/quantizers/straight_through.h"

namespace steelyard::qat {
namespace {

Tensor dequantize(const Requantization& scale, const Tensor& acc) {
  Tensor real = Tensor::empty(acc.shape(), DType::kF32, acc.device());
  run(acc.device(),
      kernels::DequantizeAccumulators{.rows = scale.op.rows,
                                      .channels = scale.op.channels,
                                      .activation = scale.op.activation,
                                      .acc = acc.data<std::int32_t>(),
                                      .bias = scale.bias_data(),
                                      .product_scale = scale.product_scale.data<float>(),
                                      .out = real.data<float>()});
  return real;
}

// Lets the quantizer observe the real values of the accumulators.
QParamTensors observe_accumulators(ActivationQuantizer& quantizer, const Requantization& scale,
                                   const Tensor& acc) {
  if (acc.size() == 0) return {};
  const auto range = quantizer.observe_range();
  if (!range) return quantizer.observe(dequantize(scale, acc));
  run(acc.device(),
      kernels::ObserveAccumulators{.rule = range->rule,
                                   .to = range->quantizer,
                                   .op = scale.op,
                                   .acc = acc.data<std::int32_t>(),
                                   .bias = scale.bias_data(),
                                   .product_scale = scale.product_scale.data<float>()});
  return range->qparams;
}

// What an integer product keeps of its weights, if they are the parameter itself and on the CPU: on
// a GPU one launch more would cost more than the memory is worth.
IntegerProductFunction::QuantizedParameter quantized_parameter(const Variable& weight,
                                                               const Variable& parameter,
                                                               kernels::CodeRange range) {
  const bool is_same = weight.value().raw() == parameter.value().raw();
  const bool is_kept = is_same && weight.value().device() == Device{};
  return {is_kept ? weight.value() : Tensor(), range};
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
                               const QConfig& config, const std::string& prefix)
    : product_(std::move(product)),
      activation_(activation),
      integer_groups_(config.activations.has_value()) {
  validate(config);
  if (product_ == nullptr) {
    throw std::invalid_argument("[quantized_layer] expected a product, got null");
  }
  if (!weight.defined() || weight.rank() < 2) {
    throw std::invalid_argument(
        "[quantized_layer] expected a weight of two dimensions or more, got " +
        (weight.defined() ? shape_string(weight.shape()) : "an undefined tensor"));
  }
  registered_weight_ = &register_parameter(prefix + "weight", weight);
  weight_ = *registered_weight_;
  if (bias.defined()) {
    registered_bias_ = &register_parameter(prefix + "bias", bias);
    bias_ = *registered_bias_;
  }
  outputs_ = weight_by_output_channel().dim(0);
  ops::require_vector("quantized_layer", "bias", outputs_, bias_);
  if (config.weights) {
    const std::int64_t scales = observers::scale_count(
        config.weights->scheme, outputs_, outputs_ == 0 ? 0 : weight.size() / outputs_);
    weight_slot_ = &register_child(prefix + "weight_quantizer",
                                   std::make_shared<WeightQuantizer>(*config.weights, scales));
  }
  if (config.activations && config.activations->scheme.dynamic) {
    dynamic_input_ = config.activations->scheme;
  } else if (config.activations) {
    output_slot_ = &register_child(prefix + "output_quantizer",
                                   std::make_shared<ActivationQuantizer>(*config.activations));
  }
}

void QuantizedLayer::add_input_quantizer(const QuantizerConfig& config) {
  input_slot_ = &register_child("input_quantizer", std::make_shared<ActivationQuantizer>(config));
}

void QuantizedLayer::share_parameters(const Variable& weight, const Variable& bias) {
  const bool fits = weight.shape() == weight_.shape() && bias.defined() == bias_.defined() &&
                    (!bias.defined() || bias.shape() == bias_.shape());
  if (!fits) {
    throw std::invalid_argument("[quantized_layer] expected a weight " +
                                shape_string(weight_.shape()) +
                                " and a bias as the layer has them, got others to share");
  }
  weight_ = *registered_weight_ = weight;
  if (registered_bias_ != nullptr) bias_ = *registered_bias_ = bias;
}

void QuantizedLayer::share_weight_quantizer(const QuantizedLayer& other) {
  if (weight_slot_ == nullptr || other.weight_slot_ == nullptr) {
    throw std::invalid_argument("[quantized_layer] expected two layers with quantized weights");
  }
  weight_slot_->replace(other.weight_slot_->module());
}

Tensor QuantizedLayer::additive_bias() const {
  if (norm_ != nullptr) return norm_->norm().bias().value();
  return bias_.defined() ? bias_.value() : Tensor();
}

Tensor QuantizedLayer::deployed_weight() const {
  const NoGradGuard no_grad;
  return operands(ForwardContext{}).weight.value();
}

ProductOperands QuantizedLayer::operands(const ForwardContext& context) const {
  ops::require_vector("quantized_layer", "bias", outputs_, bias_);
  const Variable weight = product_->by_output_channel(weight_);
  if (norm_ != nullptr) return norm_->operands(weight, bias_, context);
  return {weight, bias_, bias_.defined() ? bias_.value() : Tensor()};
}

std::optional<WeightBias> QuantizedLayer::weight_bias(
    const std::shared_ptr<const QuantizedValue>& codes, const ProductOperands& operands) const {
  const bool one_scale = codes && !codes->dynamic && !has_groups();
  const FakeQuantize& weights = *weight_quantizer();
  if (!one_scale ||
      (weights.config().scheme.granularity == kernels::Granularity::kGroup && !integer_groups_)) {
    return std::nullopt;
  }
  return WeightBias{codes->qparams, codes_beside_bias(*codes),
                    operands.bias.defined() ? operands.bias.value() : Tensor(),
                    operands.deployed_bias};
}

WeightCodes QuantizedLayer::evaluated_weights(const Variable& input) {
  const NoGradGuard no_grad;
  const ForwardContext evaluation;
  const ProductOperands of = operands(evaluation);
  const auto bias = weight_bias(quantized(input), of);
  return weight_quantizer()->quantize_weights(of.weight.value(), bias ? &*bias : nullptr,
                                              /*recorded=*/false, evaluation);
}

std::int64_t QuantizedLayer::move_weights(const Tensor& from, const Tensor& to,
                                          const Tensor& values) {
  const std::vector<double> factors =
      folds_norm() ? norm_->factors() : std::vector<double>(static_cast<std::size_t>(outputs_), 1);
  const Tensor weight = weight_by_output_channel().to(Device{}).clone();
  const std::int64_t per_output = outputs_ == 0 ? 0 : weight.size() / outputs_;
  std::int64_t moved = 0;
  for (std::int64_t i = 0; i < weight.size(); ++i) {
    const double factor = factors[static_cast<std::size_t>(i / per_output)];
    if (from.data<std::int8_t>()[i] == to.data<std::int8_t>()[i] || factor == 0) continue;
    weight.data<float>()[i] = static_cast<float>(double{values.data<float>()[i]} / factor);
    ++moved;
  }
  weight_.value().copy_from(by_output_channel(weight));
  return moved;
}

Variable QuantizedLayer::float_output_with(const Variable& input, const Variable& weight) {
  ForwardContext evaluation;
  Variable y = product_->float_forward(input, weight, operands(evaluation).bias);
  if (norm_ != nullptr && norm_->normalizes(evaluation)) {
    y = norm_->normalize(y, bias_, {}, evaluation);
  }
  return apply_activation(y, activation_);
}

Variable QuantizedLayer::with_codes(const Variable& x, ForwardContext& context) {
  return input_slot_ != nullptr && !quantized(x) ? (*input_slot_)(x, context) : x;
}

Variable QuantizedLayer::forward(const Variable& x, ForwardContext& context) {
  Variable input = with_codes(x, context);
  if (dynamic_input_ && !quantized(x) && weight_quantizer()->quantizing()) {
    const std::int64_t row_size = product_->row_size(x.shape());
    input = quantize_dynamically(x, *dynamic_input_, row_size, weight_quantizer()->non_finite());
  }
  if (probe_) {
    probe_(input, [&] { return computed(input, Epilogue{}, context).value(); });
  }
  return computed(input, {activation_, output_quantizer()}, context);
}

Variable QuantizedLayer::computed(const Variable& input, const Epilogue& epilogue,
                                  ForwardContext& context) {
  const ProductOperands of = operands(context);
  if (norm_ == nullptr || !norm_->normalizes(context)) {
    return multiply(input, of, epilogue, context);
  }
  const Variable product = multiply(input, of, Epilogue{}, context);
  const auto raw_product = [&] {
    return product_->float_forward(input, product_->by_output_channel(weight_), Variable());
  };
  const Variable y =
      apply_activation(norm_->normalize(product, bias_, raw_product, context), epilogue.activation);
  return epilogue.output != nullptr ? epilogue.output->forward(y, context) : y;
}

Variable QuantizedLayer::multiply(const Variable& x, const ProductOperands& operands,
                                  const Epilogue& epilogue, ForwardContext& context) {
  const auto codes = quantized(x);
  const FakeQuantize* weights = weight_quantizer();
  if (!codes || weights == nullptr || !weights->quantizing()) {
    return float_forward(x, operands, epilogue, context);
  }
  const bool in_groups = weights->config().scheme.granularity == kernels::Granularity::kGroup;
  if (in_groups && !integer_groups_) return float_forward(x, operands, epilogue, context);
  if (const auto bias = weight_bias(codes, operands)) {
    return integer_forward(x, *codes, operands, *bias, epilogue, context);
  }
  const Variable y =
      apply_activation(grouped_forward(x, *codes, operands, context), epilogue.activation);
  return epilogue.output != nullptr ? epilogue.output->forward(y, context) : y;
}

bool QuantizedLayer::has_groups() const {
  const FakeQuantize* quantizer = weight_quantizer();
  return quantizer != nullptr && quantizer->channels() > std::max<std::int64_t>(1, outputs_);
}

Variable QuantizedLayer::grouped_forward(const Variable& x, const QuantizedValue& codes,
                                         const ProductOperands& operands, ForwardContext& context) {
  const bool recorded = should_record({x, operands.weight, operands.bias});
  WeightQuantizer& quantizer = *weight_quantizer();
  WeightCodes weight =
      quantizer.quantize_weights(operands.weight.value(), nullptr, recorded, context);
  const Variable weight_input = quantizer.learn_weight(operands.weight, weight, context);
  const Tensor bias = operands.bias.defined() ? operands.bias.value() : Tensor();
  const Tensor y = Tensor::empty(product_->output_shape(x.shape(), weight.codes.shape()),
                                 DType::kF32, codes.codes.device());
  product_->grouped(codes, weight, bias, y);
  if (!recorded) return Variable(y);
  return record(Variable(y),
                std::make_shared<IntegerProductFunction>(
                    product_, codes, weight,
                    quantized_parameter(operands.weight, weight_, quantizer.code_range()),
                    bias.defined(), kernels::Activation::kNone, Tensor()),
                {x, weight_input, operands.bias});
}

Variable QuantizedLayer::integer_forward(const Variable& x, const QuantizedValue& codes,
                                         const ProductOperands& operands,
                                         const WeightBias& int32_bias, const Epilogue& epilogue,
                                         ForwardContext& context) {
  const Variable& bias = operands.bias;
  WeightQuantizer& weight_quant = *weight_quantizer();
  const bool recorded = should_record({x, operands.weight, bias});
  WeightCodes weight =
      weight_quant.quantize_weights(operands.weight.value(), &int32_bias, recorded, context);
  const Variable weight_input = weight_quant.learn_weight(operands.weight, weight, context);

  ActivationQuantizer* output = epilogue.output;
  const bool quantizes_output = output != nullptr && output->quantizing();
  const kernels::Activation fused =
      quantizes_output ? epilogue.activation : kernels::Activation::kNone;
  const auto finish = [&](Variable y, Tensor mask) {
    if (!recorded) return y;
    return record(std::move(y),
                  std::make_shared<IntegerProductFunction>(
                      product_, codes, weight,
                      quantized_parameter(operands.weight, weight_, weight_quant.code_range()),
                      bias.defined(), fused, std::move(mask)),
                  {x, weight_input, bias});
  };
  const auto in_float = [&](const Tensor& real) {
    const Variable y = apply_activation(finish(Variable(real), Tensor()), epilogue.activation);
    return output != nullptr ? output->forward(y, context) : y;
  };
  // Rounds real values to codes, if the input or the output has wide codes.
  const auto round = [&](const Tensor& real) {
    const auto activated = [real, fused] {
      const NoGradGuard no_grad;
      return apply_activation(Variable(real), fused).value();
    };
    Tensor mask;
    const Variable y = make_variable(
        round_reals(real, fused, activated, *output, recorded ? &mask : nullptr, context));
    return output->learn_output(finish(y, mask), {activated, {real}}, context);
  };
  if (codes.wide()) {
    const Tensor real = multiply_wide(*product_, codes, weight);
    return quantizes_output ? round(real) : in_float(real);
  }

  const Tensor acc = Tensor::empty(product_->output_shape(x.shape(), weight.codes.shape()),
                                   DType::kI32, codes.codes.device());
  Requantization to;
  to.op.channels = outputs_;
  to.op.rows = to.op.channels == 0 ? 0 : acc.size() / to.op.channels;
  to.bias = weight.bias;
  to.product_scale = weight.product_scale;
  to.input_scale = codes.qparams.scale;
  to.weight_scale = weight.qparams.scale;
  const auto multiply = [&] { multiply_codes(*product_, codes, weight, acc); };
  const auto real = [&] {
    multiply();
    return dequantize(to, acc);
  };
  if (!quantizes_output) return in_float(real());
  if (output->scheme().wide()) return round(real());

  to.op.activation = fused;
  to.mask = recorded ? empty_mask(acc.size(), acc.device()) : Tensor();
  // Sums that nothing else reads are requantized where they are computed, but in fixed point.
  const bool others_read = output->observes(context) || output->learns(context) ||
                           weight.qparams.zero_point.defined() ||
                           kernels::is_fixed_point(output->config().rounding);
  QParamTensors observed;
  if (others_read) {
    multiply();
    if (output->observes(context)) observed = observe_accumulators(*output, to, acc);
  }
  to.output = output->empty_output(acc.shape(), observed, context);
  if (others_read) {
    requantize(acc, to);
  } else {
    product_->requantized(codes, weight, acc, to);
  }
  const Variable result = finish(make_variable(to.output), to.mask);
  return output->learn_output(result, {[to, acc] { return dequantize(to, acc); }, {acc}}, context);
}

Variable QuantizedLayer::float_forward(const Variable& x, const ProductOperands& operands,
                                       const Epilogue& epilogue, ForwardContext& context) {
  WeightQuantizer* weights = weight_quantizer();
  const Variable weight =
      weights != nullptr ? weights->forward(operands.weight, context) : operands.weight;
  const Variable y =
      apply_activation(product_->float_forward(x, weight, operands.bias), epilogue.activation);
  return epilogue.output != nullptr ? epilogue.output->forward(y, context) : y;
}

}  // namespace steelyard::qat
