#include "steelyard/recipes/runs/unused_keys.h"

#include <algorithm>
#include <utility>

#include "steelyard/framework/data/targets.h"

namespace steelyard {
namespace {

class UnusedKeys {
 public:
  UnusedKeys(const Recipe& recipe, std::int64_t steps_per_epoch)
      : recipe_(recipe), steps_per_epoch_(steps_per_epoch) {}

  std::vector<std::string> find(bool table) {
    find_in_data(table);
    find_in_augmentation(recipe_.data.loader.augment, Augmentation());
    if (recipe_.data.transforms) find_in_transforms(*recipe_.data.transforms, ImageTransforms());
    find_in_train();
    if (recipe_.quantize) find_in_quantize(*recipe_.quantize);
    return std::move(notes_);
  }

 private:
  void note(bool unused, const std::string& key, const std::string& reason) {
    if (unused) notes_.push_back(key + " has no effect: " + reason);
  }

  void find_in_data(bool table) {
    const DataSpec& data = recipe_.data;
    note(data.table && !table, "data.table", "the dataset is no table");
    note(data.transforms && table, "data.transforms", "the dataset is a table");
    note(data.label_separator != TargetOptions().separator &&
             recipe_.train.trainer.loss.type != Loss::Type::kBinaryCrossEntropy,
         "data.label_separator", "it is for the loss binary_cross_entropy");
    note(data.normalize_targets == false &&
             loss_info(recipe_.train.trainer.loss).targets != TargetKind::kValues,
         "data.normalize_targets", "the targets are no numbers");
    note(data.loader.augment.crop_padding != Augmentation().crop_padding &&
             !data.loader.augment.random_crop,
         "data.crop_padding", "data.augment has no random_crop");
    note(data.stratified && data.validation == 0 && !data.test, "data.stratified",
         "no samples are set aside");
  }

  void find_in_augmentation(const Augmentation& given, const Augmentation& absent) {
    const auto option = [&](const char* key, auto member, bool applied, const std::string& change) {
      note(given.*member != absent.*member && !applied, std::string("data.augment_options.") + key,
           "data.augment has no " + change);
    };
    using A = Augmentation;
    for (const auto& [key, member] :
         {std::pair("brightness", &A::brightness), std::pair("contrast", &A::contrast),
          std::pair("saturation", &A::saturation), std::pair("hue", &A::hue)}) {
      option(key, member, given.colour_jitter, "colour_jitter");
    }
    option("rotation_degrees", &A::rotation_degrees, given.rotation, "rotation");
    option("erasing_probability", &A::erasing_probability, given.erasing, "erasing");
    option("erasing_area", &A::erasing_area, given.erasing, "erasing");
    option("erasing_ratio", &A::erasing_ratio, given.erasing, "erasing");
    option("mixup_alpha", &A::mixup_alpha, given.mixup, "mixup");
    option("cutmix_alpha", &A::cutmix_alpha, given.cutmix, "cutmix");
  }

  void find_in_transforms(const ImageTransforms& given, const ImageTransforms& absent) {
    const bool random = recipe_.data.loader.augment.resized_crop;
    const std::string no_random = "data.augment has no random_resized_crop";
    note(given.random_area != absent.random_area && !random, "data.transforms.random_area",
         no_random);
    note(given.random_ratio != absent.random_ratio && !random, "data.transforms.random_ratio",
         no_random);
    note(given.interpolation != absent.interpolation && !random && !given.resize &&
             !given.resize_shorter,
         "data.transforms.interpolation", "no image is resized");
  }

  void find_in_train() {
    const TrainSpec& train = recipe_.train;
    const double decay = train.optimizer.type == OptimizerType::kSgd
                             ? train.optimizer.sgd.weight_decay
                             : train.optimizer.adamw.weight_decay;
    note(train.optimizer.decay_bias_and_norm && decay == 0, "train.optimizer.decay_bias_and_norm",
         "weight_decay is 0");
    note(train.warmup_epochs > 0 && train.warmup_steps(steps_per_epoch_) < 2,
         "train.lr_schedule.warmup_epochs", "it is fewer than 2 steps");
    note(train.trainer.lr_schedule.type == LrSchedule::Type::kStep &&
             train.step_every_epochs >= train.trainer.epochs,
         "train.lr_schedule.every_epochs", "the run ends before the first change");
    note(!train.trainer.best_metric.empty() && recipe_.data.validation == 0, "train.best",
         "data.validation is 0, so no epoch is chosen");
  }

  void find_in_quantize(const QuantizeSpec& quantize) {
    const auto& groups = quantize.config.groups;
    const bool activations =
        std::any_of(groups.begin(), groups.end(), [](const qat::QuantizeGroup& group) {
          return group.config.activations && !group.config.activations->scheme.dynamic;
        });
    const std::string no_activations = "no group has ranges of activations";
    note(quantize.algorithm == qat::Learning::kClipping && !activations, "quantize.algorithm",
         no_activations);
    note(quantize.delayed_ranges.value_or(false) && !activations, "quantize.ranges",
         no_activations);
    for (const qat::QuantizeGroup& group : groups) {
      const observers::ObserverOptions absent;
      const auto& weights = group.config.weights;
      note(weights && weights->observer.type != "moving_average" &&
               weights->observer.averaging_constant != absent.averaging_constant,
           "weights.averaging_constant", "with this observer, weights are measured anew each step");
    }
  }

  const Recipe& recipe_;
  const std::int64_t steps_per_epoch_;
  std::vector<std::string> notes_;
};

}  // namespace

std::vector<std::string> notes_of_unused_keys(const Recipe& recipe, bool table,
                                              std::int64_t steps_per_epoch) {
  return UnusedKeys(recipe, steps_per_epoch).find(table);
}

}  // namespace steelyard
