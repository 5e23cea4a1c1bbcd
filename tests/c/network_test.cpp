// Networks through the C face: passes, parameters and gradients.
#include <gmock/gmock.h>

#include "steelyard/import/onnx/onnx_file.h"
#include "steelyard/recipes/hosted/hosted_network.h"
#include "tests/c/network_support.h"

namespace steelyard::c_face {
namespace {

using ::testing::ElementsAre;

HostedNetwork cpp_network(const std::string& onnx, const std::string& recipe) {
  return HostedNetwork(imports::parse_onnx(onnx, "test.onnx"),
                       parse_hosted_recipe(recipe, "recipe"));
}

std::vector<float> numbers_of(const Tensor& tensor) {
  return {tensor.span<float>().begin(), tensor.span<float>().end()};
}

TEST(CNetwork, ComputesAndLearnsAsCpp) {
  for (const std::string& recipe : {kFloatRecipe, kQuantizedRecipe}) {
    Network c(two_layers(), recipe);
    HostedNetwork cpp = cpp_network(two_layers(), recipe);
    Array<float> x(wave(20), {5, 4}), grad(wave(15), {5, 3});
    c.expect_ok(steelyard_network_set_training, 1);
    cpp.set_training(true);
    Pass pass;
    const std::vector<float> output = forward(c, {&x.view}, &pass);
    const HostedPass expected = cpp.forward({Tensor::from(x.values, {5, 4})}, {.records = true});
    EXPECT_EQ(output, numbers_of(expected.output.value()));
    ASSERT_EQ(steelyard_pass_backward(c.context, pass.get(), nullptr, &grad.view), STEELYARD_OK)
        << c.context.message();
    expected.output.backward(Tensor::from(grad.values, {5, 3}));
    std::vector<std::string> listed;
    for (const NamedParameter& p : cpp.parameters()) {
      listed.push_back(p.name);
      EXPECT_EQ(gradient(c, p.name.c_str()), numbers_of(p.variable.grad())) << p.name;
    }
    EXPECT_EQ(names(c, STEELYARD_PARAMETERS), listed);
    EXPECT_THAT(names(c, STEELYARD_INPUTS), ElementsAre("x"));
  }
}

TEST(CNetwork, TakesImagesInTheFilesLayoutAndAnyStrides) {
  Network n(image_layers(), kFloatRecipe);
  Array<float> x(wave(120), {2, 2, 5, 6});
  const std::vector<float> output = forward(n, {&x.view});
  ASSERT_EQ(output.size(), 180U);
  // The same images with their channels last in memory.
  Array<float> last(std::vector<float>(120), {2, 2, 5, 6});
  for (std::size_t i = 0; i < 120; ++i) {
    const std::size_t image = i / 60, channel = i / 30 % 2, pixel = i % 30;
    last.values[image * 60 + pixel * 2 + channel] = x.values[i];
  }
  std::int64_t strides[] = {60, 1, 12, 2};
  last.view.strides = strides;
  EXPECT_EQ(forward(n, {&last.view}), output);
}

TEST(CNetwork, TakesSeveralInputs) {
  Network n(two_inputs(), kQuantizedRecipe);
  Array<float> a(wave(12), {3, 4}), b(wave(6), {3, 2}), grad(wave(9), {3, 3});
  n.expect_ok(steelyard_network_set_training, 1);
  Pass pass;
  EXPECT_EQ(forward(n, {&a.view, &b.view}, &pass, 1).size(), 9U);
  EXPECT_THAT(names(n, STEELYARD_INPUTS), ElementsAre("a", "b"));
  ASSERT_EQ(steelyard_pass_backward(n.context, pass.get(), nullptr, &grad.view), STEELYARD_OK)
      << n.context.message();
  for (std::size_t input = 0; input < 2; ++input) {
    DLManagedTensor* view = nullptr;
    ASSERT_EQ(steelyard_pass_input_gradient(n.context, pass.get(), input, &view), STEELYARD_OK)
        << n.context.message();
    const Managed owned(view);
    EXPECT_EQ(view->dl_tensor.shape[1], input == 0 ? 4 : 2);
    EXPECT_THAT(floats_in(*view), ::testing::Contains(::testing::Ne(0.0F)));
  }
}

TEST(CNetwork, GradientsOfInputsAreDerivatives) {
  Network n(image_layers(), kFloatRecipe);
  Array<float> x(wave(60), {1, 2, 5, 6}), grad(wave(90), {1, 3, 5, 6});
  const auto weighted = [&] {
    double sum = 0;
    const std::vector<float> output = forward(n, {&x.view});
    for (std::size_t i = 0; i < output.size(); ++i) sum += double{output[i]} * grad.values[i];
    return sum;
  };
  Pass pass;
  forward(n, {&x.view}, &pass, 1);
  ASSERT_EQ(steelyard_pass_backward(n.context, pass.get(), nullptr, &grad.view), STEELYARD_OK);
  DLManagedTensor* view = nullptr;
  ASSERT_EQ(steelyard_pass_input_gradient(n.context, pass.get(), 0, &view), STEELYARD_OK);
  const Managed owned(view);
  const std::vector<float> gradients = floats_in(*view);
  for (const std::size_t i : {0U, 17U, 31U, 59U}) {
    const float kept = x.values[i];
    x.values[i] = kept + 1e-2F;
    const double above = weighted();
    x.values[i] = kept - 1e-2F;
    const double below = weighted();
    x.values[i] = kept;
    EXPECT_NEAR((above - below) / 2e-2, gradients[i], 2e-2) << i;
  }
}

TEST(CNetwork, ParametersCanBeTheCallersMemory) {
  Network n(two_layers(), kQuantizedRecipe);
  Array<float> x(wave(20), {5, 4});
  n.expect_ok(steelyard_network_set_training, 1);
  const std::vector<float> before = forward(n, {&x.view});
  DLManagedTensor* view = nullptr;
  n.expect_ok(steelyard_network_parameter, "fc1.weight", &view);
  const Managed old(view);
  alignas(64) float memory[32];
  const std::vector<float> values = floats_in(*old);
  std::copy(values.begin(), values.end(), memory);
  DLTensor own = old->dl_tensor;
  own.data = memory;
  n.expect_ok(steelyard_network_set_parameter, "fc1.weight", &own);
  EXPECT_EQ(forward(n, {&x.view}), before);
  n.expect_ok(steelyard_network_parameter, "fc1.weight", &view);
  const Managed now(view);
  EXPECT_EQ(now->dl_tensor.data, memory);
  for (float& w : memory) w *= -1.5F;  // a step of an optimizer
  const std::vector<float> after = forward(n, {&x.view});
  EXPECT_NE(after, before);
  // The same step through the network's own memory.
  Network other(two_layers(), kQuantizedRecipe);
  other.expect_ok(steelyard_network_set_training, 1);
  EXPECT_EQ(forward(other, {&x.view}), before);
  EXPECT_EQ(forward(other, {&x.view}), before);
  other.expect_ok(steelyard_network_parameter, "fc1.weight", &view);
  const Managed written(view);
  for (int i = 0; i < 32; ++i) static_cast<float*>(written->dl_tensor.data)[i] *= -1.5F;
  EXPECT_EQ(forward(other, {&x.view}), after);
}

TEST(CNetwork, GradientsAddUpUntilTheyAreZeroed) {
  Network n(two_layers(), kFloatRecipe);
  Array<float> x(wave(20), {5, 4}), y(wave(8), {2, 4});
  Array<float> grad_x(wave(15), {5, 3}), grad_y(wave(6), {2, 3});
  EXPECT_TRUE(gradient(n, "fc2.bias").empty());
  Pass first, second;
  forward(n, {&x.view}, &first);
  forward(n, {&y.view}, &second);  // both wait
  ASSERT_EQ(steelyard_pass_backward(n.context, second.get(), nullptr, &grad_y.view), STEELYARD_OK);
  const std::vector<float> of_second = gradient(n, "fc2.bias");
  ASSERT_EQ(steelyard_pass_backward(n.context, first.get(), nullptr, &grad_x.view), STEELYARD_OK);
  const std::vector<float> of_both = gradient(n, "fc2.bias");
  n.expect_ok(steelyard_network_zero_gradients);
  EXPECT_TRUE(gradient(n, "fc2.bias").empty());
  ASSERT_EQ(steelyard_pass_backward(n.context, first.get(), nullptr, &grad_x.view), STEELYARD_OK);
  const std::vector<float> of_first = gradient(n, "fc2.bias");
  for (std::size_t i = 0; i < 3; ++i) EXPECT_FLOAT_EQ(of_both[i], of_first[i] + of_second[i]);
}

TEST(CNetwork, WhatIsNotTrainableHasNoGradient) {
  Network n(two_layers(), kFloatRecipe);
  Array<float> x(wave(20), {5, 4}), grad(wave(15), {5, 3});
  n.expect_ok(steelyard_network_set_trainable, "fc1.weight", 0);
  Pass pass;
  forward(n, {&x.view}, &pass);
  ASSERT_EQ(steelyard_pass_backward(n.context, pass.get(), nullptr, &grad.view), STEELYARD_OK);
  EXPECT_TRUE(gradient(n, "fc1.weight").empty());
  EXPECT_FALSE(gradient(n, "fc1.bias").empty());
  const std::vector<std::string> all = names(n, STEELYARD_PARAMETERS);
  std::vector<DLManagedTensor*> views(all.size());
  n.expect_ok(steelyard_network_gradients, views.size(), views.data());
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Managed owned(views[i]);
    const auto one = views[i] == nullptr ? std::vector<float>() : floats_in(*views[i]);
    EXPECT_EQ(one, gradient(n, all[i].c_str())) << all[i];
  }
}

TEST(CNetwork, PassesOutliveTheirNetwork) {
  Array<float> x(wave(20), {5, 4}), grad(wave(15), {5, 3});
  const Context context;
  Pass pass;
  Managed output;
  {
    Network n(two_layers(), kQuantizedRecipe);
    n.expect_ok(steelyard_network_set_training, 1);
    const DLTensor* inputs[] = {&x.view};
    DLManagedTensor* made = nullptr;
    steelyard_pass* kept = nullptr;
    n.expect_ok(steelyard_network_forward, nullptr, std::size_t{1}, inputs, 1, &made, &kept);
    output.reset(made);
    pass.reset(kept);
  }
  EXPECT_EQ(floats_in(*output).size(), 15U);
  EXPECT_EQ(steelyard_pass_backward(context, pass.get(), nullptr, &grad.view), STEELYARD_OK)
      << context.message();
}

TEST(CNetwork, BuffersAreViewed) {
  Network n(image_layers(), kFloatRecipe);
  Array<float> x(wave(120), {2, 2, 5, 6});
  const std::vector<std::string> buffers = names(n, STEELYARD_BUFFERS);
  const auto mean = std::find_if(buffers.begin(), buffers.end(), [](const std::string& name) {
    return name.ends_with("running_mean");
  });
  ASSERT_NE(mean, buffers.end());
  DLManagedTensor* view = nullptr;
  n.expect_ok(steelyard_network_buffer, mean->c_str(), &view);
  const Managed owned(view);
  const std::vector<float> before = floats_in(*owned);
  n.expect_ok(steelyard_network_set_training, 1);
  forward(n, {&x.view});
  EXPECT_NE(floats_in(*owned), before);
  n.expect_ok(steelyard_network_freeze_batch_norms, 1);
  n.expect_ok(steelyard_network_set_seed, std::uint64_t{7});
  const std::vector<float> moved = floats_in(*owned);
  forward(n, {&x.view});
  EXPECT_EQ(floats_in(*owned), moved);
}

TEST(CNetwork, TheContextSaysHowProductsRound) {
  Network n(two_layers(), kFloatRecipe);
  Array<float> x(wave(20), {5, 4});
  const std::vector<float> exact = forward(n, {&x.view});
  ASSERT_EQ(steelyard_context_set_matmul_precision(n.context, STEELYARD_BF16), STEELYARD_OK);
  EXPECT_NE(forward(n, {&x.view}), exact);
  ASSERT_EQ(steelyard_context_set_matmul_precision(n.context, STEELYARD_FLOAT32), STEELYARD_OK);
  EXPECT_EQ(forward(n, {&x.view}), exact);
}

}  // namespace
}  // namespace steelyard::c_face
