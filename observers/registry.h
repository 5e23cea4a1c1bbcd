// The table of observers by their name in recipes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "observers/observer.h"

namespace steelyard::observers {

struct ObserverOptions {
  std::string type = "min_max";
  double averaging_constant = 0.01;  // moving_average, mse: weight of the newest step
  double percentile = 99.99;         // percentile: of the values, kept
};

// Throws std::invalid_argument listing the names when options.type is not one of them.
std::unique_ptr<Observer> make_observer(const ObserverOptions& options, const QScheme& scheme,
                                        std::int64_t channels);

std::vector<std::string> observer_names();

}  // namespace steelyard::observers
