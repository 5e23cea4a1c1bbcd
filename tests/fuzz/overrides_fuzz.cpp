// Lines of key.path=value, applied to a recipe that has every table.
#include "steelyard/recipes/language/overrides.h"

#include <sstream>

#include "steelyard/recipes/models/models.h"
#include "steelyard/recipes/schema/recipe.h"
#include "tests/fuzz/fuzz.h"

namespace {

constexpr const char* kRecipe = R"(version: 1
name: base
data: {dataset: safetensors, path: data, batch_size: 10, validation: 10, augment: [flip]}
model:
  classes: 4
  layers:
    - {type: Conv2d, name: conv, out_channels: 8, kernel_size: 3, padding: 1, bias: false}
    - {type: BatchNorm2d, name: bn}
    - {type: Flatten}
    - {type: Linear, name: fc, out_features: 4}
train: {epochs: 6, optimizer: {type: sgd, lr: 0.02}, lr_schedule: {type: cosine}}
quantize:
  groups:
    - targets: [Linear, Conv2d]
      weights: {num_bits: 8, symmetric: true, strategy: channel, observer: min_max}
      activations: {num_bits: 8, symmetric: false, strategy: tensor, observer: moving_average}
schedule: {observe: {from: 0}, freeze_observers: {epoch: 4}}
export: {formats: [safetensors], profile: ort}
)";

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace steelyard;
  std::vector<std::string> assignments;
  std::istringstream lines{std::string(fuzz::view(data, size))};
  for (std::string line; std::getline(lines, line);) assignments.push_back(line);
  std::string resolved;
  if (!fuzz::accepted([&] {
        resolved =
            resolved_yaml(parse_recipe(kRecipe, "recipe.yaml", assignments, builtin_registries()));
      })) {
    return 0;
  }
  fuzz::require(
      resolved_yaml(parse_recipe(resolved, "resolved", {}, builtin_registries())) == resolved,
      "a resolved recipe resolves otherwise:\n" + resolved);
  return 0;
}
