#include "steelyard/recipes/schema/recipe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "steelyard/export/formats.h"
#include "steelyard/observers/registry.h"
#include "steelyard/qat/quantizers/words.h"
#include "steelyard/recipes/language/scalar.h"
#include "tests/recipes/recipe_support.h"

namespace steelyard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

TEST(Recipe, SmallRecipeHasTheDocumentedDefaults) {
  const Recipe r = parsed(kSmallRecipe);
  EXPECT_EQ(r.name, "small");
  EXPECT_EQ(r.seed, 1);
  EXPECT_EQ(r.device, "auto");
  EXPECT_EQ(r.data.dataset, "fashion_mnist");
  EXPECT_FALSE(r.data.path);
  EXPECT_EQ(r.data.loader.batch_size, 128);
  EXPECT_TRUE(r.data.loader.shuffle);
  EXPECT_EQ(r.data.loader.seed, 1U);
  EXPECT_EQ(r.train.trainer.seed, 1U);
  EXPECT_FALSE(r.data.loader.augment.random_crop || r.data.loader.augment.flip);
  EXPECT_EQ(r.data.loader.augment.crop_padding, 2);
  EXPECT_EQ(r.data.validation_samples(60000), 5000);
  EXPECT_EQ(r.data.validation_samples(607), 60);
  EXPECT_EQ(r.model.type, "mlp");
  EXPECT_FALSE(r.model.classes);
  EXPECT_FALSE(r.init_checkpoint);
  EXPECT_EQ(r.train.trainer.epochs, 3);
  EXPECT_EQ(r.train.optimizer.type, OptimizerType::kSgd);
  EXPECT_EQ(r.train.trainer.lr_schedule.base_lr, 0.1);
  EXPECT_EQ(r.train.optimizer.sgd.momentum, 0.9);
  EXPECT_FALSE(r.train.optimizer.sgd.nesterov);
  EXPECT_EQ(r.train.optimizer.sgd.weight_decay, 0);
  EXPECT_EQ(r.train.optimizer.adamw.weight_decay, 0);
  EXPECT_FALSE(r.train.optimizer.decay_bias_and_norm);
  EXPECT_EQ(r.train.trainer.lr_schedule.type, LrSchedule::Type::kConstant);
  EXPECT_EQ(r.train.warmup_epochs, 0);
  EXPECT_EQ(r.train.trainer.loss.type, Loss::Type::kCrossEntropy);
  EXPECT_EQ(r.train.trainer.loss.label_smoothing, 0);
  EXPECT_FALSE(r.train.trainer.clip_grad_norm);
  EXPECT_EQ(r.train.trainer.checkpoint_every_steps, 0);
  EXPECT_FALSE(r.train.trainer.keep_step_checkpoints);
  EXPECT_FALSE(r.quantize);
  EXPECT_FALSE(r.schedule.freeze_batch_norm);
}

