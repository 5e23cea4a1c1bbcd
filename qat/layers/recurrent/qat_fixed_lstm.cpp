#include "steelyard/qat/layers/recurrent/qat_fixed_lstm.h"

#include "steelyard/framework/tensor/on_device.h"
#include "steelyard/kernels/fixed_lstm/fixed_lstm.h"
#include "steelyard/qat/layers/qat_moves.h"
#include "steelyard/qat/quantizers/straight_through.h"

namespace steelyard::qat {
namespace {

LstmParameters real_parameters(const WeightCodes& weight, const WeightCodes& recurrent,
                               const Tensor& bias) {
  const std::int64_t units = recurrent.codes.dim(1);
  const Variable zero(Tensor::zeros({units}, DType::kF32, bias.device()));
  return {.weight = Variable(dequantized(weight)),
          .recurrent = Variable(dequantized(recurrent)),
          .bias = Variable(bias),
          .output = zero,
          .cell = zero};
}

// The unclamped codes of all steps, as floats.
Tensor unclamped_steps(const QuantizedValue& x, const WeightCodes& weight,
                       const WeightCodes& recurrent, const QuantizedValue& y) {
  using Factors = kernels::FixedLstm;
  const Device device = x.codes.device();
  const std::int64_t samples = y.codes.dim(0), length = y.codes.dim(1), units = y.codes.dim(2);
  const Tensor units_of_y = Tensor::empty(y.codes.shape(), DType::kF32, device);
  if (samples == 0) return units_of_y;
  const Tensor factors =
      Tensor::empty({std::int64_t{sizeof(Factors) / sizeof(std::int32_t)}}, DType::kI32, device);
  run(device, kernels::FixedLstmFactors{.n = 1,
                                        .rounding = y.rounding,
                                        .in_scale = x.qparams.scale.data<float>(),
                                        .weight_scale = weight.qparams.scale.data<float>(),
                                        .recurrent_scale = recurrent.qparams.scale.data<float>(),
                                        .scale = y.qparams.scale.data<float>(),
                                        .zero_point = y.qparams.zero_point.data<std::int32_t>(),
                                        .factors = static_cast<Factors*>(factors.raw())});
  const auto product = linear_product();
  const Tensor sums = Tensor::empty({samples, length, 4 * units}, DType::kI32, device);
  product->integer(x, weight, sums);
  QuantizedValue state = y;
  state.codes = Tensor::empty({samples, units}, DType::kI8, device);
  const Tensor of_state = Tensor::zeros({samples, 4 * units}, DType::kI32, device);
  const Tensor cell = Tensor::zeros({samples, units}, DType::kI32, device);
  for (std::int64_t t = 0; t < length; ++t) {
    if (t > 0) product->integer(state, recurrent, of_state);
    run(device, kernels::FixedLstmStep{.rows = samples,
                                       .columns = units,
                                       .rounding = y.rounding,
                                       .factors = static_cast<const Factors*>(factors.raw()),
                                       .of_input = sums.data<std::int32_t>() + t * 4 * units,
                                       .input_stride = length * 4 * units,
                                       .bias = weight.bias.data<std::int32_t>(),
                                       .of_state = of_state.data<std::int32_t>(),
                                       .cell = cell.data<std::int32_t>(),
                                       .state = state.codes.data<std::int8_t>(),
                                       .y = units_of_y.data<float>() + t * units,
                                       .y_stride = length * units});
  }
  return units_of_y;
}

}  // namespace

FixedLstmFunction::FixedLstmFunction(const QuantizedValue& x, const WeightCodes& weight,
                                     const WeightCodes& recurrent, const Tensor& bias,
                                     Tensor output_mask)
    : x_(x), weight_(weight), recurrent_(recurrent) {
  save(x.codes);
  save(weight.codes);
  save(recurrent.codes);
  save(bias);
  save(std::move(output_mask));
  save(weight.mask);
  save(recurrent.mask);
}

std::vector<Tensor> FixedLstmFunction::backward(const Tensor& grad_output) const {
  const Variable x(dequantized(x_), needs_grad(0));
  LstmParameters p = real_parameters(weight_, recurrent_, saved()[3]);
  p.weight.set_requires_grad(needs_grad(1));
  p.bias.set_requires_grad(needs_grad(2));
  p.recurrent.set_requires_grad(needs_grad(3));
  lstm(x, p).backward(masked_gradient(grad_output, saved()[4]));
  const auto of_weight = [](const Variable& real, const Tensor& mask) {
    const bool masked = real.grad().defined() && mask.defined();
    return masked ? masked_gradient(real.grad(), mask) : real.grad();
  };
  return {x.grad(), of_weight(p.weight, saved()[5]), p.bias.grad(),
          of_weight(p.recurrent, saved()[6])};
}

QatFixedLstm::QatFixedLstm(const LSTM& layer, const FormRequest& request)
    : QuantizedLayer(linear_product(), request.weight, request.bias, kernels::Activation::kNone,
                     request.config),
      options_(layer.options()) {
  for (const char* state : {"first_output", "first_cell"}) {
    register_buffer(state, Tensor::zeros({options_.units}));
  }
  QConfig of_weights = request.config;
  of_weights.activations.reset();
  recurrent_ = std::make_shared<Recurrence>(layer.recurrent_weight().value(), of_weights);
  register_child("", recurrent_);
}

Variable QatFixedLstm::integer_steps(const Variable& x, ForwardContext& context) {
  const auto in = quantized(x);
  const ProductOperands own = operands(context);
  const auto int32_bias = weight_bias(in, own);
  const bool recorded = should_record({x, own.weight, own.bias, recurrent_->weight()});
  const auto coded = [&](WeightQuantizer& quantizer, const Variable& weight,
                         const WeightBias* bias) {
    WeightCodes codes = quantizer.quantize_weights(weight.value(), bias, recorded, context);
    const Variable input = quantizer.learn_weight(weight, codes, context);
    return std::pair(codes, input);
  };
  const auto [weight, weight_input] = coded(*weight_quantizer(), own.weight, &*int32_bias);
  const auto [recurrent, recurrent_input] =
      coded(*recurrent_->weight_quantizer(), recurrent_->weight(), nullptr);
  const Tensor bias = own.bias.value();
  const std::function<Tensor()> values = [in, weight, recurrent, bias] {
    const NoGradGuard no_grad;
    return lstm(Variable(dequantized(*in)), real_parameters(weight, recurrent, bias)).value();
  };
  ActivationQuantizer& output = *output_quantizer();
  QuantizedValue y = output.empty_output({x.dim(0), x.dim(1), options_.units}, values, context);
  const Device device = y.codes.device();
  Tensor mask;
  y.codes = output.quantize(
      unclamped_steps(*in, weight, recurrent, y),
      {Tensor::full({1}, 1, DType::kF32, device), Tensor::full({1}, 0, DType::kI32, device)},
      recorded ? &mask : nullptr, /*counted=*/true);
  const Variable result = make_variable(y);
  if (!recorded) return result;
  return output.learn_output(
      record(result, std::make_shared<FixedLstmFunction>(*in, weight, recurrent, bias, mask),
             {x, weight_input, own.bias, recurrent_input}),
      {values, {in->codes, weight.codes, recurrent.codes, bias}}, context);
}

Variable QatFixedLstm::forward(const Variable& x, ForwardContext& context) {
  require_sequence(x);
  const Variable input = with_codes(x, context);
  const bool in_integers = quantized(input) && weight_quantizer()->quantizing() &&
                           recurrent_->weight_quantizer()->quantizing() &&
                           output_quantizer()->quantizing();
  const Variable y =
      in_integers ? integer_steps(input, context)
                  : output_quantizer()->forward(
                        lstm_of_rounded_weights(input, *this, *recurrent_, {}, context), context);
  if (options_.return_sequences) return y;
  const std::int64_t samples = x.dim(0), units = options_.units;
  const Variable last = part_of(y, {{0, samples, 1}, {x.dim(1) - 1, 1, 1}, {0, units, 1}});
  return under_shape(last, {samples, units});
}

std::string QatFixedLstm::description() const { return "Qat" + lstm_text(options_); }

QuantizedForm fixed_lstm_form() {
  QuantizedForm form =
      form_of<LSTM>("LSTM", FormKind::kWeighted,
                    [](const LSTM& layer, const FormRequest& request) -> std::shared_ptr<Module> {
                      return std::make_shared<QatFixedLstm>(layer, request);
                    });
  form.profiles = FormProfiles::kFixedPoint;
  form.is_linear = false;
  form.more_weights = {"recurrent_weight"};
  form.weights = [](QuantizerConfig& weights) {
    weights.scheme.granularity = kernels::Granularity::kTensor;
  };
  form.refusal = [](const Module& module, const QuantizerConfig&) -> std::string {
    const auto& layer = dynamic_cast<const LSTM&>(module);
    if (layer.options().pass.reverse) return "it begins with the last step";
    return state_refusal(layer);
  };
  return form;
}

}  // namespace steelyard::qat
