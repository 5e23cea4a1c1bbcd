#include "steelyard/framework/train/collapse.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "steelyard/framework/files/metadata_numbers.h"

namespace steelyard {
namespace {

constexpr const char* kLeastLoss = "least_epoch_loss";
constexpr const char* kMostTop1 = "most_top1";
constexpr const char* kLeastCer = "least_cer";
constexpr const char* kCer = "cer";  // in MetricInfo

constexpr double kPoints = 10;        // above chance, of a model that knows something
constexpr double kDeviations = 10;    // the same for few samples
constexpr double kReads = 80;         // percent: the error rate of a model that knows something
constexpr double kReadsNothing = 99;  // the same, of one that knows nothing
constexpr double kKnows = 0.8;        // of the constant's loss: a model that knows something
constexpr double kWayBack = 0.75;     // to the constant's loss
constexpr double kNoBetter = 0.95;    // of the constant's loss: a model that knows nothing
// In which trained weights recover from a change of theirs, such as a new last layer, which begins
// where a model that has lost everything ends. A shorter run cannot tell the two apart: it ends
// with a warning that its test loss is no better (recipes/runs/learning_warning.h), and has nothing
// left that stopping would save. What was better in an epoch before is compared in runs of any
// length.
constexpr std::int64_t kSteps = 200;

// The part of the most frequent class.
double largest_part(const Tensor& labels, std::int64_t classes) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(classes));
  for (const std::int64_t label : labels.span<std::int64_t>()) {
    ++counts[static_cast<std::size_t>(label)];
  }
  return static_cast<double>(*std::max_element(counts.begin(), counts.end())) /
         static_cast<double>(labels.size());
}

bool is_labels(const Dataset& dataset) {
  const Tensor& targets = dataset.targets;
  return dataset.size() > 0 && dataset.classes > 0 && targets.dtype() == DType::kI64 &&
         targets.shape().size() == 1;
}

}  // namespace

CollapseWatch::CollapseWatch(ConstantOutputs training, const ConstantOutputs& validation_constant,
                             const Dataset& validation)
    : training_(std::move(training)), validation_loss_(validation_constant.loss) {
  if (!is_labels(validation)) return;
  const double part = largest_part(validation.targets.to(Device{}), validation.classes);
  chance_ = 100 * part;
  deviation_ = 100 * std::sqrt(part * (1 - part) / static_cast<double>(validation.size()));
}

std::string CollapseWatch::after(const EpochReport& report, bool trained) {
  std::string text = lost(report, trained);
  known_.train_loss = std::min(report.train_loss, known_.train_loss.value_or(report.train_loss));
  if (!report.validation) return text;
  if (const auto top1 = report.validation->top1) {
    known_.top1 = std::max(*top1, known_.top1.value_or(*top1));
  }
  if (const auto cer = value_in(*report.validation, kCer)) {
    known_.cer = std::min(*cer, known_.cer.value_or(*cer));
  }
  return text;
}

std::string CollapseWatch::lost_predictions(const Metrics& validation) const {
  const auto& top1 = validation.top1;
  const bool knew_classes =
      known_.top1 && *known_.top1 >= chance_ + std::max(kPoints, kDeviations * deviation_);
  if (top1 && knew_classes && at_chance(*top1)) {
    return fmt::format(
        "validation top-1 has fallen from {:.2f} to {:.2f} %; the most frequent class alone gives "
        "{:.2f} %",
        *known_.top1, *top1, chance_);
  }
  const auto cer = value_in(validation, kCer);
  if (cer && known_.cer && *known_.cer <= kReads && *cer >= kReadsNothing) {
    return fmt::format("the validation character error rate has risen from {:.2f} to {:.2f} %",
                       *known_.cer, *cer);
  }
  return "";
}

bool CollapseWatch::says_something(const Metrics& validation) const {
  const auto cer = value_in(validation, kCer);
  return (validation.top1 && !at_chance(*validation.top1)) || (cer && *cer < kReadsNothing);
}

std::string CollapseWatch::lost(const EpochReport& report, bool trained) const {
  const auto& validation = report.validation;
  const std::string epoch = fmt::format("epoch {}: ", report.epoch + 1);
  if (validation) {
    const std::string text = lost_predictions(*validation);
    if (!text.empty()) return epoch + text;
  }
  const double constant = training_.loss;
  if (constant <= 0) return "";
  const double loss = report.train_loss;
  const auto& least = known_.train_loss;
  if (least && *least <= kKnows * constant && loss >= *least + kWayBack * (constant - *least)) {
    return fmt::format("{}the training loss has risen from {:.4g} to {:.4g}; {} have {:.4g}", epoch,
                       *least, loss, training_.outputs, constant);
  }
  if (!trained || report.step < kSteps || loss < kNoBetter * constant) return "";
  const bool knows =
      validation ? validation->loss < kNoBetter * validation_loss_ || says_something(*validation)
                 : report.epoch == 0;
  if (knows) return "";
  return fmt::format(
      "{}the training loss is {:.4g}, no better than the {:.4g} of {}: what the trained weights "
      "knew is lost",
      epoch, loss, constant, training_.outputs);
}

void CollapseWatch::save(TensorFileMetadata& metadata) const {
  if (known_.train_loss) metadata[kLeastLoss] = exact_text(*known_.train_loss);
  if (known_.top1) metadata[kMostTop1] = exact_text(*known_.top1);
  if (known_.cer) metadata[kLeastCer] = exact_text(*known_.cer);
}

void CollapseWatch::restore(const TensorFileMetadata& metadata, const std::string& source) {
  const auto read = [&](const char* key) -> std::optional<double> {
    if (!metadata.contains(key)) return std::nullopt;
    return finite_in(metadata, key, source);
  };
  known_ = {.train_loss = read(kLeastLoss), .top1 = read(kMostTop1), .cer = read(kLeastCer)};
}

}  // namespace steelyard
