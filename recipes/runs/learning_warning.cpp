#include "steelyard/recipes/runs/learning_warning.h"

#include <fmt/core.h>

#include "steelyard/framework/train/constant_outputs.h"
#include "steelyard/qat/ptq/reestimate.h"

namespace steelyard {

std::string warning_of_no_learning(Experiment& experiment, const Metrics& final) {
  constexpr double kNoBetter = 0.99;
  constexpr double kLarge = 100;  // of values; a network's first outputs are near 1
  const ConstantOutputs constant =
      constant_outputs(plain_loss(experiment.loss()), experiment.train(), experiment.test());
  if (constant.loss <= 0 || final.loss < kNoBetter * constant.loss) return "";
  const Recipe& recipe = experiment.recipe();
  const bool norms = !recipe.reestimate_bn && recipe.train.only.empty() &&
                     qat::count_batch_norms(experiment.model()) > 0;
  const bool large = experiment.target_kind() == TargetKind::kValues && constant.loss > kLarge;
  return fmt::format(
      "the test loss is {:.4g}, no better than that of {}, {:.4g}: the model has learned nothing, "
      "lost what it knew or is sure of wrong answers; another learning rate or "
      "train.lr_schedule.warmup_epochs may help{}{}",
      final.loss, constant.outputs, constant.loss,
      norms
          ? "; if the training loss is far lower, schedule.reestimate_bn may help: after few steps "
            "the running statistics of batch norms lag behind"
          : "",
      large ? "; the targets are large and not normalized: data.normalize_targets does that" : "");
}

}  // namespace steelyard
