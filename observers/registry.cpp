#include "observers/registry.h"

#include <stdexcept>

#include "observers/entropy.h"
#include "observers/histogram.h"
#include "observers/min_max.h"
#include "observers/moving_average.h"
#include "observers/mse.h"
#include "observers/percentile.h"

namespace steelyard::observers {
namespace {

struct Row {
  const char* name;
  std::unique_ptr<Observer> (*make)(const ObserverOptions&, const QScheme&, std::int64_t channels);
};

constexpr Row kObservers[] = {
    {"min_max",
     [](const ObserverOptions&, const QScheme&, std::int64_t channels)
         -> std::unique_ptr<Observer> { return std::make_unique<MinMaxObserver>(channels); }},
    {"moving_average",
     [](const ObserverOptions& options, const QScheme&,
        std::int64_t channels) -> std::unique_ptr<Observer> {
       return std::make_unique<MovingAverageObserver>(channels, options.averaging_constant);
     }},
    {"histogram",
     [](const ObserverOptions&, const QScheme& scheme,
        std::int64_t channels) -> std::unique_ptr<Observer> {
       return std::make_unique<HistogramObserver>(channels, scheme);
     }},
    {"percentile",
     [](const ObserverOptions& options, const QScheme& scheme,
        std::int64_t channels) -> std::unique_ptr<Observer> {
       return std::make_unique<PercentileObserver>(channels, scheme, options.percentile);
     }},
    {"mse",
     [](const ObserverOptions& options, const QScheme& scheme,
        std::int64_t channels) -> std::unique_ptr<Observer> {
       return std::make_unique<MseObserver>(channels, scheme, options.averaging_constant);
     }},
    {"entropy",
     [](const ObserverOptions&, const QScheme& scheme,
        std::int64_t channels) -> std::unique_ptr<Observer> {
       return std::make_unique<EntropyObserver>(channels, scheme);
     }},
};

}  // namespace

std::unique_ptr<Observer> make_observer(const ObserverOptions& options, const QScheme& scheme,
                                        std::int64_t channels) {
  std::string known;
  for (const Row& row : kObservers) {
    if (options.type == row.name) return row.make(options, scheme, channels);
    known += std::string(known.empty() ? "" : ", ") + row.name;
  }
  throw std::invalid_argument("[observer] unknown observer '" + options.type +
                              "', expected one of " + known);
}

std::vector<std::string> observer_names() {
  std::vector<std::string> names;
  for (const Row& row : kObservers) names.emplace_back(row.name);
  return names;
}

}  // namespace steelyard::observers
