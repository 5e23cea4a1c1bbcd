// Values of a recipe that the command line replaces.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/recipes/recipe_support.h"

namespace steelyard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(Recipe, OverridesReplaceAddAndRemoveValues) {
  const Recipe r =
      parsed(kQuantizedRecipe,
             {"train.epochs=7", "data.augment=[flip]", "quantize.groups.0.weights.num_bits=6",
              "init.checkpoint=a/b=c.safetensors", "quantize.ignore=[fc2]", "train.epochs=8",
              "quantize.groups.1.weights.observer=null"});
  EXPECT_EQ(r.train.trainer.epochs, 8);
  EXPECT_TRUE(r.data.loader.augment.flip);
  EXPECT_FALSE(r.data.loader.augment.random_crop);
  EXPECT_EQ(r.quantize->config.groups[0].config.weights->scheme.bits, 6);
  EXPECT_EQ(r.quantize->config.groups[1].config.weights->observer.type, "min_max");
  EXPECT_EQ(r.init_checkpoint, "a/b=c.safetensors");
  EXPECT_THAT(r.quantize->config.ignore, ElementsAre("fc2"));
  EXPECT_THAT(resolved_yaml(r), HasSubstr("epochs: 8\n"));
}

TEST(Recipe, OverridesAreCheckedLikeTheFile) {
  const auto message = [](const std::string& assignment) {
    return recipe_rejection(kQuantizedRecipe, {assignment});
  };
  EXPECT_EQ(message("train.epochs=abc"),
            "--set train.epochs: expected a whole number from 1 to 1000000, got 'abc'");
  EXPECT_EQ(message("train.epoch=3"),
            "--set train.epoch: unknown key 'epoch' (did you mean 'epochs'?)");
  EXPECT_EQ(message("train.epochs.x=3"),
            "--set train.epochs.x: expected a table above 'x', got '3' at r.yaml:6:11");
  EXPECT_EQ(message("quantize.groups.2.ignore=3"),
            "--set quantize.groups.2.ignore: expected an index below 2, got '2'");
  EXPECT_EQ(message("train.epochs"), "--set: expected KEY.PATH=VALUE, got 'train.epochs'");
  EXPECT_EQ(message("=3"), "--set: expected KEY.PATH=VALUE, got '=3'");
  EXPECT_EQ(message("a..b=3"), "--set: expected KEY.PATH=VALUE, got 'a..b=3'");
  EXPECT_EQ(message("train.epochs="),
            "--set train.epochs: expected a whole number from 1 to 1000000, got nothing");
  EXPECT_THAT(message("name=*x"),  // yaml-cpp 0.8 names the anchor too
              StartsWith("--set name: not valid YAML: the referenced anchor is not defined"));
  EXPECT_EQ(message("init=null"), "--set init: there is no such key to remove");
  EXPECT_THAT(message("train.epochs=[1"), StartsWith("--set train.epochs: "));
  const std::pair<const char*, const char*> bad_seeds[] = {
      {"010", " (a number has no leading zeros)"},
      {"0x10", ""},
      {"-1", ""},
      {"99999999999999999999", " (at most 9223372036854775807)"},
      {"1.5", ""}};
  for (const auto& [bad, why] : bad_seeds) {
    EXPECT_EQ(
        message(std::string("--seed=") + bad),
        std::string("--seed: expected a whole number of at least 0, got '") + bad + "'" + why);
  }
  EXPECT_EQ(message("--seed="), "--seed: expected a whole number of at least 0, got nothing");
  EXPECT_EQ(message("--seed=null"), "--seed: expected a whole number of at least 0, got nothing");
  EXPECT_EQ(message("--device="), "--device: expected auto, cpu, cuda or cuda:N, got nothing");
  for (const char* bad : {"gpu", "cuda:", "cuda: 0", "[cuda]", "*x"}) {
    EXPECT_EQ(message(std::string("--device=") + bad),
              std::string("--device: expected auto, cpu, cuda or cuda:N, got '") + bad + "'");
  }
}

}  // namespace
}  // namespace steelyard
