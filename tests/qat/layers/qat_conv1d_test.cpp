// Quantized convolutions of sequences are those of images of one row: the same codes, gradients and
// statistics, folded norms and fused activations included.
#include "steelyard/qat/layers/qat_conv1d.h"

#include <gtest/gtest.h>

#include "steelyard/layers/containers/builders.h"
#include "steelyard/qat/prepare/prepare.h"
#include "tests/support/tensors.h"

namespace steelyard::qat {
namespace {

using testing::random_tensor;

constexpr std::int64_t kRowLength = 11;

struct Conv1dCase {
  const char* name;
  Conv1dOptions conv;
  bool norm = false;
  BatchNormFold fold = BatchNormFold::kFrozen;
  bool affine_weights = false;
  int bits = 8;
};
void PrintTo(const Conv1dCase& c, std::ostream* out) { *out << c.name; }

const Conv1dCase kConv1dCases[] = {
    {"plain", {.in_channels = 4, .out_channels = 6, .kernel_size = 3, .padding = 1}},
    {"strided",
     {.in_channels = 4, .out_channels = 6, .kernel_size = 4, .stride = 2, .bias = false}},
    {"depthwise",
     {.in_channels = 4, .out_channels = 8, .kernel_size = 3, .dilation = 2, .groups = 4}},
    {"frozen_norm", {.in_channels = 4, .out_channels = 6, .kernel_size = 3}, true},
    {"folded_norm",
     {.in_channels = 4, .out_channels = 6, .kernel_size = 3, .padding = 2},
     true,
     BatchNormFold::kBatchCorrected},
    {"affine",
     {.in_channels = 4, .out_channels = 6, .kernel_size = 3},
     false,
     BatchNormFold::kFrozen,
     true},
    {"wide",
     {.in_channels = 4, .out_channels = 6, .kernel_size = 3},
     false,
     BatchNormFold::kFrozen,
     false,
     16},
};

// A convolution of sequences, or of images of one row.
struct Network {
  Network(const Conv1dCase& c, bool rows) {
    Rng rng(5);
    const Conv1dOptions& o = c.conv;
    if (rows) {
      conv = std::make_shared<Conv2d>(Conv2dOptions{.in_channels = o.in_channels,
                                                    .out_channels = o.out_channels,
                                                    .kernel_size = {1, o.kernel_size},
                                                    .stride = {1, o.stride},
                                                    .padding = {0, o.padding},
                                                    .dilation = {1, o.dilation},
                                                    .groups = o.groups,
                                                    .bias = o.bias},
                                      rng);
    } else {
      conv = std::make_shared<Conv1d>(o, rng);
    }
    Sequential::NamedChildren children{{"conv", conv}};
    if (c.norm) children.emplace_back("norm", batch_norm2d(o.out_channels));
    children.emplace_back("relu", std::make_shared<ReLU>());
    QuantizeConfig config;
    config.bn_fold = c.fold;
    config.groups.push_back({{rows ? "Conv2d" : "Conv1d"}, default_w8a8()});
    config.groups[0].config.weights->scheme.symmetric = !c.affine_weights;
    config.groups[0].config.weights->scheme.narrow_range = !c.affine_weights;
    config.groups[0].config.activations->scheme.bits = c.bits;
    prepared = prepare(std::make_shared<Sequential>(std::move(children)), config);
  }

  Variable run(const Variable& x, bool training) const {
    ForwardContext context{.training = training};
    return prepared.model->forward(x, context);
  }

  std::shared_ptr<Module> conv;
  PreparedModel prepared;
};

class QuantizedConv1d : public ::testing::TestWithParam<Conv1dCase> {};
INSTANTIATE_TEST_SUITE_P(Cases, QuantizedConv1d, ::testing::ValuesIn(kConv1dCases),
                         [](const auto& p) { return std::string(p.param.name); });

TEST_P(QuantizedConv1d, IsAConvolutionOfOneRow) {
  const Network sequences(GetParam(), false), rows(GetParam(), true);
  EXPECT_EQ(to_string(sequences.prepared.plan), to_string(rows.prepared.plan));
  const Variable x(random_tensor({2, kRowLength, 4}, 7, DType::kF32), true);
  const Variable row(x.value().reshape({2, 1, kRowLength, 4}), true);
  for (const bool training : {true, true, false}) {
    const Variable y = sequences.run(x, training), expected = rows.run(row, training);
    ASSERT_TRUE(quantized(y) && quantized(expected));
    EXPECT_EQ(quantized(y)->host_scale(), quantized(expected)->host_scale());
    EXPECT_EQ(testing::values(quantized(y)->codes), testing::values(quantized(expected)->codes));
    if (!training) continue;
    const Tensor grad = random_tensor(y.shape(), 9, DType::kF32);
    y.backward(grad);
    expected.backward(grad.reshape(expected.shape()));
  }
  EXPECT_EQ(testing::values(x.grad()), testing::values(row.grad()));
  const auto own = sequences.prepared.model->named_parameters();
  const auto others = rows.prepared.model->named_parameters();
  ASSERT_EQ(own.size(), others.size());
  for (std::size_t i = 0; i < own.size(); ++i) {
    EXPECT_EQ(own[i].name, others[i].name);
    const Tensor &grad = own[i].variable.grad(), &other = others[i].variable.grad();
    ASSERT_EQ(grad.defined(), other.defined());
    if (!grad.defined()) continue;
    EXPECT_EQ(testing::values(grad), testing::values(other));
  }
}

// What soft rounding and oscillations change goes back into a weight [O, C/groups, K].
TEST(QuantizedConv1dWeight, KeepsItsShape) {
  Rng rng(5);
  Conv1d conv({.in_channels = 4, .out_channels = 6, .kernel_size = 3}, rng);
  QatConv1d layer(conv.options(), conv.weight().value(), conv.bias().value(), default_w8a8());
  EXPECT_EQ(layer.weight().shape(), (Shape{6, 4, 3}));
  EXPECT_EQ(layer.weight_by_output_channel().shape(), (Shape{6, 4, 1, 3}));
  const Tensor from = Tensor::zeros({6, 4, 1, 3}, DType::kI8);
  const Tensor to = Tensor::from(std::vector<std::int8_t>(72, 1), {6, 4, 1, 3});
  EXPECT_EQ(layer.move_weights(from, to, Tensor::full({6, 4, 1, 3}, 0.5)), 72);
  EXPECT_EQ(testing::values(layer.weight().value()), std::vector<double>(72, 0.5));
}

}  // namespace
}  // namespace steelyard::qat
