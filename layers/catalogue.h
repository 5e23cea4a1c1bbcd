// The catalogue of layers: a row for each type that can be made from options by name. Imports and
// checkpoints build networks from it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "steelyard/framework/autograd/module.h"
#include "steelyard/framework/tensor/rng.h"
#include "steelyard/layers/stored_options.h"

namespace steelyard {

struct LayerType {
  std::string name;  // Module::type_name()
  // Throws std::invalid_argument on options that are missing, of another kind, or that the layer
  // refuses.
  std::function<std::shared_ptr<Module>(const StoredOptions&, Rng&)> make;
};

const std::vector<LayerType>& layer_catalogue();
// Null for an unknown name.
const LayerType* find_layer_type(std::string_view name);

// What a stored layer may ask for: weights are allocated before they are read.
inline constexpr std::int64_t kMostLayerWeights = std::int64_t{1} << 28;

}  // namespace steelyard
