#include "steelyard/recipes/runs/learning_warning.h"

#include <fmt/core.h>

#include "steelyard/framework/train/loss.h"
#include "steelyard/qat/ptq/reestimate.h"

namespace steelyard {

std::string warning_of_no_learning(Experiment& experiment, const Metrics& final) {
  constexpr double kNoBetter = 0.99;
  constexpr double kLarge = 100;  // of values; a network's first outputs are near 1
  const double zeros = loss_of_zero_outputs(plain_loss(experiment.loss()), experiment.test());
  if (zeros <= 0 || final.loss < kNoBetter * zeros) return "";
  const Recipe& recipe = experiment.recipe();
  const bool norms = !recipe.reestimate_bn && recipe.train.only.empty() &&
                     qat::count_batch_norms(experiment.model()) > 0;
  const bool large = experiment.target_kind() == TargetKind::kValues && zeros > kLarge;
  return fmt::format(
      "the test loss is {:.4g}, no better than that of outputs that are all zero, {:.4g}: the "
      "model has learned nothing, lost what it knew or is sure of wrong answers; another learning "
      "rate or train.lr_schedule.warmup_epochs may help{}{}",
      final.loss, zeros,
      norms
          ? "; if the training loss is far lower, schedule.reestimate_bn may help: after few steps "
            "the running statistics of batch norms lag behind"
          : "",
      large ? "; the targets are large and not normalized: data.normalize_targets does that" : "");
}

}  // namespace steelyard
