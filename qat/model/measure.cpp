#include "steelyard/qat/model/measure.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <stdexcept>

#include "steelyard/kernels/histogram/histogram.h"
#include "steelyard/kernels/reduce/reduce.h"
#include "steelyard/qat/model/named_quantizers.h"

namespace steelyard::qat {
namespace {

// A histogram of everything seen, as observers keep it.
class Counter {
 public:
  // Counts of both signs: twice as many bins as one sign has.
  explicit Counter(std::int64_t bins) : counts_(static_cast<std::size_t>(2 * checked(bins))) {}

  void add(std::span<const float> values) {
    const auto layout =
        kernels::ChannelLayout::per_tensor(static_cast<std::int64_t>(values.size()));
    const auto bins = static_cast<std::int64_t>(counts_.size());
    const kernels::ChannelHistograms histogram{1, bins, counts_.data(), &exponent_, &lo_, &hi_};
    float lo = 0;
    float hi = 0;
    kernels::run(kernels::MinMax<float>{
        .layout = layout, .x = values.data(), .lo = &lo, .hi = &hi, .non_finite = nullptr});
    kernels::run(kernels::GrowHistograms{.histograms = histogram, .step_lo = &lo, .step_hi = &hi});
    kernels::run(
        kernels::CountInHistograms{.histograms = histogram, .layout = layout, .x = values.data()});
  }
  ValueHistogram histogram() const {
    if (!(lo_ <= hi_)) return {};
    const auto is_used = [](std::int64_t n) { return n != 0; };
    const auto begin = std::find_if(counts_.begin(), counts_.end(), is_used);
    const auto end = std::find_if(counts_.rbegin(), counts_.rend(), is_used).base();
    const double bin_width = std::ldexp(1.0, exponent_);
    const auto from_zero =
        begin - counts_.begin() - static_cast<std::ptrdiff_t>(counts_.size() / 2);
    return {static_cast<double>(from_zero) * bin_width, bin_width,
            std::vector<std::int64_t>(begin, end), lo_, hi_};
  }

 private:
  static std::int64_t checked(std::int64_t bins) {
    if (bins > 0 && std::has_single_bit(static_cast<std::uint64_t>(bins))) return bins;
    throw std::invalid_argument("[measure] expected a power of two of bins, got " +
                                std::to_string(bins));
  }

  std::vector<std::int64_t> counts_;
  std::int32_t exponent_ = 0;
  float lo_ = std::numeric_limits<float>::infinity();
  float hi_ = -std::numeric_limits<float>::infinity();
};

// Neither rounded nor clipped.
std::vector<float> in_codes(const FakeQuantize& quantizer, std::span<const float> values) {
  const kernels::ChannelLayout layout = quantizer.layout(static_cast<std::int64_t>(values.size()));
  const std::vector<float> scales = quantizer.host_scale();
  const std::vector<std::int32_t> zero_points = quantizer.host_zero_point();
  std::vector<float> codes(values.begin(), values.end());
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const std::size_t channel = i / static_cast<std::size_t>(layout.inner);
    codes[i] = codes[i] / scales[channel] + static_cast<float>(zero_points[channel]);
  }
  return codes;
}

// One tensor's error and histogram as values arrive.
class Gatherer {
 public:
  Gatherer(MeasuredTensor& tensor, std::int64_t bins) : tensor_(tensor) {
    if (bins != 0) counter_ = std::make_unique<Counter>(bins);
    if (tensor.quantizer->observed()) tensor.error.emplace();
    tensor.in_codes = tensor.error && tensor.quantizer->channels() > 1;
  }

  void add(std::span<const float> values) {
    if (tensor_.error) add_error(*tensor_.error, *tensor_.quantizer, values);
    if (!counter_) return;
    if (tensor_.in_codes) {
      counter_->add(in_codes(*tensor_.quantizer, values));
    } else {
      counter_->add(values);
    }
  }
  void finish() {
    if (counter_) tensor_.histogram = counter_->histogram();
  }

 private:
  MeasuredTensor& tensor_;
  std::unique_ptr<Counter> counter_;
};

// While it exists, quantizers update nothing, and those of activations pass their values to a
// listener.
class Listening {
 public:
  explicit Listening(const std::vector<MeasuredTensor>& tensors) {
    for (const MeasuredTensor& tensor : tensors) {
      observing_.push_back({tensor.quantizer, tensor.quantizer->observing()});
      tensor.quantizer->set_observing(false);
    }
  }
  ~Listening() {
    for (const Switch& s : observing_) {
      s.quantizer->set_observing(s.on);
      s.quantizer->set_listener({});
    }
  }
  Listening(const Listening&) = delete;
  Listening& operator=(const Listening&) = delete;

