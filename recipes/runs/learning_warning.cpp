#include "steelyard/recipes/runs/learning_warning.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "steelyard/framework/train/constant_outputs.h"
#include "steelyard/qat/ptq/reestimate.h"

namespace steelyard {

namespace {

// Whether the recall of all classes together is that of a model that gives every sample one of
// them, while its accuracy is that of the most frequent one.
bool gives_one_class(const Metrics& final, const Tensor& labels) {
  if (!final.top1 || labels.dtype() != DType::kI64 || labels.rank() != 1) return false;
  std::map<std::int64_t, std::int64_t> counts;
  for (const std::int64_t label : labels.to(Device{}).span<std::int64_t>()) ++counts[label];
  const auto recall = value_in(final, "recall");
  if (counts.size() < 2 || !recall) return false;
  std::int64_t most = 0;
  for (const auto& [label, count] : counts) most = std::max(most, count);
  const double share = 100 * static_cast<double>(most) / static_cast<double>(labels.size());
  return std::abs(*final.top1 - share) < 1e-6 &&
         std::abs(*recall * static_cast<double>(counts.size()) - 100) < 1e-6;
}

}  // namespace

std::string warning_of_no_learning(Experiment& experiment, const Metrics& final, bool trained) {
  constexpr double kNoBetter = 0.99;
  constexpr double kLarge = 100;  // of values; a network's first outputs are near 1
  const ConstantOutputs constant =
      constant_outputs(plain_loss(experiment.loss()), experiment.train(), experiment.test());
  if (constant.loss <= 0) return "";
  if (final.loss < kNoBetter * constant.loss) {
    if (!gives_one_class(final, experiment.test().targets)) return "";
    return fmt::format(
        "the test accuracy, {:.2f} %, is that of a model that gives every sample the most frequent "
        "class, and so is the recall: more epochs{} may help",
        *final.top1,
        experiment.recipe().train.class_weights.given() ? "" : " or train.class_weights");
  }
  std::string text = fmt::format(
      "the test loss is {:.4g}, no better than that of {}, {:.4g}: the model has learned nothing, "
      "lost what it knew or is sure of wrong answers",
      final.loss, constant.outputs, constant.loss);
  if (!trained) return text + "; more bits, another observer or training may help";
  text += "; another learning rate or train.lr_schedule.warmup_epochs may help";
  const Recipe& recipe = experiment.recipe();
  if (!recipe.reestimate_bn && recipe.train.only.empty() &&
      qat::count_batch_norms(experiment.model()) > 0) {
    text +=
        "; if the training loss is far lower, schedule.reestimate_bn may help: after few steps "
        "the running statistics of batch norms lag behind";
  }
  if (experiment.target_kind() == TargetKind::kValues && constant.loss > kLarge) {
    text += "; the targets are large and not normalized: data.normalize_targets does that";
  }
  return text;
}

}  // namespace steelyard
