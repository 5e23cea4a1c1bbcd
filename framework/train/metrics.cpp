#include "steelyard/framework/train/metrics.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace steelyard {
namespace {

double share(std::int64_t part, std::int64_t all) {
  return all == 0 ? 0 : static_cast<double>(part) / static_cast<double>(all);
}

constexpr std::int64_t kTopClasses = 5;

double top5(const Predictions& predictions, const Dataset& dataset) {
  const auto ranks = predictions.ranks.span<std::int64_t>();
  return 100 *
         share(std::count_if(ranks.begin(), ranks.end(), [](auto r) { return r < kTopClasses; }),
               dataset.size());
}

// Over the classes; of class labels those that are neither there nor predicted are left out.
template <typename F>
double macro(const Predictions& predictions, const Dataset& dataset, const F& value) {
  double sum = 0;
  std::int64_t count = 0;
  for (const ClassScores& scores : class_scores(predictions, dataset)) {
    if (predictions.classes.defined() && scores.samples + scores.predicted == 0) continue;
    sum += value(scores);
    ++count;
  }
  return count == 0 ? 0 : 100 * sum / static_cast<double>(count);
}

double macro_precision(const Predictions& predictions, const Dataset& dataset) {
  return macro(predictions, dataset, [](const ClassScores& s) { return s.precision(); });
}
double macro_recall(const Predictions& predictions, const Dataset& dataset) {
  return macro(predictions, dataset, [](const ClassScores& s) { return s.recall(); });
}
double macro_f1(const Predictions& predictions, const Dataset& dataset) {
  return macro(predictions, dataset, [](const ClassScores& s) { return s.f1(); });
}

// Over the labels that a sample has.
double mean_average_precision(const Predictions& predictions, const Dataset& dataset) {
  double sum = 0;
  std::int64_t count = 0;
  for (const ClassScores& scores : class_scores(predictions, dataset)) {
    if (!scores.average_precision) continue;
    sum += *scores.average_precision;
    ++count;
  }
  return count == 0 ? 0 : 100 * sum / static_cast<double>(count);
}

// The mean over columns of 1 - squared errors / squared deviations from the mean. (A column that
// does not vary counts as 1 where it is met exactly, else as 0.)
double r2(const Predictions& predictions, const Dataset& dataset) {
  const Tensor& targets = dataset.targets;
  const auto errors = predictions.squared_errors.span<double>();
  const std::size_t columns = errors.size();
  const auto values = targets.span<float>();
  double sum = 0;
  for (std::size_t c = 0; c < columns; ++c) {
    double mean = 0, squares = 0;
    for (std::size_t i = c; i < values.size(); i += columns) mean += static_cast<double>(values[i]);
    mean /= static_cast<double>(targets.dim(0));
    for (std::size_t i = c; i < values.size(); i += columns) {
      const double d = static_cast<double>(values[i]) - mean;
      squares += d * d;
    }
    sum += squares > 0 ? 1 - errors[c] / squares : errors[c] == 0 ? 1 : 0;
  }
  return sum / static_cast<double>(columns);
}

// The mean over columns of the root of the mean squared error, in the units of the data.
double rmse(const Predictions& predictions, const Dataset& dataset) {
  const auto errors = predictions.squared_errors.span<double>();
  const std::vector<float>& units = dataset.target_normalization.stddev;
  // A column may have several values in a sample: those of images.
  double sum = 0;
  for (std::size_t c = 0; c < errors.size(); ++c) {
    const double unit = units.empty() ? 1 : static_cast<double>(units[c % units.size()]);
    sum += unit * std::sqrt(errors[c] / static_cast<double>(dataset.size()));
  }
  return sum / static_cast<double>(errors.size());
}

std::span<const std::int64_t> text_of(const Tensor& targets, std::int64_t sample) {
  const auto length = static_cast<std::size_t>(targets.dim(1));
  const auto text =
      targets.span<std::int64_t>().subspan(static_cast<std::size_t>(sample) * length, length);
  return text.first(
      static_cast<std::size_t>(std::find(text.begin(), text.end(), -1) - text.begin()));
}

// Edits per character of the targets.
double character_error_rate(const Predictions& predictions, const Dataset& dataset) {
  const auto frames = static_cast<std::size_t>(predictions.characters.dim(1));
  std::int64_t edits = 0, characters = 0;
  for (std::int64_t i = 0; i < dataset.size(); ++i) {
    const auto own = predictions.characters.span<std::int64_t>().subspan(
        static_cast<std::size_t>(i) * frames, frames);
    const auto expected = text_of(dataset.targets, i);
    edits += edit_distance(spelled(own), expected);
    characters += std::ssize(expected);
  }
  return 100 * share(edits, std::max<std::int64_t>(1, characters));
}

// exp of the mean loss of a token.
double perplexity(const Predictions& predictions, const Dataset&) {
  const auto losses = predictions.losses.span<double>();
  return std::exp(std::accumulate(losses.begin(), losses.end(), 0.0) /
                  static_cast<double>(losses.size()));
}

// Of all outputs together, in dB: their power by that of the differences.
double sqnr(const Predictions& predictions, const Dataset& dataset) {
  double signal = 0, noise = 0;
  for (const float value : dataset.targets.span<float>()) {
    signal += static_cast<double>(value) * static_cast<double>(value);
  }
  for (const double error : predictions.squared_errors.span<double>()) noise += error;
  return decibels(signal, noise);
}

using Type = Loss::Type;

const std::vector<MetricInfo>& metrics() {
  static const std::vector<Type> kOfClasses{Type::kCrossEntropy};
  static const std::vector<Type> kOfMarks{Type::kBinaryCrossEntropy};
  static const std::vector<Type> kOfEither{Type::kCrossEntropy, Type::kBinaryCrossEntropy};
  static const std::vector<Type> kOfValues{Type::kMeanSquaredError, Type::kHuber};
  static const std::vector<Type> kOfTexts{Type::kCtc};
  static const std::vector<Type> kOfFidelity{Type::kFidelity};
  static const std::vector<Type> kOfTokens{Type::kTokenCrossEntropy};
  static const std::vector<MetricInfo> kMetrics{
      {"loss", "loss", false, false},
      {"top1", "top-1", true, true, nullptr, kOfClasses},
      {"top5", "top-5", true, true, top5, kOfClasses},
      {"map", "mean average precision", true, true, mean_average_precision, kOfMarks},
      {"precision", "precision", true, true, macro_precision, kOfEither},
      {"recall", "recall", true, true, macro_recall, kOfEither},
      {"f1", "F1", true, true, macro_f1, kOfEither},
      {"r2", "R2", false, true, r2, kOfValues},
      {"rmse", "RMSE", false, false, rmse, kOfValues, true},
      {"cer", "character error rate", true, false, character_error_rate, kOfTexts},
      {"sqnr", "SQNR in dB", false, true, sqnr, kOfFidelity, true},
      {"perplexity", "perplexity", false, false, perplexity, kOfTokens, true},
  };
  return kMetrics;
}

const MetricInfo* find_in(std::span<const MetricInfo> rows, std::string_view name) {
  const auto found = std::find_if(rows.begin(), rows.end(),
                                  [&](const MetricInfo& metric) { return metric.name == name; });
  return found == rows.end() ? nullptr : &*found;
}

std::span<const MetricInfo> own_metrics(const Loss& loss) {
  return loss.own_metrics ? std::span(*loss.own_metrics) : std::span<const MetricInfo>();
}

Metric measured(const MetricInfo& info, double value) {
  return {info.name, value, info.label, info.percent, info.in_units};
}

std::vector<ClassScores> scores_of_classes(const Predictions& predictions, const Dataset& dataset) {
  std::vector<ClassScores> scores(static_cast<std::size_t>(dataset.classes));
  const auto labels = dataset.targets.span<std::int64_t>();
  const auto predicted = predictions.classes.span<std::int64_t>();
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const auto label = static_cast<std::size_t>(labels[i]);
    const auto said = static_cast<std::size_t>(predicted[i]);
    ++scores.at(label).samples;
    ++scores.at(said).predicted;
    if (label == said) ++scores[label].right;
  }
  return scores;
}

