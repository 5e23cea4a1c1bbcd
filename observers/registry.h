// The table of observers by their name in recipes.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "steelyard/observers/observer.h"

namespace steelyard::observers {

struct ObserverRow;

struct ObserverOptions {
  std::string type = "min_max";
  // A program's own observer of that name, where it is none of the table.
  std::shared_ptr<const ObserverRow> own = {};
  double averaging_constant = 0.01;  // weight of the newest step
  double percentile = 99.99;         // of the values, kept
  double limit = 1;                  // of a range that is known beforehand
  bool operator==(const ObserverOptions&) const = default;
};

// An option of an observer, for every user of the table; its default is the member's.
struct ObserverOption {
  std::string_view name;
  std::string_view help;
  double ObserverOptions::*member;
  double above;  // excluded
  double at_most;
};

struct ObserverRow {
  std::string_view name = {};
  std::string_view help = {};
  std::vector<ObserverOption> options = {};
  std::function<std::unique_ptr<Observer>(const ObserverOptions&, const QScheme&,
                                          std::int64_t channels)>
      make = {};
  // Whether the observer uses only extremes or counts of a batch, which merge exactly over its
  // shards.
  bool over_shards = true;
};

// The table. To add an observer: a pair of files and a row here.
const std::vector<ObserverRow>& observer_rows();

// By options.own where it is given, else by the table. Throws std::invalid_argument listing the
// names when options.type is not one of them, when an option of that observer is out of its limits,
// or when a row of one's own makes none.
std::unique_ptr<Observer> make_observer(const ObserverOptions& options, const QScheme& scheme,
                                        std::int64_t channels);

std::vector<std::string> observer_names();

// The row's over_shards; false for a name that is not in the table.
bool merges_over_shards(const ObserverOptions& options);

}  // namespace steelyard::observers
