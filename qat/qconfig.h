// What to quantize and how: plain data, one-to-one with a recipe's `quantize` section.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "observers/qscheme.h"
#include "observers/registry.h"

namespace steelyard::qat {

// One quantizer: its grid and how its range is found.
struct QuantizerConfig {
  observers::QScheme scheme;
  observers::ObserverOptions observer;
};

// What a layer quantizes; each part is optional.
struct QConfig {
  std::optional<QuantizerConfig> weights;
  std::optional<QuantizerConfig> activations;
};

// Layers chosen by type name ("Conv2d") or by "re:" and a regular expression that must match the
// whole module path.
struct QuantizeGroup {
  std::vector<std::string> targets;
  QConfig config;
};

struct QuantizeConfig {
  std::vector<QuantizeGroup> groups;  // the first group that matches a layer decides
  std::vector<std::string> ignore;    // type names or "re:" patterns or exact paths, left in float
};

// int8 symmetric narrow weights per channel (min_max), uint8 affine activations (moving_average).
QConfig default_w8a8();

// Throws std::invalid_argument for what the layers cannot execute on integers: weights that are not
// symmetric, activations per channel, invalid schemes, unknown observers.
void validate(const QConfig& config);

}  // namespace steelyard::qat