TEST(Recipe, QuantizedRecipeHasTheDocumentedDefaults) {
  const Recipe r = parsed(kQuantizedRecipe);
  EXPECT_EQ(r.train.optimizer.adamw.beta1, 0.9);
  EXPECT_EQ(r.train.optimizer.adamw.beta2, 0.999);
  EXPECT_EQ(r.train.optimizer.adamw.eps, 1e-8);
  ASSERT_TRUE(r.quantize);
  ASSERT_EQ(r.quantize->config.groups.size(), 2u);
  EXPECT_EQ(r.quantize->group_places[0], "r.yaml:10:7");
  const qat::QuantizeGroup& group = r.quantize->config.groups[0];
  const qat::QConfig& first = group.config;
  EXPECT_THAT(group.targets, ElementsAre("Conv2d"));
  ASSERT_TRUE(first.weights && first.activations);
  EXPECT_EQ(first.weights->scheme.bits, 8);
  EXPECT_TRUE(first.weights->scheme.symmetric && first.weights->scheme.is_signed);
  EXPECT_EQ(first.weights->scheme.granularity, kernels::Granularity::kChannel);
  EXPECT_EQ(first.weights->observer.type, "min_max");
  EXPECT_TRUE(first.weights->scheme.narrow_range);
  const auto learned = parsed(kQuantizedRecipe, {"quantize.algorithm.method=lsq"});
  const qat::QuantizerConfig& by_gradient = *learned.quantize->config.groups[0].config.weights;
  EXPECT_FALSE(by_gradient.scheme.narrow_range) << "the algorithm decides";
  EXPECT_EQ(by_gradient.learning, qat::Learning::kScale);
  EXPECT_EQ(first.activations->scheme.bits, 4);
  EXPECT_FALSE(first.activations->scheme.symmetric || first.activations->scheme.is_signed);
  EXPECT_EQ(first.activations->scheme.granularity, kernels::Granularity::kTensor);
  EXPECT_EQ(first.activations->observer.type, "moving_average");
  EXPECT_EQ(first.activations->observer.averaging_constant, 0.01);
  const auto wide = parsed(kQuantizedRecipe, {"quantize.groups.0.activations.num_bits=8"});
  EXPECT_EQ(wide.quantize->config.groups[0].config.activations->observer.type, "min_max");
  const qat::QConfig& second = r.quantize->config.groups[1].config;
  EXPECT_FALSE(second.activations);
  EXPECT_EQ(second.weights->scheme.bits, 3);
  EXPECT_EQ(second.weights->observer.type, "histogram");
  EXPECT_THAT(r.quantize->config.ignore, IsEmpty());
  EXPECT_EQ(r.quantize->config.bn_fold, qat::BatchNormFold::kFrozen);
  EXPECT_EQ(r.quantize->algorithm, qat::Learning::kNothing);
  EXPECT_EQ(r.schedule.observe_from, 0);
  EXPECT_EQ(r.schedule.fake_quant_from, 0);
  EXPECT_FALSE(r.schedule.freeze_observers);
}

TEST(Recipe, CalibrationAndObserverOptions) {
  EXPECT_FALSE(parsed(kQuantizedRecipe).calibrates);
  const Recipe r =
      parsed(kQuantizedRecipe, {"calibrate={}", "quantize.groups.0.weights.observer=percentile",
                                "quantize.groups.0.activations.observer=mse",
                                "quantize.groups.0.activations.averaging_constant=0.2"});
  EXPECT_TRUE(r.calibrates);
  EXPECT_FALSE(r.calibrate_batches);  // as many as the data has, at most 32
  EXPECT_FALSE(r.schedule.keep_ranges);
  EXPECT_EQ(r.quantize->config.groups[0].config.weights->observer.percentile, 99.99);
  EXPECT_EQ(r.quantize->config.groups[0].config.activations->observer.averaging_constant, 0.2);
  EXPECT_EQ(parsed(resolved_yaml(r)).resolved, r.resolved);
}

TEST(Recipe, AReducedRangeLeavesWeightsSevenBits) {
  EXPECT_FALSE(parsed(kQuantizedRecipe).exports.reduce_range);
  const std::vector<std::string> reduced{"export.reduce_range=true",
                                         "quantize.groups.0.activations.num_bits=8"};
  const Recipe r = parsed(kQuantizedRecipe, reduced);
  EXPECT_EQ(r.quantize->config.groups[0].config.weights->scheme.bits, 7);
  EXPECT_EQ(r.quantize->config.groups[0].config.activations->scheme.bits, 8);
  EXPECT_EQ(r.quantize->config.groups[1].config.weights->scheme.bits, 3);
  EXPECT_THAT(resolved_yaml(r), HasSubstr("num_bits: 8\n"));
  EXPECT_EQ(parsed(resolved_yaml(r)).quantize->config.groups[0].config.weights->scheme.bits, 7);
  // What is multiplied in float does not saturate.
  std::vector<std::string> in_groups = reduced;
  for (const char* part : {"strategy=group", "num_bits=8"}) {
    in_groups.push_back(std::string("quantize.groups.1.weights.") + part);
  }
  EXPECT_EQ(
      parsed(kQuantizedRecipe, in_groups).quantize->config.groups[1].config.weights->scheme.bits,
      8);
}

