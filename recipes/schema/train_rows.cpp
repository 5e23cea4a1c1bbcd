// The section `train`.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>

#include "steelyard/framework/tensor/matmul_precision_words.h"
#include "steelyard/framework/train/training_words.h"
#include "steelyard/recipes/language/scalar.h"
#include "steelyard/recipes/schema/recipe_tables.h"

namespace steelyard {
namespace {

constexpr double kMaxEpochs = 1e6;
constexpr double kMostShards = 4096;

Table<TrainSpec> optimizer_table() {
  const auto sgd = [](const std::string& name, const std::string& help, auto member) {
    return key(name, help, &TrainSpec::optimizer, &OptimizerSpec::sgd, member);
  };
  const auto adamw = [](const std::string& name, const std::string& help, auto member) {
    return key(name, help, &TrainSpec::optimizer, &OptimizerSpec::adamw, member);
  };
  return Table<TrainSpec>(
             "The update rule.",
             {key("type", "update rule", &TrainSpec::optimizer, &OptimizerSpec::type).required(),
              key("lr", "largest learning rate of the schedule", &TrainSpec::trainer,
                  &TrainerOptions::lr_schedule, &LrSchedule::base_lr)
                  .required()
                  .above(0)
                  .at_most(1e6),
              sgd("weight_decay", "weight decay coefficient", &SgdOptions::weight_decay)
                  .also(&TrainSpec::optimizer, &OptimizerSpec::adamw, &AdamWOptions::weight_decay)
                  .by_default()
                  .within(0, 1e3),
              key("decay_bias_and_norm",
                  "whether biases, batch-norm weights and an imported network's constants for each "
                  "channel decay too",
                  &TrainSpec::optimizer, &OptimizerSpec::decay_bias_and_norm)
                  .by_default()})
      .cases("type",
             {when<OptimizerType, TrainSpec>(
                  OptimizerType::kSgd,
                  {sgd("momentum", "momentum coefficient", &SgdOptions::momentum)
                       .by_default("0.9")
                       .within(0, 0.9999),
                   sgd("nesterov", "Nesterov's momentum", &SgdOptions::nesterov).by_default()}),
              when<OptimizerType, TrainSpec>(
                  OptimizerType::kAdamW,
                  {adamw("beta1", "decay of the first-moment estimate", &AdamWOptions::beta1)
                       .by_default()
                       .within(0, 0.999999),
                   adamw("beta2", "decay of the second-moment estimate", &AdamWOptions::beta2)
                       .by_default()
                       .within(0, 0.999999),
                   adamw("eps", "added to the denominator", &AdamWOptions::eps)
                       .by_default("1e-8")
                       .above(0)
                       .at_most(1)})})
      .check([](const OptionReader& from, TrainSpec& train) {
        const SgdOptions& options = train.optimizer.sgd;
        if (options.nesterov && options.momentum == 0) {
          fail_at(from.at("nesterov").place,
                  "train.optimizer.nesterov: expected a momentum above 0, got 0");
        }
      });
}

Table<TrainSpec> lr_schedule_table() {
  const auto curve = [](const std::string& name, const std::string& help, auto member) {
    return key(name, help, &TrainSpec::trainer, &TrainerOptions::lr_schedule, member);
  };
  return Table<TrainSpec>(
             "How the learning rate changes.",
             {curve("type", "shape of the schedule", &LrSchedule::type).by_default(),
              key("warmup_epochs",
                  "epochs in which the learning rate grows linearly from 0; may be a fraction",
                  &TrainSpec::warmup_epochs)
                  .by_default()
                  .within(0, kMaxEpochs)})
      .cases("type",
             {when<LrSchedule::Type, TrainSpec>(LrSchedule::Type::kConstant, {}),
              when<LrSchedule::Type, TrainSpec>(
                  LrSchedule::Type::kStep,
                  {key("every_epochs", "epochs between two changes", &TrainSpec::step_every_epochs)
                       .required()
                       .within(1, kMaxEpochs),
                   curve("gamma", "factor at each change", &LrSchedule::gamma)
                       .by_default()
                       .above(0)
                       .at_most(1)}),
              when<LrSchedule::Type, TrainSpec>(
                  LrSchedule::Type::kCosine,
                  {curve("final_lr", "learning rate at the end", &LrSchedule::final_lr)
                       .by_default()
                       .within(0, 1e6)})})
      .check([](const OptionReader& from, TrainSpec& train) {
        const TrainerOptions& trainer = train.trainer;
        if (train.warmup_epochs > static_cast<double>(trainer.epochs)) {
          fail_at(from.at("warmup_epochs").place,
                  "expected at most the " + std::to_string(trainer.epochs) +
                      " epochs of training, got " + from.text("warmup_epochs"));
        }
        if (trainer.lr_schedule.final_lr > trainer.lr_schedule.base_lr) {
          fail_at(from.at("final_lr").place, "expected at most the learning rate of " +
                                                 format_number(trainer.lr_schedule.base_lr) +
                                                 ", got " + from.text("final_lr"));
        }
      });
}

Table<TrainSpec> distill_table() {
  return Table<TrainSpec>(
             "Knowledge distillation (Hinton et al., arXiv:1503.02531): the recipe's model in "
             "float is "
             "the teacher, with the weights of a checkpoint or those that the run begins with.",
             {key("checkpoint",
                  "the teacher: a safetensors or PyTorch file with the float model's names",
                  &TrainSpec::teacher_checkpoint)
                  .role(OptionRole::kNotEssential),
              words_key<TrainSpec>(
                  "teacher",
                  "`self`: the teacher is the float model that the run begins with, that "
                  "of `model.onnx`, `model.gguf`, `model.huggingface` or `init.checkpoint`, in "
                  "place of a checkpoint",
                  {{"self", true}}, &TrainSpec::teaches_itself),
              key("weight",
                  "weight of the teacher in the loss: (1 - weight) * task + weight * "
                  "temperature^2 * KL(teacher, student)",
                  &TrainSpec::trainer, &TrainerOptions::distillation, &Distillation::weight)
                  .by_default()
                  .above(0)
                  .at_most(1),
              key("temperature", "divisor of both models' logits", &TrainSpec::trainer,
                  &TrainerOptions::distillation, &Distillation::temperature)
                  .by_default()
                  .above(0)
                  .at_most(1e3)})
      .check([](const OptionReader& from, TrainSpec& train) {
        if (train.teaches_itself == train.teacher_checkpoint.has_value()) {
          fail_at(from.node().place,
                  std::string("train.distill: expected checkpoint or teacher: self, got ") +
                      (train.teaches_itself ? "both" : "neither"));
        }
      });
}

Table<TrainSpec> ema_table() {
  return {
      "An exponential moving average of weights, learned scales and batch-norm "
      "statistics. It is validated, tested, saved under the model's names and "
      "deployed in place of the trained weights.",
      {key("decay",
           "decay of the average in each step; smaller at first: (1 + n) / (10 + n) in "
           "step n",
           &TrainSpec::trainer, &TrainerOptions::average, &WeightAverageOptions::decay)
           .by_default()
           .within(0, 0.999999)}};
}

// The library's losses and a program's, whose options take_own_parts() reads.
Row<TrainSpec> loss_row(const Registries& registries) {
  Row<TrainSpec> row{option_of<Loss::Type>()};
  row.option.name = "loss";
  row.option.help = "loss function";
  for (const auto& own : registries.own_losses) row.option.choices.push_back(own.described.value);
  row.stores.push_back([](const YamlNode& node, TrainSpec& train) {
    const std::vector<std::string> words = all_words<Loss::Type>();
    const bool known = std::find(words.begin(), words.end(), node.text) != words.end();
    train.trainer.loss.type = known ? value_of<Loss::Type>(node.text) : Loss::Type::kOwn;
  });
  return row.by_default(word_of(Loss().type));
}

// What a program adds to the library's losses and metrics.
void take_own_parts(const OptionReader& from, TrainSpec& train, const Registries& registries) {
  Loss& loss = train.trainer.loss;
  if (loss.type == Loss::Type::kOwn) {
    const OwnRow<LossInfo>& row = *find_row(registries.own_losses, from.text("loss"));
    loss.own = at_place(from.at("loss").place,
                        [&] { return std::make_shared<const LossInfo>(row.make(from.node())); });
    for (const RecipeOption& option : row.described.options) {
      train.own_loss_keys.push_back(option.name);
    }
  }
  if (!registries.own_metrics.empty()) {
    loss.own_metrics = std::make_shared<const std::vector<MetricInfo>>(registries.own_metrics);
  }
}

Row<TrainSpec> best_row(const Registries& registries) {
  std::vector<std::pair<std::string, std::string>> words;
  for (const std::span<const MetricInfo> rows :
       {metric_table(), std::span<const MetricInfo>(registries.own_metrics)}) {
    for (const MetricInfo& metric : rows) words.emplace_back(metric.name, metric.name);
  }
  return words_key<TrainSpec>("best",
                              "the validation metric that chooses the best epoch; absent: the "
                              "highest top1, or the lowest loss for tasks without top1",
                              words, &TrainSpec::trainer, &TrainerOptions::best_metric);
}

void check_train(const OptionReader& from, TrainSpec& train) {
  const TrainerOptions& trainer = train.trainer;
  const auto fail = [&](const char* key, const std::string& message) {
    fail_at(from.at(key).place, key + message);
  };
  const auto expected = [&](const std::string& key, const std::string& value) {
    fail_at(from.at(key).place, "train." + key + ": expected " + value);
  };
  if (trainer.divergence_limit && *trainer.divergence_limit < 1) {
    expected("divergence_limit",
             "0 or a number of at least 1, got " + from.text("divergence_limit"));
  }
  if (trainer.keep_step_checkpoints && trainer.checkpoint_every_steps == 0) {
    fail("keep_step_checkpoints", " needs checkpoint_every_steps above 0");
  }
  if (!std::has_single_bit(static_cast<std::uint64_t>(trainer.shards))) {
    expected("shards", "a power of two, got " + from.text("shards"));
  }
  const Loss& loss = trainer.loss;
  const bool of_tokens = loss.type == Loss::Type::kTokenCrossEntropy;
  if (from.has("distill") && loss.type != Loss::Type::kCrossEntropy && !of_tokens) {
    fail_at(from.at("distill").place,
            "distill needs the loss cross_entropy or token_cross_entropy, got " + loss_name(loss));
  }
  if (loss.huber_delta != 1 && loss.type != Loss::Type::kHuber) {
    fail("huber_delta", " needs the loss huber");
  }
  const auto needs = [&](bool given, const char* key, Loss::Type type) {
    if (given && loss.type != type) fail(key, " needs the loss " + word_of(type));
  };
  needs(loss.label_smoothing > 0 && !of_tokens, "label_smoothing", Loss::Type::kCrossEntropy);
  needs(train.class_weights.given(), "class_weights", Loss::Type::kCrossEntropy);
  needs(train.positive_weights.given(), "positive_weights", Loss::Type::kBinaryCrossEntropy);
  needs(loss.zero_infinity, "zero_infinity", Loss::Type::kCtc);
  if (const std::string& best = trainer.best_metric; !best.empty()) {
    if (!has_metric(loss, *find_metric(best, loss))) {
      expected("best", "a metric of the loss " + loss_name(loss) + ", got " + best);
    }
  }
}

}  // namespace

Table<TrainSpec> train_table(const Registries& registries) {
  const auto loss = [](const std::string& name, const std::string& help, auto member) {
    return key(name, help, &TrainSpec::trainer, &TrainerOptions::loss, member);
  };
  const auto trainer = [](const std::string& name, const std::string& help, auto member) {
    return key(name, help, &TrainSpec::trainer, member);
  };
  return Table<TrainSpec>(
             "How to train.",
             {trainer("epochs", "passes over the training set", &TrainerOptions::epochs)
                  .required()
                  .within(1, kMaxEpochs),
              nested<TrainSpec>("optimizer", optimizer_table()).required(),
              nested<TrainSpec>("lr_schedule", lr_schedule_table()).by_default("{}"),
              loss_row(registries),
              loss("huber_delta",
                   "with huber: error above which the loss grows linearly, of normalized targets "
                   "where `data.normalize_targets` has them",
                   &Loss::huber_delta)
                  .by_default()
                  .above(0)
                  .at_most(1e30),
              loss("label_smoothing",
                   "with cross_entropy and token_cross_entropy: fraction of the target that is "
                   "spread evenly over all classes",
                   &Loss::label_smoothing)
                  .by_default()
                  .within(0, 0.999),
              list_or_word("class_weights",
                           "with cross_entropy: the weight of each class in the mean over samples; "
                           "`balanced`: weights inverse to the numbers of training samples, so "
                           "that each class has the same total weight; absent: all are 1. "
                           "Validation and test losses are not weighted",
                           "balanced", &TrainSpec::class_weights, &WeightSpec::values,
                           &WeightSpec::balanced)
                  .above(0)
                  .at_most(1e6)
                  .items(1, kMaxClasses),
              list_or_word(
                  "positive_weights",
                  "with binary_cross_entropy: the weight of samples that have a label, one for "
                  "each label or one for all; `balanced`: samples without the label / samples with "
                  "it; absent: all are 1. Validation and test losses are not weighted",
                  "balanced", &TrainSpec::positive_weights, &WeightSpec::values,
                  &WeightSpec::balanced)
                  .above(0)
                  .at_most(1e6)
                  .items(1, kMaxClasses),
              loss("zero_infinity",
                   "with ctc: whether a text that is too long for its frames has a loss of 0; "
                   "otherwise its loss is infinite and ends the run",
                   &Loss::zero_infinity)
                  .by_default(),
              trainer("clip_grad_norm",
                      "limit on the joint L2 norm of all gradients; absent: no limit",
                      &TrainerOptions::clip_grad_norm)
                  .above(0)
                  .at_most(1e30),
              trainer("shards",
                      "number of parts (shards) of each batch, a power of two; their gradients are "
                      "added. One process runs them one after the other, so that activations need "
                      "the memory of one shard only; several processes share them. Batch norms "
                      "normalize each shard by itself",
                      &TrainerOptions::shards)
                  .by_default()
                  .within(1, kMostShards),
              best_row(registries),
              nested<TrainSpec>("distill", distill_table()),
              nested<TrainSpec>("ema", ema_table()),
              key("only",
                  "modules to train, with everything inside them, written like the targets of "
                  "`quantize` (with the types of the float model); all others keep their weights, "
                  "their batch-norm statistics and the ranges from `calibrate`; absent: everything "
                  "is trained",
                  &TrainSpec::only)
                  .items(1)
                  .places(&TrainSpec::only_places),
              key_of<double, TrainSpec>(
                  "divergence_limit",
                  "limit on losses, 0 or at least 1, as a multiple of a reference: the larger of "
                  "the first step's loss and the loss of outputs that are all zero. The run fails "
                  "if an epoch's training loss, its validation loss or the test loss exceeds it; "
                  "0: only if a loss is not finite",
                  [](TrainSpec& train, double limit) {
                    train.trainer.divergence_limit.reset();
                    if (limit > 0) train.trainer.divergence_limit = limit;
                  })
                  .by_default("100")
                  .within(0, 1e30)
                  .role(OptionRole::kFree),
              words_key<TrainSpec>(
                  "on_collapse",
                  "what an epoch does that loses what the run had learned, with finite losses "
                  "(docs/checkpoints.md says when): `stop` saves it and fails, `warn` goes on",
                  {{"stop", true}, {"warn", false}}, &TrainSpec::trainer,
                  &TrainerOptions::stops_on_collapse)
                  .by_default("stop")
                  .role(OptionRole::kFree),
              trainer("checkpoint_every_steps",
                      "steps between checkpoints inside an epoch; 0: at its end only",
                      &TrainerOptions::checkpoint_every_steps)
                  .by_default()
                  .within(0, kMaxCount)
                  .role(OptionRole::kFree),
              trainer("keep_step_checkpoints",
                      "whether checkpoints inside an epoch are kept when the next is written",
                      &TrainerOptions::keep_step_checkpoints)
                  .by_default()
                  .role(OptionRole::kFree),
              key("matmul_precision",
                  "precision of float matrix products in training: tf32 (on a GPU) and bf16 "
                  "round their operands to 11 and 8 significant bits and add in float32; the "
                  "quantized forward pass always multiplies integers",
                  &TrainSpec::matmul_precision)
                  .by_default(),
              words_key<TrainSpec>(
                  "cuda_graph",
                  "on a GPU: whether a step is captured as a CUDA graph once an epoch and "
                  "replayed; `auto`: if nothing in a step depends on the host",
                  {{"auto", true}, {"off", false}}, &TrainSpec::trainer,
                  &TrainerOptions::cuda_graph)
                  .by_default("auto")
                  .role(OptionRole::kFree),
              key("tensorboard",
                  "whether losses, learning rate and accuracy are also written as TensorBoard "
                  "events, to `events.out.tfevents.steelyard` in the run's folder",
                  &TrainSpec::tensorboard)
                  .by_default()
                  .role(OptionRole::kFree)})
      .some_cases("loss", cases_of(registries.own_losses))
      .check([&registries](const OptionReader& from, TrainSpec& train) {
        take_own_parts(from, train, registries);
        check_train(from, train);
      });
}

}  // namespace steelyard
