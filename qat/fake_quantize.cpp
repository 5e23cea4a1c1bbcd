#include "qat/fake_quantize.h"

#include <algorithm>
#include <stdexcept>

#include "kernels/fake_quantize.h"
#include "kernels/quantizer_state.h"
#include "qat/learned_scale.h"

namespace steelyard::qat {
namespace {

class StraightThroughFunction : public Function {
 public:
  explicit StraightThroughFunction(Tensor mask) { save(std::move(mask)); }
  std::string name() const override { return "fake_quantize"; }
  std::vector<Tensor> backward(const Tensor& grad_output) const override {
    return {masked_gradient(grad_output, saved()[0])};
  }
};

}  // namespace

FakeQuantize::FakeQuantize(const QuantizerConfig& config, QuantizerRole role, std::int64_t channels)
    : config_(config),
      role_(role),
      observer_(observers::make_observer(config.observer, config.scheme, channels)),
      scale_(register_buffer("scale", Tensor::full({channels}, 1.0))),
      zero_point_(register_buffer("zero_point", Tensor::zeros({channels}, DType::kI32))),
      switches_(register_buffer("switches", Tensor::zeros({kSwitches}, DType::kU8))),
      zero_range_(static_cast<std::size_t>(channels), false) {
  observers::validate(config.scheme);
  switches_.data<std::uint8_t>()[kBits] = static_cast<std::uint8_t>(config.scheme.bits);
  set_observing(true);
  set_quantizing(true);
  if (config.learning != Learning::kNothing) {
    learned_scale_ = register_parameter(kLearnedScale, Tensor::full({channels}, 1.0));
    initial_scale_ = register_buffer("initial_scale", Tensor::full({channels}, 1.0));
    scale_floor_ = register_buffer("scale_floor", Tensor::zeros({channels}));
    if (config.learning == Learning::kScaleAndZeroPoint && !config.scheme.symmetric) {
      learned_zero_point_ = register_parameter(kLearnedZeroPoint, Tensor::zeros({channels}));
    }
  }
  for (const NamedBuffer& buffer : observer_->state()) {
    register_buffer("observer_" + buffer.name, buffer.tensor);
  }
}

std::string FakeQuantize::description() const {
  return "FakeQuantize(" + observers::to_string(config_.scheme) + ", " + observer_->name() + ")";
}

Variable FakeQuantize::forward(const Variable& x, ForwardContext& context) {
  if (x.dtype() != DType::kF32) throw_not_floating("fake_quantize", x.dtype());
  if (observes(context)) observe(x.value().span<float>());
  if (!quantizing()) return x;
  begin_learning(context);
  const bool recorded = should_record({x}) || (learns(context) && should_record({learned_scale_}));
  Tensor mask;
  QuantizedValue value;
  value.codes = quantize(x.value(), recorded ? &mask : nullptr);
  if (scale_.size() > 1) {
    // Codes of several scales are no operand of an integer product: hand out the float values.
    Tensor y = Tensor::empty(x.shape());
    visit_codes(value.codes.dtype(), [&](auto* tag) {
      using Code = CodeOf<decltype(tag)>;
      kernels::dequantize(layout(y.size()), value.codes.data<Code>(), scale().data(),
                          zero_point().data(), y.data<float>());
    });
    return learn(
        Variable(y), x, mask, [x] { return x.value(); }, context);
  }
  value.scale = scale()[0];
  value.zero_point = zero_point()[0];
  value.range = code_range();
  return learn(
      make_variable(std::move(value)), x, mask, [x] { return x.value(); }, context);
}

observers::QScheme FakeQuantize::scheme() const {
  observers::QScheme scheme = config_.scheme;
  scheme.bits = switches_.data<std::uint8_t>()[kBits];
  return scheme;
}

void FakeQuantize::set_bits(int bits) {
  observers::QScheme changed = config_.scheme;
  changed.bits = bits;
  observers::validate(changed);
  const kernels::CodeRange before = code_range();
  const kernels::CodeRange after = changed.code_range();
  std::uint8_t* switches = switches_.data<std::uint8_t>();
  if (switches[kBits] == bits) return;
  follow_latents();
  switches[kBits] = static_cast<std::uint8_t>(bits);
  if (has_begun()) {
    observer_->reset();
    switches[kBegun] = 0;
  }
  kernels::rescale_qparams(scale_.size(), before, after, config_.scheme.symmetric,
                           scale_.data<float>(), zero_point_.data<std::int32_t>());
}

std::span<const float> FakeQuantize::scale() const {
  follow_latents();
  return scale_.span<float>();
}

std::span<const std::int32_t> FakeQuantize::zero_point() const {
  follow_latents();
  return zero_point_.span<std::int32_t>();
}

// The scale and zero point that the latents stand for; a latent that is not finite leaves them and
// is counted, so that the run stops.
void FakeQuantize::follow_latents() const {
  if (!learned_scale_.defined() || !has_begun()) return;
  kernels::follow_latents(
      scale_.size(), code_range(), learned_scale_.value().data<float>(),
      initial_scale_.data<float>(), scale_floor_.data<float>(),
      learned_zero_point_.defined() ? learned_zero_point_.value().data<float>() : nullptr,
      scale_.data<float>(), zero_point_.data<std::int32_t>(), &non_finite_);
}

void FakeQuantize::begin_learning(const ForwardContext& context) {
  const bool due = context.training && learned_scale_.defined() && observed() && quantizing();
  if (!due || has_begun()) return;
  initial_scale_.copy_from(scale_);
  learned_scale_.value().copy_from(scale_);
  if (learned_zero_point_.defined()) {
    learned_zero_point_.value().copy_from(zero_point_.to(DType::kF32));
  }
  switches_.data<std::uint8_t>()[kBegun] = 1;
  begun_now_ = true;
}

Variable FakeQuantize::learn(Variable output, const Variable& input, Tensor mask,
                             std::function<Tensor()> values, const ForwardContext& context) const {
  if (!learns(context) || !should_record({learned_scale_})) {
    return mask.defined() ? straight_through(std::move(output), std::move(mask), input) : output;
  }
  const auto scales = scale();
  const auto zero_points = zero_point();
  const auto initial = initial_scale_.span<float>();
  const std::int64_t size = shape_size(output.shape());
  const std::int64_t sharers = role_ == QuantizerRole::kWeight ? scale_.size() : output.dim(0);
  LearnedUse use{scheme(),
                 {scales.begin(), scales.end()},
                 {zero_points.begin(), zero_points.end()},
                 {initial.begin(), initial.end()},
                 sharers == 0 ? 1 : std::max<std::int64_t>(1, size / sharers),
                 config_.learning == Learning::kClipping};
  return record_learned(std::move(output), input, std::move(mask), std::move(values),
                        std::move(use), learned_scale_, learned_zero_point_);
}

Variable FakeQuantize::learn_output(const Variable& y, std::function<Tensor()> values,
                                    const ForwardContext& context) const {
  if (!learns(context)) return y;
  return learn(make_variable(*quantized(y)), y, Tensor(), std::move(values), context);
}

void FakeQuantize::set_scale_floor(std::int64_t channel, float floor) {
  if (learned_scale_.defined()) scale_floor_.data<float>()[channel] = floor;
}

void FakeQuantize::set_qparams(std::int64_t channel, float scale, std::int32_t zero_point) {
  observers::validate({scale, zero_point}, scheme(), "fake_quantize");
  scale_.span<float>()[static_cast<std::size_t>(channel)] = scale;
  zero_point_.span<std::int32_t>()[static_cast<std::size_t>(channel)] = zero_point;
  switches_.data<std::uint8_t>()[kObserved] = 1;
}

void FakeQuantize::observe(std::span<const float> values) {
  if (listener_) return listener_(values);
  if (has_begun()) return;
  if (role_ == QuantizerRole::kWeight && !observer_->forgets()) observer_->reset();
  observer_->set_bits(scheme().bits);
  non_finite_ +=
      observer_->observe(layout(static_cast<std::int64_t>(values.size())), values.data());
  update_qparams();
}

void FakeQuantize::observe(const observers::Extremes& extremes) {
  if (has_begun()) return;
  non_finite_ += extremes.non_finite;
  observer_->observe_extremes(extremes);
  update_qparams();
}

void FakeQuantize::update_qparams() {
  const observers::QScheme grid = scheme();
  observer_->set_bits(grid.bits);
  const std::vector<observers::Range> ranges = observer_->ranges();
  for (std::size_t c = 0; c < ranges.size(); ++c) {
    const observers::QParams params = observers::choose_qparams(ranges[c], grid);
    set_qparams(static_cast<std::int64_t>(c), params.scale, params.zero_point);
    zero_range_[c] = params.zero_range;
  }
}

Tensor FakeQuantize::quantize(const Tensor& x, Tensor* mask) {
  require_observed();
  Tensor codes = Tensor::empty(x.shape(), config_.scheme.code_dtype());
  if (mask != nullptr) *mask = Tensor::empty({kernels::mask_bytes(x.size())}, DType::kU8);
  std::uint8_t* bits = mask != nullptr ? mask->data<std::uint8_t>() : nullptr;
  visit_codes(codes.dtype(), [&](auto* tag) {
    using Code = CodeOf<decltype(tag)>;
    kernels::quantize(layout(x.size()), code_range(), x.data<float>(), scale().data(),
                      zero_point().data(), codes.data<Code>(), bits, &non_finite_);
  });
  return codes;
}

kernels::ChannelLayout FakeQuantize::layout(std::int64_t size) const {
  const std::int64_t channels = scale_.size();
  return {1, channels, channels == 0 ? 0 : size / channels};
}

void FakeQuantize::require_observed() const {
  if (!observed()) {
    throw std::logic_error(
        "[fake_quantize] asked to quantize before anything was observed: train with observers on "
        "first");
  }
}

std::int64_t FakeQuantize::take_non_finite_count() { return std::exchange(non_finite_, 0); }

Variable straight_through(Variable output, Tensor mask, const Variable& input) {
  return record(std::move(output), std::make_shared<StraightThroughFunction>(std::move(mask)),
                {input});
}

Tensor masked_gradient(const Tensor& grad_output, const Tensor& mask) {
  Tensor grad = Tensor::empty(grad_output.shape());
  kernels::apply_mask(grad.size(), mask.data<std::uint8_t>(), grad_output.data<float>(),
                      grad.data<float>());
  return grad;
}

}  // namespace steelyard::qat