TEST(Recipe, ResolvedTextParsesToTheSameRecipe) {
  const std::string layers = with(kSmallRecipe, "{type: mlp, hidden: [8]}",
                                  "{layers: [{type: Conv2d, out_channels: 4, kernel_size: 3}, "
                                  "{type: Flatten, name: flat}, {type: Linear, out_features: 2}]}");
  for (const std::string& text :
       {std::string(kSmallRecipe), std::string(kQuantizedRecipe), layers}) {
    const Recipe once = parsed(text);
    const std::string resolved = resolved_yaml(once);
    const Recipe twice = parsed(resolved);
    EXPECT_EQ(once.resolved, twice.resolved);
    EXPECT_EQ(resolved, resolved_yaml(twice));
  }
  EXPECT_THAT(resolved_yaml(parsed(kSmallRecipe)), HasSubstr("  batch_size: 128\n"));
  EXPECT_THAT(resolved_yaml(parsed(layers)), HasSubstr("kernel_size: [3, 3]\n"));
}

struct BadRecipe {
  const char* name;
  const char* from;  // replaced in kQuantizedRecipe
  const char* to;
  std::string message;
};

// "expected one of a, b, got " for the names of one of the library's tables: a new row changes what
// the test expects, another order or a name left out in the message does not pass.
std::string expected_one_of(const std::vector<std::string>& names) {
  return "expected one of " + join(names) + ", got ";
}
std::string expected_model_type() {
  return expected_one_of(builtin_registries().models.model_types());
}

class RecipeRejection : public ::testing::TestWithParam<BadRecipe> {};

TEST_P(RecipeRejection, HasThisMessage) {
  const BadRecipe& bad = GetParam();
  EXPECT_EQ(recipe_rejection(with(kQuantizedRecipe, bad.from, bad.to)), bad.message);
}

