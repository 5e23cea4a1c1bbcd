// Finite differences through every layer, for its input and all its parameters.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

#include "steelyard/layers/activations.h"
#include "steelyard/layers/arithmetic.h"
#include "steelyard/layers/concat.h"
#include "steelyard/layers/containers/residual.h"
#include "steelyard/layers/containers/sequential.h"
#include "steelyard/layers/dropout.h"
#include "steelyard/layers/elementwise.h"
#include "steelyard/layers/flatten.h"
#include "steelyard/layers/identity.h"
#include "steelyard/layers/norms/batch_norm.h"
#include "steelyard/layers/norms/instance_norm.h"
#include "steelyard/layers/norms/layer_norm.h"
#include "steelyard/layers/pooling.h"
#include "steelyard/layers/reorder.h"
#include "steelyard/layers/weighted/conv1d.h"
#include "steelyard/layers/weighted/conv2d.h"
#include "steelyard/layers/weighted/conv_transpose2d.h"
#include "steelyard/layers/weighted/gru.h"
#include "steelyard/layers/weighted/linear.h"
#include "steelyard/layers/weighted/lstm.h"
#include "tests/support/gradcheck.h"

namespace steelyard {
namespace {

using testing::gradcheck;
using testing::leaf;
using testing::random_tensor;
using testing::spread_tensor;

struct LayerCase {
  std::string name;
  Tensor x;
  std::function<std::shared_ptr<Module>(Rng&)> make;
};

std::shared_ptr<Module> conv(Conv2dOptions options, Rng& rng) {
  return std::make_shared<Conv2d>(options, rng);
}
std::shared_ptr<BatchNorm2d> norm(std::int64_t channels, bool frozen = false) {
  auto layer = std::make_shared<BatchNorm2d>(BatchNorm2dOptions{.channels = channels});
  layer->set_frozen(frozen);
  layer->running_mean().fill(0.3);
  layer->running_var().fill(0.6);
  return layer;
}
std::shared_ptr<Module> block(std::int64_t in, std::int64_t out, bool frozen, Rng& rng) {
  const auto main = std::make_shared<Sequential>(Sequential::NamedChildren{
      {"conv1", conv({in, out, {3, 3}, {2, 2}, {1, 1}, {1, 1}, 1, false}, rng)},
      {"bn1", norm(out, frozen)},
      {"relu1", std::make_shared<ReLU>()},
      {"conv2", conv({out, out, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 1, false}, rng)},
      {"bn2", norm(out, frozen)}});
  const auto shortcut = std::make_shared<Sequential>(Sequential::Children{
      conv({in, out, {1, 1}, {2, 2}, {0, 0}, {1, 1}, 1, false}, rng), norm(out, frozen)});
  return std::make_shared<Residual>(main, shortcut, std::make_shared<ReLU>());
}

// Away from 0.
Tensor random_tensor_above(Shape shape, double least) {
  Tensor x = random_tensor(std::move(shape), 1);
  for (double& v : x.span<double>()) v += least;
  return x;
}
std::shared_ptr<Module> constant_layer(Arithmetic operation, bool constant_first, bool trainable) {
  return std::make_shared<ConstantArithmetic>(
      ConstantArithmeticOptions{operation, constant_first, trainable},
      random_tensor_above({1, 1, 1, 4}, 2).to(DType::kF32));
}

const std::vector<LayerCase>& layer_cases() {
  static const Tensor image = random_tensor({2, 4, 4, 4}, 1);
  static const std::vector<LayerCase> all{
      {"Linear", random_tensor({3, 4}, 1),
       [](Rng& rng) {
         return std::make_shared<Linear>(LinearOptions{4, 3}, rng);
       }},
      {"LSTM", random_tensor({2, 3, 4}, 1),
       [](Rng& rng) {
         return std::make_shared<LSTM>(LstmLayerOptions{4, 3, {.final_cell = true}}, rng);
       }},
      {"GRU", random_tensor({2, 3, 4}, 1),
       [](Rng& rng) {
         return std::make_shared<GRU>(GruLayerOptions{4, 3}, rng);
       }},
      {"LinearNoBias", random_tensor({3, 4}, 1),
       [](Rng& rng) {
         return std::make_shared<Linear>(LinearOptions{4, 3, false}, rng);
       }},
      {"Conv2d", image,
       [](Rng& rng) {
         return conv({4, 3, {3, 3}}, rng);
       }},
      {"Conv2dStridedPadded", image,
       [](Rng& rng) {
         return conv({4, 3, {3, 2}, {2, 1}, {1, 1}}, rng);
       }},
      {"Conv2dDilated", image,
       [](Rng& rng) {
         return conv({4, 2, {2, 2}, {1, 1}, {1, 0}, {3, 2}}, rng);
       }},
      {"Conv2dGrouped", image,
       [](Rng& rng) {
         return conv({4, 6, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 2}, rng);
       }},
      {"Conv2dDepthwiseNoBias", image,
       [](Rng& rng) {
         return conv({4, 4, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 4, false}, rng);
       }},
      {"BatchNorm2d", image, [](Rng&) { return norm(4); }},
      {"BatchNorm2dFrozen", image, [](Rng&) { return norm(4, true); }},
      {"ReLU", spread_tensor({3, 5}), [](Rng&) { return std::make_shared<ReLU>(); }},
      {"ReLU6", spread_tensor({10, 15}), [](Rng&) { return std::make_shared<ReLU6>(); }},
      {"LeakyReLU", spread_tensor({3, 5}), [](Rng&) { return std::make_shared<LeakyReLU>(0.2); }},
      {"Sigmoid", image, [](Rng&) { return std::make_shared<Sigmoid>(); }},
      {"CumulativeSum", image,
       [](Rng&) { return std::make_shared<CumulativeSum>(CumulativeSumOptions{.reverse = true}); }},
      {"LogSoftmax", image, [](Rng&) { return std::make_shared<LogSoftmax>(); }},
      {"Affine", image, [](Rng&) { return std::make_shared<Affine>(-1.5, 0.25); }},
      {"Softmax", image, [](Rng&) { return std::make_shared<Softmax>(); }},
      {"ConvTranspose2d", image,
       [](Rng& rng) {
         return std::make_shared<ConvTranspose2d>(ConvTranspose2dOptions{.in_channels = 4,
                                                                         .out_channels = 3,
                                                                         .kernel_size = {3, 2},
                                                                         .stride = {2, 1},
                                                                         .padding = {1, 0},
                                                                         .output_padding = {1, 0}},
                                                  rng);
       }},
      {"Conv1d", random_tensor({2, 7, 4}, 1),
       [](Rng& rng) {
         return std::make_shared<Conv1d>(Conv1dOptions{.in_channels = 4,
                                                       .out_channels = 6,
                                                       .kernel_size = 3,
                                                       .stride = 2,
                                                       .padding = 1,
                                                       .dilation = 2,
                                                       .groups = 2},
                                         rng);
       }},
      {"BatchNorm1d", random_tensor({3, 4, 2}, 1), [](Rng&) { return batch_norm1d(2); }},
      {"MaxPool1d", spread_tensor({2, 7, 3}),
       [](Rng&) {
         return std::make_shared<MaxPool1d>(Pool1dGeometry{.kernel = 3, .stride = 2, .padding = 1});
       }},
      {"AvgPool1d", random_tensor({2, 7, 3}, 1),
       [](Rng&) {
         return std::make_shared<AvgPool1d>(Pool1dGeometry{.kernel = 3, .stride = 2, .padding = 1});
       }},
      {"GlobalAvgPoolOfSequences", random_tensor({2, 7, 3}, 1),
       [](Rng&) { return std::make_shared<GlobalAvgPool>(); }},
      {"LstmsLastOutput", random_tensor({2, 5, 3}, 1),
       [](Rng& rng) {
         return std::make_shared<LSTM>(
             LstmLayerOptions{
                 .inputs = 3, .units = 2, .pass = {.reverse = true}, .return_sequences = false},
             rng);
       }},
      {"GrusLastOutput", random_tensor({2, 5, 3}, 1),
       [](Rng& rng) {
         return std::make_shared<GRU>(
             GruLayerOptions{
                 .inputs = 3, .units = 2, .pass = {.reverse = true}, .return_sequences = false},
             rng);
       }},
      {"Softplus", image,
       [](Rng&) { return std::make_shared<Elementwise>(kernels::UnaryFunction::kSoftplus); }},
      {"Elu", spread_tensor({3, 5}),
       [](Rng&) { return std::make_shared<Elementwise>(kernels::UnaryFunction::kElu, 0.75); }},
      {"Sin", image,
       [](Rng&) { return std::make_shared<Elementwise>(kernels::UnaryFunction::kSin); }},
      {"Cos", image,
       [](Rng&) { return std::make_shared<Elementwise>(kernels::UnaryFunction::kCos); }},
      {"GELU", image, [](Rng&) { return std::make_shared<GELU>(); }},
      {"SiLU", image, [](Rng&) { return std::make_shared<SiLU>(); }},
      {"Hardswish", spread_tensor({10, 15}), [](Rng&) { return std::make_shared<Hardswish>(); }},
      {"LayerNorm", image,
       [](Rng&) { return std::make_shared<LayerNorm>(LayerNormOptions{.features = 4}); }},
      {"InstanceNorm", image,
       [](Rng&) { return std::make_shared<InstanceNorm>(InstanceNormOptions{.channels = 4}); }},
      {"HardSigmoid", spread_tensor({10, 15}),
       [](Rng&) { return std::make_shared<HardSigmoid>(); }},
      {"Clamp", spread_tensor({10, 15}), [](Rng&) { return std::make_shared<Clamp>(-2.0, 3.0); }},
      {"PReLU", spread_tensor({4, 4}), [](Rng&) { return std::make_shared<PReLU>(4); }},
      {"MulConstant", image,
       [](Rng&) { return constant_layer(Arithmetic::kMultiply, false, true); }},
      {"DivConstant", image, [](Rng&) { return constant_layer(Arithmetic::kDivide, false, true); }},
      {"ConstantDiv", random_tensor_above({2, 4, 4, 4}, 2),
       [](Rng&) { return constant_layer(Arithmetic::kDivide, true, true); }},
      {"ConstantSub", image,
       [](Rng&) { return constant_layer(Arithmetic::kSubtract, true, true); }},
      {"Permute", image,
       [](Rng&) {
         return std::make_shared<Permute>(std::vector<std::int64_t>{0, 3, 1, 2});
       }},
      {"Reshape", image,
       [](Rng&) {
         return std::make_shared<Reshape>(Shape{-1, 8, 2});
       }},
      {"Slice", image,
       [](Rng&) {
         return std::make_shared<Slice>(2, TakenAxis{3, 2, -2});
       }},
      {"Pad", image,
       [](Rng&) {
         using Sizes = std::vector<std::int64_t>;
         return std::make_shared<Pad>(Sizes{0, 1, -1, 0}, Sizes{0, 0, 2, 3}, 0.5);
       }},
      {"ReduceMean", image,
       [](Rng&) {
         return std::make_shared<Reduce>(Reduction::kMean, std::vector<std::int64_t>{1, 3}, true);
       }},
      {"ReduceSum", image,
       [](Rng&) {
         return std::make_shared<Reduce>(Reduction::kSum, std::vector<std::int64_t>{2}, false);
       }},
      {"ResizeRepeats", image,
       [](Rng&) {
         return std::make_shared<Resize>(ResizedAxis{.repeats = 2, .inputs = 4, .outputs = 8},
                                         ResizedAxis{.repeats = 1, .inputs = 4, .outputs = 4});
       }},
      {"ResizeWeights", image,
       [](Rng&) {
         const ResizedAxis axis{
             .inputs = 4, .outputs = 3, .weights = {1, 0, 0, 0, 0, 0.25, 0.75, 0, 0, 0, 0.5, 0.5}};
         return std::make_shared<Resize>(axis, axis);
       }},
      {"MaxPool2d", spread_tensor({1, 5, 5, 2}),
       [](Rng&) {
         return std::make_shared<MaxPool2d>(Pool2dGeometry{{3, 3}, {2, 2}, {1, 1}});
       }},
      {"AvgPool2d", image,
       [](Rng&) {
         return std::make_shared<AvgPool2d>(AvgPool2dOptions{{{3, 3}, {2, 2}, {1, 1}}});
       }},
      {"AvgPool2dUncounted", image,
       [](Rng&) {
         return std::make_shared<AvgPool2d>(AvgPool2dOptions{{{3, 3}, {2, 2}, {1, 1}}, false});
       }},
      {"GlobalAvgPool", image, [](Rng&) { return std::make_shared<GlobalAvgPool>(); }},
      {"Flatten", image, [](Rng&) { return std::make_shared<Flatten>(); }},
      {"Dropout", image, [](Rng&) { return std::make_shared<Dropout>(0.3); }},
      {"Identity", image, [](Rng&) { return std::make_shared<Identity>(); }},
      {"Sequential", image,
       [](Rng& rng) {
         return std::make_shared<Sequential>(Sequential::Children{
             conv({4, 3, {3, 3}}, rng), std::make_shared<ReLU>(), std::make_shared<Flatten>(),
             std::make_shared<Linear>(LinearOptions{12, 2}, rng)});
       }},
      {"ResidualIdentity", image,
       [](Rng& rng) {
         return std::make_shared<Residual>(conv({4, 4, {3, 3}, {1, 1}, {1, 1}}, rng), nullptr,
                                           std::make_shared<ReLU>());
       }},
      {"Concat", image,
       [](Rng& rng) {
         return std::make_shared<Concat>(std::vector<std::shared_ptr<Module>>{
             conv({4, 3, {1, 1}}, rng), std::make_shared<Identity>(),
             conv({4, 2, {3, 3}, {1, 1}, {1, 1}}, rng)});
       }},
      {"ResidualBlock", image, [](Rng& rng) { return block(4, 3, false, rng); }},
      {"ResidualBlockFrozen", image, [](Rng& rng) { return block(4, 3, true, rng); }},
  };
  return all;
}

class EveryLayer : public ::testing::TestWithParam<LayerCase> {
 protected:
  // The layer's parameters in float64, then its input.
  std::vector<Variable> leaves(Module& layer) const {
    std::vector<Variable> all;
    for (NamedParameter& p : layer.named_parameters()) {
      p.variable.set_value(p.variable.value().to(DType::kF64));
      all.push_back(p.variable);
    }
    all.push_back(leaf(GetParam().x.clone()));
    return all;
  }
};

TEST_P(EveryLayer, MatchesFiniteDifferencesInTrainingAndEvaluation) {
  Rng init(3);
  const auto layer = GetParam().make(init);
  const std::vector<Variable> all = leaves(*layer);
  for (const bool training : {true, false}) {
    const auto forward = [&] {
      Rng rng(4);
      ForwardContext context{.training = training, .rng = &rng};
      return layer->forward(all.back(), context);
    };
    // A layer that returns its input, the leaf itself, has nothing to differentiate.
    if (forward().node() == all.back().node()) continue;
    EXPECT_TRUE(gradcheck(forward, all)) << (training ? "training" : "evaluation");
  }
}

TEST_P(EveryLayer, F32AgreesWithF64) {
  const auto run = [&](DType dtype) {
    Rng init(3), rng(4);
    const auto layer = GetParam().make(init);
    for (NamedParameter& p : layer->named_parameters()) {
      p.variable.set_value(p.variable.value().to(dtype));
    }
    ForwardContext context{.training = true, .rng = &rng};
    return layer->forward(Variable(GetParam().x.to(dtype)), context).value();
  };
  EXPECT_TRUE(testing::all_close(run(DType::kF32), run(DType::kF64), 1e-4, 1e-4));
}

// Layers of two inputs, whose shapes broadcast.
TEST(JoinGradients, MatchFiniteDifferences) {
  const Variable image = leaf(random_tensor_above({2, 3, 3, 4}, 2));
  const Variable gate = leaf(random_tensor_above({2, 1, 1, 4}, 2));
  ForwardContext context;
  for (const Arithmetic operation :
       {Arithmetic::kAdd, Arithmetic::kSubtract, Arithmetic::kMultiply, Arithmetic::kDivide}) {
    PairArithmetic layer(operation);
    EXPECT_TRUE(gradcheck(
        [&] {
          return layer.join({image, gate}, context);
        },
        {image, gate}))
        << layer.type_name();
  }
  CatAxis cat(1);
  const Variable row = leaf(random_tensor({2, 1, 3, 4}, 5));
  EXPECT_TRUE(gradcheck([&] { return cat.join({image, row}, context); }, {image, row}));
  MatMul product;
  const Variable a = leaf(random_tensor({2, 3, 4}, 6)), b = leaf(random_tensor({2, 4, 2}, 7));
  EXPECT_TRUE(gradcheck([&] { return product.join({a, b}, context); }, {a, b}));
}

INSTANTIATE_TEST_SUITE_P(Layers, EveryLayer, ::testing::ValuesIn(layer_cases()),
                         [](const auto& param) { return param.param.name; });

}  // namespace
}  // namespace steelyard
