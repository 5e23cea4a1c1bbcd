#include "steelyard/recipes/runs/fused_layers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace steelyard {
namespace {

using ::testing::HasSubstr;
using ::testing::Optional;

// Two blocks whose layers are int4, but for those that are named.
qat::Plan plan(const std::map<std::string, std::string>& others) {
  qat::Plan made;
  for (const std::string block : {"layers_0_", "layers_1_"}) {
    for (const std::string layer : {"attn_q_proj", "attn_k_proj", "attn_v_proj", "attn_o_proj",
                                    "mlp_gate_proj", "mlp_up_proj", "mlp_down_proj"}) {
      const auto other = others.find(block + layer);
      made.rows.push_back(
          {block + layer, "weight", other == others.end() ? "int4" : other->second, "min_max", ""});
      made.rows.push_back({block + layer, "output", "float", "-", ""});
    }
  }
  return made;
}

TEST(FusedLayers, ANoteNamesThoseThatAreNotAlike) {
  EXPECT_EQ(note_of_fused_layers(plan({})), std::nullopt);
  EXPECT_EQ(note_of_fused_layers(plan({{"layers_0_mlp_down_proj", "float"}})), std::nullopt);
  EXPECT_THAT(note_of_fused_layers(plan({{"layers_1_attn_k_proj", "float"}})),
              Optional(HasSubstr("layers_1_attn_q_proj, layers_1_attn_k_proj, layers_1_attn_v_proj "
                                 "are not all quantized alike")));
  EXPECT_THAT(note_of_fused_layers(
                  plan({{"layers_0_mlp_up_proj", "int8"}, {"layers_1_mlp_up_proj", "int8"}})),
              Optional(HasSubstr("layers_0_mlp_gate_proj, layers_0_mlp_up_proj (and 1 more such "
                                 "groups) are not all quantized alike")));
}

}  // namespace
}  // namespace steelyard