std::vector<ClassScores> scores_of_marks(const Predictions& predictions, const Dataset& dataset) {
  const auto classes = static_cast<std::size_t>(dataset.classes);
  std::vector<ClassScores> all(classes);
  const auto marks = dataset.targets.span<float>();
  const auto outputs = predictions.scores.span<float>();
  const std::size_t samples = marks.size() / classes;
  std::vector<float> own_scores(samples), own_marks(samples);
  for (std::size_t c = 0; c < classes; ++c) {
    ClassScores& scores = all[c];
    for (std::size_t i = 0; i < samples; ++i) {
      own_scores[i] = outputs[i * classes + c];
      own_marks[i] = marks[i * classes + c];
      const bool has = own_marks[i] > 0.5F, said = own_scores[i] > 0;
      scores.samples += has ? 1 : 0;
      scores.predicted += said ? 1 : 0;
      scores.right += has && said ? 1 : 0;
    }
    if (scores.samples > 0) scores.average_precision = average_precision(own_scores, own_marks);
  }
  return all;
}

}  // namespace

double decibels(double signal, double noise) {
  if (noise == 0) return kMostDecibels;
  if (signal == 0) return -kMostDecibels;
  return std::clamp(10 * std::log10(signal / noise), -kMostDecibels, kMostDecibels);
}

std::span<const MetricInfo> metric_table() { return metrics(); }

const MetricInfo* find_metric(std::string_view name, const Loss& loss) {
  const MetricInfo* found = find_in(metrics(), name);
  return found != nullptr ? found : find_in(own_metrics(loss), name);
}

bool has_metric(const Loss& loss, const MetricInfo& metric) {
  if (metric.losses.empty()) return true;
  return std::any_of(metric.losses.begin(), metric.losses.end(), [&](Loss::Type type) {
    return type == loss.type || (loss.type == Loss::Type::kOwn && type != Loss::Type::kFidelity &&
                                 loss_info({.type = type}).targets == loss_info(loss).targets);
  });
}