INSTANTIATE_TEST_SUITE_P(
    All, RecipeRejection,
    ::testing::Values(
        BadRecipe{"UnknownKey", "{num_bits: 4}", "{num_bit: 4}",
                  "r.yaml:12:21: unknown key 'num_bit' (did you mean 'num_bits'?)"},
        BadRecipe{"UnknownKeyFarFromAll", "name: quantized", "name: a\nzzzzzzzz: 1",
                  "r.yaml:3:1: unknown key 'zzzzzzzz'"},
        BadRecipe{"UnknownProfile", "name: quantized", "name: a\nexport: {profile: tensorr}",
                  "r.yaml:3:19: " + expected_one_of(all_words<qat::Profile>()) +
                      "'tensorr' (did you mean 'tensorrt'?)"},
        BadRecipe{"UnknownFormat", "name: quantized", "name: a\nexport: {formats: [gguf]}",
                  "r.yaml:3:20: " + expected_one_of(deploy::format_names()) + "'gguf'"},
        BadRecipe{"MissingKey", "  epochs: 3\n", "", "r.yaml:6:3: missing key 'train.epochs'"},
        BadRecipe{"MissingName", "name: quantized\n", "", "r.yaml:1:1: missing key 'name'"},
        BadRecipe{"WordForInteger", "epochs: 3", "epochs: abc",
                  "r.yaml:6:11: expected a whole number from 1 to 1000000, got 'abc'"},
        BadRecipe{
            "OctalInteger", "epochs: 3", "epochs: 010",
            "r.yaml:6:11: expected a whole number from 1 to 1000000, got '010' (a number has no "
            "leading zeros)"},
        BadRecipe{"HexInteger", "epochs: 3", "epochs: 0x10",
                  "r.yaml:6:11: expected a whole number from 1 to 1000000, got '0x10'"},
        BadRecipe{"FractionForInteger", "epochs: 3", "epochs: 3.0",
                  "r.yaml:6:11: expected a whole number from 1 to 1000000, got '3.0'"},
        BadRecipe{"QuotedInteger", "epochs: 3", "epochs: '3'",
                  "r.yaml:6:11: expected a whole number from 1 to 1000000, got the string '3'"},
        BadRecipe{"HugeInteger", "epochs: 3", "epochs: 99999999999999999999",
                  "r.yaml:6:11: expected a whole number from 1 to 1000000, got "
                  "'99999999999999999999'"},
        BadRecipe{"NoValue", "epochs: 3",
                  "epochs:", "r.yaml:6:3: expected a whole number from 1 to 1000000, got nothing"},
        BadRecipe{"ListForInteger", "epochs: 3", "epochs: [3]",
                  "r.yaml:6:11: expected a whole number from 1 to 1000000, got a list"},
        BadRecipe{"NotANumber", "lr: 0.001", "lr: .nan",
                  "r.yaml:7:32: expected a number above 0 and at most 1000000, got '.nan'"},
        BadRecipe{"InfiniteNumber", "lr: 0.001", "lr: 1e999",
                  "r.yaml:7:32: expected a number above 0 and at most 1000000, got '1e999'"},
        BadRecipe{"ZeroLearningRate", "lr: 0.001", "lr: 0",
                  "r.yaml:7:32: expected a number above 0 and at most 1000000, got '0'"},
        BadRecipe{"BooleanSpelling", "weights: {}", "weights: {symmetric: yes}",
                  "r.yaml:11:28: expected true or false, got 'yes'"},
        BadRecipe{"BitsOutOfRange", "num_bits: 3", "num_bits: 9",
                  "r.yaml:14:27: expected a whole number from 2 to 8, got '9'"},
        BadRecipe{"Choice", "observer: histogram", "observer: histogran",
                  "r.yaml:14:40: " + expected_one_of(observers::observer_names()) +
                      "'histogran' (did you mean 'histogram'?)"},
        BadRecipe{"ModelType", "type: cnn", "type: cnnn",
                  "r.yaml:4:15: " + expected_model_type() + "'cnnn' (did you mean 'cnn'?)"},
        BadRecipe{"KeyOfAnotherCase", "lr: 0.001", "lr: 0.001, momentum: 0.9",
                  "r.yaml:7:39: key 'momentum' applies only to type sgd"},
        BadRecipe{"ModelWithoutTypeAndLayers", "{type: cnn}", "{classes: 10}",
                  "r.yaml:4:8: expected exactly one of 'type', 'layers', 'onnx', 'gguf' and "
                  "'huggingface' in the model"},
        BadRecipe{"ModelWithTypeAndLayers", "{type: cnn}", "{type: cnn, layers: [{type: Flatten}]}",
                  "r.yaml:4:8: expected exactly one of 'type', 'layers', 'onnx', 'gguf' and "
                  "'huggingface' in the model"},
        BadRecipe{"UnknownLayer", "{type: cnn}", "{layers: [{type: Relu}]}",
                  "r.yaml:4:25: " + expected_one_of(builtin_registries().models.layer_types()) +
                      "'Relu' (did you mean 'ReLU'?)"},
        BadRecipe{"EmptyTargets", "targets: [Conv2d]", "targets: []",
                  "r.yaml:10:16: expected at least 1 in the list 'quantize.groups.0.targets', got "
                  "0"},
        BadRecipe{"GroupWithoutQuantizers", "      weights: {}\n      activations: {num_bits: 4}\n",
                  "", "r.yaml:10:7: expected 'weights', 'activations' or both in the group"},
        BadRecipe{"Name", "name: quantized", "name: ../x",
                  "r.yaml:2:7: expected a name of letters, digits, '.', '_' and '-', got '../x'"},
        BadRecipe{"NameThatEndsEarly", "name: quantized", "name: \"a\\0..\"",
                  "r.yaml:2:7: expected a name of letters, digits, '.', '_' and '-', got the "
                  "string 'a\\x00..'"},
        BadRecipe{"PathThatEndsEarly", "name: quantized", "name: a\ninit: {checkpoint: \"a\\0b\"}",
                  "r.yaml:3:20: expected a string, got the string 'a\\x00b'"},
        BadRecipe{"LeadingZeros", "name: quantized", "name: a\nseed: 007",
                  "r.yaml:3:7: expected a whole number of at least 0, got '007' (a number has no "
                  "leading zeros)"},
        BadRecipe{"BeyondInt64", "name: quantized", "name: a\nseed: 18446744073709551615",
                  "r.yaml:3:7: expected a whole number of at least 0, got '18446744073709551615' "
                  "(at most 9223372036854775807)"},
        BadRecipe{
            "NoDigitBeforeThePoint", "lr: 0.001", "lr: .02",
            "r.yaml:7:32: expected a number above 0 and at most 1000000, got '.02' (write 0.02)"},
        BadRecipe{
            "PlusSign", "lr: 0.001", "lr: +0.02",
            "r.yaml:7:32: expected a number above 0 and at most 1000000, got '+0.02' (a number "
            "has no plus sign)"},
        BadRecipe{"Device", "name: quantized", "name: a\ndevice: gpu",
                  "r.yaml:3:9: expected auto, cpu, cuda or cuda:N, got 'gpu'"},
        BadRecipe{
            "NewlineInAValue", "type: cnn", "type: \"c\\nn\"",
            "r.yaml:4:15: " + expected_model_type() + "the string 'c\\x0an' (did you mean 'cnn'?)"},
        BadRecipe{"ScheduleAfterTheEnd",
                  "quantize:", "schedule: {freeze_observers: {epoch: 3}}\nquantize:",
                  "r.yaml:8:38: schedule.freeze_observers: expected an epoch from 1 to 2, got 3"},
        BadRecipe{"FakeQuantBeforeObserve",
                  "quantize:", "schedule: {observe: {from: 1}}\nquantize:",
                  "r.yaml:8:11: schedule.fake_quant: expected an epoch from 1 to 2, got 0"},
        BadRecipe{"ObserversFreezeBeforeFakeQuant", "quantize:",
                  "schedule: {fake_quant: {from: 1}, freeze_observers: {epoch: 1}}\nquantize:",
                  "r.yaml:8:61: schedule.freeze_observers: expected an epoch from 2 to 2, got 1"},
        BadRecipe{"StageAfterTheEnd",
                  "quantize:", "schedule: {bits: [{until: 3, weights: 8}]}\nquantize:",
                  "r.yaml:8:27: schedule.bits: expected an epoch from 1 to 2, got 3"},
        BadRecipe{"StagesOutOfOrder", "quantize:",
                  "schedule: {bits: [{until: 2, weights: 8}, {until: 2, weights: 7}]}\nquantize:",
                  "r.yaml:8:51: schedule.bits: expected epoch 3 or later, of which train.epochs: 3 "
                  "has none (the first is 0), got 2"},
        BadRecipe{"StageOfNothing", "quantize:", "schedule: {bits: [{until: 1}]}\nquantize:",
                  "r.yaml:8:19: expected 'weights', 'activations' or both in the stage"},
        BadRecipe{
            "StageThatWidensNothing",
            "quantize:", "schedule: {bits: [{until: 1, weights: 2}]}\nquantize:",
            "r.yaml:8:19: schedule.bits: the stage has no effect: no quantizer has fewer bits"},
        BadRecipe{"StageBeforeQuantization", "quantize:",
                  "schedule: {fake_quant: {from: 2}, bits: [{until: 2, weights: 8}]}\nquantize:",
                  "r.yaml:8:42: schedule.bits: the stage has no effect: it ends at epoch 2, "
                  "weights are quantized from epoch 2 on"},
        BadRecipe{"StageBeforeActivationsAreQuantized", "quantize:",
                  "schedule: {fake_quant: {activations_from: 1}, bits: [{until: 1, weights: 8, "
                  "activations: 8}]}\nquantize:",
                  "r.yaml:8:54: schedule.bits: the stage has no effect: it ends at epoch 1, "
                  "activations are quantized from epoch 1 on"},
        BadRecipe{"ActivationsBeforeWeights",
                  "quantize:", "schedule: {fake_quant: {from: 2, activations_from: 1}}\nquantize:",
                  "r.yaml:8:52: schedule.fake_quant: expected an epoch from 2 to 2, got 1"},
        BadRecipe{"GroupSizeOfChannels", "num_bits: 3", "num_bits: 3, group_size: 16",
                  "r.yaml:14:42: group_size needs the strategy group"},
        BadRecipe{"FrozenRangesAndObservers", "quantize:",
                  "calibrate: {freeze: true}\nschedule: {observe: {from: 1}, "
                  "fake_quant: {from: 1}}\nquantize:",
                  "r.yaml:9:21: schedule.observe has no effect: calibrate.freeze keeps all ranges"},
        BadRecipe{"PercentileThatCutsHalf", "observer: histogram",
                  "observer: percentile, percentile: 50",
                  "r.yaml:14:64: expected a number above 50 and at most 100, got '50'"},
        BadRecipe{"DeltaOfMse", "epochs: 3", "epochs: 3\n  loss: mse\n  huber_delta: 0.1",
                  "r.yaml:8:16: huber_delta needs the loss huber"},
        // -fsanitize=float-cast-overflow: a bound that no int64 holds.
        BadRecipe{"DeltaBeyondItsBound", "epochs: 3",
                  "epochs: 3\n  loss: huber\n  huber_delta: 1e31",
                  "r.yaml:8:16: expected a number above 0 and at most 1e+30, got '1e31'"},
        BadRecipe{"SmoothingOfMse", "epochs: 3", "epochs: 3\n  loss: mse\n  label_smoothing: 0.1",
                  "r.yaml:8:20: label_smoothing needs the loss cross_entropy"},
        BadRecipe{"KeptStepsWithoutSteps", "epochs: 3", "epochs: 3\n  keep_step_checkpoints: true",
                  "r.yaml:7:26: keep_step_checkpoints needs checkpoint_every_steps above 0"},
        BadRecipe{"ColumnsCountCharacters", "{dataset: fashion_mnist}",
                  "{path: \"\xC3\xA9\xE2\x82\xAC\", dataset: fashion_mnist, batch: 1}",
                  "r.yaml:3:44: unknown key 'batch' (did you mean 'path'?)"},
        BadRecipe{"RisingCosine", "epochs: 3",
                  "epochs: 3\n  lr_schedule: {type: cosine, final_lr: 0.2}",
                  "r.yaml:7:41: expected at most the learning rate of 0.001, got 0.2"},
        BadRecipe{"StepWithoutEpochs", "epochs: 3", "epochs: 3\n  lr_schedule: {type: step}",
                  "r.yaml:7:16: missing key 'train.lr_schedule.every_epochs'"}),
    [](const auto& test) { return test.param.name; });

