#include "steelyard/qat/fake_quantize.h"

#include <algorithm>
#include <stdexcept>

#include "steelyard/framework/checkpoint.h"
#include "steelyard/framework/on_device.h"
#include "steelyard/kernels/fake_quantize/fake_quantize.h"
#include "steelyard/kernels/quantizer_state/quantizer_state.h"
#include "steelyard/kernels/weight_codes/weight_codes.h"
#include "steelyard/qat/learned_scale.h"

namespace steelyard::qat {
namespace {

template <typename T>
std::vector<T> host_values(const Tensor& tensor) {
  const Tensor host = tensor.to(Device{});
  return {host.span<T>().begin(), host.span<T>().end()};
}

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
      switches_(register_host_buffer("switches", Tensor::zeros({kSwitches}, DType::kU8))),
      zero_range_(Tensor::zeros({channels}, DType::kU8)),
      faults_(Tensor::zeros({2}, DType::kI64)) {
  observers::validate(config.scheme);
  switches_.data<std::uint8_t>()[kBits] = static_cast<std::uint8_t>(config.scheme.bits);
  set_observing(true);
  set_quantizing(true);
  if (config.learning != Learning::kNothing) {
    learned_scale_ = register_parameter(kLearnedScale, Tensor::full({channels}, 1.0));
    initial_scale_ = register_buffer("initial_scale", Tensor::full({channels}, 1.0));
    scale_floor_ = register_buffer("scale_floor", Tensor::zeros({channels}));
    if (config.learning == Learning::kScaleAndZeroPoint && !config.scheme.symmetric) {
      learned_offset_ = register_parameter(kLearnedOffset, Tensor::zeros({channels}));
    }
  }
  for (const NamedBuffer& buffer : observer_->state()) {
    register_buffer("observer_" + buffer.name, buffer.tensor);
  }
}

std::string FakeQuantize::description() const {
  return "FakeQuantize(" + observers::to_string(config_.scheme) + ", " + observer_->name() + ")";
}

std::shared_ptr<FakeQuantize> FakeQuantize::clone() const {
  auto copy = std::make_shared<FakeQuantize>(config_, role_, channels());
  move_to(*copy, device());
  load_into(*copy, module_state(*this), "clone");
  const auto parameters = named_parameters();
  const auto copies = copy->named_parameters();
  for (std::size_t i = 0; i < copies.size(); ++i) {
    Variable parameter = copies[i].variable;
    parameter.set_requires_grad(parameters[i].variable.requires_grad());
  }
  copy->with_scale(copy->zero_range_).copy_from(with_scale(zero_range_));
  return copy;
}

Variable FakeQuantize::forward(const Variable& x, ForwardContext& context) {
  if (x.dtype() != DType::kF32) {
    throw std::invalid_argument("[fake_quantize] expected f32, got " +
                                std::string(dtype_name(x.dtype())));
  }
  const bool counted = observer_counts(context);
  const StepParameters observed = observes(context) ? observe(x.value()) : StepParameters();
  if (!quantizing()) return x;
  const StepParameters step = parameters(observed, context);
  const bool recorded = should_record({x}) || (learns(context) && should_record({learned_scale_}));
  Tensor mask;
  Tensor codes = quantize(x.value(), step, recorded ? &mask : nullptr, counted);
  if (channels() > 1) {
    // Codes of several scales are no operand of an integer product: hand out the float values.
    Tensor y = Tensor::empty(x.shape(), DType::kF32, codes.device());
    visit_codes(codes.dtype(), [&](auto* tag) {
      using Code = CodeOf<decltype(tag)>;
      run(y.device(),
          kernels::Dequantize<float, Code>{.layout = layout(y.size()),
                                           .codes = codes.data<Code>(),
                                           .scale = step.scale.data<float>(),
                                           .zero_point = step.zero_point.data<std::int32_t>(),
                                           .y = y.data<float>()});
    });
    return learn(
        Variable(y), x, mask, [x] { return x.value(); }, step, context);
  }
  return learn(
      make_variable(value_of(std::move(codes), step)), x, mask, [x] { return x.value(); }, step,
      context);
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
  if (scheme.bits < 2 || scheme.bits > 8) return std::nullopt;
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
  follow_latents({});
  switches[kBits] = static_cast<std::uint8_t>(bits);
  if (has_begun()) {
    observer_->reset();
    switches[kBegun] = 0;
  }
  run(device(), kernels::RescaleQparams{.n = channels(),
                                        .from = before,
                                        .to = after,
                                        .symmetric = config_.scheme.symmetric,
                                        .scale = scale_.data<float>(),
                                        .zero_point = zero_point_.data<std::int32_t>()});
}

const Tensor& FakeQuantize::scale() const {
  follow_latents({});
  return scale_;
}

const Tensor& FakeQuantize::zero_point() const {
  follow_latents({});
  return zero_point_;
}

std::vector<float> FakeQuantize::host_scale() const { return host_values<float>(scale()); }

std::vector<std::int32_t> FakeQuantize::host_zero_point() const {
  return host_values<std::int32_t>(zero_point());
}

QuantizedValue FakeQuantize::value_of(Tensor codes, const StepParameters& step) const {
  return {.codes = std::move(codes),
          .scale = step.scale,
          .zero_point = step.zero_point,
          .range = code_range()};
}

// The scale and zero point that the latents stand for; a latent that is not finite leaves them and
// is counted, so that the run stops. `step`, where defined, becomes copies.
void FakeQuantize::follow_latents(const StepParameters& step) const {
  if (!learned_scale_.defined() || !has_begun()) return;
  run(device(),
      kernels::FollowLatents{
          .n = channels(),
          .range = code_range(),
          .latent = learned_scale_.value().data<float>(),
          .initial = initial_scale_.data<float>(),
          .floor = scale_floor_.data<float>(),
          .offset = learned_offset_.defined() ? learned_offset_.value().data<float>() : nullptr,
          .scale = scale_.data<float>(),
          .zero_point = zero_point_.data<std::int32_t>(),
          .non_finite = non_finite().data<std::int64_t>(),
          .step_scale = step.scale.defined() ? step.scale.data<float>() : nullptr,
          .step_zero_point =
              step.zero_point.defined() ? step.zero_point.data<std::int32_t>() : nullptr});
}

StepParameters FakeQuantize::empty_step() const {
  return {Tensor::empty(scale_.shape(), DType::kF32, device()),
          Tensor::empty(scale_.shape(), DType::kI32, device())};
}

StepParameters FakeQuantize::parameters(const StepParameters& observed,
                                        const ForwardContext& context) {
  require_observed();
  begin_learning(context);
  if (observed.scale.defined()) return observed;
  if (learned_scale_.defined() && has_begun()) {
    StepParameters step = empty_step();
    follow_latents(step);
    return step;
  }
  // In training they stay as they are until the step is over, unless more is observed in it.
  if (context.training && !observes(context)) return {scale_, zero_point_};
  return {scale_.clone(), zero_point_.clone()};
}

void FakeQuantize::begin_learning(const ForwardContext& context) {
  const bool due = context.training && learned_scale_.defined() && observed() && quantizing();
  if (!due || has_begun()) return;
  run(device(),
      kernels::BeginLatents{
          .n = channels(),
          .range = code_range(),
          .scale = scale_.data<float>(),
          .zero_point = zero_point_.data<std::int32_t>(),
          .initial = initial_scale_.data<float>(),
          .latent = learned_scale_.value().data<float>(),
          .offset = learned_offset_.defined() ? learned_offset_.value().data<float>() : nullptr});
  switches_.data<std::uint8_t>()[kBegun] = 1;
  begun_now_ = true;
}

Variable FakeQuantize::learn(Variable output, const Variable& input, Tensor mask,
                             std::function<Tensor()> values, const StepParameters& step,
                             const ForwardContext& context) const {
  if (!learns(context) || !should_record({learned_scale_})) {
    return mask.defined() ? straight_through(std::move(output), std::move(mask), input) : output;
  }
  const std::int64_t size = shape_size(output.shape());
  const std::int64_t sharers = role_ == QuantizerRole::kWeight ? scale_.size() : output.dim(0);
  LearnedUse use{scheme(),
                 step.scale,
                 step.zero_point,
                 initial_scale_,
                 learned_offset_.defined() ? learned_offset_.value() : Tensor(),
                 sharers == 0 ? 1 : std::max<std::int64_t>(1, size / sharers),
                 config_.learning == Learning::kClipping};
  return record_learned(std::move(output), input, std::move(mask), std::move(values),
                        std::move(use), learned_scale_, learned_offset_);
}

Variable FakeQuantize::learn_output(const Variable& y, std::function<Tensor()> values,
                                    const ForwardContext& context) const {
  if (!learns(context)) return y;
  const auto codes = quantized(y);
  return learn(make_variable(*codes), y, Tensor(), std::move(values),
               {codes->scale, codes->zero_point}, context);
}

std::vector<observers::Range> FakeQuantize::float_range() const {
  const std::vector<float> scales = host_scale();
  const std::vector<std::int32_t> zero_points = host_zero_point();
  std::vector<observers::Range> ranges;
  ranges.reserve(scales.size());
  for (std::size_t c = 0; c < scales.size(); ++c) {
    const auto grid = kernels::make_affine(code_range(), scales[c], zero_points[c]);
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
        "[fake_quantize] set_qparams after the first training step: the scale is learned since, "
        "set it before or load a checkpoint");
  }
  observers::validate({scale, zero_point}, scheme(), "fake_quantize");
  const Tensor scales = scale_.to(Device{}).clone();
  const Tensor zero_points = zero_point_.to(Device{}).clone();
  scales.span<float>()[static_cast<std::size_t>(channel)] = scale;
  zero_points.span<std::int32_t>()[static_cast<std::size_t>(channel)] = zero_point;
  scale_.copy_from(scales);
  zero_point_.copy_from(zero_points);
  switches_.data<std::uint8_t>()[kObserved] = 1;
}

// Only weights are seen whole in every step.
bool FakeQuantize::range_restarts() const {
  return role_ == QuantizerRole::kWeight && !observer_->forgets();
}

StepParameters FakeQuantize::observe(const Tensor& values) {
  if (listener_) listener_(values.to(Device{}).span<float>());
  if (listener_ || has_begun()) return {};
  if (const auto range = observe_range()) {
    run(device(), kernels::ObserveValues{.rule = range->rule,
                                         .to = range->quantizer,
                                         .n = values.size(),
                                         .x = values.data<float>()});
    return range->step;
  }
  if (range_restarts()) observer_->reset();
  observer_->set_bits(scheme().bits);
  observer_->observe(layout(values.size()), values, non_finite());
  update_qparams();
  return {};
}

std::optional<RangeObservation> FakeQuantize::observe_range() {
  const auto running = observer_->running_range();
  if (!running || listener_ || has_begun() || channels() != 1) return std::nullopt;
  switches_.data<std::uint8_t>()[kObserved] = 1;
  StepParameters step = empty_step();
  const observers::QScheme grid = scheme();
  return RangeObservation{
      {running->averaging, range_restarts(), grid.code_range(), grid.symmetric},
      {running->state.lo.data<float>(), running->state.hi.data<float>(),
       running->steps.defined() ? running->steps.data<std::int64_t>() : nullptr,
       scale_.data<float>(), zero_point_.data<std::int32_t>(),
       with_scale(zero_range_).data<std::uint8_t>(), non_finite().data<std::int64_t>(),
       step.scale.data<float>(), step.zero_point.data<std::int32_t>()},
      step};
}

void FakeQuantize::update_qparams() {
  const observers::QScheme grid = scheme();
  observer_->set_bits(grid.bits);
  observer_->write_qparams(grid, {scale_, zero_point_, with_scale(zero_range_)});
  switches_.data<std::uint8_t>()[kObserved] = 1;
}

Tensor FakeQuantize::quantize(const Tensor& x, const StepParameters& step, Tensor* mask,
                              bool counted) const {
  const kernels::ChannelLayout sets = layout(x.size());
  Tensor codes = Tensor::empty(x.shape(), config_.scheme.code_dtype(), x.device());
  if (mask != nullptr) *mask = empty_mask(x.size(), x.device());
  std::uint8_t* bits = mask != nullptr ? mask->data<std::uint8_t>() : nullptr;
  visit_codes(codes.dtype(), [&](auto* tag) {
    using Code = CodeOf<decltype(tag)>;
    run(x.device(), kernels::Quantize<float, Code>{
                        .layout = sets,
                        .range = code_range(),
                        .x = x.data<float>(),
                        .scale = step.scale.data<float>(),
                        .zero_point = step.zero_point.data<std::int32_t>(),
                        .codes = codes.data<Code>(),
                        .mask = bits,
                        .nan_count = counted ? nullptr : non_finite().data<std::int64_t>()});
  });
  return codes;
}

Tensor FakeQuantize::quantize(const Tensor& x) const {
  require_observed();
  return quantize(x, {scale(), zero_point_}, nullptr, /*counted=*/true);
}

WeightCodes FakeQuantize::quantize_weights(const Tensor& weight, const WeightBias* behind,
                                           bool recorded, const ForwardContext& context) {
  const std::int64_t outputs = weight.dim(0);
  const bool per_tensor = channels() == 1;
  static_cast<void>(layout(weight.size()));  // throws unless they divide
  if (behind != nullptr && !per_tensor && channels() != outputs) {
    throw std::invalid_argument("[fake_quantize] expected weights of " +
                                std::to_string(channels()) + " outputs, got " +
                                shape_string(weight.shape()));
  }
  const observers::QScheme grid = scheme();
  const auto running = observer_->running_range();
  kernels::WeightQuantization op;
  op.scales = channels();
  op.rows = per_tensor || behind != nullptr ? outputs : channels();
  op.row_size = op.rows == 0 ? 0 : weight.size() / op.rows;
  op.rule = {running ? running->averaging : 0, range_restarts(), grid.code_range(), grid.symmetric};
  op.counted = observer_counts(context);
  op.keeps = context.training || op.counted;
  if (behind != nullptr) {
    const bool follows = observes(context) || learns(context);
    op.fit = follows ? kernels::BiasFit::kFollows : kernels::BiasFit::kKeepsRoom;
    op.x_codes = behind->input_codes;
  }
  if (learned_scale_.defined() && has_begun()) op.source = kernels::ScaleSource::kLatent;
  if (observes(context)) {
    if (running && op.rows == op.scales && !listener_) {
      op.source = kernels::ScaleSource::kExtremes;
      switches_.data<std::uint8_t>()[kObserved] = 1;
    } else {
      observe(weight);
    }
  }
  require_observed();
  const auto floats = [](const Tensor& tensor) {
    return tensor.defined() ? tensor.data<float>() : nullptr;
  };
  WeightCodes to;
  to.bits = grid.bits;
  to.codes = Tensor::empty(weight.shape(), DType::kI8, device());
  to.scales = Tensor::empty(scale_.shape(), DType::kF32, device());
  if (!grid.symmetric) to.zero_points = Tensor::empty(scale_.shape(), DType::kI32, device());
  if (recorded) to.mask = empty_mask(weight.size(), device());
  kernels::BiasBehind bias{};
  if (behind != nullptr) {
    bias = {floats(behind->input_scale), behind->input_zero_point.data<std::int32_t>(),
            floats(behind->bias), floats(behind->deployed)};
    to.product_scale = Tensor::empty({outputs}, DType::kF32, device());
    if (behind->bias.defined()) to.bias = Tensor::empty({outputs}, DType::kI32, device());
  }
  const kernels::WeightQuantizer quantizer{
      running ? floats(running->state.lo) : nullptr,
      running ? floats(running->state.hi) : nullptr,
      running && running->steps.defined() ? running->steps.data<std::int64_t>() : nullptr,
      learned_scale_.defined() ? floats(learned_scale_.value()) : nullptr,
      floats(initial_scale_),
      floats(scale_floor_),
      scale_.data<float>(),
      with_scale(zero_range_).data<std::uint8_t>(),
      non_finite().data<std::int64_t>(),
      faults_.data<std::int64_t>() + 1,
      to.bias.defined() ? too_large_biases(outputs) : nullptr,
      grid.symmetric ? nullptr : zero_point_.data<std::int32_t>(),
      learned_offset_.defined() ? floats(learned_offset_.value()) : nullptr};
  const kernels::WeightCodeArrays arrays{
      to.codes.data<std::int8_t>(),
      recorded ? to.mask.data<std::uint8_t>() : nullptr,
      to.scales.data<float>(),
      floats(to.product_scale),
      to.bias.defined() ? to.bias.data<std::int32_t>() : nullptr,
      grid.symmetric ? nullptr : to.zero_points.data<std::int32_t>()};
  run(device(), kernels::QuantizeWeights{op, weight.data<float>(), quantizer, bias, arrays});
  begin_learning(context);
  return to;
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

void FakeQuantize::require_observed() const {
  if (!observed()) {
    throw std::logic_error(
        "[fake_quantize] asked to quantize before anything was observed: train with observers on "
        "first");
  }
}

// Zeros where no bias was too large.
float* FakeQuantize::too_large_biases(std::int64_t outputs) {
  if (!too_large_bias_.defined()) too_large_bias_ = Tensor::zeros({outputs, 2});
  return with_scale(too_large_bias_).data<float>();
}

Faults FakeQuantize::take_faults() {
  const auto counts = host_values<std::int64_t>(faults_);
  if (counts[0] > 0 || counts[1] > 0) faults_.fill(0);
  Faults faults{counts[0], std::nullopt};
  if (counts[1] == 0) return faults;
  const auto biases = host_values<float>(too_large_bias_);
  too_large_bias_.fill(0);
  const auto first = std::find_if(biases.begin(), biases.end(), [](float v) { return v != 0; });
  const auto place = first - biases.begin();
  faults.overflow = {place / 2, first[0], first[1]};
  return faults;
}

const Tensor& FakeQuantize::with_scale(const Tensor& tensor) const {
  tensor.move_to(device());
  return tensor;
}

Variable straight_through(Variable output, Tensor mask, const Variable& input) {
  return record(std::move(output), std::make_shared<StraightThroughFunction>(std::move(mask)),
                {input});
}

Tensor masked_gradient(const Tensor& grad_output, const Tensor& mask) {
  Tensor grad = Tensor::empty(grad_output.shape(), DType::kF32, grad_output.device());
  run(grad.device(), kernels::ApplyMask<float>{.n = grad.size(),
                                               .mask = mask.data<std::uint8_t>(),
                                               .grad_y = grad_output.data<float>(),
                                               .grad_x = grad.data<float>()});
  return grad;
}

Tensor empty_mask(std::int64_t elements, Device device) {
  return Tensor::empty({kernels::mask_bytes(elements)}, DType::kU8, device);
}

}  // namespace steelyard::qat
