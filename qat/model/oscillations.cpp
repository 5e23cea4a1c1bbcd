#include "steelyard/qat/model/oscillations.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/on_device.h"

namespace steelyard::qat {
namespace {

// Null where all are 0.
const std::int32_t* zero_points_of(const FakeQuantize& quantizer) {
  if (quantizer.config().scheme.symmetric) return nullptr;
  return quantizer.zero_point().data<std::int32_t>();
}

// A layer's weight or its gradient in the order of the codes, changes of which go back to it.
class ByOutput {
 public:
  ByOutput(const QuantizedLayer& layer, const Tensor& source)
      : layer_(layer), source_(source), tensor_(layer.by_output_channel(source)) {}
  ~ByOutput() {
    if (tensor_.raw() != source_.raw()) source_.copy_from(layer_.by_output_channel(tensor_));
  }
  ByOutput(const ByOutput&) = delete;
  ByOutput& operator=(const ByOutput&) = delete;

  const Tensor& tensor() const { return tensor_; }

 private:
  const QuantizedLayer& layer_;
  Tensor source_;
  Tensor tensor_;
};

}  // namespace

double CosineSchedule::at(std::int64_t step, std::int64_t total_steps) const {
  const double part = static_cast<double>(step) / static_cast<double>(total_steps);
  return end + (start - end) * 0.5 * (1.0 + std::cos(std::numbers::pi * part));
}

kernels::OscillationState OscillationCallback::Tracked::state() const {
  return {code.data<std::int8_t>(), direction.data<std::int8_t>(), frequency.data<float>(),
          mean_code.data<float>(), frozen.data<std::uint8_t>()};
}

OscillationCallback::OscillationCallback(Module& model, const OscillationOptions& options)
    : options_(options) {
  for (const NamedModule& entry : model.named_modules()) {
    auto* layer = dynamic_cast<QuantizedLayer*>(entry.module);
    if (layer == nullptr || layer->weight_quantizer() == nullptr) continue;
    if (!layer->weight().requires_grad()) continue;
    const bool known = std::any_of(weights_.begin(), weights_.end(), [&](const Tracked& w) {
      return w.layer->weight().node() == layer->weight().node();
    });
    if (known) continue;  // a weight that several layers have in common
    if (layer->folds_norm()) {
      throw InputError("oscillations: " + entry.name +
                       " folds its batch norm in every step: expected bn_fold frozen or none");
    }
    const Shape shape = layer->weight_by_output_channel().shape();
    const Device device = layer->weight().value().device();
    weights_.push_back(
        {join_path(entry.name, "weight"), layer, Tensor::zeros(shape, DType::kI8, device),
         Tensor::zeros(shape, DType::kI8, device), Tensor::zeros(shape, DType::kF32, device),
         Tensor::zeros(shape, DType::kF32, device), Tensor::zeros(shape, DType::kU8, device),
         Tensor::zeros({2}, DType::kI64)});
  }
  if (weights_.empty()) {
    throw InputError("oscillations: no layer that is trained has quantized weights");
  }
  const Device device = weights_[0].code.device();
  lambda_ = Tensor::zeros({}, DType::kF64, device);
  freeze_above_ = Tensor::full({}, std::numeric_limits<double>::infinity(), DType::kF32, device);
}

void OscillationCallback::on_step_begin(std::int64_t step, std::int64_t total_steps) {
  if (options_.damping) lambda_.fill(options_.damping->at(step, total_steps));
  if (options_.freeze_threshold) {
    freeze_above_.fill(options_.freeze_threshold->at(step, total_steps));
  }
}

OscillationCallback::Work OscillationCallback::work_of(const Tracked& w) {
  const FakeQuantize& quantizer = *w.layer->weight_quantizer();
  if (!quantizer.quantizing() || !w.layer->weight().grad().defined()) return Work::kNone;
  return w.steps() > 0 && w.bits() == quantizer.scheme().bits ? Work::kTrack : Work::kBegin;
}

bool OscillationCallback::repeats_last_step() const {
  return std::all_of(weights_.begin(), weights_.end(), [](const Tracked& w) {
    return w.work != Work::kBegin && w.work == work_of(w);
  });
}

void OscillationCallback::on_gradients() {
  for (Tracked& w : weights_) {
    w.work = work_of(w);
    if (w.work == Work::kNone) continue;
    FakeQuantize& quantizer = *w.layer->weight_quantizer();
    const ByOutput weight(*w.layer, w.layer->weight().value());
    const ByOutput gradient(*w.layer, w.layer->weight().grad());
    const Tensor codes = quantizer.quantize(weight.tensor());
    const kernels::OscillationState state = w.state();
    const kernels::ChannelLayout layout = quantizer.layout(w.size());
    const float* scale = quantizer.scale().data<float>();
    const std::int32_t* zero_point = zero_points_of(quantizer);
    const auto* code = codes.data<std::int8_t>();
    float* values = weight.tensor().data<float>();
    float* grad = gradient.tensor().data<float>();
    if (w.work == Work::kTrack) {
      run(codes.device(),
          kernels::TrackOscillations{.n = w.size(),
                                     .codes = code,
                                     .momentum = static_cast<float>(options_.momentum),
                                     .freeze_above = freeze_above_.data<float>(),
                                     .state = state});
    } else {
      run(codes.device(), kernels::BeginOscillations{.n = w.size(), .codes = code, .state = state});
    }
    if (options_.damping) {
      run(codes.device(), kernels::AddDampingGradient<float>{.layout = layout,
                                                             .range = quantizer.code_range(),
                                                             .lambda = lambda_.data<double>(),
                                                             .x = values,
                                                             .scale = scale,
                                                             .zero_point = zero_point,
                                                             .codes = code,
                                                             .grad = grad});
    }
    run(codes.device(), kernels::HoldFrozen{.layout = layout,
                                            .state = state,
                                            .scale = scale,
                                            .zero_point = zero_point,
                                            .x = values,
                                            .grad = grad});
  }
}

void OscillationCallback::on_update() {
  for (const Tracked& w : weights_) {
    if (w.steps() == 0 && w.work == Work::kNone) continue;
    const FakeQuantize& quantizer = *w.layer->weight_quantizer();
    const ByOutput weight(*w.layer, w.layer->weight().value());
    const float* scale = quantizer.scale().data<float>();
    run(w.code.device(), kernels::HoldFrozen{.layout = quantizer.layout(w.size()),
                                             .state = w.state(),
                                             .scale = scale,
                                             .zero_point = zero_points_of(quantizer),
                                             .x = weight.tensor().data<float>(),
                                             .grad = static_cast<float*>(nullptr)});
  }
}

void OscillationCallback::on_step_end(const StepReport&) {
  for (const Tracked& w : weights_) {
    if (w.work == Work::kNone) continue;
    w.steps() = w.work == Work::kTrack ? w.steps() + 1 : 1;
    w.bits() = w.layer->weight_quantizer()->scheme().bits;
  }
}

std::vector<NamedBuffer> OscillationCallback::named_state() const {
  std::vector<NamedBuffer> state;
  for (const Tracked& w : weights_) {
    state.push_back({w.name + "/code", w.code});
    state.push_back({w.name + "/direction", w.direction});
    state.push_back({w.name + "/frequency", w.frequency});
    state.push_back({w.name + "/mean_code", w.mean_code});
    state.push_back({w.name + "/frozen", w.frozen});
    state.push_back({w.name + "/tracked", w.tracked});
  }
  return state;
}

std::vector<Metric> OscillationCallback::metrics() const {
  double oscillating = 0, frozen = 0, all = 0;
  for (const Tracked& w : weights_) {
    const Tensor counts = Tensor::empty({2}, DType::kI64, w.code.device());
    run(counts.device(), kernels::CountOscillations{.rows = w.size(),
                                                    .frequency = kOscillating,
                                                    .state = w.state(),
                                                    .counts = counts.data<std::int64_t>()});
    const Tensor host = counts.to(Device{});
    frozen += static_cast<double>(host.data<std::int64_t>()[0]);
    oscillating += static_cast<double>(host.data<std::int64_t>()[1]);
    all += static_cast<double>(w.size());
  }
  return {{"oscillating_weights_percent", 100 * oscillating / all},
          {"frozen_weights_percent", 100 * frozen / all}};
}

}  // namespace steelyard::qat