TEST(Recipe, AnEmptyFileOrAListIsNoRecipe) {
  EXPECT_EQ(recipe_rejection(""), "r.yaml:1:1: expected a table, got nothing");
  EXPECT_EQ(recipe_rejection("# nothing\n"), "r.yaml:1:1: expected a table, got nothing");
  EXPECT_EQ(recipe_rejection("[1]\n"), "r.yaml:1:1: expected a table, got a list");
}

TEST(Recipe, QuantizationSchedulesNeedQuantize) {
  const std::string text = kSmallRecipe;
  EXPECT_EQ(recipe_rejection(text + "schedule: {observe: {from: 0}}\n"),
            "r.yaml:8:12: schedule.observe needs 'quantize'");
  EXPECT_EQ(recipe_rejection(text + "schedule: {bits: [{until: 1, weights: 8}]}\n"),
            "r.yaml:8:12: schedule.bits needs 'quantize'");
  EXPECT_EQ(parsed(text + "schedule: {freeze_bn: {epoch: 2}}\n").schedule.freeze_batch_norm, 2);
}

TEST(Recipe, ActivationsThatNobodyQuantizesHaveNoSchedule) {
  const std::string text = std::string(kSmallRecipe) +
                           "schedule: {fake_quant: {activations_from: 1}}\n"
                           "quantize: {groups: [{targets: [Linear], weights: {num_bits: 4}}]}\n";
  EXPECT_EQ(recipe_rejection(text),
            "r.yaml:8:43: schedule.fake_quant.activations_from has no effect: no group has "
            "activations");
}

