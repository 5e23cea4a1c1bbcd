// Small quantized networks whose observers have seen data.
#pragma once

#include <memory>
#include <string>

#include "steelyard/export/trace.h"
#include "steelyard/layers/activations.h"
#include "steelyard/layers/arithmetic.h"
#include "steelyard/layers/concat.h"
#include "steelyard/layers/containers/residual.h"
#include "steelyard/layers/containers/sequential.h"
#include "steelyard/layers/elementwise.h"
#include "steelyard/layers/flatten.h"
#include "steelyard/layers/identity.h"
#include "steelyard/layers/norms/batch_norm.h"
#include "steelyard/layers/pooling.h"
#include "steelyard/layers/reorder.h"
#include "steelyard/layers/weighted/conv2d.h"
#include "steelyard/layers/weighted/conv_transpose2d.h"
#include "steelyard/layers/weighted/linear.h"
#include "steelyard/layers/weighted/lstm.h"
#include "steelyard/layers/where.h"
#include "steelyard/qat/prepare/prepare.h"
#include "tests/support/tensors.h"

namespace steelyard::testing {

inline std::shared_ptr<Conv2d> conv(std::int64_t in, std::int64_t out, std::int64_t kernel,
                                    std::int64_t stride, Rng& rng, std::int64_t groups = 1,
                                    bool bias = true) {
  Conv2dOptions options;
  options.in_channels = in;
  options.out_channels = out;
  options.kernel_size = {kernel, kernel};
  options.stride = {stride, stride};
  options.padding = {kernel / 2, kernel / 2};
  options.groups = groups;
  options.bias = bias;
  return std::make_shared<Conv2d>(options, rng);
}

inline std::shared_ptr<BatchNorm2d> norm(std::int64_t channels, std::uint64_t seed) {
  auto bn = std::make_shared<BatchNorm2d>(BatchNorm2dOptions{.channels = channels});
  const auto fill = [&](const Tensor& t, double lo, double hi, std::uint64_t s) {
    const Tensor r = random_tensor(t.shape(), s);
    for (std::int64_t i = 0; i < t.size(); ++i) {
      t.data<float>()[i] = static_cast<float>(lo + (hi - lo) * 0.5 * (r.data<double>()[i] + 1));
    }
  };
  fill(bn->weight().value(), 0.5, 1.5, seed);
  fill(bn->bias().value(), -0.5, 0.5, seed + 1);
  fill(bn->running_mean(), -0.5, 0.5, seed + 2);
  fill(bn->running_var(), 0.2, 2.0, seed + 3);
  return bn;
}

// [N, 9, 8, 3]: every layer type, odd sizes, groups, dilation.
inline std::shared_ptr<Module> every_layer(Rng& rng) {
  const Conv2dOptions dilated{.in_channels = 8,
                              .out_channels = 8,
                              .kernel_size = {3, 3},
                              .padding = {2, 2},
                              .dilation = {2, 2},
                              .groups = 8,
                              .bias = false};
  return std::make_shared<Sequential>(Sequential::NamedChildren{
      {"conv1", conv(3, 6, 3, 1, rng)},
      {"relu1", std::make_shared<ReLU>()},
      {"pool1", std::make_shared<MaxPool2d>(Pool2dGeometry{{3, 2}, {2, 1}, {1, 1}})},
      {"conv2", conv(6, 8, 3, 2, rng, /*groups=*/2)},
      {"relu2", std::make_shared<ReLU6>()},
      {"conv3", std::make_shared<Conv2d>(dilated, rng)},
      {"pool2", std::make_shared<AvgPool2d>(AvgPool2dOptions{{{2, 2}, {1, 1}, {1, 1}}})},
      {"relu3", std::make_shared<ReLU>()},
      {"flatten", std::make_shared<Flatten>()},
      {"fc1", std::make_shared<Linear>(LinearOptions{8 * 4 * 6, 16}, rng)},
      {"relu4", std::make_shared<ReLU>()},
      {"fc2", std::make_shared<Linear>(LinearOptions{16, 5, /*bias=*/false}, rng)}});
}

inline std::shared_ptr<Module> mean_over(std::int64_t axis) {
  return std::make_shared<Reduce>(Reduction::kMean, std::vector<std::int64_t>{axis}, true);
}

// [N, 9, 8, 3]: a transposed convolution in groups, a mean over the rows of an image.
inline std::shared_ptr<Module> upsampling_net(Rng& rng) {
  const auto up = std::make_shared<ConvTranspose2d>(ConvTranspose2dOptions{.in_channels = 4,
                                                                           .out_channels = 6,
                                                                           .kernel_size = {3, 2},
                                                                           .stride = {2, 2},
                                                                           .padding = {1, 0},
                                                                           .output_padding = {1, 0},
                                                                           .groups = 2},
                                                    rng);
  return std::make_shared<Sequential>(
      Sequential::NamedChildren{{"conv", conv(3, 4, 3, 2, rng)},
                                {"relu", std::make_shared<ReLU>()},
                                {"up", up},
                                {"norm", norm(6, 3)},
                                {"relu6", std::make_shared<ReLU6>()},
                                {"rows", mean_over(1)},
                                {"flatten", std::make_shared<Flatten>()},
                                {"fc", std::make_shared<Linear>(LinearOptions{48, 5}, rng)}});
}

// [N, 9, 8, 3]: joined along the rows and chosen by a comparison, in float between quantized
// layers.
inline std::shared_ptr<Module> joined_and_chosen_net(Rng& rng) {
  const std::array<Tensor, 4> above{Tensor(), Tensor::full({1}, 0.1), Tensor(),
                                    Tensor::full({1}, 0.3)};
  return std::make_shared<Graph>(std::vector<Graph::NamedNode>{
      {"a", conv(3, 4, 3, 1, rng)},
      {"b", conv(4, 4, 1, 1, rng)},
      {"rows", std::make_shared<CatAxis>(1), {"a", "b"}},
      {"c", conv(4, 4, 3, 2, rng)},
      {"above", std::make_shared<Where>(Comparison::kGreater, above), {"c", "c"}},
      {"flatten", std::make_shared<Flatten>()},
      {"fc", std::make_shared<Linear>(LinearOptions{144, 5}, rng)}});
}

// [N, 9, 8, 3]: between convolutions, operations that runtimes may compute on codes; the last
// convolution but one has a single channel.
inline std::shared_ptr<Module> operations_net(Rng& rng) {
  const auto pair = [](Arithmetic operation) {
    return std::make_shared<PairArithmetic>(operation);
  };
  const auto pool = std::make_shared<AvgPool2d>(AvgPool2dOptions{{{3, 3}, {1, 1}, {1, 1}}});
  return std::make_shared<Graph>(
      std::vector<Graph::NamedNode>{{"a", conv(3, 4, 3, 1, rng)},
                                    {"sigmoid", std::make_shared<Sigmoid>()},
                                    {"b", conv(4, 4, 1, 1, rng)},
                                    {"leak", std::make_shared<LeakyReLU>(0.3)},
                                    {"c", conv(4, 4, 3, 2, rng)},  // 5 x 4
                                    {"pool", pool},
                                    {"d", conv(4, 4, 1, 1, rng)},
                                    {"sum", pair(Arithmetic::kAdd), {"d", "c"}},
                                    {"e", conv(4, 4, 1, 1, rng)},
                                    {"product", pair(Arithmetic::kMultiply), {"e", "d"}},
                                    {"f", conv(4, 4, 1, 1, rng)},
                                    {"shares", std::make_shared<Softmax>()},
                                    {"g", conv(4, 4, 1, 1, rng)},
                                    {"rows", std::make_shared<Reshape>(Shape{-1, 20, 4}), {"g"}},
                                    {"columns", std::make_shared<Reshape>(Shape{-1, 4, 20}), {"f"}},
                                    {"mixed", std::make_shared<MatMul>(), {"rows", "columns"}},
                                    {"image", std::make_shared<Reshape>(Shape{-1, 20, 20, 1})},
                                    {"one", conv(1, 1, 3, 2, rng)},
                                    {"plain", conv(1, 4, 3, 1, rng)},
                                    {"last", conv(4, 5, 3, 2, rng)},
                                    {"mean", std::make_shared<GlobalAvgPool>()},
                                    {"fc", std::make_shared<Linear>(LinearOptions{5, 5}, rng)}});
}

// [N, 9, 8, 3]: shares of one channel, which are all 1.
inline std::shared_ptr<Module> one_channel_net(Rng& rng) {
  return std::make_shared<Sequential>(
      Sequential::NamedChildren{{"one", conv(3, 1, 3, 2, rng)},
                                {"shares", std::make_shared<Softmax>()},
                                {"two", conv(1, 4, 3, 2, rng)},
                                {"flatten", std::make_shared<Flatten>()},
                                {"fc", std::make_shared<Linear>(LinearOptions{24, 5}, rng)}});
}

// [N, 9, 8, 3]: a mean over channels, and one over columns of what it gives.
inline std::shared_ptr<Module> means_net(Rng& rng) {
  return std::make_shared<Sequential>(
      Sequential::NamedChildren{{"conv", conv(3, 4, 3, 2, rng)},
                                {"channels", mean_over(3)},
                                {"columns", mean_over(2)},
                                {"flatten", std::make_shared<Flatten>()},
                                {"fc", std::make_shared<Linear>(LinearOptions{5, 5}, rng)}});
}

// [N, 9, 8, 3]: batch norms to fold, two residual sums, one with a convolution as its shortcut.
inline std::shared_ptr<Module> residual_net(Rng& rng) {
  const auto block = [&](std::int64_t in, std::int64_t out, std::int64_t stride,
                         std::uint64_t seed) {
    auto main = std::make_shared<Sequential>(
        Sequential::NamedChildren{{"conv1", conv(in, out, 3, stride, rng, 1, false)},
                                  {"bn1", norm(out, seed)},
                                  {"relu1", std::make_shared<ReLU>()},
                                  {"conv2", conv(out, out, 3, 1, rng, 1, false)},
                                  {"bn2", norm(out, seed + 4)}});
    std::shared_ptr<Module> shortcut;
    if (stride != 1) {
      shortcut = std::make_shared<Sequential>(Sequential::NamedChildren{
          {"0", conv(in, out, 1, stride, rng, 1, false)}, {"1", norm(out, seed + 8)}});
    }
    return std::make_shared<Residual>(main, shortcut, std::make_shared<ReLU>());
  };
  return std::make_shared<Sequential>(
      Sequential::NamedChildren{{"conv1", conv(3, 6, 3, 1, rng, 1, false)},
                                {"bn1", norm(6, 1)},
                                {"relu", std::make_shared<ReLU>()},
                                {"block1", block(6, 6, 1, 20)},
                                {"block2", block(6, 10, 2, 40)},
                                {"pool", std::make_shared<GlobalAvgPool>()},
                                {"fc", std::make_shared<Linear>(LinearOptions{10, 7}, rng)}});
}

// [N, 9, 8, 3]: every layer that profiles of fixed point have but for residual sums.
inline std::shared_ptr<Module> fixed_point_net(Rng& rng) {
  const Conv2dOptions dilated{.in_channels = 8,
                              .out_channels = 8,
                              .kernel_size = {3, 3},
                              .padding = {2, 2},
                              .dilation = {2, 2},
                              .groups = 8,
                              .bias = false};
  return std::make_shared<Sequential>(Sequential::NamedChildren{
      {"conv1", conv(3, 6, 3, 1, rng)},
      {"relu1", std::make_shared<ReLU>()},
      {"pool1", std::make_shared<MaxPool2d>(Pool2dGeometry{{3, 2}, {2, 1}, {1, 1}})},
      {"conv2", conv(6, 8, 3, 2, rng, /*groups=*/2)},
      {"relu2", std::make_shared<ReLU6>()},
      {"conv3", std::make_shared<Conv2d>(dilated, rng)},
      {"pool2", std::make_shared<AvgPool2d>(AvgPool2dOptions{{{2, 2}, {1, 1}, {0, 0}}})},
      {"relu3", std::make_shared<ReLU>()},
      {"flatten", std::make_shared<Flatten>()},
      {"fc1", std::make_shared<Linear>(LinearOptions{8 * 2 * 4, 16}, rng)},
      {"relu4", std::make_shared<ReLU>()},
      {"fc2", std::make_shared<Linear>(LinearOptions{16, 1, /*bias=*/false}, rng)}});
}

// [N, 9, 8, 3]: functions, products, joins and moves of codes that fixed point has.
inline std::shared_ptr<Module> fixed_functions_net(Rng& rng) {
  const auto product = std::make_shared<PairArithmetic>(Arithmetic::kMultiply);
  const auto gated = std::make_shared<PairArithmetic>(Arithmetic::kMultiply);
  const auto whole = std::make_shared<AvgPool2d>(AvgPool2dOptions{{{5, 4}, {1, 1}, {0, 0}}});
  const auto tanh = std::make_shared<Elementwise>(kernels::UnaryFunction::kTanh);
  const auto up = std::make_shared<ConvTranspose2d>(ConvTranspose2dOptions{.in_channels = 6,
                                                                           .out_channels = 4,
                                                                           .kernel_size = {3, 4},
                                                                           .stride = {2, 2},
                                                                           .padding = {1, 1}},
                                                    rng);
  return std::make_shared<Graph>(
      std::vector<Graph::NamedNode>{{"conv", conv(3, 6, 3, 2, rng)},
                                    {"swish", std::make_shared<Hardswish>()},
                                    {"pool", whole},
                                    {"squeeze", conv(6, 6, 1, 1, rng)},
                                    {"gate", std::make_shared<Sigmoid>()},
                                    {"gated", gated, {"swish", "gate"}},
                                    {"leaky", std::make_shared<LeakyReLU>(0.1), {"conv"}},
                                    {"product", product, {"gated", "leaky"}},
                                    {"tanh", tanh, {"conv"}},
                                    {"up", up},
                                    {"down", conv(4, 6, 3, 2, rng)},
                                    {"cat", std::make_shared<Cat>(), {"product", "leaky", "down"}},
                                    {"average", std::make_shared<GlobalAvgPool>()},
                                    {"fc", std::make_shared<Linear>(LinearOptions{18, 5}, rng)},
                                    {"shares", std::make_shared<Softmax>()}});
}

// [N, 9, 8, 3]: rows of an image as a sequence, for two LSTMs in fixed point.
inline std::shared_ptr<Module> fixed_lstm_net(Rng& rng) {
  const LstmLayerOptions first{.inputs = 24, .units = 7},
      second{.inputs = 7, .units = 5, .return_sequences = false};
  return std::make_shared<Sequential>(
      Sequential::NamedChildren{{"rows", std::make_shared<Reshape>(Shape{-1, 9, 24})},
                                {"lstm1", std::make_shared<LSTM>(first, rng)},
                                {"lstm2", std::make_shared<LSTM>(second, rng)},
                                {"fc", std::make_shared<Linear>(LinearOptions{5, 4}, rng)}});
}

// [N, 9, 8, 3]: smooth activations that have a form on codes.
inline std::shared_ptr<Module> smooth_net(Rng& rng) {
  return std::make_shared<Sequential>(
      Sequential::NamedChildren{{"conv1", conv(3, 6, 3, 2, rng)},
                                {"swish", std::make_shared<Hardswish>()},
                                {"conv2", conv(6, 8, 3, 1, rng)},
                                {"gelu", std::make_shared<GELU>()},
                                {"gate", std::make_shared<Sigmoid>()},
                                {"pool", std::make_shared<GlobalAvgPool>()},
                                {"fc1", std::make_shared<Linear>(LinearOptions{8, 9}, rng)},
                                {"scores", std::make_shared<Sigmoid>()},
                                {"fc2", std::make_shared<Linear>(LinearOptions{9, 7}, rng)},
                                {"leak", std::make_shared<LeakyReLU>(0.3)},
                                {"tanh_gelu", std::make_shared<TanhGELU>()},
                                {"shares", std::make_shared<Softmax>()}});
}

// [N, 9, 8, 3]: arithmetic of values of different shapes, and with constants of different shapes.
inline std::shared_ptr<Module> arithmetic_net(Rng& rng) {
  const auto pair = [](Arithmetic operation) {
    return std::make_shared<PairArithmetic>(operation);
  };
  const auto with = [](Arithmetic operation, Shape shape, std::uint64_t seed, bool first = false) {
    const Tensor value = random_tensor(std::move(shape), seed, DType::kF32);
    for (float& v : value.span<float>()) v += v < 0 ? -0.25F : 0.25F;  // divisors are not 0
    return std::make_shared<ConstantArithmetic>(
        ConstantArithmeticOptions{operation, first, /*trainable=*/true}, value);
  };
  const auto whole = std::make_shared<AvgPool2d>(AvgPool2dOptions{{{9, 8}, {1, 1}, {0, 0}}});
  return std::make_shared<Graph>(std::vector<Graph::NamedNode>{
      {"mean", with(Arithmetic::kSubtract, {3}, 1)},
      {"deviation", with(Arithmetic::kDivide, {3}, 2)},
      {"conv1", conv(3, 4, 3, 1, rng)},
      {"pool", whole},
      {"gate", std::make_shared<Sigmoid>()},
      {"shifted", pair(Arithmetic::kAdd), {"conv1", "gate"}},
      {"relu", std::make_shared<ReLU>()},
      {"row_means", mean_over(2), {"conv1"}},
      {"rows", pair(Arithmetic::kAdd), {"row_means", "relu"}},
      {"centred", pair(Arithmetic::kSubtract), {"rows", "pool"}},
      {"share", pair(Arithmetic::kDivide), {"centred", "gate"}},
      {"larger", pair(Arithmetic::kMaximum), {"share", "row_means"}},
      {"scale", with(Arithmetic::kMultiply, {4}, 3)},
      {"pixels", with(Arithmetic::kAdd, {9, 8, 1}, 4)},
      {"turned", with(Arithmetic::kSubtract, {1, 8, 4}, 5, /*first=*/true)},
      {"sum", std::make_shared<Add>(), {"turned", "conv1"}},
      {"conv2", conv(4, 5, 3, 2, rng)},
      {"flatten", std::make_shared<Flatten>()},
      {"fc", std::make_shared<Linear>(LinearOptions{100, 5}, rng)}});
}

// [N, 9, 8, 3]: joins of convolutions, a pool, a sum and their own input; a join of flat features.
inline std::shared_ptr<Module> concat_net(Rng& rng) {
  using Branches = std::vector<std::shared_ptr<Module>>;
  using Layers = Sequential::Children;
  const auto row = [](const Layers& layers) { return std::make_shared<Sequential>(layers); };
  const auto relu = [] { return std::make_shared<ReLU>(); };
  const auto first = std::make_shared<Concat>(
      Branches{row({conv(3, 4, 1, 1, rng), relu()}),
               row({conv(3, 6, 3, 1, rng, 1, false), norm(6, 1), std::make_shared<ReLU6>()}),
               row({std::make_shared<MaxPool2d>(Pool2dGeometry{{3, 3}, {1, 1}, {1, 1}}),
                    conv(3, 2, 1, 1, rng)})});
  const auto second = std::make_shared<Concat>(
      Branches{std::make_shared<Identity>(), row({conv(12, 8, 3, 1, rng), relu()}),
               std::make_shared<Residual>(conv(12, 12, 3, 1, rng), nullptr, relu())});
  const auto third = std::make_shared<Concat>(
      Branches{std::make_shared<Linear>(LinearOptions{32, 6}, rng), std::make_shared<Identity>()});
  return std::make_shared<Sequential>(
      Sequential::NamedChildren{{"join1", first},
                                {"join2", second},
                                {"pool", std::make_shared<GlobalAvgPool>()},
                                {"join3", third},
                                {"fc", std::make_shared<Linear>(LinearOptions{38, 7}, rng)}});
}

inline Tensor images(std::int64_t count, std::uint64_t seed) {
  return random_tensor({count, 9, 8, 3}, seed, DType::kF32);
}

// Quantizes the model and lets its observers see a few batches.
inline std::shared_ptr<Module> quantized_model(std::shared_ptr<Module> model,
                                               const qat::QuantizeConfig& config) {
  qat::PreparedModel prepared = qat::prepare(std::move(model), config);
  Rng rng(5);
  ForwardContext training{.training = true, .rng = &rng};
  for (std::uint64_t i = 0; i < 3; ++i)
    prepared.model->forward(Variable(images(4, 100 + i)), training);
  return prepared.model;
}

// Weights of `bits` alone, with a scale for every 9 of a convolution's, 16 of a linear layer's.
inline qat::QuantizeConfig weight_groups(int bits) {
  const auto groups_of = [bits](std::int64_t size) {
    return qat::QConfig{
        .weights =
            qat::QuantizerConfig{
                {.bits = bits, .granularity = kernels::Granularity::kGroup, .group_size = size},
                {.type = "min_max"}},
        .activations = {}};
  };
  qat::QuantizeConfig config;
  config.groups.push_back({{"Conv2d"}, groups_of(9)});
  config.groups.push_back({{"Linear"}, groups_of(16)});
  return config;
}

// Groups of weights beside activations of 8 bits: sums of codes, a scale for each group's.
inline qat::QuantizeConfig groups_of_codes(int bits) {
  qat::QuantizeConfig config = weight_groups(bits);
  for (qat::QuantizeGroup& group : config.groups) {
    group.config.activations = qat::default_w8a8().activations;
  }
  return config;
}

inline qat::QuantizeConfig w8a8(int weight_bits = 8, bool symmetric = false) {
  qat::QuantizeConfig config;
  config.groups.push_back({{"Linear", "Conv2d"}, qat::default_w8a8()});
  config.groups[0].config.weights->scheme.bits = weight_bits;
  config.groups[0].config.activations->scheme.symmetric = symmetric;
  config.groups[0].config.activations->scheme.is_signed = symmetric;
  return config;
}

// Activations of 9 to 16 bits.
inline qat::QuantizeConfig wide_activations(int bits, bool symmetric = false) {
  qat::QuantizeConfig config = w8a8(8, symmetric);
  config.groups[0].config.activations->scheme.bits = bits;
  return config;
}
// 16 bits behind convolutions, 8 behind linear layers, or the other way round.
inline qat::QuantizeConfig mixed_activations(bool wide_convolutions) {
  qat::QuantizeConfig config;
  config.groups = {{{"Conv2d"}, qat::default_w8a8()}, {{"Linear"}, qat::default_w8a8()}};
  config.groups[wide_convolutions ? 0 : 1].config.activations->scheme.bits = 16;
  return config;
}

// w8a8() with zero points of weights.
inline qat::QuantizeConfig affine_weights(int weight_bits) {
  qat::QuantizeConfig config = w8a8(weight_bits);
  config.groups[0].config.weights->scheme.symmetric = false;
  config.groups[0].config.weights->scheme.narrow_range = false;
  return config;
}

// The configuration with transposed convolutions, too, quantized as the first group.
inline qat::QuantizeConfig and_transposed(qat::QuantizeConfig config) {
  const qat::QConfig first = config.groups[0].config;
  config.groups.push_back({{"ConvTranspose2d"}, first});
  auto& weights = *config.groups.back().config.weights;
  if (weights.scheme.granularity == kernels::Granularity::kGroup) weights.scheme.group_size = 6;
  return config;
}

inline qat::QuantizeConfig tensorrt(int weight_bits) {
  qat::QuantizeConfig config = w8a8(weight_bits, /*symmetric=*/true);
  config.profile = qat::Profile::kTensorrt;
  return config;
}

inline qat::QuantizeConfig tflm(int weight_bits, qat::Profile profile = qat::Profile::kTflm) {
  qat::QuantizeConfig config = w8a8(weight_bits);
  config.groups[0].targets = {"re:.*"};
  config.profile = profile;
  return config;
}

}  // namespace steelyard::testing
