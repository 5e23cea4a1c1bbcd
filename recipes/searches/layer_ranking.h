// Which layers of a quantized run would gain most from staying in float.
#pragma once

#include <atomic>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "steelyard/recipes/schema/registries.h"

namespace steelyard {

struct LayerRankingOptions {
  int bits = 8;
  // The part of the multiplications that all ranked layers together may have; absent: any.
  std::optional<double> most_float = {};
  // It measures on fewer samples where it would otherwise take longer.
  double seconds = 300;
  const std::atomic<bool>* stop = nullptr;  // ends it; the ranking is then empty
};

struct LayerRanking {
  std::vector<std::string> order;  // of modules whose outputs or weights cost most, the worst first
  std::vector<std::string> layers;  // all with weights
  // Names the first that is left out because it has too many of the multiplications; "": none is.
  std::string skipped = {};
};

// By measure_sensitivity(), which says what it throws.
LayerRanking rank_layers(const std::filesystem::path& run, const Registries& registries,
                         const LayerRankingOptions& options);

}  // namespace steelyard