// A run keeps the recipe with its defaults, which is much longer.
TEST(Recipe, WhatIsAcceptedCanBeReadWithItsDefaults) {
  const auto network = [](int convolutions) {
    std::string text =
        "version: 1\nname: long\ndata: {dataset: fashion_mnist}\nmodel:\n  classes: 10\n  "
        "layers:\n";
    for (int i = 0; i < convolutions; ++i) {
      text += "    - {type: Conv2d, out_channels: 1, kernel_size: 1}\n";
    }
    return text +
           "    - {type: Flatten}\n    - {type: Linear, out_features: 10}\n"
           "train: {epochs: 1, optimizer: {type: sgd, lr: 0.1}}\n";
  };
  std::string layers;
  for (int i = 0; i < 1000; ++i) layers += "{type: Conv2d, out_channels: 1, kernel_size: 1}, ";
  std::string nested = network(1);
  for (int i = 0; i < 3; ++i) {
    nested.insert(nested.find("    - {type: Flatten}"),
                  "    - {type: Sequential, layers: [" + layers + "]}\n");
  }
  const Recipe recipe = parsed(network(450));
  EXPECT_EQ(parsed(resolved_yaml(recipe)).resolved, recipe.resolved);
  EXPECT_THAT(recipe_rejection(nested), HasSubstr("with its defaults the recipe has "));
}

