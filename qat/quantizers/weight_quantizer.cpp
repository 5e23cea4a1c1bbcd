#include "steelyard/qat/quantizers/weight_quantizer.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "steelyard/framework/tensor/on_device.h"
#include "steelyard/kernels/integer_product/integer_product.h"
#include "steelyard/qat/quantizers/straight_through.h"

namespace steelyard::qat {

WeightQuantizer::WeightQuantizer(const QuantizerConfig& config, std::int64_t channels)
    : FakeQuantize(config, channels) {
  validate_weights(config);
}

std::shared_ptr<FakeQuantize> WeightQuantizer::clone() const {
  auto copy = std::make_shared<WeightQuantizer>(config(), channels());
  copy_state_to(*copy);
  return copy;
}

Variable WeightQuantizer::forward(const Variable& weight, ForwardContext& context) {
  if (!quantizing()) {
    if (observes(context) && !observed_in_step_) {
      observe(weight.value());
      observed_in_step_ = observes_once_;
    }
    return weight;
  }
  WeightCodes codes = quantize_weights(weight.value(), nullptr, should_record({weight}), context);
  Tensor mask = std::exchange(codes.mask, Tensor());
  QParamTensors qparams = parameters(codes);
  return record_use(
      use_of(make_weight(std::move(codes)), weight, std::move(qparams), std::move(mask)), context);
}

Variable WeightQuantizer::learn_weight(const Variable& weight, WeightCodes& codes,
                                       const ForwardContext& context) const {
  if (!codes.mask.defined() || !learns(context)) return weight;
  return record_use(use_of(Variable(weight.value()), weight, parameters(codes),
                           std::exchange(codes.mask, Tensor())),
                    context);
}

QuantizedUse WeightQuantizer::use_of(Variable output, const Variable& weight, QParamTensors qparams,
                                     Tensor mask) const {
  const Tensor& values = weight.value();
  const std::int64_t per_scale = channels() == 0 ? 1 : values.size() / channels();
  return {.output = std::move(output),
          .input = weight,
          .mask = std::move(mask),
          .values = {[values] { return values; }, {values}},
          .qparams = std::move(qparams),
          .per_scale = std::max<std::int64_t>(1, per_scale)};
}

QParamTensors WeightQuantizer::parameters(const WeightCodes& codes) const {
  const Tensor& zero_point = codes.qparams.zero_point;
  return {codes.qparams.scale, zero_point.defined() ? zero_point : kept().zero_point};
}

WeightCodes WeightQuantizer::quantize_weights(const Tensor& weight, const WeightBias* bias,
                                              bool recorded, const ForwardContext& context) {
  static_cast<void>(layout(weight.size()));  // throws unless they divide
  if (bias != nullptr && channels() != 1 && channels() != weight.dim(0)) {
    throw std::invalid_argument("[fake_quantize] expected weights of " +
                                std::to_string(channels()) + " outputs, got " +
                                shape_string(weight.shape()));
  }
  kernels::WeightQuantization op = operation_on(weight, bias, context);
  if (observes(context) && !observed_in_step_) {
    observe_in_pass(weight, op);
    observed_in_step_ = observes_once_;
  }
  require_observed();
  WeightCodes to = empty_codes(weight, bias, recorded);
  kernels::BiasOfRows bias_arrays{};
  if (bias != nullptr) {
    bias_arrays = {bias->input.scale.data<float>(), bias->input.zero_point.data<std::int32_t>(),
                   data_or_null<float>(bias->values), data_or_null<float>(bias->deployed)};
  }
  run(device(),
      kernels::QuantizeWeights{
          .op = op,
          .weight = weight.data<float>(),
          .quantizer = state(weight.dim(0), to.bias.defined()),
          .bias = bias_arrays,
          .to = {to.codes.data<std::int8_t>(), data_or_null<std::uint8_t>(to.mask),
                 to.qparams.scale.data<float>(), data_or_null<float>(to.product_scale),
                 data_or_null<std::int32_t>(to.bias),
                 data_or_null<std::int32_t>(to.qparams.zero_point),
                 data_or_null<std::int8_t>(to.ordered), data_or_null<std::int32_t>(to.sums)}});
  begin_learning(context);
  return to;
}

// Observes in the kernel that quantizes, if that kernel can do what the observer does.
void WeightQuantizer::observe_in_pass(const Tensor& weight, kernels::WeightQuantization& op) {
  if (observer().running_range() && op.rows == op.scales && !has_listener()) {
    op.source = kernels::ScaleSource::kExtremes;
    mark_observed();
  } else {
    observe(weight);
  }
}

// The operation on scales that are given or follow latents.
kernels::WeightQuantization WeightQuantizer::operation_on(const Tensor& weight,
                                                          const WeightBias* bias,
                                                          const ForwardContext& context) const {
  const bool by_output = channels() == 1 || bias != nullptr;
  kernels::WeightQuantization op;
  op.scales = channels();
  op.rows = by_output ? weight.dim(0) : channels();
  op.row_size = op.rows == 0 ? 0 : weight.size() / op.rows;
  if (by_output && weight.dim(1) > 0) op.taps = op.row_size / weight.dim(1);
  op.source = follows_latents() ? kernels::ScaleSource::kLatent : kernels::ScaleSource::kGiven;
  op.rule = range_rule();
  op.counted = observer_counts(context);
  op.evaluates = !context.training;
  op.keeps = context.training || op.counted;
  if (bias != nullptr) {
    const bool follows = observes(context) || learns(context);
    op.fit = follows ? kernels::BiasFit::kFollows : kernels::BiasFit::kKeepsRoom;
    op.x_codes = bias->input_codes;
  }
  return op;
}

WeightCodes WeightQuantizer::empty_codes(const Tensor& weight, const WeightBias* bias,
                                         bool recorded) const {
  const observers::QScheme grid = scheme();
  WeightCodes to;
  to.bits = grid.bits;
  to.range = grid.code_range();
  to.codes = Tensor::empty(weight.shape(), DType::kI8, device());
  to.qparams.scale = Tensor::empty({channels()}, DType::kF32, device());
  if (!grid.symmetric) to.qparams.zero_point = Tensor::empty({channels()}, DType::kI32, device());
  if (recorded) to.mask = empty_mask(weight.size(), device());
  if (bias != nullptr) {
    to.product_scale = Tensor::empty({weight.dim(0)}, DType::kF32, device());
    if (bias->values.defined()) to.bias = Tensor::empty({weight.dim(0)}, DType::kI32, device());
    const std::int64_t channels = weight.dim(1);
    if (device().kind != Device::Kind::kCpu && channels > 0 &&
        channels % kernels::kOrderedChannels == 0) {
      to.sums = Tensor::empty({weight.dim(0)}, DType::kI32, device());
      const bool has_taps = weight.size() > weight.dim(0) * channels;
      if (has_taps) to.ordered = Tensor::empty(weight.shape(), DType::kI8, device());
    }
  }
  return to;
}

// The state that the kernel reads and updates.
kernels::WeightQuantizerArrays WeightQuantizer::state(std::int64_t outputs, bool with_bias) {
  kernels::WeightQuantizerArrays state{};
  if (const auto running = observer().running_range()) {
    state.lo = running->state.lo.data<float>();
    state.hi = running->state.hi.data<float>();
    state.steps = data_or_null<std::int64_t>(running->steps);
  }
  const bool affine = !scheme().symmetric;
  if (const LearnedScale* learned = latents()) {
    learned->require_size(kept().scale.size());
    state.latent = learned->scale().data<float>();
    state.initial = learned->latents().initial.data<float>();
    state.floor = learned->latents().floor.data<float>();
    state.offset = data_or_null<float>(learned->offset());
  }
  state.scale = kept().scale.data<float>();
  if (affine) state.zero_point = kept().zero_point.data<std::int32_t>();
  state.zero_range = zero_range().data<std::uint8_t>();
  state.non_finite = non_finite().data<std::int64_t>();
  state.too_large = faults().overflows(device());
  if (with_bias) state.too_large_bias = faults().overflowing_biases(outputs, device());
  return state;
}

}  // namespace steelyard::qat
