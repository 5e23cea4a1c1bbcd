#include "recipes/recipe_options.h"

#include "recipes/option_docs.h"

namespace steelyard {
namespace {

constexpr double kMaxCount = 1e9;

RecipeOption integer(const std::string& name, const std::string& default_yaml,
                     const std::string& help, double min, double max = kMaxCount) {
  return {.name = name,
          .kind = OptionKind::kInteger,
          .help = help,
          .default_yaml = default_yaml,
          .min = min,
          .max = max};
}

RecipeOption number(const std::string& name, const std::string& default_yaml,
                    const std::string& help, double min, double max) {
  return {.name = name,
          .kind = OptionKind::kNumber,
          .help = help,
          .default_yaml = default_yaml,
          .min = min,
          .max = max};
}

RecipeOption boolean(const std::string& name, const std::string& default_yaml,
                     const std::string& help) {
  return {.name = name, .kind = OptionKind::kBoolean, .help = help, .default_yaml = default_yaml};
}

RecipeOption choice(const std::string& name, const std::string& default_yaml,
                    const std::string& help, std::vector<std::string> choices) {
  return {.name = name,
          .kind = OptionKind::kChoice,
          .help = help,
          .default_yaml = default_yaml,
          .choices = std::move(choices)};
}

RecipeOption table(const std::string& name, const std::string& help,
                   std::vector<RecipeOption> members) {
  return {.name = name, .kind = OptionKind::kTable, .help = help, .members = std::move(members)};
}

// A value that may be absent, or must be there: both have no default.
RecipeOption optional(RecipeOption option) {
  option.default_yaml.reset();
  return option;
}

RecipeOption required(RecipeOption option) {
  option.default_yaml.reset();
  option.required = true;
  return option;
}

RecipeOption with_default(RecipeOption option, const std::string& default_yaml) {
  option.default_yaml = default_yaml;
  return option;
}

RecipeOption above_min(RecipeOption option) {
  option.above_min = true;
  return option;
}

RecipeOption text(const std::string& name, const std::string& help) {
  return {.name = name, .help = help};
}

RecipeOption text_list(const std::string& name, const std::string& help) {
  return {.name = name,
          .kind = OptionKind::kList,
          .help = help,
          .members = {{.kind = OptionKind::kString}}};
}

RecipeOption data_option() {
  RecipeOption augment{.name = "augment",
                       .kind = OptionKind::kList,
                       .help = "random changes of training images, any of random_crop and flip",
                       .default_yaml = "[]",
                       .members = {choice("", "", "", {"random_crop", "flip"})}};
  augment.members[0].default_yaml.reset();
  const auto per_channel = [](const std::string& name, const std::string& help, double min) {
    RecipeOption list{.name = name,
                      .kind = OptionKind::kList,
                      .help = help,
                      .required = true,
                      .min_items = 1,
                      .max_items = 65536,
                      .members = {optional(number("", "", "", min, 3.4e38))}};
    return list;
  };
  const RecipeOption normalize{
      .name = "normalize",
      .kind = OptionKind::kChoiceOrTable,
      .help =
          "(x - mean) / std of every channel of the inputs, of bytes after they were divided by "
          "255: with the mean and the deviation of this run's training set, with those given "
          "(of the model in `init.checkpoint`, if another framework trained it), or not at "
          "all; checkpoints hold the numbers",
      .default_yaml = "dataset",
      .choices = {"dataset", "none"},
      .members = {per_channel("mean", "of each channel", -3.4e38),
                  per_channel("std", "deviation of each channel", 1e-38)}};
  return required(table(
      "data", "What to train and test on.",
      {required(text("dataset", "fashion_mnist, cifar10, safetensors or a registered one")),
       text("path",
            "the dataset's folder, from the current folder on; its usual place when absent"),
       integer("batch_size", "128", "samples a step", 1, 65536), augment, normalize,
       integer("crop_padding", "2", "pixels added on each side before random_crop", 1, 64),
       integer("validation", "5000",
               "training samples kept aside, on which the best epoch is chosen; 0: none", 0)}));
}

RecipeOption optimizer_option() {
  static const OptionCases kOptimizers{
      {{"sgd",
        "stochastic gradient descent",
        {number("momentum", "0.9", "", 0, 0.9999),
         boolean("nesterov", "false", "Nesterov's momentum")}},
       {"adamw",
        "Adam with decoupled weight decay",
        {number("beta1", "0.9", "decay of the mean", 0, 0.999999),
         number("beta2", "0.999", "decay of the variance", 0, 0.999999),
         above_min(number("eps", "1e-8", "added to the denominator", 0, 1))}}}};
  RecipeOption optimizer = required(
      table("optimizer", "The update rule.",
            {required(choice("type", "", "the rule", {})),
             required(above_min(number("lr", "", "learning rate, the schedule's largest", 0, 1e6))),
             number("weight_decay", "0", "", 0, 1e3),
             boolean("decay_bias_and_norm", "false",
                     "whether biases and batch-norm weights decay too")}));
  optimizer.discriminator = "type";
  optimizer.cases = &kOptimizers;
  return optimizer;
}

RecipeOption lr_schedule_option() {
  static const OptionCases kSchedules{
      {{"constant", "", {}},
       {"step",
        "",
        {required(integer("every_epochs", "", "epochs between two changes", 1, 1e6)),
         above_min(number("gamma", "0.1", "factor at each change", 0, 1))}},
       {"cosine",
        "half a cosine to the end of training",
        {number("final_lr", "0", "learning rate at the end", 0, 1e6)}}}};
  RecipeOption schedule = table(
      "lr_schedule", "How the learning rate changes.",
      {choice("type", "constant", "the curve", {}),
       number("warmup_epochs", "0", "epochs of linear growth from 0, may be a fraction", 0, 1e6)});
  schedule.discriminator = "type";
  schedule.cases = &kSchedules;
  return with_default(schedule, "{}");
}

RecipeOption distill_option() {
  return table(
      "distill",
      "Knowledge distillation (Hinton et al., arXiv:1503.02531): the recipe's model in float "
      "teaches the one that is trained.",
      {required(text("checkpoint", "the teacher: a safetensors file with the float model's names")),
       above_min(number("weight", "0.5",
                        "of the teacher in the loss: (1 - weight) * task + weight * "
                        "temperature^2 * KL(teacher, student)",
                        0, 1)),
       above_min(number("temperature", "1", "what both models' logits are divided by", 0, 1e3))});
}

RecipeOption ema_option() {
  return table(
      "ema",
      "An exponential moving average of weights, learned scales and batch-norm statistics: "
      "what is validated, tested, saved by name and deployed in place of the trained "
      "weights.",
      {number("decay", "0.999",
              "of the average in each step; less at first, (1 + n) / (10 + n) in step n", 0,
              0.999999)});
}

RecipeOption only_option() {
  RecipeOption only = text_list(
      "only",
      "what is trained, everything beneath it included, written as targets of `quantize` are (the "
      "types of the float model); the rest keeps its weights, batch-norm statistics and, from "
      "`calibrate`, its ranges; absent: everything is trained");
  only.min_items = 1;
  return only;
}

RecipeOption train_option() {
  return required(table(
      "train", "How to train.",
      {required(integer("epochs", "", "passes over the training set", 1, 1e6)), optimizer_option(),
       lr_schedule_option(),
       choice("loss", "cross_entropy", "what is minimised", {"cross_entropy", "mse", "huber"}),
       above_min(number("huber_delta", "1", "with huber: where the error stops to grow squared", 0,
                        1e30)),
       number("label_smoothing", "0", "with cross_entropy", 0, 0.999),
       optional(
           above_min(number("clip_grad_norm", "",
                            "largest norm of all gradients together; absent: no limit", 0, 1e30))),
       distill_option(), ema_option(), only_option(),
       number(
           "divergence_limit", "100",
           "the run fails when an epoch's training loss, its validation loss or the test loss is "
           "more than so many times the larger of the first step's loss and the loss of outputs "
           "that are all zero; 0: only when one is not finite",
           0, 1e30),
       integer("checkpoint_every_steps", "0",
               "steps between checkpoints inside an epoch; 0: at its end only", 0),
       boolean("keep_step_checkpoints", "false",
               "whether checkpoints inside an epoch are kept when the next is written"),
       choice("matmul_precision", "float32",
              "how products of float matrices are computed in training: tf32 (on a GPU) and bf16 "
              "round their operands to 11 and 8 significant bits and add in float32; the quantized "
              "forward multiplies integers whatever this says",
              {"float32", "tf32", "bf16"}),
       choice("cuda_graph", "auto",
              "on a GPU: whether steps are recorded once an epoch and run again as a whole; auto "
              "does so where nothing in a step depends on the host",
              {"auto", "off"}),
       boolean("tensorboard", "false",
               "whether losses, learning rate and accuracy are also written as TensorBoard events, "
               "to `events.out.tfevents.steelyard` in the run's folder")}));
}

const OptionCases& observer_cases() {
  static const OptionCases kObservers{
      {{"min_max", "smallest and largest value seen", {}},
       {"moving_average",
        "exponential moving average of each batch's smallest and largest value",
        {above_min(number("averaging_constant", "0.01", "weight of the newest batch", 0, 1))}},
       {"histogram",
        "the range with the least squared error, estimated over everything seen, each end by "
        "itself",
        {}},
       {"percentile",
        "all but the outermost values seen: of |x| with `symmetric`, else at both ends",
        {above_min(number("percentile", "99.99", "percentage of the values kept", 50, 100))}},
       {"mse",
        "the extremes shrunk to the least squared error on the values themselves; weights in each "
        "step anew, activations as a moving average; 100 passes over the values",
        {above_min(number("averaging_constant", "0.01", "weight of the newest batch", 0, 1))}},
       {"entropy",
        "the clipping of least Kullback-Leibler divergence, as TensorRT calibrates",
        {}}}};
  return kObservers;
}

RecipeOption quantizer(RecipeOption option) {
  option.kind = OptionKind::kTable;
  option.discriminator = "observer";
  option.cases = &observer_cases();
  return option;
}

RecipeOption algorithm_option() {
  const RecipeOption scale_lr = above_min(
      number("scale_lr", "1",
             "learning rate of scales and offsets, as a multiple of the optimizer's", 0, 1e6));
  static const OptionCases kAlgorithms{
      {{"ste", "straight-through estimator; observers find the ranges", {}},
       {"lsq", "learned scales, from where the observer's first range puts them", {scale_lr}},
       {"lsq_plus",
        "learned scales, and offsets of affine activations, which move the zero point",
        {scale_lr}},
       {"pact",
        "learned clipping of activations, which decays as weights do; observers find the ranges of "
        "weights",
        {scale_lr}}}};
  RecipeOption algorithm = table("algorithm", "How gradients pass the quantizers.",
                                 {choice("method", "ste", "the estimator", {})});
  algorithm.discriminator = "method";
  algorithm.cases = &kAlgorithms;
  return with_default(algorithm, "{}");
}

RecipeOption oscillations_option() {
  return table(
      "oscillations",
      "Follows how often the codes of weights turn back and forth, and reports it at the end of "
      "each epoch; damping and freezing stop it (Nagel et al., arXiv:2203.11086). Both ends of a "
      "schedule are joined by half a cosine over all steps of training. Needs `bn_fold` frozen or "
      "none.",
      {above_min(number("momentum", "0.01", "weight of the newest step in the averages", 0, 1)),
       table("damping",
             "Adds lambda times the squared distances of weights from their quantized values to "
             "the loss.",
             {number("start", "0", "lambda in the first step", 0, 1e6),
              number("end", "0.1", "lambda at the end", 0, 1e6)}),
       table("freeze_threshold",
             "Fixes the code of a weight, at its rounded mean, when the frequency of its "
             "oscillations (turns per step) exceeds this.",
             {number("start", "0.1", "threshold in the first step", 0, 1),
              number("end", "0.01", "threshold at the end", 0, 1)})});
}

RecipeOption quantize_option() {
  const RecipeOption num_bits = integer("num_bits", "8", "width of the codes", 2, 8);
  RecipeOption weights =
      quantizer(table("weights", "Quantization of weights.",
                      {num_bits, boolean("symmetric", "true", "whether the zero point is fixed"),
                       choice("strategy", "channel",
                              "a scale for each output channel, one for all, or one for each group "
                              "of an output channel's weights, which are then multiplied in float "
                              "and need a group without activations",
                              {"channel", "tensor", "group"}),
                       optional(integer("group_size", "",
                                        "with strategy group: weights that share a scale, in the "
                                        "order of PyTorch's layout; must divide those of an output "
                                        "channel or exceed them; absent: 32",
                                        1)),
                       optional(boolean("narrow_range", "",
                                        "whether the lowest code stays unused; absent: yes, but "
                                        "no with learned scales")),
                       choice("observer", "min_max", "how the range is found", {})}));
  RecipeOption activations =
      quantizer(table("activations", "Quantization of activations.",
                      {num_bits, boolean("symmetric", "false", "whether the zero point is fixed"),
                       choice("strategy", "tensor", "one scale", {"tensor"}),
                       optional(choice("observer", "",
                                       "how the range is found; absent: min_max with 8 bits, "
                                       "moving_average with fewer (docs/numerics.md says why)",
                                       {}))}));
  RecipeOption targets = required(text_list(
      "targets", "type names, exact paths, or `re:` and a regular expression on the path"));
  targets.min_items = 1;
  RecipeOption groups{.name = "groups",
                      .kind = OptionKind::kList,
                      .help = "which modules are quantized how; the first match wins",
                      .required = true,
                      .min_items = 1,
                      .members = {table("", "At least one of `weights` and `activations` is given.",
                                        {targets, weights, activations})}};
  return table(
      "quantize", "Quantization-aware training; float training without it.",
      {groups,
       with_default(
           text_list("ignore",
                     "modules left in float, written as targets are; a container is ignored whole"),
           "[]"),
       choice("bn_fold", "frozen",
              "batch norm behind a quantized layer: `frozen` folds it once and drops it, `none` "
              "keeps it in float, `batch_corrected` and `one_convolution` fold it in every step",
              {"frozen", "none", "batch_corrected", "one_convolution"}),
       algorithm_option(), oscillations_option()});
}

RecipeOption calibrate_option() {
  return table("calibrate",
               "Ranges measured before the first step, with the initial weights: post-training "
               "quantization as the starting point. Needs `quantize`.",
               {integer("batches", "32", "training batches to measure on, without augmentation", 1),
                boolean("freeze", "false", "whether ranges then stay as they are")});
}

RecipeOption epoch_table(const std::string& name, const std::string& key, const std::string& help) {
  return table(name, help, {required(integer(key, "", "epoch, from 0", 0, 1e6))});
}

RecipeOption from_table(const std::string& name, const std::string& help) {
  return with_default(table(name, help, {integer("from", "0", "epoch, from 0", 0, 1e6)}), "{}");
}

RecipeOption bit_stages_option() {
  return {.name = "bits",
          .kind = OptionKind::kList,
          .help = "progressive widths: stages in which codes have more bits than in the end",
          .min_items = 1,
          .members = {table(
              "", "A stage, from the end of the one before.",
              {required(integer("until", "", "epoch, from 0, that the stage ends before", 1, 1e6)),
               optional(integer("weights", "", "fewest bits of weights", 2, 8)),
               optional(integer("activations", "", "fewest bits of activations", 2, 8))})}};
}

RecipeOption schedule_option(bool quantized) {
  const RecipeOption freeze_bn =
      epoch_table("freeze_bn", "epoch", "when batch-norm statistics stop; absent: never");
  const RecipeOption reestimate_bn =
      table("reestimate_bn", "Batch-norm statistics measured anew after the last epoch.",
            {required(integer("batches", "", "training batches to measure on", 1))});
  RecipeOption schedule = table("schedule",
                                "What changes at the start of which epoch. All but `freeze_bn` and "
                                "`reestimate_bn` need `quantize`.",
                                {freeze_bn, reestimate_bn});
  if (!quantized) return schedule;
  schedule.members = {
      from_table("observe", "when observers start to follow ranges"),
      with_default(
          table("fake_quant", "when tensors start to be quantized",
                {integer("from", "0", "epoch, from 0", 0, 1e6),
                 optional(integer("activations_from", "",
                                  "epoch, from 0, for activations; absent: with the weights", 0,
                                  1e6))}),
          "{}"),
      bit_stages_option(),
      epoch_table("freeze_observers", "epoch",
                  "when ranges stop to move, after `fake_quant.from`; absent: never"),
      freeze_bn,
      reestimate_bn};
  return with_default(schedule, "{}");
}

RecipeOption export_option() {
  RecipeOption formats{.name = "formats",
                       .kind = OptionKind::kList,
                       .help = "written after training, any of safetensors and onnx",
                       .default_yaml = "[]",
                       .members = {optional(choice("", "", "", {"safetensors", "onnx"}))}};
  return table("export", "How the model is deployed. Needs `quantize`.",
               {formats,
                choice("profile", "ort",
                       "where tensors are quantized: as ONNX Runtime or as TensorRT "
                       "executes them",
                       {"ort", "tensorrt"}),
                boolean("reduce_range", "false",
                        "whether weights of 8 bits are trained with 7, from -63 to 63 or, without "
                        "`narrow_range`, from -64: then no sum saturates in ONNX Runtime's default "
                        "session on x86 without VNNI")});
}

}  // namespace

RecipeOption recipe_options(const ModelRegistry& registry, bool quantized) {
  RecipeOption version = required(integer("version", "", "of this format: 1", 1, 1));
  RecipeOption name = required(text("name", "names the run and its folder"));
  name.pattern = "[A-Za-z0-9_][A-Za-z0-9._-]*";
  name.pattern_help = "a name of letters, digits, '.', '_' and '-'";
  RecipeOption device = with_default(text("device", "auto, cpu, cuda or cuda:N"), "auto");
  device.pattern = "auto|cpu|cuda(:[0-9]{1,3})?";
  device.pattern_help = "auto, cpu, cuda or cuda:N";
  const RecipeOption seed{.name = "seed",
                          .kind = OptionKind::kInteger,
                          .help = "of initialisation, shuffling and augmentation",
                          .default_yaml = "1",
                          .min = 0};
  const RecipeOption init =
      table("init", "Where the weights come from; random when absent.",
            {required(text("checkpoint", "a safetensors file with PyTorch's names"))});
  RecipeOption exports = export_option();
  if (quantized) exports.default_yaml = "{}";
  return table(
      "", "",
      {version, name, seed, device, data_option(), registry.model_option(), init, train_option(),
       quantize_option(), calibrate_option(), schedule_option(quantized), exports});
}

std::string recipe_schema(const ModelRegistry& registry) {
  return json_schema(recipe_options(registry), "Steelyard recipe");
}

std::string recipe_markdown(const ModelRegistry& registry) {
  return "# Recipes\n\n"
         "One YAML file describes a training run. Every key is checked: an unknown key, a wrong\n"
         "type or a value out of range is an error with its line and column. Whole numbers are\n"
         "decimal, booleans are `true` and `false`; anchors, aliases, tags and merge keys are not\n"
         "allowed. `--set key.path=value` replaces one value (`null` removes the key, a number in\n"
         "the path is a list index). The resolved recipe, with every default, is saved with the\n"
         "run. This page is generated from the option table in `recipes/recipe_options.cpp`.\n\n" +
         markdown(recipe_options(registry));
}

}  // namespace steelyard
