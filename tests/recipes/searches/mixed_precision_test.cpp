#include "steelyard/recipes/searches/mixed_precision.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/recipes/recipe_support.h"

namespace steelyard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Two layers, 8, 4 and 2 bits; the second ten times as large and far less sensitive.
Sensitivity two_layers() {
  Sensitivity all;
  all.checkpoint = "runs/a/last.safetensors";
  all.split = "test";
  all.samples = 7;
  all.bits = {8, 4, 2};
  all.baseline.top1 = 90;
  LayerSensitivity small{.name = "a", .weights = 100, .scales = 10, .biases = 10, .macs = 5000};
  LayerSensitivity large{.name = "b", .weights = 1000, .scales = 4, .macs = 1000};
  const double divergences[2][3] = {{0.0, 0.5, 4.0}, {0.0, 0.1, 0.3}};
  for (std::size_t i = 0; i < 3; ++i) {
    small.weight_effects.push_back({.bits = all.bits[i], .divergence = divergences[0][i]});
    large.weight_effects.push_back({.bits = all.bits[i], .divergence = divergences[1][i]});
  }
  all.layers = {{.name = "(input)", .activations = 7}, small, large};
  return all;
}

std::vector<int> widths(const WidthPlan& plan) {
  std::vector<int> bits;
  for (const ChosenWidth& layer : plan.layers) bits.push_back(layer.effect.bits);
  return bits;
}

TEST(ChooseWidths, SpendsTheBudgetWhereItHelps) {
  const Sensitivity all = two_layers();
  using Unit = WidthBudget::Unit;
  // 4400 bits: 8 for a leaves 3600 for b, so 2 bits: 0.3; 4 and 4 give 0.6.
  const WidthPlan mean = choose_widths(all, {Unit::kBitsPerWeight, 4}, 8);
  EXPECT_THAT(widths(mean), ElementsAre(8, 2));
  EXPECT_DOUBLE_EQ(mean.divergence, 0.3);
  EXPECT_DOUBLE_EQ(mean.bits_per_weight, 2800.0 / 1100);
  EXPECT_EQ(mean.bytes, (100 + 8 * 10) + (250 + 4 * 4));
  EXPECT_EQ(mean.bit_operations, 8 * (8 * 5000 + 2 * 1000));
  // Exactly what 8 and 4 need.
  EXPECT_THAT(widths(choose_widths(all, {Unit::kBitsPerWeight, 4800.0 / 1100}, 8)),
              ElementsAre(8, 4));
  EXPECT_THAT(widths(choose_widths(all, {Unit::kBytes, 180 + 516}, 8)), ElementsAre(8, 4));
  EXPECT_THAT(widths(choose_widths(all, {Unit::kBytes, 180 + 515}, 8)), ElementsAre(8, 2));
  EXPECT_THAT(widths(choose_widths(all, {Unit::kBitOperations, 4.0 * (4 * 5000 + 8 * 1000)}, 4)),
              ElementsAre(4, 8));
  EXPECT_THAT(widths(choose_widths(all, {Unit::kBytes, 1e30}, 8)), ElementsAre(8, 8));
}

TEST(ChooseWidths, OfFlashCountsPackedCodesAndTheRestOfTheProgram) {
  Sensitivity all = two_layers();
  all.flash_beside_layers = 1000;
  using Unit = WidthBudget::Unit;
  const int bytes = 1000 + (100 + 8 * 10 + 12) + (500 + 9 * 4);  // arrays of whole words
  const WidthPlan plan = choose_widths(all, {Unit::kFlashBytes, bytes}, 8);
  EXPECT_THAT(widths(plan), ElementsAre(8, 4));
  EXPECT_EQ(plan.flash_bytes, bytes);
  EXPECT_THAT(to_string(plan), HasSubstr(", 1728 bytes of flash"));
  EXPECT_THAT(widths(choose_widths(all, {Unit::kFlashBytes, bytes - 1}, 8)), ElementsAre(8, 2));
  EXPECT_THAT(rejection([&] {
                choose_widths(all, {Unit::kFlashBytes, 1400}, 8);
              }),
              HasSubstr("the budget of 1400 bytes of flash is too small: the smallest measured "
                        "widths need 1408 bytes of flash"));
}

