#include "steelyard/qat/quantizers/activation_quantizer.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace steelyard::qat {
namespace {

// Elements that share the scale, the batch not counted.
std::int64_t per_scale(const Variable& output) {
  const std::int64_t batch = output.dim(0);
  return batch == 0 ? 1 : std::max<std::int64_t>(1, shape_size(output.shape()) / batch);
}

}  // namespace

ActivationQuantizer::ActivationQuantizer(const QuantizerConfig& config) : FakeQuantize(config, 1) {
  validate_activations(config);
  if (config.scheme.dynamic) {
    throw std::invalid_argument("[fake_quantize] expected one scale per tensor, got " +
                                observers::to_string(config.scheme));
  }
}

std::shared_ptr<FakeQuantize> ActivationQuantizer::clone() const {
  auto copy = std::make_shared<ActivationQuantizer>(config());
  copy_state_to(*copy);
  return copy;
}

Variable ActivationQuantizer::forward(const Variable& x, ForwardContext& context) {
  if (x.dtype() != DType::kF32) {
    throw std::invalid_argument("[fake_quantize] expected f32, got " +
                                std::string(dtype_name(x.dtype())));
  }
  const bool counted = observer_counts(context);
  const QParamTensors observed = observes(context) ? observe(x.value()) : QParamTensors();
  if (!quantizing()) return x;
  const QParamTensors qparams = parameters(observed, context);
  const bool recorded = should_record({x}) || records_latents(context);
  Tensor mask;
  Tensor codes = quantize(x.value(), qparams, recorded ? &mask : nullptr, counted);
  QuantizedUse use{.output = make_variable(value_of(std::move(codes), qparams)),
                   .input = x,
                   .mask = std::move(mask),
                   .values = {[x] { return x.value(); }, {x.value()}},
                   .qparams = qparams};
  use.per_scale = per_scale(use.output);
  return record_use(std::move(use), context);
}

QParamTensors ActivationQuantizer::observe(const Tensor& values) {
  if (!gathers_ || has_listener() || follows_latents()) return FakeQuantize::observe(values);
  observer().observe(layout(values.size()), values, non_finite());
  gathered_any_ = true;
  return {};
}

std::optional<RangeObservation> ActivationQuantizer::observe_range() {
  return gathers_ ? std::nullopt : FakeQuantize::observe_range();
}

void ActivationQuantizer::begin_step() {
  gathers_ = observing() && !has_begun();
  if (!gathers_) return;
  observer().set_bits(scheme().bits);
  observer().begin_step();
}

// If learning began in this step, it began with the range that the steps before had left.
void ActivationQuantizer::end_step() {
  if (gathers_ && gathered_any_ && !has_begun()) {
    observer().end_step();
    follow_observer();
  }
  abandon_step();
}

void ActivationQuantizer::abandon_step() {
  if (gathers_) observer().abandon_step();
  gathers_ = gathered_any_ = false;
}

QParamTensors ActivationQuantizer::parameters(const QParamTensors& observed,
                                              const ForwardContext& context) {
  require_observed();
  begin_learning(context);
  if (observed.scale.defined()) return observed;
  if (follows_latents()) {
    QParamTensors qparams = empty_qparams();
    latents()->follow(code_range(), kept(), qparams, non_finite());
    return qparams;
  }
  // In training, scale and zero point do not change until the step is over, unless something is
  // observed in it.
  if (context.training && !observes(context)) return kept();
  return {kept().scale.clone(), kept().zero_point.clone()};
}

QuantizedValue ActivationQuantizer::empty_output(Shape shape, const QParamTensors& observed,
                                                 const ForwardContext& context) {
  QParamTensors qparams = parameters(observed, context);
  return value_of(Tensor::empty(std::move(shape), scheme().code_dtype(), device()),
                  std::move(qparams));
}

QuantizedValue ActivationQuantizer::empty_output(Shape shape, const std::function<Tensor()>& values,
                                                 const ForwardContext& context) {
  return empty_output(std::move(shape), observes(context) ? observe(values()) : QParamTensors(),
                      context);
}

QuantizedValue ActivationQuantizer::value_of(Tensor codes, QParamTensors qparams) const {
  return {.codes = std::move(codes),
          .qparams = std::move(qparams),
          .range = code_range(),
          .rounding = config().rounding};
}

Variable ActivationQuantizer::learn_output(const Variable& y, RealValues values,
                                           const ForwardContext& context) const {
  if (!learns(context)) return y;
  const auto codes = quantized(y);
  return record_use({.output = make_variable(*codes),
                     .input = y,
                     .mask = {},
                     .values = std::move(values),
                     .qparams = codes->qparams,
                     .per_scale = per_scale(y)},
                    context);
}

}  // namespace steelyard::qat
