// What the recipe tests share.
#pragma once

#include <string>
#include <vector>

#include "steelyard/framework/tensor/error.h"
#include "steelyard/recipes/models/models.h"
#include "steelyard/recipes/schema/recipe.h"

namespace steelyard {

inline constexpr const char* kSmallRecipe = R"(version: 1
name: small
data: {dataset: fashion_mnist}
model: {type: mlp, hidden: [8]}
train:
  epochs: 3
  optimizer: {type: sgd, lr: 0.1}
)";

inline constexpr const char* kQuantizedRecipe = R"(version: 1
name: quantized
data: {dataset: fashion_mnist}
model: {type: cnn}
train:
  epochs: 3
  optimizer: {type: adamw, lr: 0.001}
quantize:
  groups:
    - targets: [Conv2d]
      weights: {}
      activations: {num_bits: 4}
    - targets: ["re:fc.*"]
      weights: {num_bits: 3, observer: histogram}
)";

inline Recipe parsed(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return parse_recipe(text, "r.yaml", overrides, builtin_registries());
}

// The message of the InputError that `f` throws, or "accepted".
template <typename F>
std::string rejection(const F& f) {
  try {
    f();
  } catch (const InputError& error) {
    return error.what();
  }
  return "accepted";
}

inline std::string recipe_rejection(const std::string& text,
                                    const std::vector<std::string>& overrides = {}) {
  const Registries& registries = builtin_registries();
  return rejection([&] { parse_recipe(text, "r.yaml", overrides, registries); });
}

// `text` with its first `from` replaced by `to`.
inline std::string with(std::string text, const std::string& from, const std::string& to) {
  return text.replace(text.find(from), from.size(), to);
}

}  // namespace steelyard
