// Tensors that are changed in place between the forward pass and backward().
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "steelyard/framework/files/checkpoint.h"
#include "steelyard/framework/ops/elementwise/arithmetic.h"
#include "steelyard/framework/ops/elementwise/relu.h"
#include "steelyard/framework/ops/losses/losses.h"
#include "steelyard/framework/ops/products/linear.h"
#include "steelyard/framework/train/optimizer.h"
#include "steelyard/framework/train/weight_average.h"
#include "steelyard/layers/containers/builders.h"
#include "tests/support/gradcheck.h"

namespace steelyard::changed_tensors_test {
namespace {

using ::testing::ElementsAre;
using testing::message_of;
using testing::random_tensor;
using testing::values;

struct Change {
  const char* name;
  void (*apply)(Variable x);
};

void PrintTo(const Change& change, std::ostream* out) { *out << change.name; }

class ChangedInput : public ::testing::TestWithParam<Change> {};

// y = x * x at 2 has the gradient 4; with x = 100 in backward() it was 200.
TEST_P(ChangedInput, IsAnErrorThatNamesTheOperationAndTheTensor) {
  Variable x(Tensor::from<float>({2}, {1}), true);
  const Variable y = x * x;
  x.set_grad(Tensor::from<float>({1}, {1}));  // for the optimizer
  GetParam().apply(x);
  x.clear_grad();
  EXPECT_EQ(message_of<std::logic_error>([&] { y.backward(); }),
            "[mul] cannot compute gradients: input 0 (f32 [1], a parameter or a given value) was "
            "changed in place after the forward pass. Change it after backward(), or give the "
            "operation a clone()");
  EXPECT_FALSE(x.grad().defined());
}

INSTANTIATE_TEST_SUITE_P(
    Ways, ChangedInput,
    ::testing::Values(
        Change{"fill", [](Variable x) { x.value().fill(100); }},
        Change{"copy_from",
               [](Variable x) { x.value().copy_from(Tensor::from<float>({100}, {1})); }},
        Change{"of_a_view",
               [](Variable x) {
                 x.value().reshape({1, 1}).fill(100);
               }},
        Change{"pointer", [](Variable x) { *x.value().data<float>() = 100; }},
        Change{"span", [](Variable x) { x.value().span<float>()[0] = 100; }},
        Change{"to_the_same_value_as_told", [](Variable x) { x.value().mark_changed(); }},
        Change{"optimizer",
               [](Variable x) {
                 Sgd optimizer({{"x", x}}, {});
                 optimizer.step(1);
               }}),
    [](const auto& test) { return test.param.name; });

TEST(ChangedTensors, AnOutputThatTheOperationKeptIsNamedByItsShape) {
  const Variable x(Tensor::from<float>({1, 2}, {2}), true);
  const Variable y = relu(x);
  y.value().fill(3);
  EXPECT_EQ(message_of<std::logic_error>([&] { y.backward(Tensor::full({2}, 1)); }),
            "[relu] cannot compute gradients: a tensor that it kept (f32 [2]) was changed in place "
            "after the forward pass. Change it after backward(), or give the operation a clone()");
}

TEST(ChangedTensors, AnInputThatAnOperationMadeIsNamedAfterIt) {
  const Variable x(random_tensor({2, 3}, 1), true), w(random_tensor({4, 3}, 2), true);
  const Variable hidden = linear(x, w, {});
  const Variable y = hidden * hidden;
  hidden.value().fill(0);
  const std::string message = message_of<std::logic_error>([&] {
    y.backward(Tensor::full({2, 4}, 1, DType::kF64));
  });
  EXPECT_EQ(message.substr(0, message.find(" was changed")),
            "[mul] cannot compute gradients: input 0 (f64 [2, 4], the output of linear)");
  EXPECT_FALSE(x.grad().defined()) << "no gradient is added where one cannot be computed";
}

// The tensor is large and was written through a pointer.
TEST(ChangedTensors, WritesToAllElementsOrTheFirstOrLastAreFound) {
  const auto backward_after = [](const std::function<void(std::span<float>)>& write) {
    const Variable x(random_tensor({1000}, 1, DType::kF32), true);
    const Variable y = x * x;
    write(x.value().span<float>());
    y.backward(Tensor::full({1000}, 1));
  };
  EXPECT_NO_THROW(backward_after([](auto) {}));
  EXPECT_THROW(backward_after([](auto x) { x.front() += 1; }), std::logic_error);
  EXPECT_THROW(backward_after([](auto x) { x.back() += 1; }), std::logic_error);
  EXPECT_THROW(backward_after([](auto x) {
                 for (float& value : x) value *= 2;
               }),
               std::logic_error);
}

TEST(ChangedTensors, OfACheckpointAndOfAveragedWeightsToo) {
  Rng rng(1);
  const auto model = sequential({{"fc", steelyard::linear(3, 2, rng)}});
  const Variable x(random_tensor({4, 3}, 1, DType::kF32), true);
  const Tensor grad = Tensor::full({4, 2}, 1);
  const Variable before = model(x, {.training = true});
  const auto other = sequential({{"fc", steelyard::linear(3, 2, rng)}});
  load_into(*model, module_state(*other), "other");
  EXPECT_THROW(before.backward(grad), std::logic_error);
  WeightAverage average(*model, {});
  const Variable trained = model(x, {.training = true});
  average.enter();
  EXPECT_THROW(trained.backward(grad), std::logic_error);
}

TEST(ChangedTensors, WhatAnOperationDoesNotKeepMayChange) {
  const Variable a(Tensor::from<float>({2}, {1}), true), b(Tensor::from<float>({3}, {1}), true);
  const Variable y = a + b;
  a.value().fill(100);
  y.backward();
  EXPECT_THAT(values(a.grad()), ElementsAre(1));
}

// The tape keeps the tensor that the operation read; only what the variable holds is another one.
TEST(ChangedTensors, AnotherTensorInTheVariableChangesNoGradient) {
  Variable x(Tensor::from<float>({2}, {1}), true);
  const Variable y = x * x;
  x.set_value(Tensor::from<float>({100}, {1}));
  y.backward();
  EXPECT_THAT(values(x.grad()), ElementsAre(4));
}

TEST(ChangedTensors, TrainingGoesOnAndBackwardMayRunTwice) {
  Rng rng(1);
  const auto model = sequential({{"conv", conv2d(2, 4, 3, rng)},
                                 {"bn", batch_norm2d(4)},
                                 {"relu", steelyard::relu()},
                                 {"flatten", flatten()},
                                 {"drop", dropout(0.5)},
                                 {"fc", steelyard::linear(4 * 4 * 4, 3, rng)}});
  AdamW optimizer(*model);
  const Variable x(random_tensor({2, 6, 6, 2}, 1, DType::kF32));
  for (int step = 0; step < 3; ++step) {
    clear_gradients(*model);
    const Variable loss = cross_entropy(model(x, {.training = true, .rng = &rng}),
                                        Tensor::from<std::int64_t>({0, 2}, {2}));
    model(x, {.training = true, .rng = &rng});  // moves the running statistics
    loss.backward();
    loss.backward();
    optimizer.step(0.01);
    EXPECT_THROW(loss.backward(), std::logic_error) << "of weights that are no longer there";
  }
}

TEST(ChangedTensors, VersionsBelongToTheStorage) {
  const Tensor a = Tensor::zeros({2}), view = a.reshape({2, 1}), other = a.clone();
  const std::uint64_t before = a.version(), of_other = other.version();
  view.fill(1);
  EXPECT_GT(a.version(), before);
  EXPECT_EQ(a.version(), view.version());
  EXPECT_EQ(other.version(), of_other);
  EXPECT_EQ(Tensor().version(), 0U);
  Tensor().mark_changed();  // nothing to change
}

}  // namespace
}  // namespace steelyard::changed_tensors_test