TEST(ChooseWidths, CountsZeroPointsAndReducedRanges) {
  Sensitivity all = two_layers();
  using Unit = WidthBudget::Unit;
  all.layers[2].affine = true;  // 4 scales, each with a zero point
  const int bytes = (100 + 8 * 10) + (500 + 5 * 4);
  EXPECT_EQ(choose_widths(all, {Unit::kBytes, bytes}, 8).bytes, bytes);
  EXPECT_THAT(widths(choose_widths(all, {Unit::kBytes, bytes - 1}, 8)), ElementsAre(8, 2));
  // Nothing is measured yet: 8 bits mean 7.
  for (LayerSensitivity& layer : all.layers) layer.weight_effects.clear();
  all.bits = {8};
  all.layers[1].most_bits = all.layers[2].most_bits = 7;
  EXPECT_NO_THROW(choose_widths(all, {Unit::kBitsPerWeight, 7}, 8));
  EXPECT_THROW(choose_widths(all, {Unit::kBitsPerWeight, 6.9}, 8), InputError);
}

TEST(ChooseWidths, ActivationsThatAreNotQuantizedHaveNoOtherWidth) {
  Sensitivity all = two_layers();
  all.activation_bits = kFloatBits;
  const WidthBudget budget{WidthBudget::Unit::kBitsPerWeight, 8};
  EXPECT_EQ(choose_widths(all, budget, {}).bit_operations, 8 * 32 * 6000);
  EXPECT_THAT(rejection([&] { choose_widths(all, budget, 4); }),
              HasSubstr("--activation-bits has no effect: the run quantizes no activations"));
}

TEST(ChooseWidths, NamesTheSmallestBudget) {
  const Sensitivity all = two_layers();
  using Unit = WidthBudget::Unit;
  EXPECT_EQ(
      rejection([&] {
        choose_widths(all, {Unit::kBitsPerWeight, 1.5}, 8);
      }),
      "the budget of 1.5 bits a weight is too small: the smallest measured widths need 2 bits "
      "a weight");
  EXPECT_EQ(rejection([&] {
              choose_widths(all, {Unit::kBytes, 370}, 8);
            }),
            "the budget of 370 bytes is too small: the smallest measured widths need 371 bytes");
  EXPECT_THAT(rejection([&] {
                choose_widths(all, {Unit::kBitOperations, 1}, 8);
              }),
              HasSubstr("need 96000 bit operations"));
  Sensitivity none = all;
  none.layers.resize(1);
  EXPECT_THAT(rejection([&] {
                choose_widths(none, {Unit::kBytes, 370}, 8);
              }),
              HasSubstr("no layer has weights to quantize"));
}

TEST(ChooseWidths, TakesNoWidthAtWhichOutputsAreNotFinite) {
  Sensitivity all = two_layers();
  using Unit = WidthBudget::Unit;
  const double infinity = std::numeric_limits<double>::infinity();
  all.layers[1].weight_effects[2].divergence = infinity;
  EXPECT_THAT(widths(choose_widths(all, {Unit::kBitsPerWeight, 2400.0 / 1100}, 8)),
              ElementsAre(4, 2));
  EXPECT_THAT(rejection([&] {
                choose_widths(all, {Unit::kBitsPerWeight, 2}, 8);
              }),
              HasSubstr("the smallest measured widths need 2.182 bits a weight"));
  for (QuantizationEffect& effect : all.layers[1].weight_effects) effect.divergence = infinity;
  EXPECT_EQ(rejection([&] {
              choose_widths(all, {Unit::kBitsPerWeight, 8}, 8);
            }),
            "runs/a/last.safetensors: a: at none of the measured widths are the network's outputs "
            "finite");
}