std::vector<const MetricInfo*> metrics_of(const Loss& loss) {
  std::vector<const MetricInfo*> found;
  for (const std::span<const MetricInfo> rows : {metric_table(), own_metrics(loss)}) {
    for (const MetricInfo& metric : rows) {
      if (has_metric(loss, metric)) found.push_back(&metric);
    }
  }
  return found;
}

std::vector<Metric> compute_metrics(const Loss& loss, const Predictions& predictions,
                                    const Dataset& dataset) {
  std::vector<Metric> computed;
  for (const MetricInfo* metric : metrics_of(loss)) {
    if (!metric->value) continue;
    computed.push_back(measured(*metric, metric->value(predictions, dataset)));
  }
  return computed;
}

std::optional<double> value_in(const Metrics& metrics, std::string_view name) {
  if (name == "loss") return metrics.loss;
  if (name == "top1") return metrics.top1;
  for (const Metric& metric : metrics.more) {
    if (metric.name == name) return metric.value;
  }
  return std::nullopt;
}

std::string metric_number(const Metric& metric) {
  if (metric.in_units) return fmt::format("{:.5g}", metric.value);
  return metric.percent ? fmt::format("{:.2f}", metric.value) : fmt::format("{:.4f}", metric.value);
}

std::string metric_text(const Metric& metric) {
  const MetricInfo* info = metric.label.empty() ? find_metric(metric.name) : nullptr;
  if (info != nullptr) return metric_text(measured(*info, metric.value));
  const std::string& label = metric.label.empty() ? metric.name : metric.label;
  return label + " " + metric_number(metric) + (metric.percent ? " %" : "");
}

std::string metrics_text(const Metrics& metrics) {
  std::string text;
  if (metrics.top1) text += ", " + metric_text({"top1", *metrics.top1});
  for (const Metric& metric : metrics.more) text += ", " + metric_text(metric);
  return text;
}

Metrics without_certain_ones(Metrics metrics, std::int64_t classes) {
  if (classes <= kTopClasses) {
    std::erase_if(metrics.more, [](const Metric& metric) { return metric.name == "top5"; });
  }
  return metrics;
}

std::optional<Metric> main_metric(const Metrics& metrics) {
  if (metrics.top1) return Metric{"top1", *metrics.top1};
  return metrics.more.empty() ? std::nullopt : std::optional(metrics.more.front());
}

bool is_better(const Metrics& a, const Metrics& b, const MetricInfo* best) {
  if (best != nullptr) {
    const auto x = value_in(a, best->name), y = value_in(b, best->name);
    if (x && y && *x != *y) return best->larger_is_better == (*x > *y);
    if (x && y) return a.loss < b.loss;
  }
  if (a.top1 && b.top1 && *a.top1 != *b.top1) return *a.top1 > *b.top1;
  return a.loss < b.loss;
}

double ClassScores::precision() const { return share(right, predicted); }
double ClassScores::recall() const { return share(right, samples); }
double ClassScores::f1() const { return share(2 * right, predicted + samples); }

std::vector<ClassScores> class_scores(const Predictions& predictions, const Dataset& dataset) {
  if (predictions.classes.defined()) return scores_of_classes(predictions, dataset);
  if (predictions.scores.defined()) return scores_of_marks(predictions, dataset);
  return {};
}

std::vector<std::int64_t> confusion_matrix(const Predictions& predictions, const Dataset& dataset) {
  const auto classes = static_cast<std::size_t>(dataset.classes);
  std::vector<std::int64_t> counts(classes * classes);
  const auto labels = dataset.targets.span<std::int64_t>();
  const auto predicted = predictions.classes.span<std::int64_t>();
  for (std::size_t i = 0; i < labels.size(); ++i) {
    ++counts.at(static_cast<std::size_t>(labels[i]) * classes +
                static_cast<std::size_t>(predicted[i]));
  }
  return counts;
}

double average_precision(std::span<const float> scores, std::span<const float> marks) {
  std::vector<std::size_t> order(scores.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return scores[a] > scores[b]; });
  std::int64_t said = 0, right = 0, right_before = 0;
  double sum = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    ++said;
    right += marks[order[i]] > 0.5F ? 1 : 0;
    // Equal scores count together.
    if (i + 1 < order.size() && scores[order[i + 1]] == scores[order[i]]) continue;
    sum += static_cast<double>(right - right_before) * share(right, said);
    right_before = right;
  }
  return sum / static_cast<double>(right);
}

std::vector<std::int64_t> spelled(std::span<const std::int64_t> frames) {
  std::vector<std::int64_t> text;
  std::int64_t last = 0;
  for (const std::int64_t character : frames) {
    if (character != last && character != 0) text.push_back(character);
    last = character;
  }
  return text;
}

std::int64_t edit_distance(std::span<const std::int64_t> a, std::span<const std::int64_t> b) {
  std::vector<std::int64_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::int64_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::int64_t diagonal = row[0];
    row[0] = static_cast<std::int64_t>(i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::int64_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

}  // namespace steelyard
