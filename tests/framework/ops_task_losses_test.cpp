// Losses with class weights, of probabilities, of several labels, of directions and of texts.
// tests/reference compares them with PyTorch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>

#include "steelyard/framework/ops/losses/ctc_loss.h"
#include "steelyard/framework/ops/losses/losses.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/train/loss.h"
#include "tests/framework/softmax_of.h"
#include "tests/support/gradcheck.h"

namespace steelyard {
namespace {

using testing::gradcheck;
using testing::message_of;
using testing::random_leaf;
using testing::random_tensor;
using testing::softmax_of;
using testing::values;

const Tensor kWeights = Tensor::from<double>({0.5, 2, 1, 3}, {4});

TEST(WeightedCrossEntropy, IsTheSumOverTheSumOfWeights) {
  const Variable logits = random_leaf({5, 4}, 1);
  const Tensor labels = Tensor::from<std::int64_t>({3, 0, 1, 1, 2}, {5});
  for (const double smoothing : {0.0, 0.2}) {
    double sum = 0, weights = 0;
    for (std::int64_t r = 0; r < 5; ++r) {
      const auto p = softmax_of(logits.value(), r);
      for (std::int64_t c = 0; c < 4; ++c) {
        const bool hot = labels.data<std::int64_t>()[r] == c;
        const double q = (hot ? 1 - smoothing : 0) + smoothing / 4;
        const auto at = static_cast<std::size_t>(c);
        sum -= kWeights.data<double>()[c] * q * std::log(p[at]);
        if (hot) weights += kWeights.data<double>()[c];
      }
    }
    const auto loss = [&] { return cross_entropy(logits, labels, smoothing, {kWeights}); };
    EXPECT_NEAR(loss().value().item(), sum / weights, 1e-14);
    EXPECT_TRUE(gradcheck(loss, {logits}));
  }
  const Tensor ones = Tensor::full({4}, 1.0, DType::kF64);
  EXPECT_NEAR(cross_entropy(logits, labels, 0.1, {ones}).value().item(),
              cross_entropy(logits, labels, 0.1).value().item(), 1e-14);
}

TEST(WeightedCrossEntropy, OfPartsAddsUpToThatOfTheBatch) {
  const Tensor logits = random_tensor({5, 4}, 1);
  const Tensor labels = Tensor::from<std::int64_t>({3, 0, 1, 1, 2}, {5});
  const double whole = cross_entropy(Variable(logits), labels, 0.1, {kWeights}).value().item();
  const Tensor total = sum_of_label_weights(labels, kWeights);
  EXPECT_EQ(total.item(), 3 + 0.5 + 2 + 2 + 1);
  double sum = 0;
  for (const auto& [begin, end] : {std::pair(0, 2), std::pair(2, 5)}) {
    const std::int64_t rows = end - begin;
    Tensor part = Tensor::empty({rows, 4}, DType::kF64), own = Tensor::empty({rows}, DType::kI64);
    std::copy_n(logits.data<double>() + begin * 4, rows * 4, part.data<double>());
    std::copy_n(labels.data<std::int64_t>() + begin, rows, own.data<std::int64_t>());
    const double share = static_cast<double>(rows) / 5;
    sum += share *
           cross_entropy(Variable(part), own, 0.1, {kWeights, total, 1 / share}).value().item();
  }
  EXPECT_NEAR(sum, whole, 1e-14);
}

TEST(SoftCrossEntropy, TakesProbabilities) {
  const Variable logits = random_leaf({2, 3}, 3);
  const Tensor targets = Tensor::from<double>({0.25, 0.75, 0, 0, 0, 1}, {2, 3});
  const auto p = softmax_of(logits.value(), 0), q = softmax_of(logits.value(), 1);
  const auto loss = [&] { return cross_entropy(logits, targets); };
  EXPECT_NEAR(loss().value().item(),
              -(0.25 * std::log(p[0]) + 0.75 * std::log(p[1]) + std::log(q[2])) / 2, 1e-14);
  EXPECT_TRUE(gradcheck(loss, {logits}));
  EXPECT_TRUE(gradcheck([&] { return cross_entropy(logits, targets, 0.1); }, {logits}));
  // One-hot probabilities are labels.
  const Tensor labels = Tensor::from<std::int64_t>({1, 2}, {2});
  const Tensor hot = Tensor::from<double>({0, 1, 0, 0, 0, 1}, {2, 3});
  EXPECT_NEAR(cross_entropy(logits, hot, 0.3).value().item(),
              cross_entropy(logits, labels, 0.3).value().item(), 1e-14);
  EXPECT_EQ(message_of<std::invalid_argument>(
                [&] { cross_entropy(logits, labels, 0, {Tensor::zeros({2}, DType::kF64)}); }),
            "[cross_entropy] expected class weights f64 [3], got f64 [2]");
}

TEST(BinaryCrossEntropy, ValueAndGradients) {
  const Variable logits = random_leaf({3, 4}, 1);
  const Tensor targets = Tensor::from<double>({0, 1, 0.25, 1, 1, 0, 0, 1, 0, 0, 1, 0}, {3, 4});
  for (const Tensor& weights : {Tensor(), Tensor::full({1}, 3.0, DType::kF64), kWeights}) {
    double expected = 0;
    for (std::size_t i = 0; i < 12; ++i) {
      const double p = 1 / (1 + std::exp(-values(logits.value())[i])), y = values(targets)[i];
      const double weight =
          !weights.defined() ? 1 : values(weights)[i % static_cast<std::size_t>(weights.size())];
      expected -= (weight * y * std::log(p) + (1 - y) * std::log(1 - p)) / 12;
    }
    const auto loss = [&] { return binary_cross_entropy(logits, targets, weights); };
    EXPECT_NEAR(loss().value().item(), expected, 1e-14);
    EXPECT_TRUE(gradcheck(loss, {logits}));
  }
  const Variable large(Tensor::from<float>({1e4F, -1e4F}, {1, 2}), true);
  const Variable loss = binary_cross_entropy(large, Tensor::from<float>({0, 0}, {1, 2}));
  EXPECT_EQ(loss.value().item(), 5e3);
  loss.backward();
  EXPECT_THAT(values(large.grad()), ::testing::ElementsAre(0.5, 0));
  EXPECT_EQ(message_of<std::invalid_argument>(
                [&] { binary_cross_entropy(logits, targets, Tensor::zeros({3}, DType::kF64)); }),
            "[binary_cross_entropy] expected positive weights f64 [1] or [4], got f64 [3]");
}

TEST(CosineLoss, ValueAndGradients) {
  const Variable x = random_leaf({3, 4}, 1);
  const Tensor target = random_tensor({3, 4}, 2);
  double expected = 0;
  for (std::size_t r = 0; r < 3; ++r) {
    double product = 0, own = 0, other = 0;
    for (std::size_t c = 0; c < 4; ++c) {
      const double a = values(x.value())[r * 4 + c], b = values(target)[r * 4 + c];
      product += a * b;
      own += a * a;
      other += b * b;
    }
    expected += (1 - product / std::sqrt(own * other)) / 3;
  }
  EXPECT_NEAR(cosine_loss(x, target).value().item(), expected, 1e-11);
  EXPECT_TRUE(gradcheck([&] { return cosine_loss(x, target); }, {x}));
  const Variable zero(Tensor::zeros({1, 3}), true);
  const Variable loss = cosine_loss(zero, Tensor::full({1, 3}, 1.0));
  EXPECT_EQ(loss.value().item(), 1);
  EXPECT_THROW(cosine_loss(Variable(Tensor::zeros({3})), Tensor::zeros({3})),
               std::invalid_argument);
}

// The sum over all sequences of classes that spell the target.
double ctc_by_enumeration(const Tensor& logits, std::int64_t sample,
                          const std::vector<std::int64_t>& target, std::int64_t frames,
                          std::int64_t blank) {
  const std::int64_t all = logits.dim(1), classes = logits.dim(2);
  std::int64_t ways = 1;
  for (std::int64_t t = 0; t < frames; ++t) ways *= classes;
  double sum = 0;
  for (std::int64_t way = 0; way < ways; ++way) {
    std::vector<std::int64_t> spelt;
    double chance = 1;
    std::int64_t rest = way, last = -1;
    for (std::int64_t t = 0; t < frames; ++t, rest /= classes) {
      const std::int64_t c = rest % classes;
      chance *= softmax_of(logits, sample * all + t)[static_cast<std::size_t>(c)];
      if (c != last && c != blank) spelt.push_back(c);
      last = c;
    }
    if (spelt == target) sum += chance;
  }
  return -std::log(sum) / static_cast<double>(std::max<std::size_t>(1, target.size()));
}

TEST(CtcLoss, IsTheSumOverAllWays) {
  const Variable logits = random_leaf({4, 5, 3}, 5);
  const Tensor targets =
      Tensor::from<std::int64_t>({1, 2, -1, 2, 2, 1, 2, -1, -1, -1, -1, -1}, {4, 3});
  const std::vector<std::vector<std::int64_t>> texts{{1, 2}, {2, 2, 1}, {2}, {}};
  double expected = 0;
  for (std::int64_t i = 0; i < 4; ++i) {
    expected += ctc_by_enumeration(logits.value(), i, texts[static_cast<std::size_t>(i)], 5, 0) / 4;
  }
  EXPECT_NEAR(ctc_loss(logits, targets).value().item(), expected, 1e-13);
  EXPECT_TRUE(gradcheck([&] { return ctc_loss(logits, targets); }, {logits}));
}

TEST(CtcLoss, FramesAndBlank) {
  const Variable logits = random_leaf({2, 5, 3}, 5);
  const Tensor targets = Tensor::from<std::int64_t>({1, 0, 0, -1}, {2, 2});
  const CtcOptions options{.blank = 2, .frames = Tensor::from<std::int64_t>({4, 3}, {2})};
  const double expected = (ctc_by_enumeration(logits.value(), 0, {1, 0}, 4, 2) +
                           ctc_by_enumeration(logits.value(), 1, {0}, 3, 2)) /
                          2;
  EXPECT_NEAR(ctc_loss(logits, targets, options).value().item(), expected, 1e-13);
  EXPECT_TRUE(gradcheck([&] { return ctc_loss(logits, targets, options); }, {logits}));
}

TEST(CtcLoss, WhatNoWaySpells) {
  const Variable logits = random_leaf({2, 2, 3}, 5);
  const Tensor targets = Tensor::from<std::int64_t>({1, 1, 2, -1}, {2, 2});  // 1 1 takes 3 frames
  const Variable loss = ctc_loss(logits, targets);
  EXPECT_EQ(loss.value().item(), std::numeric_limits<double>::infinity());
  const auto ignored = [&] { return ctc_loss(logits, targets, {.zero_infinity = true}); };
  EXPECT_NEAR(ignored().value().item(), ctc_by_enumeration(logits.value(), 1, {2}, 2, 0) / 2,
              1e-13);
  EXPECT_TRUE(gradcheck(ignored, {logits}));
  EXPECT_EQ(message_of<std::out_of_range>([&] {
              ctc_loss(logits, Tensor::from<std::int64_t>({1, 2, 0, 1}, {2, 2}));
            }),
            "[ctc_loss] expected targets in [0, 3) other than the blank 0, got 0 in sample 1");
  EXPECT_EQ(message_of<std::invalid_argument>([&] {
              ctc_loss(logits, Tensor::from<std::int64_t>({1, 2}, {2}));
            }),
            "[ctc_loss] expected i64 targets [2, length], got i64 [2]");
  for (const std::int64_t frames : {-1, 3}) {
    EXPECT_EQ(message_of<std::invalid_argument>([&] {
                ctc_loss(logits, targets, {.frames = Tensor::from<std::int64_t>({2, frames}, {2})});
              }),
              "[ctc_loss] expected from 0 to 2 frames, got " + std::to_string(frames));
  }
}

TEST(BinaryCrossEntropy, NeedsLogits) {
  EXPECT_THROW(binary_cross_entropy(Variable(), Tensor::zeros({1, 2})), std::invalid_argument);
}

TEST(FramesOf, ReadsFlattenedOutputs) {
  // Flatten gives the classes of one image [1, 2, 3] as [class, frame].
  const Variable flat(Tensor::from<float>({1, 4, 2, 5, 3, 6}, {1, 6}));
  EXPECT_EQ(values(frames_of(flat, 3).value()), (std::vector<double>{1, 2, 3, 4, 5, 6}));
  EXPECT_THROW(frames_of(flat, 4), InputError);
  const Variable frames(Tensor::zeros({1, 2, 3}));
  EXPECT_EQ(frames_of(frames, 3).shape(), (Shape{1, 2, 3}));
  EXPECT_THROW(frames_of(frames, 2), InputError);
}

TEST(Losses, SayWhatTargetsTheyNeed) {
  const Dataset classes{Tensor::zeros({2, 3}), Tensor::zeros({2}, DType::kI64), 2};
  const Dataset marks{Tensor::zeros({2, 3}), Tensor::zeros({2, 4}), 4};
  const Dataset texts{Tensor::zeros({2, 3}), Tensor::zeros({2, 4}, DType::kI64), 4};
  const Dataset numbers{Tensor::zeros({2, 3}), Tensor::zeros({2, 4}), 0};
  const auto error = [](Loss::Type type, const Dataset& dataset) {
    return message_of<InputError>([&] { validate_loss({.type = type}, dataset); });
  };
  EXPECT_NO_THROW(validate_loss({.type = Loss::Type::kCrossEntropy}, classes));
  EXPECT_NO_THROW(validate_loss({.type = Loss::Type::kBinaryCrossEntropy}, marks));
  EXPECT_NO_THROW(validate_loss({.type = Loss::Type::kCtc}, texts));
  EXPECT_NO_THROW(validate_loss({.type = Loss::Type::kCosine}, numbers));
  EXPECT_EQ(error(Loss::Type::kBinaryCrossEntropy, numbers),
            "the loss binary_cross_entropy needs a mark for each class, the dataset has floats");
  EXPECT_EQ(error(Loss::Type::kCrossEntropy, marks),
            "the loss cross_entropy needs class labels, the dataset has marks of several classes");
  EXPECT_EQ(error(Loss::Type::kCtc, classes),
            "the loss ctc needs texts, the dataset has class labels");
  Loss own{.type = Loss::Type::kOwn};
  EXPECT_THROW(validate_loss(own, classes), std::invalid_argument) << "it has no LossInfo";
  own.own =
      std::make_shared<const LossInfo>(LossInfo{.targets = TargetKind::kMarks, .name = "mine"});
  EXPECT_EQ(message_of<InputError>([&] { validate_loss(own, classes); }),
            "the loss mine needs a mark for each class, the dataset has class labels");
}

TEST(OwnLoss, GivesOneNumber) {
  Loss own;
  own.type = Loss::Type::kOwn;
  const auto message_with = [&](const Variable& value) {
    own.own = std::make_shared<const LossInfo>(
        LossInfo{.targets = TargetKind::kValues,
                 .compute = [value](const Loss&, const Variable&, const Tensor&,
                                    const LossPart&) { return value; },
                 .name = "mine"});
    return testing::message_of<std::logic_error>([&] {
      compute_loss(own, Variable(Tensor::zeros({2, 3})), Tensor::zeros({2, 3}));
    });
  };
  EXPECT_EQ(message_with(Variable(Tensor::zeros({2, 3}))),
            "[loss] mine: expected one number, got [2, 3]");
  EXPECT_EQ(message_with(Variable()),
            "[loss] mine: expected one number, got an undefined variable");
  EXPECT_EQ(message_with(Variable(Tensor::zeros({}, DType::kF64))),
            "[loss] mine: expected f32 as of the outputs, got f64");
  own.own =
      std::make_shared<const LossInfo>(LossInfo{.targets = TargetKind::kValues, .name = "mine"});
  EXPECT_EQ(testing::message_of<std::invalid_argument>([&] {
              compute_loss(own, Variable(Tensor::zeros({2, 3})), Tensor::zeros({2, 3}));
            }),
            "[loss] mine has no function");
}

}  // namespace
}  // namespace steelyard
