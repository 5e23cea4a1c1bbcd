// The section `calibrate`.
#include "steelyard/recipes/schema/recipe_tables.h"

namespace steelyard {
namespace {

Table<qat::AdaRoundOptions> adaround_table() {
  using Options = qat::AdaRoundOptions;
  return {
      "Learns for each quantized weight which of its two neighbouring codes it gets, layer by "
      "layer, so that the layer's output comes near to that of the float network (AdaRound, "
      "Nagel et al., arXiv:2004.10568). The weights are moved to those codes.",
      {key("samples",
           "number of training samples, without augmentation, on which layers are compared",
           &Options::samples)
           .by_default()
           .within(1, kMaxCount),
       key("iterations", "steps of Adam for each layer", &Options::iterations)
           .by_default()
           .within(1, kMaxCount),
       key("batch_size", "samples of a step, drawn at random", &Options::batch_size)
           .by_default()
           .within(1, kMaxCount),
       key("learning_rate", "learning rate of Adam", &Options::learning_rate)
           .by_default()
           .above(0)
           .at_most(1),
       key("regularization", "factor of the term that drives each rounding to one of the two codes",
           &Options::regularization)
           .by_default()
           .within(0, 1e6),
       key("first_beta", "exponent of that term when it begins", &Options::first_beta)
           .by_default()
           .within(1, 1000),
       key("last_beta", "exponent of that term in the last step", &Options::last_beta)
           .by_default()
           .within(1, 1000),
       key("warmup", "part of the steps without that term", &Options::warmup)
           .by_default()
           .within(0, 1)}};
}

}  // namespace

Table<Recipe> calibrate_table() {
  return Table<Recipe>(
             "Measures ranges before the first step, with the initial weights: training then "
             "starts from post-training quantization. Needs `quantize`.",
             {key("batches",
                  "training batches to measure on, without augmentation; absent: 32, or all of an "
                  "epoch with fewer",
                  &Recipe::calibrate_batches)
                  .within(1, kMaxCount),
              key("equalize",
                  "whether the initial float weights are scaled first, so that each channel has "
                  "the same range in the layer that produces it and in the layer that reads it "
                  "(cross-layer equalization, Nagel et al., arXiv:1906.04721); the function of the "
                  "float network stays the same",
                  &Recipe::equalize)
                  .by_default(),
              nested<Recipe>("adaround", adaround_table(), &Recipe::adaround),
              key("bias_correction",
                  "number of training samples, without augmentation, on which biases are "
                  "corrected: each output channel of a quantized layer gets the mean that it has "
                  "in float (Nagel et al., arXiv:1906.04721); absent: biases are not corrected",
                  &Recipe::correct_biases)
                  .within(1, kMaxCount),
              key("freeze",
                  "whether training keeps the measured ranges; not with an algorithm that learns "
                  "them",
                  &Recipe::schedule, &qat::QatSchedule::keep_ranges)
                  .by_default()})
      .check([](const OptionReader&, Recipe& recipe) { recipe.calibrates = true; });
}

}  // namespace steelyard