TEST(MixedPrecision, WritesARecipe) {
  const Registries& registries = builtin_registries();
  const Recipe run = parse_recipe(kSmallRecipe, "r.yaml", {}, registries);
  const Sensitivity all = two_layers();
  const WidthPlan plan = choose_widths(all, {WidthBudget::Unit::kBitsPerWeight, 4}, 6);
  const std::string text = mixed_precision_recipe(run, all, plan, {"train.epochs=9"}, registries);
  const Recipe recipe = parse_recipe(text, "m.yaml", {}, registries);
  EXPECT_EQ(recipe.name, "small-mixed");
  EXPECT_EQ(recipe.init_checkpoint, "runs/a/last.safetensors");
  EXPECT_EQ(recipe.train.trainer.epochs, 9);
  EXPECT_DOUBLE_EQ(recipe.train.trainer.lr_schedule.base_lr, 0.01);
  EXPECT_EQ(recipe.quantize->algorithm, qat::Learning::kScale);
  ASSERT_EQ(recipe.quantize->config.groups.size(), 2U);
  EXPECT_THAT(recipe.quantize->config.groups[0].targets, ElementsAre("a"));
  EXPECT_EQ(recipe.quantize->config.groups[0].config.weights->scheme.bits, 8);
  EXPECT_EQ(recipe.quantize->config.groups[1].config.weights->scheme.bits, 2);
  EXPECT_EQ(recipe.quantize->config.groups[1].config.activations->scheme.bits, 6);
}

// What was said of a float run's own training goes, and every rate is divided.
TEST(MixedPrecision, DropsWhatBelongedToTheFloatRun) {
  const Registries& registries = builtin_registries();
  const Sensitivity all = two_layers();
  const WidthPlan plan = choose_widths(all, {WidthBudget::Unit::kBitsPerWeight, 4}, 8);
  const std::string text =
      with(kSmallRecipe, "  epochs: 3\n",
           "  epochs: 3\n  lr_schedule: {type: cosine, warmup_epochs: 2, final_lr: 0.02}\n");
  for (const std::string& own : {with(text, "  epochs: 3\n", "  epochs: 3\n  only: [fc1]\n"),
                                 text + "schedule: {freeze_bn: {epoch: 1}, reestimate_bn: "
                                        "{batches: 2}}\n"}) {
    const Recipe run = parse_recipe(own, "r.yaml", {}, registries);
    const Recipe recipe = parse_recipe(mixed_precision_recipe(run, all, plan, {}, registries),
                                       "m.yaml", {}, registries);
    EXPECT_TRUE(recipe.train.only.empty());
    EXPECT_FALSE(recipe.schedule.freeze_batch_norm);
    EXPECT_FALSE(recipe.reestimate_bn);
    EXPECT_DOUBLE_EQ(recipe.train.trainer.lr_schedule.base_lr, 0.01);
    EXPECT_DOUBLE_EQ(recipe.train.trainer.lr_schedule.final_lr, 0.002);
    EXPECT_EQ(recipe.train.warmup_epochs, 1);
  }
}

// A group without layers stays in its place, and a layer may be called as a type is.
TEST(MixedPrecision, WritesTargetsThatNameWhatWasChosen) {
  const Registries& registries = builtin_registries();
  const std::string text =
      with(kQuantizedRecipe, "    - targets: [Conv2d]\n",
           "    - targets: [left_in_float]\n      weights: {}\n      activations: {num_bits: 7}\n"
           "    - targets: [Conv2d]\n") +
      "init: {checkpoint: base.safetensors}\n";
  const Recipe run = parse_recipe(with(text, "re:fc.*", "Linear"), "r.yaml", {}, registries);
  Sensitivity all = two_layers();
  all.layers[1].name = "Linear", all.layers[1].type = "Linear";
  all.layers[2].name = "fc1", all.layers[2].type = "Linear";
  const WidthPlan plan = choose_widths(all, {WidthBudget::Unit::kBitsPerWeight, 4}, {});
  ASSERT_THAT(widths(plan), ElementsAre(8, 2));
  const Recipe recipe = parse_recipe(mixed_precision_recipe(run, all, plan, {}, registries),
                                     "m.yaml", {}, registries);
  const std::vector<qat::QuantizeGroup>& groups = recipe.quantize->config.groups;
  ASSERT_EQ(groups.size(), 4U);
  EXPECT_THAT(groups[0].targets, ElementsAre("left_in_float"));
  EXPECT_EQ(groups[0].config.activations->scheme.bits, 7);
  EXPECT_THAT(groups[1].targets, ElementsAre("Conv2d"));
  EXPECT_THAT(groups[2].targets, ElementsAre("re:Linear"));
  EXPECT_THAT(groups[3].targets, ElementsAre("fc1"));
}

