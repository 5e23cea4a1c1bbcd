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
  // It measures on fewer samples where it would otherwise take longer, and not at all where that
  // would take more than `most_seconds` on the fewest.
  double seconds = 300, most_seconds = 1000;
  const std::atomic<bool>* stop = nullptr;  // ends it; the ranking is then empty
};

struct LayerRanking {
  // Of modules whose outputs or weights cost most, the worst first.
  std::vector<std::string> order = {};
  std::vector<std::string> layers = {};  // all with weights
  // Names the first that is left out because it has too many of the multiplications; "": none is.
  std::string skipped = {};
  // What it would have taken, where that was too long; absent: it was not.
  std::optional<double> slow_seconds = {};
};

// By measure_sensitivity(), which says what it throws.
LayerRanking rank_layers(const std::filesystem::path& run, const Registries& registries,
                         const LayerRankingOptions& options);

}  // namespace steelyard
