// Layers made in short, and how a model prints.
#include "steelyard/layers/containers/builders.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "steelyard/framework/autograd/print.h"

namespace steelyard {
namespace {

TEST(Builders, MakeAModelThatIsCalledAndPrinted) {
  Rng rng(1);
  const auto block =
      sequential({{"conv", conv2d(4, 4, 3, rng, {.padding = {1, 1}})}, {"norm", batch_norm2d(4)}});
  const auto model = sequential({{"stem", conv2d(1, 4, 3, rng, {.stride = {2, 2}, .bias = false})},
                                 {"relu", relu6()},
                                 {"block", residual(block, nullptr, relu())},
                                 {"join", concat({{"a", max_pool2d(2)}, {"b", avg_pool2d(2)}})},
                                 {"drop", dropout(0.25)},
                                 {"flatten", flatten()},
                                 {"norm", layer_norm(8 * 2 * 2)},
                                 {"fc", linear(8 * 2 * 2, 3, rng)},
                                 {"gelu", gelu()}});
  ForwardContext context;
  EXPECT_EQ(model(Variable(Tensor::zeros({2, 9, 9, 1})), context).shape(), (Shape{2, 3}));
  EXPECT_EQ(to_string(*model),
            "Sequential\n"
            "  stem: Conv2d(1, 4, kernel 3x3, stride 2x2, padding 0x0, no bias)\n"
            "  relu: ReLU6\n"
            "  block: Residual\n"
            "    Sequential\n"
            "      conv: Conv2d(4, 4, kernel 3x3, stride 1x1, padding 1x1)\n"
            "      norm: BatchNorm2d(4)\n"
            "    downsample: Identity\n"
            "    relu: ReLU\n"
            "    Add\n"
            "  join: Concat\n"
            "    a: MaxPool2d(kernel 2x2, stride 2x2, padding 0x0)\n"
            "    b: AvgPool2d(kernel 2x2, stride 2x2, padding 0x0)\n"
            "    Cat\n"
            "  drop: Dropout(0.25)\n"
            "  flatten: Flatten\n"
            "  norm: LayerNorm(32)\n"
            "  fc: Linear(32, 3)\n"
            "  gelu: GELU\n");
}

TEST(Builders, MakeSequencesAndTransposedConvolutions) {
  Rng rng(1);
  const auto sequence =
      sequential({{"conv", conv1d({.in_channels = 3, .out_channels = 4, .kernel_size = 3}, rng)},
                  {"gate", hard_sigmoid()},
                  {"lstm", lstm(4, 5, rng)},
                  {"gru", gru(5, 5, rng)}});
  ForwardContext context;
  EXPECT_EQ(sequence(Variable(Tensor::zeros({2, 8, 3})), context).shape(), (Shape{2, 6, 5}));
  const auto upwards = conv_transpose2d(
      {.in_channels = 3, .out_channels = 2, .kernel_size = {2, 2}, .stride = {2, 2}}, rng);
  EXPECT_EQ((*upwards)(Variable(Tensor::zeros({1, 4, 5, 3})), context).shape(),
            (Shape{1, 8, 10, 2}));
}

// A handle keeps its module, whoever else lets go of it.
TEST(Builders, HandlesShareTheirModule) {
  Rng rng(1);
  ModulePtr<> any;
  {
    const ModulePtr<Linear> fc = linear(2, 1, rng);
    any = fc;
    EXPECT_EQ(fc->weight().shape(), (Shape{1, 2}));
  }
  ForwardContext context;
  EXPECT_EQ((*any)(Variable(Tensor::zeros({5, 2})), context).shape(), (Shape{5, 1}));
}

}  // namespace
}  // namespace steelyard
