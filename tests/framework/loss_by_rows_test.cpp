// Losses of some rows at a time against those of all at once.
#include "steelyard/framework/train/loss_by_rows.h"

#include <gtest/gtest.h>

#include "steelyard/framework/autograd/headed_model.h"
#include "steelyard/framework/ops/losses/losses.h"
#include "steelyard/framework/ops/moves/permute.h"
#include "steelyard/framework/ops/products/linear.h"
#include "steelyard/framework/train/evaluate.h"
#include "steelyard/framework/train/training_loss.h"
#include "tests/support/gradcheck.h"

namespace steelyard {
namespace {

using testing::all_close;
using testing::gradcheck;
using testing::message_of;
using testing::random_leaf;
using testing::random_tensor;

Tensor some_labels(std::int64_t n, std::int64_t classes) {
  const Tensor labels = Tensor::empty({n, 1}, DType::kI64);
  for (std::int64_t i = 0; i < n; ++i) labels.data<std::int64_t>()[i] = 7 * i % classes;
  return labels;
}

// The cross-entropy of x w^T, rows 32 at a time or all at once.
Variable loss_of_rows(const Variable& x, const Variable& w, bool in_parts) {
  const std::int64_t rows = x.value().size() / x.dim(-1);
  const Tensor labels = some_labels(rows, w.dim(0));
  const auto loss = [&](const Variable& part, std::int64_t first) {
    const Tensor own = rows_within(labels, first, part.dim(0));
    return cross_entropy(linear(part, w, {}), own.reshape({own.size()}));
  };
  if (!in_parts) return loss(reshape(x, {rows, x.dim(-1)}), 0);
  const Variable unread(Tensor::zeros({2}), true);
  return loss_by_rows(x, 32, {w, unread}, loss);
}

TEST(LossByRows, IsThatOfAllRows) {
  const Variable x = random_leaf({2, 35, 4}, 1);  // 32, 32 and 6 rows
  const Variable w = random_leaf({5, 4}, 2);
  const Variable all = loss_of_rows(x, w, false), parts = loss_of_rows(x, w, true);
  EXPECT_NEAR(parts.value().item(), all.value().item(), 1e-14);
  all.backward();
  const Tensor of_x = x.grad().clone(), of_w = w.grad().clone();
  Variable(x).clear_grad();
  parts.backward();
  EXPECT_TRUE(all_close(x.grad(), of_x, 1e-12, 1e-15));
  Tensor twice = of_w.clone();
  for (double& value : twice.span<double>()) value *= 2;
  EXPECT_TRUE(all_close(w.grad(), twice, 1e-12, 1e-15)) << "added to what was there";
}

TEST(LossByRows, HasTheGradientsOfFiniteDifferences) {
  const Variable x = random_leaf({35, 2}, 1), w = random_leaf({3, 2}, 2);
  EXPECT_TRUE(gradcheck([&] { return loss_of_rows(x, w, true); }, {x, w}));
  const Variable fixed(x.value());
  EXPECT_TRUE(gradcheck([&] { return loss_of_rows(fixed, w, true); }, {w}));
  EXPECT_TRUE(gradcheck(
      [&] { return mix_losses(loss_of_rows(x, w, true), cosine_loss(x, fixed.value()), 0.3); },
      {x, w}))
      << "of another factor than 1";
}

TEST(LossByRows, ComputesWithoutGradients) {
  const Variable x(random_tensor({70, 4}, 1)), w(random_tensor({5, 4}, 2));
  const Variable loss = loss_of_rows(x, w, true);
  EXPECT_FALSE(loss.requires_grad());
  EXPECT_NEAR(loss.value().item(), loss_of_rows(x, w, false).value().item(), 1e-14);
  EXPECT_EQ(message_of<std::invalid_argument>([&] { loss_by_rows(x, 8, {}, {}); }),
            "[loss_by_rows] expected rows and a multiple of 16 at once, got [70, 4] and 8");
}

class RowHead : public Module, public RowLayer {
 public:
  RowHead(std::int64_t outputs, std::uint64_t seed)
      : weight_(register_parameter("weight", random_tensor({outputs, 2}, seed, DType::kF32))) {}
  Variable forward(const Variable& x, ForwardContext&) override {
    most_rows = std::max(most_rows, x.value().size() / 2);
    return linear(x, weight_, {});
  }
  std::string type_name() const override { return "RowHead"; }

  std::int64_t most_rows = 0;

