// Networks through the C face: several outputs, each by itself.
#include <gmock/gmock.h>

#include "tests/c/network_support.h"

namespace steelyard::c_face {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Images [N, 2, 5, 6] to images [N, 3, 5, 6] and to a number for each channel of them.
std::string two_outputs() {
  return OnnxBytes()
      .input("pixels", {2, 5, 6})
      .output("image", {3, 5, 6})
      .output("means", {3, 1, 1})
      .weight("conv.weight", {3, 2, 1, 1})
      .node("Conv", {"pixels", "conv.weight"}, "image")
      .node("GlobalAveragePool", {"image"}, "means")
      .bytes();
}

struct Outputs {
  std::vector<Managed> tensors;
  Pass pass;
};

Outputs forward_outputs(Network& n, const DLTensor& x, int input_gradients = 0) {
  const DLTensor* inputs[] = {&x};
  DLManagedTensor* made[2] = {};
  DLManagedTensor** const room = made;  // an array would be taken as constant
  steelyard_pass* pass = nullptr;
  n.expect_ok(steelyard_network_forward_outputs, nullptr, std::size_t{1}, inputs, input_gradients,
              std::size_t{2}, room, &pass);
  Outputs outputs;
  for (DLManagedTensor* tensor : made) outputs.tensors.emplace_back(tensor);
  outputs.pass.reset(pass);
  return outputs;
}

std::vector<float> input_gradient(Network& n, const Pass& pass) {
  DLManagedTensor* view = nullptr;
  EXPECT_EQ(steelyard_pass_input_gradient(n.context, pass.get(), 0, &view), STEELYARD_OK);
  const Managed owned(view);
  return view == nullptr ? std::vector<float>() : floats_in(*view);
}

std::vector<std::int64_t> shape_of(const Managed& tensor) {
  return {tensor->dl_tensor.shape, tensor->dl_tensor.shape + tensor->dl_tensor.ndim};
}

TEST(CNetworkOutputs, EachHasTheFilesShapeAndLayout) {
  Network n(two_outputs(), kFloatRecipe);
  Array<float> x(wave(120), {2, 2, 5, 6});
  EXPECT_THAT(names(n, STEELYARD_OUTPUTS), ElementsAre("image", "means"));
  const Outputs outputs = forward_outputs(n, x.view);
  EXPECT_THAT(shape_of(outputs.tensors[0]), ElementsAre(2, 3, 5, 6));
  EXPECT_THAT(shape_of(outputs.tensors[1]), ElementsAre(2, 3, 1, 1));
  const std::vector<float> image = floats_in(*outputs.tensors[0]),
                           means = floats_in(*outputs.tensors[1]);
  for (std::size_t channel = 0; channel < 6; ++channel) {
    double sum = 0;
    for (std::size_t i = 0; i < 30; ++i) sum += image[channel * 30 + i];
    EXPECT_NEAR(sum / 30, means[channel], 1e-6) << channel;
  }
}

TEST(CNetworkOutputs, GradientsOfEachReachTheWeights) {
  Network n(two_outputs(), kFloatRecipe);
  Array<float> x(wave(120), {2, 2, 5, 6}), of_image(wave(180), {2, 3, 5, 6});
  Array<float> of_means(wave(6), {2, 3, 1, 1}), both(of_image.values, {2, 3, 5, 6});
  // The mean's gradient is that of each pixel, divided by their number.
  for (std::size_t i = 0; i < 180; ++i) both.values[i] += of_means.values[i / 30] / 30;
  const Outputs outputs = forward_outputs(n, x.view);
  const auto backward = [&](const DLTensor* image, const DLTensor* means) {
    const DLTensor* gradients[] = {image, means};
    EXPECT_EQ(steelyard_pass_backward_outputs(n.context, outputs.pass.get(), nullptr, 2, gradients),
              STEELYARD_OK)
        << n.context.message();
    std::vector<float> result = gradient(n, "conv.weight");
    n.expect_ok(steelyard_network_zero_gradients);
    return result;
  };
  EXPECT_THAT(names(n, STEELYARD_PARAMETERS), ElementsAre("conv.weight"));
  const std::vector<float> together = backward(&of_image.view, &of_means.view);
  const std::vector<float> joined = backward(&both.view, nullptr);
  ASSERT_EQ(together.size(), 6U);
  ASSERT_EQ(joined.size(), 6U);
  for (std::size_t i = 0; i < 6; ++i) EXPECT_NEAR(together[i], joined[i], 1e-5) << i;
  const std::vector<float> apart = backward(nullptr, &of_means.view);
  EXPECT_NE(apart, joined);
}

TEST(CNetworkOutputs, GradientsOfInputsAreForgottenWhenAsked) {
  Network n(two_outputs(), kFloatRecipe);
  Array<float> x(wave(60), {1, 2, 5, 6}), of_means(wave(3), {1, 3, 1, 1});
  const Outputs outputs = forward_outputs(n, x.view, 1);
  const DLTensor* gradients[] = {nullptr, &of_means.view};
  const auto backward = [&] {
    EXPECT_EQ(steelyard_pass_backward_outputs(n.context, outputs.pass.get(), nullptr, 2, gradients),
              STEELYARD_OK);
    return input_gradient(n, outputs.pass);
  };
  const std::vector<float> once = backward(), twice = backward();
  EXPECT_FLOAT_EQ(twice.at(7), 2 * once.at(7));
  ASSERT_EQ(steelyard_pass_zero_gradients(n.context, outputs.pass.get()), STEELYARD_OK);
  EXPECT_TRUE(input_gradient(n, outputs.pass).empty());
  EXPECT_EQ(backward(), once);
}

TEST(CNetworkOutputs, OneOutputIsAList) {
  Network n(two_layers(), kFloatRecipe);
  Array<float> x(wave(20), {5, 4}), grad(wave(15), {5, 3});
  const DLTensor* inputs[] = {&x.view};
  DLManagedTensor* made = nullptr;
  steelyard_pass* kept = nullptr;
  n.expect_ok(steelyard_network_forward_outputs, nullptr, std::size_t{1}, inputs, 0, std::size_t{1},
              &made, &kept);
  const Managed output(made);
  const Pass pass(kept);
  EXPECT_EQ(floats_in(*output), forward(n, {&x.view}));
  const DLTensor* gradients[] = {&grad.view};
  EXPECT_EQ(steelyard_pass_backward_outputs(n.context, pass.get(), nullptr, 1, gradients),
            STEELYARD_OK);
  EXPECT_FALSE(gradient(n, "fc1.weight").empty());
}

TEST(CNetworkOutputs, Refusals) {
  Network n(two_outputs(), kFloatRecipe);
  Array<float> x(wave(60), {1, 2, 5, 6}), wrong(wave(6), {2, 3, 1, 1});
  const DLTensor* inputs[] = {&x.view};
  DLManagedTensor* made[3] = {};
  DLManagedTensor** const room = made;
  EXPECT_THAT(n.refusal(STEELYARD_INVALID_ARGUMENT, steelyard_network_forward_outputs, nullptr,
                        std::size_t{1}, inputs, 0, std::size_t{3}, room, nullptr),
              HasSubstr("expected room for 2 outputs, got 3"));
  const Outputs outputs = forward_outputs(n, x.view);
  const auto refusal = [&](std::size_t count, std::vector<const DLTensor*> gradients) {
    EXPECT_EQ(steelyard_pass_backward_outputs(n.context, outputs.pass.get(), nullptr, count,
                                              gradients.data()),
              STEELYARD_INVALID_ARGUMENT);
    return n.context.message();
  };
  EXPECT_THAT(refusal(1, {nullptr}), HasSubstr("expected 2 gradients, got 1"));
  EXPECT_THAT(refusal(2, {nullptr, nullptr}),
              HasSubstr("expected the gradient of an output, got none"));
  EXPECT_THAT(refusal(2, {nullptr, &wrong.view}),
              HasSubstr("the gradient of the output 'means': expected f32 [1, 3, 1, 1] on cpu, got "
                        "f32 [2, 3, 1, 1] on cpu"));
}

}  // namespace
}  // namespace steelyard::c_face
