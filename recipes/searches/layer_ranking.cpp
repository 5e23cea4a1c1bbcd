#include "steelyard/recipes/searches/layer_ranking.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <utility>

#include "steelyard/recipes/language/scalar.h"
#include "steelyard/recipes/searches/sensitivity.h"

namespace steelyard {
namespace {

constexpr std::int64_t kRankedSamples = 32, kFewestRankedSamples = 4;
constexpr std::int64_t kTimedMeasurements = 4;

struct EndedMeasurement : std::exception {};

// Would take so long on the fewest samples.
struct SlowMeasurement : std::exception {
  explicit SlowMeasurement(double expected) : seconds(expected) {}
  double seconds;
};

// Measures on so many samples. Nothing where that would take too long, which the first layers tell,
// with the number of samples for which it would not. Throws SlowMeasurement where there is none.
std::optional<Sensitivity> measured_on(std::int64_t& samples, const std::filesystem::path& run,
                                       const Registries& registries,
                                       const LayerRankingOptions& options) {
  const auto begin = std::chrono::steady_clock::now();
  const auto watch = [&](std::int64_t done, std::int64_t all) {
    if (options.stop != nullptr && *options.stop) throw EndedMeasurement();
    const std::chrono::duration<double> past = std::chrono::steady_clock::now() - begin;
    const double expected = past.count() / static_cast<double>(done) * static_cast<double>(all);
    if (done < kTimedMeasurements || expected <= options.seconds) return;
    const double on_fewest =
        expected * static_cast<double>(kFewestRankedSamples) / static_cast<double>(samples);
    if (on_fewest > options.most_seconds) throw SlowMeasurement(on_fewest);
    if (samples == kFewestRankedSamples) return;
    const double fit = static_cast<double>(samples) * options.seconds / expected;
    samples = std::max(kFewestRankedSamples, static_cast<std::int64_t>(fit));
    throw EndedMeasurement();
  };
  SensitivityOptions how;
  how.bits = {options.bits};
  how.samples = samples;
  try {
    return measure_sensitivity(run, registries, how, watch);
  } catch (const EndedMeasurement&) {
    return std::nullopt;
  }
}

std::string skipped_text(const LayerSensitivity& layer, double part_in_float, double most) {
  return layer.name + " stays in integers: with it and those before it " +
         format_number(std::ceil(100 * part_in_float)) +
         " % of the multiplications of layers that can be in integers would be in float, " +
         format_number(100 * most) + " % at most may be (--most-float)";
}

// A network without a layer that has integers is none: the least sensitive one stays.
void keep_one_layer(LayerRanking& ranking) {
  const auto in_order = [&](const std::string& layer) {
    return std::find(ranking.order.begin(), ranking.order.end(), layer) != ranking.order.end();
  };
  if (!std::all_of(ranking.layers.begin(), ranking.layers.end(), in_order)) return;
  const auto last =
      std::find_if(ranking.order.rbegin(), ranking.order.rend(), [&](const auto& name) {
        return std::find(ranking.layers.begin(), ranking.layers.end(), name) !=
               ranking.layers.end();
      });
  if (last == ranking.order.rend()) return;
  if (ranking.skipped.empty()) ranking.skipped = *last + " stays in integers: it is the last one";
  ranking.order.erase(std::next(last).base());
}

}  // namespace

LayerRanking rank_layers(const std::filesystem::path& run, const Registries& registries,
                         const LayerRankingOptions& options) {
  std::int64_t samples = kRankedSamples;
  std::optional<Sensitivity> measured;
  try {
    measured = measured_on(samples, run, registries, options);
    if (!measured && samples < kRankedSamples) {
      measured = measured_on(samples, run, registries, options);
    }
  } catch (const SlowMeasurement& slow) {
    return {.slow_seconds = slow.seconds};
  }
  if (!measured) return {};
  LayerRanking ranking;
  std::vector<std::pair<double, const LayerSensitivity*>> costs;
  double macs = 0;
  for (const LayerSensitivity& layer : measured->layers) {
    double cost = 0;
    for (const auto& effects : {layer.weight_effects, layer.activation_effects}) {
      for (const QuantizationEffect& effect : effects) cost += effect.divergence;
    }
    macs += static_cast<double>(layer.macs);
    if (!layer.type.empty()) ranking.layers.push_back(layer.name);
    if (layer.name != "(input)") costs.emplace_back(cost, &layer);
  }
  std::stable_sort(costs.begin(), costs.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  double exempt = 0;
  for (const auto& [cost, layer] : costs) {
    const auto more = static_cast<double>(layer->macs);
    if (options.most_float && exempt + more > *options.most_float * macs) {
      if (ranking.skipped.empty()) {
        ranking.skipped = skipped_text(*layer, (exempt + more) / macs, *options.most_float);
      }
      continue;
    }
    exempt += more;
    ranking.order.push_back(layer->name);
  }
  keep_one_layer(ranking);
  return ranking;
}

}  // namespace steelyard
