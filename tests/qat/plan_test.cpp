#include "steelyard/qat/prepare/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace steelyard::qat {
namespace {

using ::testing::ElementsAre;

Plan blocks(int count, const std::string& before, const std::string& after) {
  Plan plan{{{"embed", "-", "float", "-", ""}}, {"a note"}};
  for (int i = 0; i < count; ++i) {
    const std::string block = before + std::to_string(i) + after;
    plan.rows.push_back({block + "fc", "weight", "int4", "min_max", ""});
    plan.rows.push_back(
        {block + "relu", "-", "as " + block + "fc", "-", "fused into " + block + "fc"});
  }
  plan.rows.push_back({"head", "weight", "int8", "min_max", ""});
  return plan;
}

std::vector<std::string> modules(const Plan& plan) {
  std::vector<std::string> names;
  for (const PlanRow& row : plan.rows) names.push_back(row.module);
  return names;
}

TEST(GroupedPlan, BlocksThatDifferInTheirNumberAreOne) {
  for (const auto& [before, after] : {std::pair("model.layers.", "."), std::pair("layers_", "_")}) {
    const Plan plan = grouped(blocks(12, before, after));
    const std::string block = before + std::string("0..11") + after;
    EXPECT_THAT(modules(plan), ElementsAre("embed", block + "fc", block + "relu", "head"));
    EXPECT_EQ(plan.rows[2].quantized, "as " + block + "fc");
    EXPECT_EQ(plan.rows[2].note, "fused into " + block + "fc");
    EXPECT_THAT(plan.notes, ElementsAre("a note"));
  }
}

TEST(GroupedPlan, ABlockThatIsOtherStandsAlone) {
  Plan plan = blocks(9, "layers.", ".");
  plan.rows[1 + 2 * 4].quantized = "float";  // of the fifth
  EXPECT_THAT(modules(grouped(plan)),
              ElementsAre("embed", "layers.0..3.fc", "layers.0..3.relu", "layers.4.fc",
                          "layers.4.relu", "layers.5..8.fc", "layers.5..8.relu", "head"));
}

TEST(GroupedPlan, FewBlocksAndPlainNumbersStay) {
  EXPECT_EQ(grouped(blocks(3, "layers.", ".")).rows, blocks(3, "layers.", ".").rows);
  Plan plan;
  for (const char* name : {"conv.1", "conv.2", "conv.3", "conv.4", "fc5.a"}) {
    plan.rows.push_back({name, "weight", "int8", "min_max", ""});
  }
  EXPECT_EQ(grouped(plan).rows, plan.rows);
}

}  // namespace
}  // namespace steelyard::qat