// What a quantized run chose for its quantizers stays, but for the widths.
TEST(MixedPrecision, KeepsTheSchemeOfAQuantizedRun) {
  const Registries& registries = builtin_registries();
  const std::string text =
      with(with(kQuantizedRecipe, "weights: {}", "weights: {strategy: tensor, observer: min_max}"),
           "activations: {num_bits: 4}", "activations: {observer: percentile, percentile: 99}") +
      "init: {checkpoint: base.safetensors}\nschedule: {bits: [{until: 1, activations: 8}]}\n";
  const Recipe run =
      parse_recipe(with(text, "observer: percentile", "num_bits: 4, observer: percentile"),
                   "r.yaml", {}, registries);
  Sensitivity all = two_layers();
  all.layers.push_back(all.layers.back());
  all.layers[1].name = "fc1", all.layers[1].type = "Linear";
  all.layers[2].name = "conv1", all.layers[2].type = "Conv2d";
  all.layers[3].name = "conv2", all.layers[3].type = "Conv2d";
  all.layers[3].weight_effects[1].divergence = 9;
  all.layers[3].weight_effects[2].divergence = 9;
  const WidthPlan plan =
      choose_widths(all, {WidthBudget::Unit::kBitsPerWeight, 5.2}, /*activation_bits=*/{});
  EXPECT_THAT(widths(plan), ElementsAre(8, 2, 8));
  EXPECT_FALSE(plan.bit_operations);
  const Recipe recipe = parse_recipe(mixed_precision_recipe(run, all, plan, {}, registries),
                                     "m.yaml", {}, registries);
  EXPECT_EQ(recipe.init_checkpoint, "base.safetensors");
  EXPECT_EQ(recipe.quantize->algorithm, qat::Learning::kNothing);
  EXPECT_TRUE(recipe.schedule.stages.empty());
  EXPECT_DOUBLE_EQ(recipe.train.trainer.lr_schedule.base_lr, 0.001);
  const std::vector<qat::QuantizeGroup>& groups = recipe.quantize->config.groups;
  ASSERT_EQ(groups.size(), 3U);
  EXPECT_THAT(groups[0].targets, ElementsAre("conv2"));
  EXPECT_THAT(groups[1].targets, ElementsAre("conv1"));
  EXPECT_THAT(groups[2].targets, ElementsAre("fc1"));
  const int chosen[] = {8, 2, 8};
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(groups[i].config.weights->scheme.bits, chosen[i]);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(groups[i].config.weights->scheme.granularity, kernels::Granularity::kTensor);
    EXPECT_EQ(groups[i].config.weights->observer.type, "min_max");
    EXPECT_EQ(groups[i].config.activations->observer.percentile, 99);
    EXPECT_EQ(groups[i].config.activations->scheme.bits, 4);
  }
  EXPECT_EQ(groups[2].config.weights->observer.type, "histogram");
  EXPECT_FALSE(groups[2].config.activations);
  const WidthPlan wide = choose_widths(all, {WidthBudget::Unit::kBitsPerWeight, 8}, 7);
  const std::string text7 = mixed_precision_recipe(run, all, wide, {}, registries);
  EXPECT_EQ(parse_recipe(text7, "m.yaml", {}, registries)
                .quantize->config.groups[0]
                .config.activations->scheme.bits,
            7);
}

// Bit operations need one width: the run's, where all its activations have the same.
TEST(ChooseWidths, CountsBitOperationsOfOneActivationWidth) {
  Sensitivity all = two_layers();
  const WidthBudget budget{WidthBudget::Unit::kBitOperations, 4.0 * (4 * 5000 + 8 * 1000)};
  EXPECT_THAT(rejection([&] { choose_widths(all, budget, {}); }), HasSubstr("--activation-bits"));
  all.activation_bits = 4;
  EXPECT_THAT(widths(choose_widths(all, budget, {})), ElementsAre(4, 8));
  EXPECT_THAT(to_string(choose_widths(all, budget, {})),
              HasSubstr("bit operations a sample with 4 bits for activations"));
}

}  // namespace
}  // namespace steelyard
