// Verification finds what it is there to find.
#include "steelyard/export/verify.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "steelyard/framework/tensor/error.h"
#include "tests/export/export_support.h"
#include "tests/support/gradcheck.h"

namespace steelyard::deploy {
namespace {

using testing::images;
using testing::quantized_model;
using testing::w8a8;

// A model, its graph with parameters of its own, and data.
struct Fixture {
  Fixture() {
    Rng rng(2);
    model = quantized_model(testing::residual_net(rng), w8a8());
    graph = trace(*model, images(1, 1), "net").graph;
    data = {images(9, 3), Tensor::zeros({9}, DType::kI64), 7};
    for (Node& node : graph.nodes) {
      if (!node.weights) continue;
      node.weights->weight = node.weights->weight.clone();
      node.weights->bias = node.weights->bias.clone();
    }
  }

  Node& node(const std::string& name) {
    for (Node& node : graph.nodes) {
      if (node.name == name) return node;
    }
    throw std::out_of_range(name);
  }
  Verification run() { return verify(*model, Interpreter(graph), data, 9, 4); }

  std::shared_ptr<Module> model;
  Graph graph;
  Dataset data;
};

TEST(Verify, FindsNothingInAFaithfulModel) {
  Fixture f;
  const Verification result = f.run();
  EXPECT_EQ(result.first_mismatch(), nullptr);
  EXPECT_NE(to_string(result).find("0 of "), std::string::npos);
}

// Batch norms that are folded in every step deploy as ordinary products, in both profiles.
TEST(Verify, FindsNothingInModelsThatFoldWhileTraining) {
  for (const auto mode :
       {qat::BatchNormFold::kBatchCorrected, qat::BatchNormFold::kOneConvolution}) {
    for (qat::QuantizeConfig config : {w8a8(), testing::tensorrt(4)}) {
      config.bn_fold = mode;
      Rng rng(2);
      const auto model = quantized_model(testing::residual_net(rng), config);
      const Graph graph = trace(*model, images(1, 1), "net").graph;
      const Dataset data{images(9, 3), Tensor::zeros({9}, DType::kI64), 7};
      const Verification result = verify(*model, Interpreter(graph), data, 9, 4);
      EXPECT_EQ(result.first_mismatch(), nullptr) << to_string(result);
      EXPECT_GT(result.values.size(), 10U);
    }
  }
}

TEST(Verify, NamesTheFirstTensorAfterAChangedWeight) {
  Fixture f;
  Tensor& weight = f.node("block1.conv2").weights->weight;
  for (auto& code : weight.span<std::int8_t>()) code = static_cast<std::int8_t>(-code);
  const Verification result = f.run();
  ASSERT_NE(result.first_mismatch(), nullptr);
  EXPECT_EQ(result.first_mismatch()->name, "block1.conv2");
  EXPECT_GT(result.first_mismatch()->differing, 0);
  EXPECT_LE(result.first_mismatch()->differing, result.first_mismatch()->elements);
  EXPECT_GE(result.first_mismatch()->largest, 1);
}

TEST(Verify, SeesABiasThatIsOffByOneStep) {
  Fixture f;
  // A step of the bias is far below a code; over all outputs some code changes.
  for (auto& code : f.node("conv1").weights->bias.span<std::int32_t>()) code += 40;
  EXPECT_EQ(f.run().first_mismatch()->name, "conv1");
}

TEST(Verify, SeesAParameterThatTheSamplesDoNotShow) {
  Fixture f;
  float& scale = f.node("conv1").weights->scales.at(2);
  scale = std::nextafter(scale, 1.0F);
  const Verification result = f.run();
  for (const ValueComparison& value : result.values) EXPECT_EQ(value.differing, 0) << value.name;
  ASSERT_NE(result.first_mismatch(), nullptr);
  EXPECT_EQ(result.first_mismatch()->name, "conv1.weight scale");
  EXPECT_THAT(to_string(result), ::testing::HasSubstr("conv1.weight scale: 1 of "));
}

TEST(Verify, EqualCodesOfAnotherScaleAreNoMatch) {
  Fixture f;
  Node& fc = f.node("fc");
  Quantization& quantization = *f.graph.values[fc.output].quantization;
  const float trained = quantization.scale;
  quantization.scale *= 1.0000002F;
  const Verification result = f.run();
  ASSERT_NE(result.first_mismatch(), nullptr);
  EXPECT_EQ(result.first_mismatch()->name, "fc");
  const std::string rest = fmt::format(", zero point {}, codes 0 to 255", quantization.zero_point);
  EXPECT_THAT(to_string(result),
              ::testing::HasSubstr(fmt::format(
                  "fc: another quantization: scale {}{} in training, scale {}{} deployed\n",
                  trained, rest, quantization.scale, rest)));
}

// A first layer in float, as many recipes have it, whose norm takes a mean of 1000 away: training
// rounds in the middle of that, the deployed layer has the norm folded in. The codes behind it flip
// here and there, and every operation is right.
TEST(Verify, AFloatLayerInFrontIsNoMismatch) {
  Rng rng(2);
  const auto bn = testing::norm(6, 1);
  for (float& mean : bn->running_mean().span<float>()) mean += 1000;
  const auto first = testing::conv(3, 6, 3, 1, rng);
  for (float& bias : first->bias().value().span<float>()) bias = 1000;
  auto net = std::make_shared<Sequential>(
      Sequential::NamedChildren{{"first", first},
                                {"bn", bn},
                                {"conv", testing::conv(6, 6, 3, 1, rng)},
                                {"pool", std::make_shared<GlobalAvgPool>()},
                                {"fc", std::make_shared<Linear>(LinearOptions{6, 7}, rng)}});
  qat::PreparedModel prepared = [&] {
    qat::QuantizeConfig config = w8a8();
    config.ignore = {"first"};
    return qat::prepare(net, config);
  }();
  ForwardContext calibrating{.calibrating = true};
  prepared.model->forward(Variable(images(40, 3)), calibrating);
  const Graph graph = trace(*prepared.model, images(1, 1), "net").graph;
  const Tensor inputs = images(40, 3);
  const Dataset data{inputs, Tensor::zeros({40}, DType::kI64), 7};

  const Verification result = verify(*prepared.model, Interpreter(graph), data, 40, 16);
  EXPECT_EQ(result.first_mismatch(), nullptr) << to_string(result);
  EXPECT_NE(to_string(result).find("floats differ, by at most"), std::string::npos);
  EXPECT_NE(to_string(result).find("from end to end"), std::string::npos)
      << "no code flipped: the test shows nothing";
}

// Outputs that stay float are sums of integers (profile tensorrt) or of floats (a last layer that
// is ignored): neither may be another's.
TEST(Verify, SeesFloatLogitsOfAnotherModel) {
  qat::QuantizeConfig ignoring = w8a8();
  ignoring.ignore = {"fc"};
  for (const qat::QuantizeConfig& config : {testing::tensorrt(8), ignoring}) {
    Rng rng(2);
    const auto model = quantized_model(testing::residual_net(rng), config);
    Graph graph = trace(*model, images(1, 1), "net").graph;
    const Dataset data{images(9, 3), Tensor::zeros({9}, DType::kI64), 7};
    EXPECT_EQ(verify(*model, Interpreter(graph), data, 9, 4).first_mismatch(), nullptr);
    Weights& fc = *graph.nodes.back().weights;
    fc.weight = fc.weight.clone();
    if (fc.integer()) {
      ++fc.weight.span<std::int8_t>()[3];
    } else {
      fc.weight.span<float>()[3] += 0.05F;
    }
    const Verification result = verify(*model, Interpreter(graph), data, 9, 4);
    ASSERT_NE(result.first_mismatch(), nullptr) << to_string(result);
    EXPECT_EQ(result.first_mismatch()->name, "fc");
    EXPECT_FALSE(result.first_mismatch()->quantized);
  }
}

TEST(Verify, RefusesAnotherNetwork) {
  Fixture f;
  Rng rng(2);
  const auto other = quantized_model(testing::every_layer(rng), w8a8());
  EXPECT_THROW(verify(*other, Interpreter(f.graph), f.data, 9, 4), InputError);
}

// Runtimes that add floats in another order break ties otherwise.
TEST(Verify, ClassesThatDifferByRoundingAgree) {
  const Tensor ours = Tensor::from<float>({1.0F, 1.0F, 0.0F, 0.5F}, {2, 2});
  const Tensor tie = Tensor::from<float>({1.0F, 1.0000001F, 0.0F, 0.5F}, {2, 2});
  EXPECT_EQ(compare_outputs(ours, tie, true).agreement, 100.0);
  EXPECT_EQ(compare_outputs(ours, tie, true).differing, 1);
  const Tensor wrong = Tensor::from<float>({1.0F, 1.0F, 0.5F, 0.4F}, {2, 2});
  EXPECT_EQ(compare_outputs(ours, wrong, true).agreement, 50.0);
}

// Values of a regression have no largest that could agree: a row of one always would.
TEST(Verify, OutputsThatAreNoScoresAgreeByTheirValues) {
  const Tensor ours = Tensor::from<float>({1.0F, -2.0F, 0.5F, 0.0F}, {4, 1});
  const Tensor close = Tensor::from<float>({1.01F, -2.0F, 0.485F, 0.0F}, {4, 1});
  EXPECT_EQ(compare_outputs(ours, close, false).agreement, 100.0);
  const Tensor wrong = Tensor::from<float>({1.01F, -2.0F, 0.6F, NAN}, {4, 1});
  EXPECT_EQ(compare_outputs(ours, wrong, false).agreement, 50.0);
  EXPECT_EQ(compare_outputs(ours, wrong, false).relative_error, INFINITY);
}

// One pixel of a dense output that a code moved is no failure of its sample.
TEST(Verify, DenseOutputsAreCountedOneByOneAndByTheirEnergy) {
  std::vector<float> pixels(2000, 1.0F);
  const Tensor ours = Tensor::from<float>(pixels, {2, 1000});
  pixels[3] = 1.2F;
  const OutputComparison compared =
      compare_outputs(ours, Tensor::from<float>(pixels, {2, 1000}), false);
  EXPECT_EQ(compared.agreement, 99.95);
  EXPECT_NEAR(compared.relative_error, std::sqrt(0.04 / 2000), 1e-6);
}

TEST(Verify, RefusesInputsOfAnotherShape) {
  Fixture f;
  f.data = {Tensor::zeros({9, 4, 4, 3}), Tensor::zeros({9}, DType::kI64), 7};
  EXPECT_EQ(testing::message_of<InputError>([&] { f.run(); }),
            "verify: the deployed model takes inputs [9, 8, 3], the dataset has [4, 4, 3]");
}

}  // namespace
}  // namespace steelyard::deploy
