#include "steelyard/qat/model/measure.h"
#include "steelyard/qat/model/named_quantizers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "steelyard/framework/files/checkpoint.h"
#include "steelyard/layers/activations.h"
#include "steelyard/layers/containers/residual.h"
#include "steelyard/layers/containers/sequential.h"
#include "steelyard/layers/flatten.h"
#include "steelyard/layers/norms/batch_norm.h"
#include "steelyard/layers/weighted/conv2d.h"
#include "steelyard/layers/weighted/linear.h"
#include "steelyard/qat/prepare/prepare.h"
#include "steelyard/qat/ptq/calibrate.h"
#include "tests/support/tensors.h"

namespace steelyard::qat {
namespace {

std::shared_ptr<WeightQuantizer> weights_of(int bits, std::vector<float> scales) {
  QuantizerConfig config{{.bits = bits, .granularity = kernels::Granularity::kChannel}, {}};
  auto quantizer =
      std::make_shared<WeightQuantizer>(config, static_cast<std::int64_t>(scales.size()));
  for (std::size_t c = 0; c < scales.size(); ++c) {
    quantizer->set_qparams(static_cast<std::int64_t>(c), scales[c], 0);
  }
  return quantizer;
}

std::shared_ptr<ActivationQuantizer> quantizer_with(float scale, std::int32_t zero_point) {
  auto quantizer = std::make_shared<ActivationQuantizer>(*default_w8a8().activations);
  quantizer->set_qparams(0, scale, zero_point);
  return quantizer;
}

QuantizationError error_of(const FakeQuantize& quantizer, const std::vector<float>& values) {
  QuantizationError error;
  add_error(error, quantizer, values);
  return error;
}

// Values spread evenly over the steps of the range have the noise s^2 / 12 * (1 - 1 / M^2) with M
// of them in a step, and the signal of an even distribution: 6.02 dB a bit.
TEST(QuantizationErrorOf, EvenlySpreadValues) {
  for (const int bits : {2, 3, 4, 8}) {
    const int qmax = (1 << (bits - 1)) - 1;
    constexpr int kPerStep = 64;
    const float step = 0.25F;
    std::vector<float> values;
    double signal = 0;
    const int count = (2 * qmax + 1) * kPerStep;
    for (int i = 0; i < count; ++i) {
      const double x = ((i + 0.5) / kPerStep - (2 * qmax + 1) / 2.0) * step;
      values.push_back(static_cast<float>(x));
      signal += x * x;
    }
    const QuantizationError error = error_of(*weights_of(bits, {step}), values);
    const double noise = step * step / 12.0 * (1 - 1.0 / (kPerStep * kPerStep)) * count;
    EXPECT_NEAR(error.noise, noise, noise * 1e-9);
    EXPECT_NEAR(*error.sqnr_db(), 10 * std::log10(signal / noise), 1e-9);
    const double levels = 2 * qmax + 1;
    EXPECT_NEAR(*error.sqnr_db(), 20 * std::log10(levels), 0.01);
    EXPECT_EQ(error.clipped, 0);
    EXPECT_EQ(error.elements, count);
  }
}

TEST(QuantizationErrorOf, ClippedValues) {
  // Codes 0..255 for 0..25.5: 30 and -1 clip to 25.5 and 0; 25.54 rounds to 25.5, inside.
  const QuantizationError error = error_of(*quantizer_with(0.1F, 0), {30.0F, -1.0F, 25.54F, 5.0F});
  EXPECT_EQ(error.clipped, 2);
  EXPECT_EQ(error.clipped_fraction(), 0.5);
  EXPECT_NEAR(error.noise, 4.5 * 4.5 + 1 + 0.04 * 0.04, 1e-5);
  EXPECT_NEAR(error.signal, 900 + 1 + 25.54 * 25.54 + 25, 1e-3);
}

TEST(QuantizationErrorOf, EachChannelHasItsScale) {
  // Codes up to 7: 8 clips with scale 1, not with scale 2.
  const QuantizationError error = error_of(*weights_of(4, {1.0F, 2.0F}), {8, 3, 8, 3});
  EXPECT_EQ(error.clipped, 1);
  EXPECT_EQ(error.noise, 1 + 0 + 0 + 1);
  EXPECT_EQ(error.mean_squared(), 2.0 / 4);
}

TEST(QuantizationErrorOf, Limits) {
  const auto owner = quantizer_with(1.0F, 0);
  const FakeQuantize& quantizer = *owner;
  EXPECT_FALSE(error_of(quantizer, {0, 0}).sqnr_db());
  EXPECT_EQ(*error_of(quantizer, {1, 2}).sqnr_db(), std::numeric_limits<double>::infinity());
  EXPECT_EQ(*error_of(quantizer, {0.25F}).sqnr_db(), 0.0);
  EXPECT_EQ(error_of(quantizer, {}).clipped_fraction(), 0.0);
  EXPECT_EQ(error_of(quantizer, {}).mean_squared(), 0.0);
  EXPECT_EQ(error_of(quantizer, {NAN, INFINITY, 3}).elements, 1);
}

TEST(Histogram, CountsEveryFiniteValueInItsBin) {
  const Tensor values = testing::random_tensor({4000}, 5, DType::kF32);
  const auto span = values.span<float>();
  const ValueHistogram histogram = histogram_of(span, 64);
  EXPECT_EQ(std::accumulate(histogram.counts.begin(), histogram.counts.end(), std::int64_t{0}),
            4000);
  EXPECT_LE(histogram.counts.size(), 128U);
  EXPECT_EQ(static_cast<float>(histogram.lo), *std::min_element(span.begin(), span.end()));
  EXPECT_EQ(static_cast<float>(histogram.hi), *std::max_element(span.begin(), span.end()));
  for (std::size_t b = 0; b < histogram.counts.size(); ++b) {
    const double begin = histogram.first + static_cast<double>(b) * histogram.bin_width;
    EXPECT_EQ(histogram.counts[b], std::count_if(span.begin(), span.end(), [&](float x) {
                return x >= begin && x < begin + histogram.bin_width;
              }));
  }
  EXPECT_GT(histogram.counts.front(), 0);
  EXPECT_GT(histogram.counts.back(), 0);
  EXPECT_TRUE(histogram_of(std::vector<float>{NAN}, 64).counts.empty());
}

// A convolution with a batch norm, a residual sum and a classifier.
std::shared_ptr<Module> quantized_model(BatchNormFold fold, int bits = 4) {
  Rng rng(1);
  const Conv2dOptions same{
      .in_channels = 2, .out_channels = 2, .kernel_size = {3, 3}, .padding = {1, 1}};
  const auto norm = std::make_shared<BatchNorm2d>(BatchNorm2dOptions{.channels = 2});
  norm->named_parameters()[0].variable.value().fill(3.0);  // gamma
  QuantizeConfig config;
  config.groups.push_back({{"Conv2d", "Linear"}, default_w8a8()});
  config.groups[0].config.weights->scheme.bits = bits;
  config.bn_fold = fold;
  return prepare(std::make_shared<Sequential>(Sequential::NamedChildren{
                     {"conv", std::make_shared<Conv2d>(same, rng)},
                     {"bn", norm},
                     {"block", std::make_shared<Residual>(
                                   std::make_shared<Sequential>(Sequential::NamedChildren{
                                       {"a", std::make_shared<Conv2d>(same, rng)}}),
                                   nullptr, std::make_shared<ReLU>())},
                     {"flatten", std::make_shared<Flatten>()},
                     {"fc", std::make_shared<Linear>(LinearOptions{50, 3}, rng)}}),
                 config)
      .model;
}

Tensor image_batch(std::int64_t i) {
  return testing::random_tensor({4, 5, 5, 2}, static_cast<std::uint64_t>(10 + i), DType::kF32);
}

const MeasuredTensor& named(const std::vector<MeasuredTensor>& all, std::string_view name) {
  for (const MeasuredTensor& tensor : all) {
    if (tensor.name == name) return tensor;
  }
  throw std::out_of_range(std::string(name));
}

TEST(Histogram, HasAPowerOfTwoOfBins) {
  for (const std::int64_t bins : {-4, 0, 3}) {
    EXPECT_THROW(histogram_of(std::vector<float>{1}, bins), std::invalid_argument) << bins;
  }
}

TEST(MeasureTensors, EveryQuantizerOnTheValuesThatReachIt) {
  const auto model = quantized_model(BatchNormFold::kFrozen);
  calibrate(*model, 2, image_batch);
  const auto measured = measure_tensors(*model, 2, image_batch, 512);
  EXPECT_EQ(measured.size(), named_quantizers(*model).size());
  const MeasuredTensor& input = named(measured, "input_quantizer");
  std::vector<float> seen;
  for (std::int64_t i = 0; i < 2; ++i) {
    const Tensor x = image_batch(i);
    seen.insert(seen.end(), x.span<float>().begin(), x.span<float>().end());
  }
  const QuantizationError expected = error_of(*input.quantizer, seen);
  EXPECT_EQ(*input.error, expected);
  EXPECT_FALSE(input.in_codes);
  EXPECT_EQ(input.weights_of, nullptr);
  EXPECT_EQ(named(measured, "conv.output_quantizer").error->elements, 2 * 4 * 5 * 5 * 2);
  EXPECT_EQ(named(measured, "fc.output_quantizer").error->elements, 2 * 4 * 3);
  for (const MeasuredTensor& tensor : measured) {
    ASSERT_TRUE(tensor.error) << tensor.name;
    EXPECT_GT(*tensor.error->sqnr_db(), tensor.weights_of != nullptr ? 15 : 20) << tensor.name;
    EXPECT_EQ(tensor.in_codes, tensor.weights_of != nullptr);
  }
  // Codes of 4 bits, every channel's largest at the end of the range.
  const ValueHistogram& codes = named(measured, "fc.weight_quantizer").histogram;
  EXPECT_NEAR(std::max(codes.hi, -codes.lo), 7, 1e-5);
}

// Codes, not steps from zero: all weights are positive, so that zero has the lowest code.
TEST(MeasureTensors, HistogramsOfChannelsAreOfCodes) {
  Rng rng(1);
  const auto linear = std::make_shared<Linear>(LinearOptions{50, 3}, rng);
  for (float& weight : linear->weight().value().span<float>()) weight = std::abs(weight) + 0.01F;
  QuantizeConfig config;
  config.groups.push_back({{"Linear"}, default_w8a8()});
  observers::QScheme& scheme = config.groups[0].config.weights->scheme;
  scheme.bits = 4;
  scheme.symmetric = false;
  scheme.narrow_range = false;
  const auto model =
      prepare(std::make_shared<Sequential>(Sequential::NamedChildren{{"fc", linear}}), config)
          .model;
  const auto batch = [](std::int64_t) { return testing::random_tensor({4, 50}, 1, DType::kF32); };
  calibrate(*model, 1, batch);
  const auto measured = measure_tensors(*model, 1, batch, 512);
  const MeasuredTensor& weights = named(measured, "fc.weight_quantizer");
  const kernels::CodeRange range = weights.quantizer->code_range();
  EXPECT_EQ(weights.quantizer->host_zero_point(), std::vector<std::int32_t>(3, range.qmin));
  EXPECT_GE(weights.histogram.lo, static_cast<float>(range.qmin));
  EXPECT_NEAR(weights.histogram.hi, static_cast<float>(range.qmax), 1e-4);
}

// The values before quantization, whether layers before quantize or not.
TEST(MeasureTensors, TheRealValuesOfAnOutput) {
  const auto model = quantized_model(BatchNormFold::kFrozen);
  calibrate(*model, 1, image_batch);
  for (const NamedQuantizer& entry : named_quantizers(*model)) {
    entry.quantizer->set_quantizing(false);
  }
  const NoGradGuard no_grad;
  ForwardContext context;
  const Tensor logits = model->forward(Variable(image_batch(0)), context).value();
  const auto measured = measure_tensors(*model, 1, image_batch, 0);
  const MeasuredTensor& output = named(measured, "fc.output_quantizer");
  QuantizationError expected;
  add_error(expected, *output.quantizer, logits.span<float>());
  EXPECT_EQ(*output.error, expected);
  EXPECT_TRUE(output.histogram.counts.empty());
}

TEST(MeasureTensors, ChangesNothing) {
  for (const auto fold : {BatchNormFold::kFrozen, BatchNormFold::kBatchCorrected}) {
    const auto model = quantized_model(fold);
    calibrate(*model, 1, image_batch);
    std::vector<Tensor> before;
    for (const NamedTensor& tensor : module_state(*model)) before.push_back(tensor.tensor.clone());
    measure_tensors(
        *model, 3, [](std::int64_t i) { return image_batch(i + 5); }, 64);
    std::size_t i = 0;
    for (const NamedTensor& tensor : module_state(*model)) {
      const auto* now = static_cast<const char*>(tensor.tensor.raw());
      const auto* then = static_cast<const char*>(before[i++].raw());
      EXPECT_TRUE(std::equal(now, now + tensor.tensor.bytes(), then)) << tensor.name;
    }
    EXPECT_TRUE(named_quantizers(*model)[0].quantizer->observing());
  }
}

// gamma = 3 triples what the layer multiplies by, in every mode that folds.
TEST(MeasureTensors, WeightsAreThoseOfTheFoldedLayer) {
  const auto hi = [](BatchNormFold fold) {
    const auto model = quantized_model(fold, 8);
    calibrate(*model, 1, image_batch);
    for (const MeasuredTensor& tensor : measure_tensors(*model, 1, image_batch, 64)) {
      if (tensor.name == "conv.weight_quantizer") return tensor.error->signal;
    }
    return 0.0;
  };
  const double frozen = hi(BatchNormFold::kFrozen);
  EXPECT_NEAR(hi(BatchNormFold::kBatchCorrected), frozen, frozen * 1e-5);
  EXPECT_NEAR(hi(BatchNormFold::kNone) * 9, frozen, frozen * 1e-3);
}

TEST(MeasureTensors, BeforeAnythingWasObserved) {
  const auto model = quantized_model(BatchNormFold::kFrozen);
  for (const NamedQuantizer& entry : named_quantizers(*model)) {
    entry.quantizer->set_quantizing(false);
  }
  for (const MeasuredTensor& tensor : measure_tensors(*model, 1, image_batch, 64)) {
    EXPECT_FALSE(tensor.error) << tensor.name;
    EXPECT_FALSE(tensor.histogram.counts.empty()) << tensor.name;
  }
  EXPECT_THROW(measure_tensors(*model, 0, image_batch, 64), std::invalid_argument);
}

}  // namespace
}  // namespace steelyard::qat
