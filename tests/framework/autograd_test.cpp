#include "steelyard/framework/autograd/autograd.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <stdexcept>

#include "steelyard/framework/autograd/backward.h"
#include "steelyard/framework/ops/elementwise/arithmetic.h"
#include "steelyard/framework/ops/elementwise/relu.h"
#include "steelyard/framework/ops/losses/losses.h"
#include "steelyard/framework/ops/moves/flatten.h"
#include "steelyard/framework/ops/products/conv2d.h"
#include "steelyard/framework/ops/products/linear.h"
#include "steelyard/framework/ops/reductions/pool.h"
#include "steelyard/framework/tensor/describes.h"
#include "tests/support/gradcheck.h"

namespace steelyard {
namespace {

using ::testing::ElementsAre;
using testing::leaf;
using testing::message_of;
using testing::random_leaf;
using testing::random_tensor;
using testing::values;

TEST(Autograd, SharedVariablesAccumulate) {
  const Variable x = leaf(Tensor::from<double>({1, -2}, {2}));
  const Variable y = add(add(x, x), add(x, relu(x)));
  y.backward(Tensor::full({2}, 1.0, DType::kF64));
  EXPECT_THAT(values(x.grad()), ElementsAre(4, 3));
}

TEST(Autograd, ADiamondSumsBothBranchesBeforeGoingOn) {
  const Variable x = leaf(Tensor::from<double>({3}, {1}));
  const Variable middle = add(x, x);
  const Variable y = add(relu(middle), add(middle, middle));
  y.backward();
  EXPECT_THAT(values(x.grad()), ElementsAre(6));
  EXPECT_EQ(tape_of(y).size(), 4u);
}

// An operation that hands no gradient on.
class Stops : public Function {
 public:
  std::string name() const override { return "stops"; }
  std::vector<Tensor> backward(const Tensor&) const override { return {Tensor()}; }
};

TEST(Autograd, TellsOnceThatALeafsGradientIsFinal) {
  const Variable late = random_leaf({2}, 1), twice = random_leaf({2}, 2),
                 first = random_leaf({2}, 3);
  const Variable none = random_leaf({2}, 4), constant(random_tensor({2}, 5));
  const Variable doubled = add(none, none);
  const Variable stopped = record(doubled.value().clone(), std::make_shared<Stops>(), {doubled});
  const Variable inner = add(relu(add(late, twice)), add(twice, twice));
  const Variable y = add(add(inner, constant), add(first, stopped));
  std::vector<const GradNode*> told;
  std::vector<std::vector<double>> gradients;
  backward(y, random_tensor({2}, 6), [&](GradNode& leaf) {
    told.push_back(&leaf);
    gradients.push_back(leaf.grad.defined() ? values(leaf.grad) : std::vector<double>{});
  });
  ASSERT_EQ(told.size(), 4u);
  EXPECT_EQ(std::count(told.begin(), told.end(), none.node().get()), 1);
  EXPECT_FALSE(none.grad().defined());
  const auto place = [&](const Variable& v) {
    return std::find(told.begin(), told.end(), v.node().get()) - told.begin();
  };
  EXPECT_LT(place(first), place(late));
  for (const Variable& v : {late, twice, first}) {
    EXPECT_EQ(gradients[static_cast<std::size_t>(place(v))], values(v.grad()));
  }
  backward(first, random_tensor({2}, 6), [&](GradNode& leaf) { told.push_back(&leaf); });
  EXPECT_EQ(told.back(), first.node().get());
}

TEST(Autograd, BackwardTwiceGivesTheSameAndMutatesNothing) {
  const Variable x = random_leaf({2, 3, 3, 2}, 1);
  const Variable w = random_leaf({4, 2}, 2);
  const Variable loss = mse_loss(relu(linear(global_avg_pool(x), w, {})), random_tensor({2, 4}, 3));
  std::vector<std::vector<double>> saved;
  for (const auto& f : tape_of(loss)) {
    for (const Tensor& t : f->saved())
      saved.push_back(t.defined() ? values(t) : std::vector<double>{});
  }
  loss.backward();
  const auto grad_x = values(x.grad());
  const auto grad_w = values(w.grad());
  const Tensor held = x.grad();
  loss.backward();
  for (std::size_t i = 0; i < grad_x.size(); ++i) EXPECT_EQ(values(x.grad())[i], 2 * grad_x[i]);
  for (std::size_t i = 0; i < grad_w.size(); ++i) EXPECT_EQ(values(w.grad())[i], 2 * grad_w[i]);
  EXPECT_EQ(values(held), grad_x);  // a handle to the first gradient keeps its values
  std::size_t next = 0;
  for (const auto& f : tape_of(loss)) {
    for (const Tensor& t : f->saved()) {
      EXPECT_EQ(t.defined() ? values(t) : std::vector<double>{}, saved[next++]);
    }
  }
}

TEST(Autograd, TheGradientGivenIsNotChangedAndNotAliased) {
  const Variable x = leaf(Tensor::from<double>({1, 2}, {2}));
  const Tensor seed = Tensor::full({2}, 1.0, DType::kF64);
  x.backward(seed);
  EXPECT_FALSE(x.grad().shares_storage_with(seed));
  add(x, x).backward(seed);
  EXPECT_THAT(values(seed), ElementsAre(1, 1));
  EXPECT_FALSE(x.grad().shares_storage_with(seed));
  EXPECT_THAT(values(x.grad()), ElementsAre(3, 3));
}

TEST(Autograd, NoGradRecordsNothing) {
  const Variable x = random_leaf({3}, 1);
  {
    const NoGradGuard outer;
    { const NoGradGuard inner; }
    EXPECT_FALSE(should_record({x}));
    EXPECT_FALSE(relu(x).requires_grad());
  }
  EXPECT_TRUE(relu(x).requires_grad());
}

TEST(Autograd, ConstantsGetNoGradient) {
  const Variable x = random_leaf({2}, 1);
  const Variable constant(random_tensor({2}, 2));
  add(x, constant).backward(Tensor::full({2}, 1.0, DType::kF64));
  EXPECT_FALSE(constant.grad().defined());
  EXPECT_FALSE(add(constant, constant).requires_grad());
}

TEST(Autograd, Errors) {
  const Variable constant(Tensor::zeros({2}));
  EXPECT_EQ(message_of<std::invalid_argument>([&] { constant.backward(Tensor::zeros({2})); }),
            "[backward] nothing on this tape requires a gradient");
  Variable x(Tensor::zeros({2}), true);
  EXPECT_THROW(x.backward(), std::invalid_argument);
  EXPECT_EQ(message_of<std::invalid_argument>([&] { relu(x).backward(Tensor::zeros({3})); }),
            "[backward] expected a gradient f32 [2], got f32 [3]");
  EXPECT_THROW(Variable().value(), std::logic_error);
  EXPECT_THROW(Variable(Tensor::zeros({2}, DType::kI64), true), std::invalid_argument);
  Variable y = relu(x);
  EXPECT_THROW(y.set_value(Tensor::zeros({2})), std::logic_error);
  EXPECT_THROW(y.set_requires_grad(false), std::logic_error);
}

TEST(Autograd, AGradientFitsItsVariable) {
  Variable x = leaf(Tensor::from<double>({1, 2}, {2}));
  EXPECT_EQ(message_of<std::invalid_argument>([&] { x.set_grad(Tensor::zeros({3}, DType::kF64)); }),
            "[variable] expected a gradient [2] of f64, got [3] of f64");
  EXPECT_EQ(message_of<std::invalid_argument>([&] { x.set_grad(Tensor::zeros({2})); }),
            "[variable] expected a gradient [2] of f64, got [2] of f32");
  x.set_grad(Tensor::full({2}, 5, DType::kF64));
  x.set_value(Tensor::from<double>({3, 4}, {2}));
  EXPECT_THAT(values(x.grad()), ElementsAre(5, 5));
  x.set_value(Tensor::from<double>({1, 2, 3, 4}, {4}));
  EXPECT_FALSE(x.grad().defined()) << "the old one does not fit";
  add(x, x).backward(Tensor::full({4}, 1, DType::kF64));
  EXPECT_THAT(values(x.grad()), ElementsAre(2, 2, 2, 2));
  EXPECT_THROW(x.set_value(Tensor::zeros({2}, DType::kI64)), std::invalid_argument);
}

// A function whose backward throws.
class Fails : public Function {
 public:
  std::string name() const override { return "fails"; }
  std::vector<Tensor> backward(const Tensor&) const override { throw std::runtime_error("no"); }
};

TEST(Autograd, ABackwardThatThrowsLeavesGradientsAsTheyWere) {
  const Variable x = leaf(Tensor::from<double>({1, 2}, {2}));
  const Variable w = leaf(Tensor::from<double>({3, 4}, {2}));
  Variable held = w;
  held.set_grad(Tensor::full({2}, 7, DType::kF64));
  const Variable broken = record(Variable(x.value().clone()), std::make_shared<Fails>(), {x});
  const Tensor one = Tensor::full({2}, 1, DType::kF64);
  for (const Variable& y : {add(broken, add(w, w)), add(add(w, w), broken)}) {
    EXPECT_THROW(y.backward(one), std::runtime_error);
    EXPECT_THAT(values(w.grad()), ElementsAre(7, 7));
    EXPECT_FALSE(x.grad().defined());
  }
  EXPECT_THROW(record(Variable(one), nullptr, {x}), std::invalid_argument);
}

TEST(Autograd, ADeferredValueHasItsShape) {
  const Variable y = Variable::deferred(
      {2}, DType::kF32, [] { return Tensor::zeros({3}); }, nullptr);
  EXPECT_EQ(message_of<std::logic_error>([&] { y.value(); }),
            "[variable] expected a deferred value of shape [2], got [3]");
}

TEST(Autograd, SavedBytesCountDistinctStorageOnce) {
  const Variable x = Variable(Tensor::zeros({4, 8}), true);
  const Variable w = Variable(Tensor::zeros({16, 8}), true);
  const Variable h = linear(x, w, {});
  EXPECT_EQ(saved_bytes(h, {}), 4 * 8 * 4 + 16 * 8 * 4);
  EXPECT_EQ(saved_bytes(h, {w.value()}), 4 * 8 * 4);
  // Both readers keep the same output of the first ReLU.
  const Variable a = relu(h);
  const Variable y = linear(a, Variable(Tensor::zeros({2, 16}), true), {});
  EXPECT_EQ(saved_bytes(y, {w.value(), x.value()}), 4 * 16 * 4 + 2 * 16 * 4);
}

TEST(Autograd, SavesOnlyWhatBackwardNeeds) {
  const Variable frozen_w(Tensor::zeros({16, 8}));
  const Variable x(Tensor::zeros({4, 8}), true);
  EXPECT_EQ(saved_bytes(linear(x, frozen_w, {}), {}), 16 * 8 * 4);
  const Variable image(Tensor::zeros({2, 4, 4, 8}), true);
  const Variable fixed_kernel(Tensor::zeros({3, 8, 1, 1}));
  EXPECT_EQ(saved_bytes(conv2d(image, fixed_kernel, {}), {}), 3 * 8 * 4);
  EXPECT_EQ(saved_bytes(max_pool2d(image, {}), {}), 2 * 2 * 2 * 8 * 2);
  EXPECT_EQ(saved_bytes(avg_pool2d(image, {}), {}), 0);
  EXPECT_EQ(saved_bytes(flatten(image), {}), 0);
  EXPECT_EQ(saved_bytes(add(image, image), {}), 0);
}

TEST(Autograd, ALongTapeNeedsNoCallStack) {
  const Variable x = leaf(Tensor::from<double>({1}, {1}));
  {
    Variable y = x;
    for (int i = 0; i < 200000; ++i) y = relu(y);
    y.backward();
  }
  EXPECT_THAT(values(x.grad()), ElementsAre(1));
}

TEST(Autograd, AReleasedTapeKeepsWhatOthersHold) {
  const Variable x = leaf(Tensor::from<double>({1}, {1}));
  const Variable middle = add(x, x);
  { const Variable y = relu(middle); }
  middle.backward();
  EXPECT_THAT(values(x.grad()), ElementsAre(2));
}

TEST(Autograd, DeferredValuesAreComputedOnce) {
  int computed = 0;
  const Variable v = Variable::deferred(
      {1}, DType::kF64,
      [&] {
        ++computed;
        return Tensor::full({1}, 3.0, DType::kF64);
      },
      nullptr);
  EXPECT_EQ(v.shape(), Shape{1});
  EXPECT_EQ(computed, 0);
  EXPECT_EQ(v.value().item(), 3.0);
  EXPECT_EQ(v.value().item(), 3.0);
  EXPECT_EQ(computed, 1);
}

TEST(Autograd, AChangedValueHasNoCompanion) {
  struct Codes : Companion {};
  const auto made = [] {
    return Variable::deferred(
        {1}, DType::kF32, [] { return Tensor::zeros({1}); }, std::make_shared<const Codes>());
  };
  const Variable v = made();
  EXPECT_NE(v.companion<Codes>(), nullptr);
  EXPECT_EQ(v.value().item(), 0);
  EXPECT_NE(v.companion<Codes>(), nullptr);
  v.value().fill(1);
  EXPECT_EQ(message_of<std::logic_error>([&] { v.companion<Codes>(); }),
            "[variable] a value [1] was changed in place after it was computed, but not the codes "
            "that layers read of it: expected a new variable of the changed value");
  Variable w = made();
  w.set_value(Tensor::zeros({1}));
  EXPECT_EQ(w.companion<Codes>(), nullptr);
}

TEST(Autograd, TheTapeDescribesItself) {
  const Variable image = random_leaf({1, 4, 4, 2}, 1);
  const Variable y = flatten(avg_pool2d(relu6(image), {{3, 2}, {1, 2}, {1, 0}}, false));
  const auto tape = tape_of(y);
  ASSERT_EQ(tape.size(), 3u);
  EXPECT_EQ(tape[0]->name(), "relu6");
  EXPECT_EQ(tape[1]->name(), "avg_pool2d");
  const AveragePool2d pool = described<AveragePool2d>(*tape[1]);
  EXPECT_EQ(pool.geometry.kernel, (std::array<std::int64_t, 2>{3, 2}));
  EXPECT_EQ(pool.geometry.stride, (std::array<std::int64_t, 2>{1, 2}));
  EXPECT_EQ(pool.geometry.padding, (std::array<std::int64_t, 2>{1, 0}));
  EXPECT_FALSE(pool.count_include_pad);
  EXPECT_EQ(tape[2]->name(), "flatten");
}

}  // namespace
}  // namespace steelyard
