// The quality of a model: its loss, and metrics of its predictions on a dataset.
//
// A metric is a row of the table in metrics.cpp, or of a program: its name, which losses have it,
// and a function of the predictions. Names are those of metrics.jsonl and of `train.best`.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "steelyard/framework/train/predictions.h"

namespace steelyard {

// A measured value.
struct Metric {
  std::string name;
  double value = 0;
  std::string label = {};  // for people; empty: as metric_table() has it
  bool percent = false;    // where there is a label
  bool in_units = false;   // the same: see MetricInfo
};

struct Metrics {
  double loss = 0;                // mean over samples, without label smoothing and class weights
  std::optional<double> top1{};   // percent, for class targets
  std::vector<Metric> more = {};  // as compute_metrics() gives them
};

struct MetricInfo {
  std::string name = {};
  std::string label = {};  // for people
  bool percent = false;
  bool larger_is_better = true;
  // Computes the metric from predictions of the kind that the loss has; null for `loss` and `top1`,
  // which are computed on the device.
  std::function<double(const Predictions& predictions, const Dataset& dataset)> value = {};
  // Losses that have it, as programs' own with targets of the same kind do; empty: all.
  std::vector<Loss::Type> losses = {};
  bool in_units = false;  // of the data: may have any magnitude
};

// The table of the library's metrics, `loss` and `top1` first.
std::span<const MetricInfo> metric_table();
// The metric of that name, the library's or one of Loss::own_metrics, or null.
const MetricInfo* find_metric(std::string_view name, const Loss& loss = {});
// Whether training with that loss has the metric.
bool has_metric(const Loss& loss, const MetricInfo& metric);
// The metrics that training with that loss has, the library's first.
std::vector<const MetricInfo*> metrics_of(const Loss& loss);

// The metrics of a loss in addition to `loss` and `top1`.
std::vector<Metric> compute_metrics(const Loss& loss, const Predictions& predictions,
                                    const Dataset& dataset);

// A ratio of powers in dB, between -kMostDecibels and kMostDecibels, which stands for no noise.
double decibels(double signal, double noise);
inline constexpr double kMostDecibels = 300;

// The value of a metric; nothing if it was not measured.
std::optional<double> value_in(const Metrics& metrics, std::string_view name);

// "93.20" of a percentage, "0.9130", or five digits of what has units: "21345".
std::string metric_number(const Metric& metric);
// "top-1 93.20 %", "R2 0.9130".
std::string metric_text(const Metric& metric);
// All of them after the loss: ", top-1 93.20 %, top-5 ...".
std::string metrics_text(const Metrics& metrics);
// Without what is certain for so many classes: the top-5 of at most five.
Metrics without_certain_ones(Metrics metrics, std::int64_t classes);
// The main metric apart from the loss: top-1, else the first; nothing if there is none.
std::optional<Metric> main_metric(const Metrics& metrics);

// True if `a` is the better model by the metric `best`. If that is null or one of them lacks it: by
// higher top1, or by lower loss without top1. Of equals: by lower loss.
bool is_better(const Metrics& a, const Metrics& b, const MetricInfo* best = nullptr);

// Counts for one class, or for one of several labels.
struct ClassScores {
  std::int64_t samples = 0;                      // that have it
  std::int64_t predicted = 0;                    // that the model says have it
  std::int64_t right = 0;                        // both
  std::optional<double> average_precision = {};  // of labels, where samples have it

  // Fractions from 0 to 1; 0 in place of 0 / 0.
  double precision() const;
  double recall() const;
  double f1() const;
};

// The scores of every class or label; empty for values and texts. A label counts as predicted if
// its probability is above 1/2.
std::vector<ClassScores> class_scores(const Predictions& predictions, const Dataset& dataset);

// The confusion matrix of kClass predictions: counts [label, predicted], row by row.
std::vector<std::int64_t> confusion_matrix(const Predictions& predictions, const Dataset& dataset);

// The area under the precision-recall curve (a step function, as in scikit-learn) of scores and
// marks (targets of a label, from 0 to 1), of which at least one is above 1/2.
double average_precision(std::span<const float> scores, std::span<const float> marks);

// CTC's greedy decoding of the best characters of all frames: repetitions are merged, blanks (0)
// removed.
std::vector<std::int64_t> spelled(std::span<const std::int64_t> frames);
// The Levenshtein distance: insertions, deletions and substitutions that turn one into the other.
std::int64_t edit_distance(std::span<const std::int64_t> a, std::span<const std::int64_t> b);

}  // namespace steelyard
