#include "steelyard/qat/model/target_match.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "steelyard/framework/tensor/error.h"
#include "tests/support/temporary_folder.h"

namespace steelyard::qat {
namespace {

using testing::message_of;

bool matches(const std::string& text, const std::string& path) {
  return TargetPattern(text, "here").matches(path, "Linear");
}

TEST(TargetPattern, ExpressionsMatchTheWholePath) {
  EXPECT_TRUE(matches("Linear", "fc"));
  EXPECT_TRUE(matches("fc", "fc"));
  EXPECT_FALSE(matches("f.", "fc")) << "no expression without re:";
  EXPECT_TRUE(matches("re:f.", "fc"));
  EXPECT_FALSE(matches("re:f.", "fc2"));
  EXPECT_FALSE(matches("re:f.", "a.fc"));
  EXPECT_TRUE(matches("re:a|fc2", "fc2")) << "either side, whole";
  EXPECT_FALSE(matches("re:a|fc", "fc2"));
  EXPECT_TRUE(matches("re:^fc\\d+$", "fc12"));
  EXPECT_TRUE(matches("re:layer[1-3]\\.(0|1)\\.conv2", "layer2.1.conv2"));
  EXPECT_TRUE(matches("re:", ""));
  EXPECT_FALSE(matches("re:Linear", "fc")) << "the path, not the type";
}

// Backtracking engines try 2^40 ways to divide the letters.
TEST(TargetPattern, TakesTimeLinearInThePath) {
  const auto begin = std::chrono::steady_clock::now();
  for (const char* text : {"re:(a+)+b", "re:(a|a)*b", "re:(a*)*b", "re:((a|ab|b)*)*c"}) {
    EXPECT_FALSE(matches(text, std::string(40, 'a'))) << text;
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
}

TEST(TargetPattern, BadExpressionsAreErrorsWithTheirPlace) {
  const auto message = [](const std::string& text) {
    return message_of<InputError>([&] { TargetPattern(text, "r.yaml:3:9: quantize.ignore"); });
  };
  EXPECT_EQ(message("re:(fc"),
            "r.yaml:3:9: quantize.ignore: 're:(fc': bad regular expression: missing ): (fc");
  EXPECT_THAT(message("re:fc[2-1]"), ::testing::HasSubstr("invalid character class range: 2-1"));
  for (const char* text : {"re:(?!fc).*", "re:(?=fc).*", "re:(a)\\1"}) {
    EXPECT_THAT(message(text), ::testing::EndsWith("has no lookaround and no backreferences)"));
  }
  EXPECT_THAT(message("re:(((a{900}){900}){900}){900}"),
              ::testing::HasSubstr("bad regular expression"));
}

QuantizeConfig of_targets(const std::vector<std::string>& first,
                          const std::vector<std::string>& second) {
  QuantizeConfig config;
  for (const auto& targets : {first, second}) {
    config.groups.emplace_back();
    config.groups.back().targets = targets;
    config.groups.back().config.weights.emplace();
  }
  return config;
}

// The number of the group that takes each of a container's layers and one beside it; -1: none.
std::vector<int> groups_of(const QuantizeConfig& config) {
  TargetMatcher matcher(config);
  const auto root = matcher.enter("", "Sequential", TargetMatcher::kNoScope);
  const auto block = matcher.enter("block", "Graph", root);
  const auto inner = matcher.enter("block.attention", "Graph", block);
  std::vector<int> groups;
  std::string reason;
  for (const auto& [path, scope] : {std::pair("block.attention.query", inner),
                                    std::pair("block.up", block), std::pair("fc", root)}) {
    const QConfig* found = matcher.config_for(path, "Linear", scope, reason);
    groups.push_back(found == nullptr ? -1 : found == &config.groups[0].config ? 0 : 1);
  }
  matcher.finish("Linear");
  return groups;
}

// A recipe's `ignore` may be of models with and without a head of their own.
TEST(TargetMatcher, ATiedHeadMayBeIgnoredThatStaysInFloatAnyway) {
  const auto matched = [](const std::vector<std::string>& targets,
                          const std::vector<std::string>& ignore) {
    QuantizeConfig config = of_targets(targets, {});
    config.groups.pop_back();
    config.ignore = ignore;
    TargetMatcher matcher(config);
    std::string reason;
    const auto root = matcher.enter("", "Graph", TargetMatcher::kNoScope);
    matcher.config_for("fc", "Linear", root, reason);
    matcher.enter("lm_head", "EmbeddingHead", root);
    matcher.enter("norm", "RMSNorm", root);
    matcher.finish("Linear");
  };
  EXPECT_NO_THROW(matched({"fc"}, {"lm_head"}));
  EXPECT_THROW(matched({"fc"}, {"norm"}), InputError);
  EXPECT_THROW(matched({"lm_head"}, {}), InputError);
}

TEST(TargetMatcher, AContainerStandsForWhatIsInIt) {
  using ::testing::ElementsAre;
  EXPECT_THAT(groups_of(of_targets({"block"}, {"fc"})), ElementsAre(0, 0, 1));
  EXPECT_THAT(groups_of(of_targets({"block.attention"}, {"Linear"})), ElementsAre(0, 1, 1));
  EXPECT_THAT(groups_of(of_targets({"block.attention"}, {"block"})), ElementsAre(0, 1, -1));
  EXPECT_THAT(groups_of(of_targets({"re:block|fc"}, {"Linear"})), ElementsAre(1, 1, 0))
      << "an expression says itself how far it goes";
}

}  // namespace
}  // namespace steelyard::qat
