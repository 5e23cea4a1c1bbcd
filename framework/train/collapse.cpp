#include "steelyard/framework/train/collapse.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "steelyard/framework/files/metadata_numbers.h"

namespace steelyard {
namespace {

constexpr const char* kLeastLoss = "least_epoch_loss";
constexpr const char* kMostTop1 = "most_top1";

constexpr double kPoints = 10;        // above chance, of a model that knows something
constexpr double kDeviations = 10;    // the same for few samples
constexpr double kKnows = 0.8;        // of the loss of zeros: a model that knows something
constexpr double kWayBack = 0.75;     // to the loss of zeros
constexpr double kNoBetter = 0.95;    // of the loss of zeros: a model that knows nothing
constexpr std::int64_t kSteps = 200;  // in which trained weights recover from a change of theirs

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

CollapseWatch::CollapseWatch(double zeros_loss, const Dataset& validation)
    : zeros_loss_(zeros_loss) {
  if (!is_labels(validation)) return;
  const double part = largest_part(validation.targets.to(Device{}), validation.classes);
  chance_ = 100 * part;
  deviation_ = 100 * std::sqrt(part * (1 - part) / static_cast<double>(validation.size()));
}

std::string CollapseWatch::after(const EpochReport& report, bool trained) {
  std::string text = lost(report, trained);
  known_.train_loss = std::min(report.train_loss, known_.train_loss.value_or(report.train_loss));
  if (report.validation && report.validation->top1) {
    const double top1 = *report.validation->top1;
    known_.top1 = std::max(top1, known_.top1.value_or(top1));
  }
  return text;
}

std::string CollapseWatch::lost(const EpochReport& report, bool trained) const {
  const auto& validation = report.validation;
  const bool has_top1 = validation && validation->top1.has_value();
  const double top1 = has_top1 ? validation->top1.value_or(0) : 0;
  const std::string epoch = fmt::format("epoch {}: ", report.epoch + 1);
  const bool knew_classes =
      known_.top1 && *known_.top1 >= chance_ + std::max(kPoints, kDeviations * deviation_);
  if (has_top1 && knew_classes && at_chance(top1)) {
    return fmt::format(
        "{}validation top-1 has fallen from {:.2f} to {:.2f} %; the most frequent class alone "
        "gives {:.2f} %",
        epoch, *known_.top1, top1, chance_);
  }
  if (zeros_loss_ <= 0) return "";
  const double loss = report.train_loss;
  const auto& least = known_.train_loss;
  if (least && *least <= kKnows * zeros_loss_ &&
      loss >= *least + kWayBack * (zeros_loss_ - *least)) {
    return fmt::format(
        "{}the training loss has risen from {:.4g} to {:.4g}; outputs that are all zero have "
        "{:.4g}",
        epoch, *least, loss, zeros_loss_);
  }
  if (!trained || report.step < kSteps || loss < kNoBetter * zeros_loss_) return "";
  const bool knows =
      validation ? validation->loss < kNoBetter * zeros_loss_ || (has_top1 && !at_chance(top1))
                 : report.epoch == 0;
  if (knows) return "";
  return fmt::format(
      "{}the training loss is {:.4g}, no better than the {:.4g} of outputs that are all zero: what "
      "the trained weights knew is lost",
      epoch, loss, zeros_loss_);
}

void CollapseWatch::save(TensorFileMetadata& metadata) const {
  if (known_.train_loss) metadata[kLeastLoss] = exact_text(*known_.train_loss);
  if (known_.top1) metadata[kMostTop1] = exact_text(*known_.top1);
}

void CollapseWatch::restore(const TensorFileMetadata& metadata, const std::string& source) {
  const auto read = [&](const char* key) -> std::optional<double> {
    if (!metadata.contains(key)) return std::nullopt;
    return finite_in(metadata, key, source);
  };
  known_ = {.train_loss = read(kLeastLoss), .top1 = read(kMostTop1)};
}

}  // namespace steelyard