 private:
  struct Switch {
    FakeQuantize* quantizer;
    bool on;
  };
  std::vector<Switch> observing_;
};

std::vector<MeasuredTensor> all_tensors(Module& model) {
  std::vector<MeasuredTensor> tensors;
  for (const NamedQuantizer& entry : named_quantizers(model)) {
    tensors.push_back({.name = entry.name, .quantizer = entry.quantizer});
  }
  for (const NamedModule& entry : model.named_modules()) {
    auto* layer = dynamic_cast<QuantizedLayer*>(entry.module);
    if (layer == nullptr || layer->weight_quantizer() == nullptr) continue;
    for (MeasuredTensor& tensor : tensors) {
      if (tensor.quantizer == layer->weight_quantizer()) tensor.weights_of = layer;
    }
  }
  return tensors;
}

}  // namespace

std::optional<double> QuantizationError::sqnr_db() const {
  if (signal == 0) return std::nullopt;
  if (noise == 0) return std::numeric_limits<double>::infinity();
  return 10 * std::log10(signal / noise);
}

double QuantizationError::mean_squared() const {
  return elements == 0 ? 0 : noise / static_cast<double>(elements);
}

double QuantizationError::clipped_fraction() const {
  return elements == 0 ? 0 : static_cast<double>(clipped) / static_cast<double>(elements);
}

void add_error(QuantizationError& error, const FakeQuantize& quantizer,
               std::span<const float> values) {
  const std::vector<float> scales = quantizer.host_scale();
  const std::vector<std::int32_t> zero_points = quantizer.host_zero_point();
  const kernels::ChannelLayout layout = quantizer.layout(static_cast<std::int64_t>(values.size()));
  const auto inner = static_cast<std::size_t>(layout.inner);
  for (std::size_t c = 0; c < scales.size(); ++c) {
    const auto grid = kernels::make_code_grid(quantizer.code_range(), scales[c], zero_points[c]);
    for (const float x : values.subspan(c * inner, inner)) {
      if (!std::isfinite(x)) continue;
      const double difference = static_cast<double>(x) - kernels::fake_quantize_value(x, grid);
      error.signal += static_cast<double>(x) * x;
      error.noise += difference * difference;
      ++error.elements;
      if (kernels::is_inside(x, grid)) continue;
      ++error.clipped;
      error.clipping_noise += difference * difference;
    }
  }
}

QuantizationError& QuantizationError::operator+=(const QuantizationError& other) {
  signal += other.signal;
  noise += other.noise;
  clipping_noise += other.clipping_noise;
  elements += other.elements;
  clipped += other.clipped;
  return *this;
}

std::string module_of_quantizer(const std::string& name) {
  const std::size_t dot = name.rfind('.');
  if (dot != std::string::npos) return name.substr(0, dot);
  return name == "input_quantizer" ? "(input)" : "(model)";
}

std::string owner_of_quantizer(const std::string& name) {
  const std::string own = name.substr(name.rfind('.') + 1);
  for (const std::string_view of : {"_weight_quantizer", "_output_quantizer"}) {
    if (!own.ends_with(of)) continue;
    return module_of_quantizer(name) + "." + own.substr(0, own.size() - of.size());
  }
  return module_of_quantizer(name);
}

ValueHistogram histogram_of(std::span<const float> values, std::int64_t bins) {
  Counter counter(bins);
  counter.add(values);
  return counter.histogram();
}

std::vector<MeasuredTensor> measure_tensors(Module& model, std::int64_t batches,
                                            const std::function<Tensor(std::int64_t)>& inputs,
                                            std::int64_t bins) {
  if (batches < 1) {
    throw std::invalid_argument("[measure] expected 1 batch or more, got " +
                                std::to_string(batches));
  }
  const NoGradGuard no_grad;
  const Device device = device_of(model);
  std::vector<MeasuredTensor> tensors = all_tensors(model);
  std::vector<Gatherer> gatherers;
  gatherers.reserve(tensors.size());
  for (MeasuredTensor& tensor : tensors) gatherers.emplace_back(tensor, bins);
  {
    const Listening listening(tensors);
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      Gatherer* gatherer = &gatherers[i];
      if (const QuantizedLayer* layer = tensors[i].weights_of) {
        gatherer->add(layer->deployed_weight().to(Device{}).span<float>());
      } else {
        tensors[i].quantizer->set_listener(
            [gatherer](std::span<const float> values) { gatherer->add(values); });
      }
    }
    for (std::int64_t i = 0; i < batches; ++i) {
      ForwardContext context{.calibrating = true};
      model.forward(Variable(inputs(i).to(device)), context).value();
    }
  }
  for (Gatherer& gatherer : gatherers) gatherer.finish();
  return tensors;
}

}  // namespace steelyard::qat
