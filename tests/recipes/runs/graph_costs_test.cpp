#include "steelyard/recipes/runs/graph_costs.h"

#include <gtest/gtest.h>

#include "steelyard/export/trace.h"
#include "steelyard/layers/containers/builders.h"
#include "steelyard/qat/prepare/prepare.h"
#include "steelyard/qat/ptq/calibrate.h"

namespace steelyard {
namespace {

std::shared_ptr<Module> network() {
  Rng rng(1);
  return sequential({{"conv", conv2d(2, 6, 3, rng)},
                     {"up", conv_transpose2d({.in_channels = 6,
                                              .out_channels = 4,
                                              .kernel_size = {2, 2},
                                              .stride = {2, 2},
                                              .groups = 2},
                                             rng)},
                     {"flat", flatten()},
                     {"fc", linear(4 * 8 * 8, 3, rng)}});
}

constexpr std::int64_t kConv = 4 * 4 * 6 * 2 * 9;    // outputs, and what each adds
constexpr std::int64_t kUp = 4 * 4 * 6 * 2 * 2 * 2;  // inputs, and where each goes
constexpr std::int64_t kFc = 4 * 8 * 8 * 3;

TEST(GraphCosts, OfAFloatNetwork) {
  const std::shared_ptr<Module> model = network();
  const GraphCosts costs = costs_of(deploy::trace(*model, Tensor::zeros({1, 6, 6, 2}), "").graph);
  EXPECT_EQ(costs.macs, kConv + kUp + kFc);
  EXPECT_EQ(costs.integer_macs, 0);
  EXPECT_EQ(costs.bit_operations, costs.macs * 32 * 32);
  EXPECT_EQ(costs.integer_share(), 0);
}

TEST(GraphCosts, OfLayersWithWidthsOfTheirOwn) {
  qat::QuantizeConfig config = qat::w8a8({"Conv2d"});
  config.groups.push_back(qat::w8a8({"Linear"}).groups[0]);
  config.groups[1].config.weights->scheme.bits = 4;
  const auto [model, plan] = qat::prepare(network(), config);
  const Tensor input = Tensor::full({1, 6, 6, 2}, 0.5F);
  qat::calibrate(*model, 1, [&](std::int64_t) { return input; });
  const GraphCosts costs = costs_of(deploy::trace(*model, input, "").graph);
  EXPECT_EQ(costs.macs, kConv + kUp + kFc);
  EXPECT_EQ(costs.integer_macs, kConv + kFc);
  EXPECT_EQ(costs.bit_operations, kConv * 8 * 8 + kUp * 32 * 32 + kFc * 8 * 4);
}

}  // namespace
}  // namespace steelyard
