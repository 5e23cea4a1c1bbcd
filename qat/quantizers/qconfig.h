// The quantization of a model: plain data, one-to-one with a recipe's `quantize` section.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "steelyard/kernels/fixed_point.h"
#include "steelyard/observers/qscheme.h"
#include "steelyard/observers/registry.h"

namespace steelyard::qat {

// The parameters that a quantizer learns by gradient descent, once its observer has found a first
// range: LSQ's scale, LSQ+'s zero point in addition, or PACT's clipping value.
enum class Learning { kNothing, kScale, kScaleAndZeroPoint, kClipping };

// One quantizer: its grid and how its range is found.
struct QuantizerConfig {
  observers::QScheme scheme;
  observers::ObserverOptions observer;
  Learning learning = Learning::kNothing;
  // How integers become codes of an activation: for_profile() sets it.
  kernels::Rounding rounding = kernels::Rounding::kFloat;
  bool operator==(const QuantizerConfig&) const = default;
};

// What a layer quantizes; each part is optional.
struct QConfig {
  std::optional<QuantizerConfig> weights;
  std::optional<QuantizerConfig> activations;
};

inline bool is_dynamic(const QConfig& config) {
  return config.activations && config.activations->scheme.dynamic;
}

// Layers chosen by type name ("Conv2d"), by exact module path or by "re:" and a regular expression
// that must match the whole path; sums, joins and averages by exact path alone, which gives them
// the group's activations.
struct QuantizeGroup {
  std::vector<std::string> targets;
  QConfig config;
  std::vector<std::string> target_places{};  // where each was written, for messages; may be empty
};

// How a batch norm after a quantized layer is treated (docs/numerics.md has the formulas).
enum class BatchNormFold {
  kFrozen,          // folded once, from its running statistics, and dropped
  kNone,            // stays a float operation after the product
  kBatchCorrected,  // folded in every step; a second product, in float, has the batch's statistics
  kOneConvolution   // folded in every step; the batch's statistics come from the folded product
};

// The tensors that carry codes and how integers are rounded to them, as required by the runtime
// that will execute the model.
enum class Profile {
  kOrt,                // ONNX Runtime: every output, both operands of a sum and the sum
  kTensorrt,           // the inputs of weighted layers and pools, a sum's shortcut; zero points 0
  kTflm,               // TFLite Micro: every tensor, in fixed point (kernels/fixed_point.h)
  kTflmSingleRounding  // the same, built with TFLITE_SINGLE_ROUNDING
};

kernels::Rounding rounding_of(Profile profile);
// Whether a profile has integers alone: then nothing is left in float.
inline bool is_fixed_point(Profile profile) {
  return kernels::is_fixed_point(rounding_of(profile));
}

struct QuantizeConfig {
  std::vector<QuantizeGroup> groups;  // the first group that matches a layer decides
  // Written as targets are: left in float, a container with everything beneath it.
  std::vector<std::string> ignore;
  std::vector<std::string> ignore_places{};  // as target_places
  BatchNormFold bn_fold = BatchNormFold::kFrozen;
  Profile profile = Profile::kOrt;
};

// int8 symmetric narrow weights per channel, uint8 affine activations, both by min_max.
QConfig default_w8a8();
// default_w8a8() for every layer that a target matches: prepare(model, w8a8({"Conv2d", "Linear"})).
QuantizeConfig w8a8(std::vector<std::string> targets);

// Throws std::invalid_argument for what the layers cannot execute: weights with unsigned codes,
// activations per channel, dynamic ones without weights, invalid schemes, unknown observers.
void validate(const QConfig& config);
// Checks the two sides of a config, each by itself.
void validate_weights(const QuantizerConfig& config);
void validate_activations(const QuantizerConfig& config);
// validate() with what the profile asks for: zero points of 0 for kTensorrt; weights and
// activations with one scale per tensor, 8 bits and no change of it from sample to sample for
// kTflm.
void validate(const QConfig& config, Profile profile);

// The config with what the profile fixes, whatever was asked for. kTflm: activations have the codes
// -128 to 127, weights of 8 bits -127 to 127. A valid config stays valid.
QuantizeConfig for_profile(QuantizeConfig config);

}  // namespace steelyard::qat
