#include "steelyard/recipes/hosted/hosted_recipe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/gradcheck.h"

namespace steelyard {
namespace {

using ::testing::HasSubstr;
using testing::message_of;

constexpr const char* kBegin = R"(version: 1
name: hosted
quantize:
  groups:
    - targets: [Linear]
      weights: {num_bits: 4}
      activations: {num_bits: 8, symmetric: false}
)";

std::string hosted_refusal(const std::string& more) {
  return message_of<InputError>([&] { parse_hosted_recipe(kBegin + more, "r"); });
}

TEST(HostedRecipe, HasWhatIsLeftToIt) {
  const Recipe recipe = parse_hosted_recipe(std::string(kBegin) +
                                                "seed: 7\nschedule: {fake_quant: {from: 500}}\n"
                                                "export: {profile: tensorrt}\n",
                                            "r");
  EXPECT_EQ(recipe.name, "hosted");
  EXPECT_EQ(recipe.seed, 7);
  EXPECT_EQ(recipe.schedule.fake_quant_from, 500);
  EXPECT_EQ(recipe.exports.profile, qat::Profile::kTensorrt);
  EXPECT_EQ(recipe.quantize->config.profile, qat::Profile::kTensorrt);
  EXPECT_EQ(recipe.quantize->config.groups[0].config.weights->scheme.bits, 4);
  EXPECT_FALSE(parse_hosted_recipe("version: 1\nname: a\n", "r").quantize);
}

TEST(HostedRecipe, RefusesWhatTheHostHas) {
  for (const char* key : {"data", "model", "train", "init", "calibrate", "device"}) {
    EXPECT_THAT(hosted_refusal(std::string(key) + ": {}\n"),
                HasSubstr("r:8:1: unknown key '" + std::string(key) + "'"));
  }
}

TEST(HostedRecipe, RefusesWhatOnlyTheTrainerDoes) {
  EXPECT_THAT(hosted_refusal("  algorithm: {method: lsq, scale_lr: 0.1}\n"),
              HasSubstr("r:8:14: quantize.algorithm: scale_lr: the learning rates are the host "
                        "optimizer's"));
  EXPECT_THAT(hosted_refusal("  ranges: delayed\n"),
              HasSubstr("r:8:11: quantize.ranges: delayed needs the trainer's steps"));
  EXPECT_THAT(hosted_refusal("  oscillations: {momentum: 0.02}\n"),
              HasSubstr("quantize.oscillations: they are followed by the trainer"));
  EXPECT_THAT(hosted_refusal("schedule: {reestimate_bn: {batches: 3}}\n"),
              HasSubstr("schedule.reestimate_bn: it follows the last epoch"));
  EXPECT_THAT(hosted_refusal("export: {formats: [safetensors]}\n"),
              HasSubstr("export.formats: the host exports when it wants to"));
}

}  // namespace
}  // namespace steelyard
