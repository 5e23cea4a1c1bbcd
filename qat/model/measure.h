// The effect of quantization on the tensors of a network: error, clipping, and histograms of the
// values.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "steelyard/framework/autograd/module.h"
#include "steelyard/qat/forms/quantized_layer.h"
#include "steelyard/qat/quantizers/fake_quantize.h"

namespace steelyard::qat {

// The error of a quantizer over the finite values that it was given.
struct QuantizationError {
  double signal = 0;          // sum of x^2
  double noise = 0;           // sum of (x - fake_quantize(x))^2
  double clipping_noise = 0;  // of that, what clipped values have
  std::int64_t elements = 0;
  std::int64_t clipped = 0;  // whose unclamped code lies outside the code range

  // Signal to quantization noise, 10 log10(signal / noise), in dB: infinite without noise; nothing
  // where all values are 0.
  std::optional<double> sqnr_db() const;
  // The quantization noise: the mean squared error of an element; 0 without any.
  double mean_squared() const;
  // The fraction of all elements that are clipped; 0 without any.
  double clipped_fraction() const;
  QuantizationError& operator+=(const QuantizationError& other);  // of more elements
  bool operator==(const QuantizationError&) const = default;
};

// Adds f32 values that divide into the quantizer's channels as its layout() says.
void add_error(QuantizationError& error, const FakeQuantize& quantizer,
               std::span<const float> values);

// Counts in bins of equal width, from the smallest to the largest finite value.
struct ValueHistogram {
  double first = 0;  // where the first bin begins
  double bin_width = 0;
  // The outer ones are not 0; empty when nothing was counted.
  std::vector<std::int64_t> counts = {};
  double lo = 0;  // the smallest and largest value
  double hi = 0;
};

// The histogram of f32 values, exact to the bin, with at most 2 * `bins` bins. Throws
// std::invalid_argument unless `bins` is a power of two.
ValueHistogram histogram_of(std::span<const float> values, std::int64_t bins);

// One quantizer with the tensor that it stands for.
struct MeasuredTensor {
  std::string name;  // of the quantizer: "conv1.weight_quantizer"
  FakeQuantize* quantizer = nullptr;
  QuantizedLayer* weights_of = nullptr;  // null for an activation
  // Nothing while the quantizer never observed anything.
  std::optional<QuantizationError> error = {};
  // The histogram of the values; where the quantizer has several scales, of value / scale + zero
  // point, which are codes before they are rounded and clipped.
  ValueHistogram histogram = {};
  bool in_codes = false;
};

// The path of the module that a quantizer belongs to: "conv1"; "(input)" for the model's input.
std::string module_of_quantizer(const std::string& name);
// The path of the module that a quantizer belongs to, with the part of it if it has several
// products: "lstm.recurrent" of "lstm.recurrent_weight_quantizer".
std::string owner_of_quantizer(const std::string& name);

// Runs `batches` >= 1 batches through the model as it stands, in evaluation, and measures every
// quantizer on the real values that reach it, whether it quantizes or not; weights once. No state
// changes. `inputs(i)` is batch i. `bins` of the histograms as for histogram_of(); 0: none.
std::vector<MeasuredTensor> measure_tensors(Module& model, std::int64_t batches,
                                            const std::function<Tensor(std::int64_t)>& inputs,
                                            std::int64_t bins);

}  // namespace steelyard::qat