TEST(Recipe, TextsStayTextsForOtherReadersOfYaml) {
  const Recipe r =
      parsed(kQuantizedRecipe, {"name=1e3", "quantize.groups.0.targets=[0, true, conv]",
                                "quantize.ignore=['0x10']", "train.cuda_graph=off"});
  const std::string text = resolved_yaml(r);
  for (const char* line : {"\nname: \"1e3\"\n", "targets: [\"0\", \"true\", conv]\n",
                           "ignore: [\"0x10\"]\n", "cuda_graph: \"off\"\n", "version: 1\n",
                           "num_bits: 4\n", "lr: 0.001\n", "symmetric: true\n", "type: cnn\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  EXPECT_EQ(parsed(text).resolved, r.resolved);
}

TEST(Recipe, BatchNormFoldingHasNamedModes) {
  for (const std::string& mode : all_words<qat::BatchNormFold>()) {
    const Recipe r = parsed(kQuantizedRecipe, {"quantize.bn_fold=" + mode});
    EXPECT_EQ(word_of(r.quantize->config.bn_fold), mode);
  }
}

TEST(Recipe, ReestimationNeedsBatchesAndNoQuantization) {
  const std::string text = kSmallRecipe;
  EXPECT_EQ(parsed(text + "schedule: {reestimate_bn: {batches: 20}}\n").reestimate_bn, 20);
  EXPECT_EQ(parsed(kQuantizedRecipe, {"schedule.reestimate_bn.batches=5"}).reestimate_bn, 5);
  EXPECT_EQ(recipe_rejection(text + "schedule: {reestimate_bn: {}}\n"),
            "r.yaml:8:27: missing key 'schedule.reestimate_bn.batches'");
}

TEST(Recipe, ALongNameIsRefusedForItsLength) {
  const std::string text =
      with(kQuantizedRecipe, "name: quantized", "name: " + std::string(201, 'x'));
  EXPECT_THAT(recipe_rejection(text), ::testing::EndsWith("(201 bytes, at most 200 are allowed)"));
}

TEST(Recipe, EveryPresetIsValidAndNamedAsItsFile) {
  const Registries& registries = builtin_registries();
  std::vector<std::string> names;
  for (const Preset& preset : list_presets()) {
    const Recipe recipe = load_recipe(std::string(preset.name), {}, registries);
    EXPECT_EQ(recipe.name, preset.name);
    EXPECT_FALSE(preset.description.empty());
    EXPECT_EQ(recipe.quantize.has_value(), !preset.name.ends_with("-float"));
    Rng rng(1);
    const std::int64_t classes = recipe.model.classes.value_or(12);  // keywords are 12
    EXPECT_TRUE(build_model(recipe.model, {28, 28, 1}, classes, rng, registries.models));
    names.emplace_back(preset.name);
  }
  const std::filesystem::path repository =
      std::filesystem::path(STEELYARD_RECIPES_PAGE).parent_path().parent_path();
  std::vector<std::string> files;
  for (const auto& file : std::filesystem::directory_iterator(repository / "recipes" / "presets")) {
    if (file.path().extension() == ".yaml") files.push_back(file.path().stem().string());
  }
  std::sort(files.begin(), files.end());
  EXPECT_FALSE(files.empty());
  EXPECT_EQ(names, files);
}

TEST(Recipe, LoadsFilesAndNamesThemInMessages) {
  const Registries& registries = builtin_registries();
  const std::filesystem::path path =
      std::filesystem::path(::testing::TempDir()) / "steelyard_recipe_test.yaml";
  std::ofstream(path) << kSmallRecipe;
  EXPECT_EQ(load_recipe(path.string(), {}, registries).name, "small");
  std::ofstream(path) << "version: 2\n";
  EXPECT_EQ(rejection([&] { load_recipe(path.string(), {}, registries); }),
            path.string() + ":1:10: expected 1, got '2'");
  std::filesystem::resize_file(path, 300'000);
  EXPECT_NE(rejection([&] { load_recipe(path.string(), {}, registries); }), "accepted");
  std::filesystem::remove(path);
  EXPECT_THAT(rejection([&] { load_recipe("fashion-mnist-cnn-floot", {}, registries); }),
              StartsWith("no recipe file and no preset 'fashion-mnist-cnn-floot' (did you mean "
                         "'fashion-mnist-cnn-float'?); presets: fashion-mnist-cnn-float, "));
}

}  // namespace
}  // namespace steelyard
