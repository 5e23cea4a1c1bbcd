// How an experiment trains: its optimizer, the trainer's options and the callbacks.
#include <cmath>

#include "steelyard/qat/model/named_quantizers.h"
#include "steelyard/qat/model/observe_weights.h"
#include "steelyard/qat/model/oscillations.h"
#include "steelyard/qat/prepare/latent_units.h"
#include "steelyard/qat/ptq/reestimate.h"
#include "steelyard/qat/quantizers/learned_scale.h"
#include "steelyard/qat/quantizers/words.h"
#include "steelyard/recipes/language/scalar.h"
#include "steelyard/recipes/runs/experiment/experiment.h"

namespace steelyard {
namespace {

// The latents that quantizers have set since the last call, because learning began.
std::vector<std::string> begun_latents(Module& model) {
  std::vector<std::string> names;
  for (const qat::NamedQuantizer& entry : qat::named_quantizers(model)) {
    if (!entry.quantizer->take_begun()) continue;
    names.push_back(join_path(entry.name, qat::kLearnedScale));
    names.push_back(join_path(entry.name, qat::kLearnedOffset));
  }
  return names;
}

bool is_batch_norm_statistic(const std::string& name) {
  return name.ends_with("running_mean") || name.ends_with("running_var");
}

}  // namespace

std::unique_ptr<Optimizer> Experiment::make_optimizer() {
  const OptimizerSpec& spec = recipe_.train.optimizer;
  const bool pact = recipe_.quantize && recipe_.quantize->algorithm == qat::Learning::kClipping;
  const NoDecay no_decay = [all = spec.decay_bias_and_norm, pact](const NamedParameter& p) {
    if (qat::is_latent(p.name)) return !pact;
    return !all && is_bias_or_norm(p);
  };
  const auto scale_lr = recipe_.quantize ? recipe_.quantize->scale_lr : std::nullopt;
  const LrFactor lr_factor = [scale_lr](const NamedParameter& p) {
    return qat::is_latent(p.name) ? scale_lr.value_or(1) : 1;
  };
  const StepUnits step_units = scale_lr ? StepUnits() : qat::latent_units(*model_);
  std::vector<NamedParameter> parameters = model_->named_parameters();
  std::erase_if(parameters, [](const NamedParameter& p) { return !p.variable.requires_grad(); });
  const auto make = [&]<typename T, typename Options>(Options options, T*) {
    options.no_decay = no_decay;
    options.lr_factor = lr_factor;
    options.step_units = step_units;
    return std::make_unique<T>(std::move(parameters), std::move(options));
  };
  switch (spec.type) {
    case OptimizerType::kSgd:
      return make(spec.sgd, static_cast<Sgd*>(nullptr));
    case OptimizerType::kAdamW:
      return make(spec.adamw, static_cast<AdamW*>(nullptr));
  }
  throw std::logic_error("[experiment] unknown optimizer");
}

TrainerOptions Experiment::trainer_options() const {
  const TrainSpec& train = recipe_.train;
  const auto steps_per_epoch = batches_per_epoch(train_, loader_options_);
  TrainerOptions options = train.trainer;
  options.loss = loss_;
  options.starts_trained = starts_trained();
  if (teacher_) {
    options.distillation->teacher = teacher_;
  } else {
    options.distillation.reset();
  }
  const bool one_shard = options.shards == 1;
  if (recipe_.quantize)
    options.delayed_ranges = recipe_.quantize->delayed_ranges.value_or(!one_shard);
  if (options.average) {
    const Shape one = input_.batch(1);
    options.average->averages_buffer = is_batch_norm_statistic;
    options.average->take_set_parameters = [model = model_] { return begun_latents(*model); };
    options.average->refresh = [model = model_, one] { qat::observe_weights(*model, one); };
  }
  LrSchedule& schedule = options.lr_schedule;
  schedule.warmup_steps = train.warmup_steps(steps_per_epoch);
  schedule.total_steps = options.epochs * steps_per_epoch;
  schedule.step_every_steps = train.step_every_epochs * steps_per_epoch;
  return options;
}

std::unique_ptr<TrainerCallback> Experiment::make_schedule(Module& model) const {
  qat::QatSchedule schedule = recipe_.schedule;
  if (!recipe_.quantize && !schedule.freeze_batch_norm && trained_.everything()) return nullptr;
  schedule.trained = trained_;
  return std::make_unique<qat::ScheduleCallback>(model, schedule);
}

std::unique_ptr<TrainerCallback> Experiment::make_oscillations() {
  if (!recipe_.quantize || !recipe_.quantize->oscillations) return nullptr;
  return at_place(place("quantize", "oscillations"), [&] {
    return std::make_unique<qat::OscillationCallback>(*model_, *recipe_.quantize->oscillations);
  });
}

std::unique_ptr<TrainerCallback> Experiment::make_reestimation() {
  const auto& batches = recipe_.reestimate_bn;
  if (!batches) return nullptr;
  return std::make_unique<qat::ReestimateCallback>(*model_, train_, loader_options_,
                                                   recipe_.train.trainer.epochs, *batches);
}

// Whether the model knows its task before the first step.
bool Experiment::starts_trained() const {
  const bool imported = network_ && recipe_.quantize;
  return (recipe_.init_checkpoint || imported) && recipe_.init.skip.empty();
}

// A line about the scales that are learned.
void Experiment::note_learning() {
  if (!recipe_.quantize || recipe_.quantize->algorithm == qat::Learning::kNothing) return;
  std::int64_t learned = 0, all = 0;
  for (const qat::NamedQuantizer& entry : qat::named_quantizers(*model_)) {
    if (entry.quantizer->config().learning == qat::Learning::kNothing) continue;
    ++all;
    if (trained_.contain(entry.name)) ++learned;
  }
  const auto& scale_lr = recipe_.quantize->scale_lr;
  const std::string count = format_number(qat::kScalesOfAStep);
  const bool adaptive = recipe_.train.optimizer.type == OptimizerType::kAdamW;
  add_plan_note(
      "quantize.algorithm: " + word_of(recipe_.quantize->algorithm) + " learns " +
      (learned < all ? std::to_string(learned) + " of " : "") + std::to_string(all) +
      " quantizers (\"learned\") from where their observers begin; " +
      (scale_lr ? "learning rate: " + format_number(*scale_lr) + " times the optimizer's (scale_lr)"
       : adaptive ? "steps: " + count + " first scales times AdamW's direction and rate"
                  : "no step moves a scale by more than " + count +
                        " times the learning rate times its first value"));
}

}  // namespace steelyard