 private:
  Variable& weight_;
};

class Headed : public Module, public HeadedModel {
 public:
  Headed(std::int64_t outputs, std::uint64_t seed)
      : weight_(register_parameter("weight", random_tensor({2, 2}, seed, DType::kF32))),
        own(std::make_shared<RowHead>(outputs, seed + 1)),
        head_(register_child("head", own)) {}
  Variable forward(const Variable& x, ForwardContext& context) override {
    return head_(body(x, context), context);
  }
  const Slot* head() const override { return &head_; }
  Variable body(const Variable& x, ForwardContext&) override { return linear(x, weight_, {}); }
  std::string type_name() const override { return "Headed"; }

 private:
  Variable& weight_;

 public:
  std::shared_ptr<RowHead> own;

 private:
  Slot& head_;
};

// The same model for those who do not know that it has a head.
class Opaque : public Module {
 public:
  explicit Opaque(std::shared_ptr<Module> model) : model_(register_child("", std::move(model))) {}
  Variable forward(const Variable& x, ForwardContext& context) override {
    return model_(x, context);
  }
  std::string type_name() const override { return "Opaque"; }

 private:
  Slot& model_;
};

TEST(EvaluationOfTokens, HasFewLogitsAtATime) {
  constexpr std::int64_t kOutputs = std::int64_t{1} << 19, kLength = 40;
  Dataset dataset{.inputs = random_tensor({3, kLength, 2}, 1, DType::kF32),
                  .targets = some_labels(3 * kLength, kOutputs).reshape({3, kLength, 1}),
                  .classes = kOutputs};
  const Loss loss{.type = Loss::Type::kTokenCrossEntropy};
  const auto model = std::make_shared<Headed>(kOutputs, 3);
  const Metrics parts = evaluate(*model, dataset, {}, loss, 2);  // 80 tokens, then 40
  EXPECT_EQ(model->own->most_rows, kLength) << "of the last batch, at once";
  Opaque opaque(model);
  const Metrics all = evaluate(opaque, dataset, {}, loss, 2);
  EXPECT_EQ(model->own->most_rows, 2 * kLength);
  EXPECT_NEAR(parts.loss, all.loss, 1e-5);
  ASSERT_EQ(parts.more.size(), 1U);
  EXPECT_NEAR(parts.more[0].value, all.more[0].value, 1e-4 * all.more[0].value);
}

TEST(TrainingLossOfTokens, HasFewLogitsAtATime) {
  constexpr std::int64_t kOutputs = std::int64_t{1} << 19, kTokens = 80;  // 32 at a time
  const Batch batch{random_tensor({2, kTokens / 2, 2}, 1, DType::kF32),
                    some_labels(kTokens, kOutputs).reshape({2, kTokens / 2, 1})};
  const Loss loss{.type = Loss::Type::kTokenCrossEntropy};
  for (const double weight : {0.0, 0.4, 1.0}) {
    const auto student = std::make_shared<Headed>(kOutputs, 3);
    const auto teacher = std::make_shared<Headed>(kOutputs, 5);
    ForwardContext training{.training = true};
    std::optional<Distillation> distillation;
    if (weight > 0) distillation = Distillation{.teacher = teacher, .weight = weight};
    const Variable parts = training_loss(*student, loss, distillation, batch, training);
    EXPECT_EQ(student->own->most_rows, 32);
    EXPECT_EQ(teacher->own->most_rows, weight > 0 ? 32 : 0);
    EXPECT_LT(saved_bytes(parts, {}), 2 * 4 * 2 * kOutputs) << "less than logits of 80 tokens";
    parts.backward();
    std::vector<Tensor> grads;
    for (NamedParameter& p : student->named_parameters()) {
      grads.push_back(p.variable.grad().clone());
      p.variable.clear_grad();
    }
    Opaque opaque(student);
    const Variable all = training_loss(opaque, loss, distillation, batch, training);
    EXPECT_EQ(student->own->most_rows, kTokens);
    EXPECT_NEAR(parts.value().item(), all.value().item(), 1e-5);
    all.backward();
    const std::vector<NamedParameter> parameters = student->named_parameters();
    for (std::size_t i = 0; i < grads.size(); ++i) {
      EXPECT_TRUE(all_close(grads[i], parameters[i].variable.grad(), 1e-4, 1e-8)) << i;
    }
    EXPECT_FALSE(teacher->named_parameters()[0].variable.grad().defined());
  }
}

}  // namespace
}  // namespace steelyard
