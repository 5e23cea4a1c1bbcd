// How good a model is: its loss, and what its predictions on a dataset come to.
//
// A metric is a row of the table in metrics.cpp: its name, which losses have it, and a function of
// the predictions. Names are those of metrics.jsonl and of `train.best`.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "steelyard/framework/predictions.h"

namespace steelyard {

// A value that is measured.
struct Metric {
  std::string name;
  double value = 0;
};

struct Metrics {
  double loss = 0;                // mean over samples, without label smoothing and class weights
  std::optional<double> top1{};   // percent, for class targets
  std::vector<Metric> more = {};  // those of metrics_of(loss), in that order
};

struct MetricInfo {
  std::string_view name;
  std::string_view label;  // for people
  bool percent = false;
  bool larger_is_better = true;
  // On predictions of the kind that the loss has; null: `loss` and `top1`, which are computed on
  // the device.
  double (*value)(const Predictions& predictions, const Dataset& dataset) = nullptr;
  std::span<const Loss::Type> losses = {};  // empty: all
};

// All of them, `loss` and `top1` first.
std::span<const MetricInfo> metric_table();
// Null where there is no metric of that name.
const MetricInfo* find_metric(std::string_view name);
// Whether a training with that loss has it.
bool has_metric(Loss::Type loss, const MetricInfo& metric);

// The metrics of a loss beside `loss` and `top1`.
std::vector<Metric> compute_metrics(const Loss& loss, const Predictions& predictions,
                                    const Dataset& dataset);

// Nothing where it was not measured.
std::optional<double> value_in(const Metrics& metrics, std::string_view name);

// "top-1 93.20 %", "R2 0.913".
std::string metric_text(const Metric& metric);
// All of them after the loss: ", top-1 93.20 %, top-5 ...".
std::string metrics_text(const Metrics& metrics);
// The one that says most beside the loss: top-1, else the first; nothing where there is none.
std::optional<Metric> main_metric(const Metrics& metrics);

// True when `a` is the better model by a metric's name; "" or a metric that either lacks: higher
// top1, or lower loss where there is none.
bool is_better(const Metrics& a, const Metrics& b, std::string_view best = "");

// Of a class, or of a label among several.
struct ClassScores {
  std::int64_t samples = 0;                      // that have it
  std::int64_t predicted = 0;                    // that the model says have it
  std::int64_t right = 0;                        // both
  std::optional<double> average_precision = {};  // of labels, where samples have it

  // Shares from 0 to 1; 0 where they would be 0 / 0.
  double precision() const;
  double recall() const;
  double f1() const;
};

// Of every class or label; empty for values and texts. A label is said where its chance is above
// 1/2.
std::vector<ClassScores> class_scores(const Predictions& predictions, const Dataset& dataset);

// [label, predicted] counts, row by row: of kClass.
std::vector<std::int64_t> confusion_matrix(const Predictions& predictions, const Dataset& dataset);

// The area under the curve of precision over recall (in steps, as scikit-learn has it) of scores
// and marks, of which at least one is above 1/2.
double average_precision(std::span<const float> scores, std::span<const float> marks);

// Repeats joined, blanks (0) dropped: what CTC's best characters of the frames spell.
std::vector<std::int64_t> spelled(std::span<const std::int64_t> frames);
// Insertions, deletions and substitutions that make one of the other (Levenshtein).
std::int64_t edit_distance(std::span<const std::int64_t> a, std::span<const std::int64_t> b);

}  // namespace steelyard
