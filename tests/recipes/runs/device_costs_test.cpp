#include "steelyard/recipes/runs/device_costs.h"

#include <gtest/gtest.h>

#include "steelyard/export/c_program.h"
#include "steelyard/export/trace.h"
#include "steelyard/layers/containers/builders.h"
#include "steelyard/qat/prepare/prepare.h"
#include "steelyard/qat/ptq/calibrate.h"

namespace steelyard {
namespace {

// The program has the constants and values that its own text says.
TEST(DeviceCosts, OfTheProgramInC) {
  qat::QuantizeConfig config = qat::w8a8({"re:.*"});
  config.profile = qat::Profile::kTflm;
  Rng rng(1);
  const auto [model, plan] = qat::prepare(
      sequential({{"conv", conv2d(2, 6, 3, rng)}, {"flat", flatten()}, {"fc", linear(96, 3, rng)}}),
      config);
  const Tensor input = Tensor::full({1, 6, 6, 2}, 0.5F);
  qat::calibrate(*model, 1, [&](std::int64_t) { return input; });
  const deploy::Graph graph = deploy::trace(*model, input, "").graph;
  const DeviceCosts costs = device_costs(graph).value();
  const deploy::CProgram program = deploy::c_program(graph);
  EXPECT_NE(program.header.find("ARENA_BYTES " + std::to_string(costs.ram_bytes) + "\n"),
            std::string::npos);
  EXPECT_EQ(costs.flash_bytes, program.size.most_constant_bytes);
  EXPECT_GE(costs.flash_bytes, program.size.constant_bytes);
  EXPECT_GT(costs.flash_bytes, 2 * 6 * 9 + 96 * 3);
  EXPECT_EQ(costs.macs, 4 * 4 * 6 * 2 * 9 + 96 * 3);

  EXPECT_EQ(exceeded_limit(costs, {}), std::nullopt);
  EXPECT_EQ(exceeded_limit(costs, {costs.flash_bytes, costs.ram_bytes, costs.macs}), std::nullopt);
  EXPECT_EQ(exceeded_limit(costs, {.macs = costs.macs - 1}),
            "export.limits.macs: expected at most 2015 multiplications a sample, got 2016");
  EXPECT_TRUE(exceeded_limit(costs, {.flash = costs.flash_bytes - 1}));
  EXPECT_TRUE(exceeded_limit(costs, {.ram = costs.ram_bytes - 1}));
}

TEST(DeviceCosts, AreThoseOfFixedPointAlone) {
  Rng rng(1);
  const std::shared_ptr<Module> model = linear(6, 2, rng);
  EXPECT_FALSE(device_costs(deploy::trace(*model, Tensor::zeros({1, 6}), "").graph));
}

}  // namespace
}  // namespace steelyard
