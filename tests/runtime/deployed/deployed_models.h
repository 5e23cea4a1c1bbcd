// The deployed models of a folder, and inputs for them.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "steelyard/runtime/graph.h"

namespace steelyard::deploy {

inline constexpr std::string_view kEnding = ".deployed.safetensors";

inline std::filesystem::path deployed_file(const std::filesystem::path& folder,
                                           const std::string& name) {
  return folder / (name + std::string(kEnding));
}

// The names that have a deployed_file(), in order.
inline std::vector<std::string> deployed_names(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string file = entry.path().filename().string();
    if (file.ends_with(kEnding)) names.push_back(file.substr(0, file.size() - kEnding.size()));
  }
  std::sort(names.begin(), names.end());
  return names;
}

// What inputs are made of.
enum class Inputs {
  kNormal,    // numbers as after a normalization
  kWide,      // of every magnitude that codes have
  kTies,      // between two codes of the first quantizer
  kExtremes,  // that saturate, zeros of both signs, and the smallest numbers
  kKinds
};

// f32 [batch, ...] for the graph.
inline Tensor deployed_inputs(const Graph& graph, std::int64_t batch, Inputs kind,
                              std::mt19937& random) {
  Shape shape = graph.values[graph.input].shape;
  shape.insert(shape.begin(), batch);
  const Tensor x = Tensor::empty(shape);
  float scale = 1;
  for (const Value& value : graph.values) {
    if (!value.quantization) continue;
    scale = value.quantization->scale;
    break;
  }
  constexpr std::array<float, 8> kExtremes{1e6F, -1e6F, 0.0F, -0.0F, 1e-42F, -1e-42F, 3.0F, -3.0F};
  std::normal_distribution<float> normal(0, 1.5F);
  std::uniform_real_distribution<float> magnitude(-10, 6);
  std::uniform_int_distribution<int> code(-300, 300), bit(0, 1);
  for (float& value : x.span<float>()) {
    switch (kind) {
      case Inputs::kWide:
        value = std::copysign(std::exp2(magnitude(random)), bit(random) == 0 ? -1.0F : 1.0F);
        break;
      case Inputs::kTies:
        value = (static_cast<float>(code(random)) + 0.5F) * scale;
        break;
      case Inputs::kExtremes:
        value = kExtremes[static_cast<std::size_t>(code(random) + 300) % kExtremes.size()];
        break;
      default:
        value = normal(random);
    }
  }
  return x;
}

}  // namespace steelyard::deploy
