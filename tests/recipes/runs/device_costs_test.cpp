#include "steelyard/recipes/runs/device_costs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "steelyard/export/c/c_program.h"
#include "steelyard/export/trace.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/layers/containers/builders.h"
#include "steelyard/qat/prepare/prepare.h"
#include "steelyard/qat/ptq/calibrate.h"

namespace steelyard {
namespace {

deploy::Graph small_graph(int weight_bits) {
  qat::QuantizeConfig config = qat::w8a8({"re:.*"});
  config.profile = qat::Profile::kTflm;
  config.groups[0].config.weights->scheme.bits = weight_bits;
  Rng rng(1);
  const auto [model, plan] = qat::prepare(
      sequential({{"conv", conv2d(2, 6, 3, rng)}, {"flat", flatten()}, {"fc", linear(96, 3, rng)}}),
      config);
  const Tensor input = Tensor::full({1, 6, 6, 2}, 0.5F);
  qat::calibrate(*model, 1, [&](std::int64_t) { return input; });
  return deploy::trace(*model, input, "").graph;
}

TEST(DeviceCosts, AreOfLayersByWidthAndOfTheRest) {
  const std::int64_t rest = flash_bytes_beside_layers(small_graph(8));
  EXPECT_GT(rest, 0);
  for (const int bits : {2, 3, 4, 6}) {
    const deploy::Graph graph = small_graph(bits);
    EXPECT_EQ(flash_bytes_beside_layers(graph), rest);
    EXPECT_EQ(device_costs(graph)->flash_bytes, rest + flash_bytes_of_layer(6 * 2 * 9, 6, bits) +
                                                    flash_bytes_of_layer(96 * 3, 3, bits));
  }
  EXPECT_EQ(flash_bytes_of_layer(9, 2, 4), 8 + 16 + 4);
  Rng rng(1);
  const std::shared_ptr<Module> floats = linear(6, 2, rng);
  EXPECT_THROW(flash_bytes_beside_layers(deploy::trace(*floats, Tensor::zeros({1, 6}), "").graph),
               InputError);
}

// Each step multiplies its input and the output before; either matrix has a bias in the program.
TEST(DeviceCosts, OfAnLstm) {
  const auto graph_of = [](int bits) {
    qat::QuantizeConfig config = qat::w8a8({"re:.*"});
    config.profile = qat::Profile::kTflm;
    config.groups[0].config.weights->scheme.bits = bits;
    Rng rng(1);
    const auto layer = make_module<LSTM>(
        LstmLayerOptions{.inputs = 6, .units = 4, .return_sequences = false}, rng);
    const auto [model, plan] =
        qat::prepare(sequential({{"lstm", layer}, {"fc", linear(4, 3, rng)}}), config);
    const Tensor input = Tensor::full({1, 5, 6}, 0.5F);
    qat::calibrate(*model, 1, [&](std::int64_t) { return input; });
    return deploy::trace(*model, input, "").graph;
  };
  const DeviceCosts costs = device_costs(graph_of(8)).value();
  EXPECT_EQ(costs.macs, 5 * 16 * (6 + 4) + 4 * 3);
  EXPECT_GT(costs.flash_bytes, 16 * (6 + 4) + 2 * 4 * 16 + 2 * 256);  // with a table
  const std::int64_t rest = flash_bytes_beside_layers(graph_of(8));
  EXPECT_EQ(flash_bytes_beside_layers(graph_of(4)), rest);
  EXPECT_EQ(costs.flash_bytes, rest + flash_bytes_of_layer(16 * 6, 16, 8) +
                                   flash_bytes_of_layer(16 * 4, 16, 8) +
                                   flash_bytes_of_layer(12, 3, 8));
}

// Weights that nobody trained are often equal, and those of training will not be.
TEST(DeviceCosts, CountEqualWeightsOfTwoLayersTwice) {
  const auto flash_of = [](float first, float second) {
    qat::QuantizeConfig config = qat::w8a8({"re:.*"});
    config.profile = qat::Profile::kTflm;
    Rng rng(1);
    const std::shared_ptr<Module> a = conv2d(10, 10, 2, rng), b = conv2d(10, 10, 2, rng);
    for (NamedParameter& p : a->named_parameters()) p.variable.value().fill(first);
    for (NamedParameter& p : b->named_parameters()) p.variable.value().fill(second);
    const auto [model, plan] = qat::prepare(sequential({{"a", a}, {"b", b}}), config);
    const Tensor input = Tensor::full({1, 5, 5, 10}, 0.5F);
    qat::calibrate(*model, 1, [&](std::int64_t) { return input; });
    return device_costs(deploy::trace(*model, input, "").graph)->flash_bytes;
  };
  EXPECT_EQ(flash_of(0.5F, 0.5F), flash_of(0.5F, -0.5F));
}

// The program has the constants and values that its own text says.
TEST(DeviceCosts, OfTheProgramInC) {
  const deploy::Graph graph = small_graph(8);
  const DeviceCosts costs = device_costs(graph).value();
  const deploy::CProgram program = deploy::c_program(graph);
  EXPECT_NE(program.header.find("ARENA_BYTES " + std::to_string(costs.ram_bytes) + "\n"),
            std::string::npos);
  EXPECT_EQ(costs.flash_bytes, program.size.most_constant_bytes);
  EXPECT_GE(costs.flash_bytes, program.size.constant_bytes);
  EXPECT_GT(costs.flash_bytes, 2 * 6 * 9 + 96 * 3);
  EXPECT_EQ(costs.macs, 4 * 4 * 6 * 2 * 9 + 96 * 3);

  EXPECT_EQ(exceeded_limits(costs, {}), std::nullopt);
  EXPECT_EQ(exceeded_limits(costs, {costs.flash_bytes, costs.ram_bytes, costs.macs}), std::nullopt);
  EXPECT_EQ(exceeded_limits(costs, {.macs = costs.macs - 1}),
            "export.limits.macs: expected at most 2015 multiplications a sample, got 2016");
  EXPECT_TRUE(exceeded_limits(costs, {.flash = costs.flash_bytes - 1}));
  EXPECT_TRUE(exceeded_limits(costs, {.ram = costs.ram_bytes - 1}));
  EXPECT_EQ(exceeded_limits(costs, {.ram = 1, .macs = 2015}),
            "export.limits.ram: expected at most 1 bytes for values, got " +
                std::to_string(costs.ram_bytes) +
                "; export.limits.macs: expected at most 2015 multiplications a sample, got 2016");
}

// A call of two frames of six: of the convolution two rows; the rest is of the whole window.
TEST(DeviceCosts, OfAStreamAreThoseOfACall) {
  const deploy::Graph graph = small_graph(8);
  const DeviceCosts costs = device_costs(graph, deploy::StreamOptions{.frames = 2}).value();
  EXPECT_EQ(costs.macs, 2 * 4 * 6 * 2 * 9 + 96 * 3);
  EXPECT_EQ(costs.state_bytes, 4 * 6 * 2 + 4 * 4 * 6);
  EXPECT_THAT(text_of(costs),
              ::testing::HasSubstr(" bytes of RAM for values, 144 of them kept between calls, 1152 "
                                   "multiplications a call of 2 frames"));
  EXPECT_EQ(exceeded_limits(costs, {.macs = 1000}),
            "export.limits.macs: expected at most 1000 multiplications a call, got 1152");
}

TEST(DeviceCosts, AreThoseOfFixedPointAlone) {
  Rng rng(1);
  const std::shared_ptr<Module> model = linear(6, 2, rng);
  EXPECT_FALSE(device_costs(deploy::trace(*model, Tensor::zeros({1, 6}), "").graph));
}

}  // namespace
}  // namespace steelyard
