#include "steelyard/framework/train/training_loss.h"

#include <gtest/gtest.h>

#include <cmath>

#include "steelyard/framework/ops/losses/losses.h"
#include "steelyard/framework/ops/moves/permute.h"
#include "steelyard/framework/ops/products/linear.h"
#include "steelyard/framework/tensor/error.h"
#include "tests/support/gradcheck.h"

namespace steelyard {
namespace {

using testing::message_of;
using testing::random_tensor;
using testing::values;

// A linear layer in f64 that counts its passes and refuses those that a teacher must not make.
class Student : public Module {
 public:
  explicit Student(std::uint64_t seed, bool teaches = false)
      : teaches_(teaches), weight_(register_parameter("weight", random_tensor({4, 3}, seed))) {}
  Variable forward(const Variable& x, ForwardContext& context) override {
    EXPECT_EQ(context.training, !teaches_);
    EXPECT_EQ(should_record({weight_}), !teaches_);
    return linear(x, weight_, Variable());
  }
  std::string type_name() const override { return "Student"; }
  Variable& weight() { return weight_; }

 private:
  bool teaches_;
  Variable& weight_;
};

Batch some_batch() {
  return {random_tensor({5, 3}, 7), Tensor::from<std::int64_t>({0, 3, 1, 1, 2}, {5})};
}

// d/dz of the mix, by the formulas: ((1 - w) (q_1 - y) + w T (q_T - p_T)) / N, through z = x W^t.
TEST(TrainingLoss, GradientsFollowTheClosedForm) {
  constexpr double kTemperature = 3, kWeight = 0.7;
  Student student(1);
  const auto teacher = std::make_shared<Student>(2, /*teaches=*/true);
  const Batch batch = some_batch();
  ForwardContext training{.training = true};
  const Variable loss = training_loss(
      student, {}, Distillation{.teacher = teacher, .weight = kWeight, .temperature = kTemperature},
      batch, training);
  loss.backward();
  EXPECT_FALSE(teacher->weight().grad().defined());

  const auto logits = [&](const Tensor& w, int row, int c) {
    double sum = 0;
    for (int k = 0; k < 3; ++k) {
      sum += batch.inputs.data<double>()[row * 3 + k] * w.data<double>()[c * 3 + k];
    }
    return sum;
  };
  const auto softmax = [&](const Tensor& w, int row, int c, double temperature) {
    double sum = 0;
    for (int i = 0; i < 4; ++i) sum += std::exp(logits(w, row, i) / temperature);
    return std::exp(logits(w, row, c) / temperature) / sum;
  };
  const Tensor w = student.weight().value(), t = teacher->weight().value();
  double expected_loss = 0;
  std::vector<double> expected(12, 0.0);
  for (int row = 0; row < 5; ++row) {
    const auto label = batch.targets.data<std::int64_t>()[row];
    expected_loss -= (1 - kWeight) * std::log(softmax(w, row, static_cast<int>(label), 1)) / 5;
    for (int c = 0; c < 4; ++c) {
      const double p = softmax(t, row, c, kTemperature), q = softmax(w, row, c, kTemperature);
      expected_loss += kWeight * kTemperature * kTemperature * p * std::log(p / q) / 5;
      const double dz = (1 - kWeight) * (softmax(w, row, c, 1) - (c == label ? 1 : 0)) / 5 +
                        kWeight * kTemperature * (q - p) / 5;
      for (int k = 0; k < 3; ++k) {
        expected[static_cast<std::size_t>(c * 3 + k)] +=
            dz * batch.inputs.data<double>()[row * 3 + k];
      }
    }
  }
  EXPECT_NEAR(loss.value().item(), expected_loss, 1e-13);
  const std::vector<double> got = values(student.weight().grad());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-14) << i;
}

// [N, 1, 1, C], as the classes of one pixel.
class OfOnePixel : public Module {
 public:
  explicit OfOnePixel(std::shared_ptr<Module> of_rows) : of_rows_(std::move(of_rows)) {}
  Variable forward(const Variable& x, ForwardContext& context) override {
    const Variable rows = of_rows_->forward(x, context);
    return reshape(rows, {rows.shape()[0], 1, 1, rows.shape()[1]});
  }
  std::string type_name() const override { return "OfOnePixel"; }

 private:
  std::shared_ptr<Module> of_rows_;
};

TEST(TrainingLoss, OfOnePixelIsThatOfARow) {
  const auto of = [](bool pixel) {
    std::shared_ptr<Module> student = std::make_shared<Student>(1);
    std::shared_ptr<Module> teacher = std::make_shared<Student>(2, /*teaches=*/true);
    if (pixel) student = std::make_shared<OfOnePixel>(student);
    if (pixel) teacher = std::make_shared<OfOnePixel>(teacher);
    ForwardContext training{.training = true};
    return training_loss(*student, {}, Distillation{.teacher = teacher}, some_batch(), training)
        .value()
        .item();
  };
  EXPECT_EQ(of(true), of(false));
}

TEST(TrainingLoss, IsTheTaskLossWithoutATeacher) {
  Student student(1);
  const Batch batch = some_batch();
  ForwardContext training{.training = true};
  const Loss smoothed{.label_smoothing = 0.1};
  EXPECT_EQ(training_loss(student, smoothed, std::nullopt, batch, training).value().item(),
            cross_entropy(student.forward(Variable(batch.inputs), training), batch.targets, 0.1)
                .value()
                .item());
}

TEST(TrainingLoss, ATeacherOfOtherClassesIsAnError) {
  class Wide : public Module {
   public:
    Variable forward(const Variable& x, ForwardContext&) override {
      return Variable(Tensor::zeros({x.dim(0), 9}, DType::kF64));
    }
    std::string type_name() const override { return "Wide"; }
  };
  Student student(1);
  ForwardContext training{.training = true};
  EXPECT_EQ(message_of<std::invalid_argument>([&] {
              training_loss(student, {}, Distillation{.teacher = std::make_shared<Wide>()},
                            some_batch(), training);
            }),
            "[distillation_loss] expected a teacher's logits f64 [5, 4], got f64 [5, 9]");
}

}  // namespace
}  // namespace steelyard
