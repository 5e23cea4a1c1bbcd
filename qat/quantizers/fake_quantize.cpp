#include "steelyard/qat/quantizers/fake_quantize.h"

#include <stdexcept>

#include "steelyard/framework/files/checkpoint.h"
#include "steelyard/framework/tensor/on_device.h"
#include "steelyard/kernels/fake_quantize/fake_quantize.h"
#include "steelyard/kernels/wide_codes/wide_codes.h"
#include "steelyard/qat/quantizers/quantize_reals.h"
#include "steelyard/qat/quantizers/quantizer_state.h"
#include "steelyard/qat/quantizers/straight_through.h"

namespace steelyard::qat {
namespace {

template <typename T>
std::vector<T> host_values(const Tensor& tensor) {
  const Tensor host = tensor.to(Device{});
  return {host.span<T>().begin(), host.span<T>().end()};
}

}  // namespace

FakeQuantize::FakeQuantize(const QuantizerConfig& config, std::int64_t channels)
    : config_(config),
      observer_(observers::make_observer(config.observer, config.scheme, channels)),
      qparams_{register_buffer("scale", Tensor::full({channels}, 1.0)),
               register_buffer("zero_point", Tensor::zeros({channels}, DType::kI32))},
      switches_(register_host_buffer("switches", Tensor::zeros({kSwitches}, DType::kU8))),
      zero_range_(Tensor::zeros({channels}, DType::kU8)) {
  observers::validate(config.scheme);
  switches_.data<std::uint8_t>()[kBits] = static_cast<std::uint8_t>(config.scheme.bits);
  set_observing(true);
  set_quantizing(true);
  if (config.learning != Learning::kNothing) {
    LearnedScale::Latents latents{
        .scale = register_parameter(kLearnedScale, Tensor::full({channels}, 1.0)),
        .offset = {},
        .initial = register_buffer("initial_scale", Tensor::full({channels}, 1.0)),
        .floor = register_buffer("scale_floor", Tensor::zeros({channels}))};
    if (config.learning == Learning::kScaleAndZeroPoint && !config.scheme.symmetric) {
      latents.offset = register_parameter(kLearnedOffset, Tensor::zeros({channels}));
    }
    learned_.emplace(config.learning, std::move(latents));
  }
  for (const NamedBuffer& buffer : observer_->state()) {
    register_buffer("observer_" + buffer.name, buffer.tensor);
  }
}

std::string FakeQuantize::description() const {
  return "FakeQuantize(" + observers::to_string(config_.scheme) + ", " + observer_->name() + ")";
}

void FakeQuantize::check_state(const std::map<std::string, Tensor>& state) const {
  check_quantizer_state(*this, state);
}

void FakeQuantize::copy_state_to(FakeQuantize& copy) const {
  move_to(copy, device());
  const std::vector<NamedTensor> state = module_state(*this);
  const std::vector<NamedTensor> copied = module_state(copy);
  for (std::size_t i = 0; i < copied.size(); ++i) copied[i].tensor.copy_from(state[i].tensor);
  const auto parameters = named_parameters();
  const auto copies = copy.named_parameters();
  for (std::size_t i = 0; i < copies.size(); ++i) {
    Variable parameter = copies[i].variable;
    parameter.set_requires_grad(parameters[i].variable.requires_grad());
  }
  copy.zero_range().copy_from(zero_range());
}

observers::QScheme FakeQuantize::scheme() const {
  observers::QScheme scheme = config_.scheme;
  scheme.bits = switches_.data<std::uint8_t>()[kBits];
  return scheme;
}

std::optional<observers::QScheme> FakeQuantize::scheme_in(const Tensor& switches) const {
  const bool fits =
      switches.defined() && switches.dtype() == DType::kU8 && switches.shape() == switches_.shape();
  if (!fits) return std::nullopt;
  observers::QScheme scheme = config_.scheme;
  scheme.bits = switches.data<std::uint8_t>()[kBits];
  if (scheme.bits < 2 || scheme.bits > most_bits()) return std::nullopt;
  return scheme;
}

void FakeQuantize::set_bits(int bits) {
  observers::QScheme changed = config_.scheme;
  changed.bits = bits;
  observers::validate(changed);
  if (bits > most_bits()) {
    throw std::invalid_argument("[fake_quantize] expected at most " + std::to_string(most_bits()) +
                                " bits, got " + std::to_string(bits));
  }
  const kernels::CodeRange before = code_range();
  std::uint8_t* switches = switches_.data<std::uint8_t>();
  if (switches[kBits] == bits) return;
  follow_latents();
  switches[kBits] = static_cast<std::uint8_t>(bits);
  if (has_begun()) {
    observer_->reset();
    set(kBegun, false);
  }
  run(device(), kernels::RescaleQparams{.n = channels(),
                                        .from = before,
                                        .to = changed.code_range(),
                                        .symmetric = config_.scheme.symmetric,
                                        .scale = qparams_.scale.data<float>(),
                                        .zero_point = qparams_.zero_point.data<std::int32_t>()});
}

const Tensor& FakeQuantize::scale() const {
  follow_latents();
  return qparams_.scale;
}

const Tensor& FakeQuantize::zero_point() const {
  follow_latents();
  return qparams_.zero_point;
}

std::vector<float> FakeQuantize::host_scale() const { return host_values<float>(scale()); }

std::vector<std::int32_t> FakeQuantize::host_zero_point() const {
  return host_values<std::int32_t>(zero_point());
}

std::vector<observers::Range> FakeQuantize::float_range() const {
  const std::vector<float> scales = host_scale();
  const std::vector<std::int32_t> zero_points = host_zero_point();
  std::vector<observers::Range> ranges;
  ranges.reserve(scales.size());
  for (std::size_t c = 0; c < scales.size(); ++c) {
    const auto grid = kernels::make_code_grid(code_range(), scales[c], zero_points[c]);
    ranges.push_back({kernels::dequantize_code(grid.qmin, grid.zero_point, grid.scale),
                      kernels::dequantize_code(grid.qmax, grid.zero_point, grid.scale)});
  }
  return ranges;
}

void FakeQuantize::set_qparams(std::int64_t channel, float scale, std::int32_t zero_point) {
  if (channel < 0 || channel >= channels()) {
    throw std::invalid_argument("[fake_quantize] expected a channel of 0 to " +
                                std::to_string(channels() - 1) + ", got " +
                                std::to_string(channel));
  }
  if (has_begun()) {
    throw std::logic_error(
        "[fake_quantize] set_qparams expects a scale that is not learned yet: set it before the "
        "first training step, or load a checkpoint");
  }
  observers::validate({scale, zero_point}, scheme(), "fake_quantize");
  const Tensor scales = qparams_.scale.to(Device{}).clone();
  const Tensor zero_points = qparams_.zero_point.to(Device{}).clone();
  scales.span<float>()[static_cast<std::size_t>(channel)] = scale;
  zero_points.span<std::int32_t>()[static_cast<std::size_t>(channel)] = zero_point;
  qparams_.scale.copy_from(scales);
  qparams_.zero_point.copy_from(zero_points);
  mark_observed();
}

kernels::ChannelLayout FakeQuantize::layout(std::int64_t size) const {
  const bool divides = channels() == 0 ? size == 0 : size % channels() == 0;
  if (!divides) {
    throw std::invalid_argument(
        "[fake_quantize] expected a multiple of " + std::to_string(channels()) +
        " elements (equal parts, a scale for each), got " + std::to_string(size));
  }
  return {1, channels(), channels() == 0 ? 0 : size / channels()};
}

Tensor FakeQuantize::quantize(const Tensor& x, const QParamTensors& qparams, Tensor* mask,
                              bool counted) const {
  if (scheme().wide()) {
    if (!counted) {
      run(x.device(),
          kernels::CountNan{
              .n = x.size(), .x = x.data<float>(), .count = non_finite().data<std::int64_t>()});
    }
    return quantize_reals(x, kernels::Activation::kNone, *this, qparams, mask);
  }
  const kernels::ChannelLayout sets = layout(x.size());
  Tensor codes = Tensor::empty(x.shape(), scheme().code_dtype(), x.device());
  if (mask != nullptr) *mask = empty_mask(x.size(), x.device());
  std::uint8_t* bits = mask != nullptr ? mask->data<std::uint8_t>() : nullptr;
  visit_codes(codes.dtype(), [&](auto* tag) {
    using Code = CodeOf<decltype(tag)>;
    run(x.device(), kernels::Quantize<float, Code>{
                        .layout = sets,
                        .range = code_range(),
                        .x = x.data<float>(),
                        .scale = qparams.scale.data<float>(),
                        .zero_point = qparams.zero_point.data<std::int32_t>(),
                        .codes = codes.data<Code>(),
                        .mask = bits,
                        .nan_count = counted ? nullptr : non_finite().data<std::int64_t>()});
  });
  return codes;
}

Tensor FakeQuantize::quantize(const Tensor& x) const {
  require_observed();
  return quantize(x, {scale(), qparams_.zero_point}, nullptr, /*counted=*/true);
}

QParamTensors FakeQuantize::observe(const Tensor& values) {
  if (listener_) listener_(values.to(Device{}).span<float>());
  if (listener_ || has_begun()) return {};
  if (const auto range = observe_range()) {
    run(device(), kernels::ObserveValues{.rule = range->rule,
                                         .to = range->quantizer,
                                         .n = values.size(),
                                         .x = values.data<float>()});
    return range->qparams;
  }
  if (range_restarts()) observer_->reset();
  observer_->set_bits(scheme().bits);
  observer_->observe(layout(values.size()), values, non_finite());
  follow_observer();
  return {};
}

void FakeQuantize::follow_observer() {
  observer_->write_qparams(scheme(), qparams_, zero_range());
  mark_observed();
}

std::optional<RangeObservation> FakeQuantize::observe_range() {
  const auto running = observer_->running_range();
  if (!running || listener_ || has_begun() || channels() != 1) return std::nullopt;
  mark_observed();
  QParamTensors qparams = empty_qparams();
  return RangeObservation{range_rule(),
                          {running->state.lo.data<float>(), running->state.hi.data<float>(),
                           data_or_null<std::int64_t>(running->steps), qparams_.scale.data<float>(),
                           qparams_.zero_point.data<std::int32_t>(),
                           zero_range().data<std::uint8_t>(), non_finite().data<std::int64_t>(),
                           qparams.scale.data<float>(), qparams.zero_point.data<std::int32_t>()},
                          qparams};
}

kernels::RangeRule FakeQuantize::range_rule() const {
  const auto running = observer_->running_range();
  const observers::QScheme grid = scheme();
  return {running ? running->averaging : 0, range_restarts(), grid.code_range(), grid.symmetric};
}

void FakeQuantize::require_observed() const {
  if (!observed()) throw NeverObserved(*this);
}

void FakeQuantize::begin_learning(const ForwardContext& context) {
  const bool due = context.training && learned_ && observed() && quantizing() && !learning_waits_;
  if (!due || has_begun()) return;
  learned_->begin(code_range(), qparams_);
  set(kBegun, true);
  begun_now_ = true;
}

void FakeQuantize::follow_latents() const {
  if (follows_latents()) learned_->follow(code_range(), qparams_, {}, non_finite());
}

Variable FakeQuantize::record_use(QuantizedUse use, const ForwardContext& context) const {
  if (records_latents(context)) return learned_->record_use(std::move(use), scheme());
  if (!use.mask.defined()) return std::move(use.output);
  return straight_through(std::move(use.output), std::move(use.mask), use.input);
}

QParamTensors FakeQuantize::empty_qparams() const {
  return {Tensor::empty(qparams_.scale.shape(), DType::kF32, device()),
          Tensor::empty(qparams_.scale.shape(), DType::kI32, device())};
}

// Moved first, because it is not a buffer and does not move with the module.
const Tensor& FakeQuantize::zero_range() const {
  zero_range_.move_to(device());
  return zero_range_;
}

}  // namespace steelyard::qat
