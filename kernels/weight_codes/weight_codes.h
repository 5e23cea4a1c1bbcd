// What a step does with a layer's weights before the product: extremes, scales, codes, mask, bias
// codes and product scales. On a GPU this is one launch.
//
// The arithmetic is that of kernels/quantizer_state/formulas.h and
// kernels/fake_quantize/fake_quantize.h.
#pragma once

#include <cstdint>

#include "steelyard/kernels/quantizer_state/quantizer_state.h"
#include "steelyard/kernels/run.h"

namespace steelyard::kernels {

// Where the scales of weights come from.
enum class ScaleSource {
  kGiven,     // they are there
  kExtremes,  // the extremes of each row's weights enter lo and hi, which give them
  kLatent     // follow_latents()
};

// What the deployed biases of the rows require of their scales.
enum class BiasFit {
  kNothing,
  kKeepsRoom,  // of frozen scales: keep_room()
  kFollows     // of those that follow their weights: fit_weight_scale()
};

struct WeightQuantization {
  std::int64_t rows = 0;      // output channels, or groups of weights
  std::int64_t row_size = 0;  // weights of each
  std::int64_t scales = 0;    // 1 or rows; rows where they come from extremes
  ScaleSource source = ScaleSource::kGiven;
  RangeRule rule;  // its codes and whether they are symmetric count whatever the source
  BiasFit fit = BiasFit::kNothing;
  bool keeps = true;       // the quantizer keeps what the bias or a latent makes of its scales
  bool counted = false;    // an observer has counted the weights that are not finite
  bool evaluates = false;  // infinite weights are counted as NaN are
  CodeRange x_codes = {};  // of the layer's input; they count where there is a bias
  std::int64_t taps = 1;   // of a row [channels, taps]
};

// What a layer's weight quantizer keeps, [scales] each: see
// kernels/quantizer_state/quantizer_state.h. Only what the source needs is used; floor may be null.
struct WeightQuantizerArrays {
  float* lo;
  float* hi;
  std::int64_t* steps;
  const float* latent;
  const float* initial;
  float* floor;
  float* scale;
  std::uint8_t* zero_range;
  std::int64_t* non_finite;  // a counter: weights, biases and latents that are not finite
  std::int64_t* too_large;   // a counter: biases that int32 cannot hold with their products
  float* too_large_bias;     // [rows, 2]: such a bias and the largest that fits; else untouched
  // Zero points of affine codes and, where they are learned, offsets; else null.
  std::int32_t* zero_point = nullptr;
  const float* offset = nullptr;
};

// The biases of the rows, [rows] where not null: those that are added, and those that the layer
// will be deployed with, which scales are fitted to. x_scale and x_zero_point are those of the
// layer's input; without a scale there is neither bias nor product scale, without a bias the zero
// point is not read.
struct BiasOfRows {
  const float* x_scale;
  const std::int32_t* x_zero_point;
  const float* values;
  const float* deployed;
};

// Results; mask may be null, bias_codes and product_scale [rows] are where there is an x_scale.
// bias_codes + any sum of products is an int32: a code that is too large for that becomes the
// largest that is not, and is counted. A bias that is not finite has code 0 and is counted too.
struct WeightCodeArrays {
  std::int8_t* codes;
  std::uint8_t* mask;
  float* pass_scale;  // [scales]: those that the pass quantizes with
  float* product_scale;
  std::int32_t* bias_codes;
  std::int32_t* pass_zero_point = nullptr;  // [scales]: likewise, where there are zero points
  // Where not null, what a product reads instead of codes [rows, channels, taps]: the same codes
  // [rows, taps, channels], and the sum of each row's. Codes are ordered only where sums are asked
  // for.
  std::int8_t* ordered = nullptr;
  std::int32_t* sums = nullptr;
};

struct QuantizeWeights {
  WeightQuantization op;
  const float* weight;  // [rows, row_size]
  WeightQuantizerArrays quantizer;
  BiasOfRows bias;
  WeightCodeArrays to;
};

using WeightCodesKernels = KernelList<QuantizeWeights>;

}  // namespace steelyard::kernels
