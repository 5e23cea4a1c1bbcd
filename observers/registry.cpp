#include "steelyard/observers/registry.h"

#include <algorithm>
#include <stdexcept>

#include "steelyard/observers/entropy.h"
#include "steelyard/observers/fixed.h"
#include "steelyard/observers/histogram.h"
#include "steelyard/observers/min_max.h"
#include "steelyard/observers/moving_average.h"
#include "steelyard/observers/moving_percentile.h"
#include "steelyard/observers/mse.h"
#include "steelyard/observers/percentile.h"

namespace steelyard::observers {
namespace {

using Options = ObserverOptions;

template <typename T, typename... Arguments>
std::unique_ptr<Observer> make(Arguments... arguments) {
  return std::make_unique<T>(arguments...);
}

constexpr ObserverOption kAveragingConstant{"averaging_constant",
                                            "weight of the newest batch in the average",
                                            &Options::averaging_constant, 0, 1};

constexpr ObserverOption kPercentile{"percentile", "percentage of the values kept",
                                     &Options::percentile, 50, 100};

constexpr ObserverOption kLimit{"limit", "upper end of the range", &Options::limit, 0, 1e30};

std::vector<ObserverRow> make_rows() {
  return {
      {"min_max",
       "smallest and largest value observed",
       {},
       [](const Options&, const QScheme&, std::int64_t channels) {
         return make<MinMaxObserver>(channels);
       }},
      {"moving_average",
       "exponential moving average of each batch's smallest and largest value",
       {kAveragingConstant},
       [](const Options& options, const QScheme&, std::int64_t channels) {
         return make<MovingAverageObserver>(channels, options.averaging_constant);
       }},
      {"histogram",
       "the range with the least squared error, estimated from a histogram of everything observed; "
       "both ends are searched independently",
       {},
       [](const Options&, const QScheme& scheme, std::int64_t channels) {
         return make<HistogramObserver>(channels, scheme);
       }},
      {"percentile",
       "the range of the observed values without the outermost ones: the largest |x| with "
       "`symmetric`, otherwise both ends",
       {kPercentile},
       [](const Options& options, const QScheme& scheme, std::int64_t channels) {
         return make<PercentileObserver>(channels, scheme, options.percentile);
       },
       /*over_shards=*/false},
      {"moving_percentile",
       "exponential moving average of each batch's percentiles: outliers have little influence, "
       "and early ranges fade",
       {kPercentile, kAveragingConstant},
       [](const Options& options, const QScheme& scheme, std::int64_t channels) {
         return make<MovingPercentileObserver>(channels, scheme, options.percentile,
                                               options.averaging_constant);
       },
       /*over_shards=*/false},
      {"mse",
       "the smallest and largest value, both shrunk by the factor with the least squared error; "
       "for weights in each step alone, for activations as a moving average; needs 100 passes over "
       "the values",
       {kAveragingConstant},
       [](const Options& options, const QScheme& scheme, std::int64_t channels) {
         return make<MseObserver>(channels, scheme, options.averaging_constant);
       },
       /*over_shards=*/false},
      {"fixed",
       "from 0 to `limit`, independent of the values: for a range that is known",
       {kLimit},
       [](const Options& options, const QScheme&, std::int64_t channels) {
         return make<FixedObserver>(channels, options.limit);
       }},
      {"entropy",
       "the clipping with the least Kullback-Leibler divergence, as in TensorRT's calibration, but "
       "clipped values count",
       {},
       [](const Options&, const QScheme& scheme, std::int64_t channels) {
         return make<EntropyObserver>(channels, scheme);
       }},
  };
}

void require_within_limits(const ObserverRow& row, const ObserverOptions& options) {
  for (const ObserverOption& option : row.options) {
    const double value = options.*option.member;
    if (value > option.above && value <= option.at_most) continue;
    throw std::invalid_argument("[" + std::string(row.name) + "] expected " +
                                std::string(option.name) + " above " +
                                std::to_string(option.above) + " and at most " +
                                std::to_string(option.at_most) + ", got " + std::to_string(value));
  }
}

std::unique_ptr<Observer> made_by(const ObserverRow& row, const ObserverOptions& options,
                                  const QScheme& scheme, std::int64_t channels) {
  std::unique_ptr<Observer> observer;
  if (row.make) observer = row.make(options, scheme, channels);
  if (observer != nullptr) return observer;
  throw std::invalid_argument("[observer] the observer '" +
                              (row.name.empty() ? options.type : std::string(row.name)) +
                              "' gave none");
}

}  // namespace

const std::vector<ObserverRow>& observer_rows() {
  static const std::vector<ObserverRow> rows = make_rows();
  return rows;
}

std::unique_ptr<Observer> make_observer(const ObserverOptions& options, const QScheme& scheme,
                                        std::int64_t channels) {
  if (options.own) return made_by(*options.own, options, scheme, channels);
  std::string known;
  for (const ObserverRow& row : observer_rows()) {
    if (options.type == row.name) {
      require_within_limits(row, options);
      return made_by(row, options, scheme, channels);
    }
    known.append(known.empty() ? "" : ", ").append(row.name);
  }
  throw std::invalid_argument("[observer] unknown observer '" + options.type +
                              "', expected one of " + known);
}

bool merges_over_shards(const ObserverOptions& options) {
  if (options.own) return options.own->over_shards;
  const auto& rows = observer_rows();
  return std::any_of(rows.begin(), rows.end(), [&](const ObserverRow& row) {
    return row.name == options.type && row.over_shards;
  });
}

std::vector<std::string> observer_names() {
  std::vector<std::string> names;
  for (const ObserverRow& row : observer_rows()) names.emplace_back(row.name);
  return names;
}

}  // namespace steelyard::observers
