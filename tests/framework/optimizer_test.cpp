#include "steelyard/framework/train/optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <stdexcept>

#include "tests/support/temporary_folder.h"
#include "tests/support/tensors.h"

namespace steelyard {

static_assert(!std::is_copy_constructible_v<AdamW> && !std::is_move_assignable_v<Sgd>,
              "two optimizers would step one state");
namespace {

using ::testing::ElementsAre;
using testing::random_tensor;
using testing::values;

NamedParameter parameter(const std::string& name, Shape shape, std::uint64_t seed) {
  return {name, Variable(random_tensor(std::move(shape), seed), true)};
}

std::vector<std::string> state_names(const Optimizer& optimizer) {
  std::vector<std::string> names;
  for (const NamedBuffer& b : optimizer.named_state()) names.push_back(b.name);
  return names;
}

// One scalar's trajectory by the published formulas.
struct SgdReference {
  double momentum, weight_decay;
  bool nesterov;
  double m = 0;
  bool first = true;
  double next(double p, double grad, double lr) {
    const double g = grad + weight_decay * p;
    m = first ? g : momentum * m + g;
    first = false;
    return p - lr * (momentum == 0 ? g : nesterov ? g + momentum * m : m);
  }
};

struct AdamWReference {
  double beta1, beta2, eps, weight_decay;
  double m = 0, v = 0;
  int t = 0;
  double next(double p, double g, double lr) {
    ++t;
    m = beta1 * m + (1 - beta1) * g;
    v = beta2 * v + (1 - beta2) * g * g;
    const double m_hat = m / (1 - std::pow(beta1, t));
    const double v_hat = v / (1 - std::pow(beta2, t));
    return p * (1 - lr * weight_decay) - lr * m_hat / (std::sqrt(v_hat) + eps);
  }
};

// Runs five steps with changing rates and gradients against one reference per element.
template <typename Reference>
void expect_follows(Optimizer& optimizer, Variable& p, const Reference& reference) {
  std::vector<Reference> references(static_cast<std::size_t>(p.value().size()), reference);
  std::vector<double> expected = values(p.value());
  const Tensor storage = p.value();
  for (int step = 0; step < 5; ++step) {
    const Tensor grad = random_tensor(p.shape(), 50 + static_cast<std::uint64_t>(step));
    const double lr = 0.1 / (step + 1);
    p.set_grad(grad);
    optimizer.step(lr);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      expected[i] = references[i].next(expected[i], values(grad)[i], lr);
      EXPECT_NEAR(values(p.value())[i], expected[i], 1e-12);
    }
  }
  EXPECT_TRUE(p.value().shares_storage_with(storage));
}

TEST(Sgd, FollowsTheFormulas) {
  for (const double momentum : {0.0, 0.9}) {
    for (const bool nesterov : {false, true}) {
      if (nesterov && momentum == 0.0) continue;
      NamedParameter p = parameter("w", {2, 3}, 1);
      Sgd sgd({p}, {.momentum = momentum, .nesterov = nesterov, .weight_decay = 0.01});
      expect_follows(sgd, p.variable, SgdReference{momentum, 0.01, nesterov});
    }
  }
}

TEST(AdamW, FollowsTheFormulas) {
  NamedParameter p = parameter("w", {2, 3}, 1);
  AdamW adamw({p}, {.beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.1});
  expect_follows(adamw, p.variable, AdamWReference{0.8, 0.95, 1e-6, 0.1});
}

TEST(Optimizer, AParameterMayHaveALearningRateOfItsOwn) {
  NamedParameter plain = parameter("w", {3}, 1);
  NamedParameter fast = parameter("v", {3}, 1);
  const auto factor = [](const NamedParameter& p) { return p.name == "v" ? 3.0 : 1.0; };
  Sgd sgd({plain, fast}, {.momentum = 0.9, .lr_factor = factor});
  Sgd thrice({parameter("v", {3}, 1)}, {.momentum = 0.9});
  for (int i = 0; i < 3; ++i) {
    const Tensor grad =
        testing::random_tensor({3}, 20 + static_cast<std::uint64_t>(i), fast.variable.dtype());
    for (const NamedParameter& p : sgd.parameters()) {
      Variable v = p.variable;
      v.set_grad(grad);
    }
    Variable v = thrice.parameters()[0].variable;
    v.set_grad(grad);
    sgd.step(0.1);
    thrice.step(0.1 * 3.0);
  }
  EXPECT_TRUE(
      testing::all_close(fast.variable.value(), thrice.parameters()[0].variable.value(), 1e-12, 0));
  EXPECT_FALSE(testing::all_close(fast.variable.value(), plain.variable.value(), 1e-3, 0));
  EXPECT_THROW(Sgd({plain}, {.lr_factor = [](const NamedParameter&) { return -1.0; }}),
               std::invalid_argument);
}

// Sgd's steps are limited, AdamW's are multiplied.
TEST(Optimizer, StepsMayBeRelativeToUnits) {
  const Tensor size = Tensor::from<double>({0.01, 0.1, 1e9}, {3});
  const auto step_units = [&](const NamedParameter& p) {
    return p.name == "w" ? StepUnit{size, 2} : StepUnit{};
  };
  const Tensor grad = Tensor::from<double>({5, -0.001, 5}, {3});
  NamedParameter w = parameter("w", {3}, 1), free = parameter("free", {3}, 1);
  Sgd sgd({w, free}, {.momentum = 0.75, .step_units = step_units});
  NamedParameter a = parameter("w", {3}, 1), same = parameter("same", {3}, 1);
  AdamW adamw({a, same}, {.weight_decay = 0, .step_units = step_units});
  const std::vector<double> before = values(w.variable.value());
  double m = 0;
  for (int step = 0; step < 30; ++step) {
    for (NamedParameter p : {w, free, a, same}) p.variable.set_grad(grad);
    const double at = values(w.variable.value())[0];
    sgd.step(0.1);
    adamw.step(0.1);
    m = 0.75 * m + 0.25 * 0.02;  // of the limited gradient
    EXPECT_NEAR(at - values(w.variable.value())[0], 0.1 * m, 1e-12);
  }
  EXPECT_LT(m, 0.02);
  // What is small enough is as without units.
  EXPECT_EQ(values(w.variable.value())[1], values(free.variable.value())[1]);
  EXPECT_EQ(values(w.variable.value())[2], values(free.variable.value())[2]);
  for (std::size_t i = 0; i < 3; ++i) {
    const double moved = values(a.variable.value())[i] - before[i];
    const double plain = values(same.variable.value())[i] - before[i];
    EXPECT_NEAR(moved / (2 * size.data<double>()[i] * plain), 1, 1e-6) << i;
  }
  // Without momentum, one step goes as far as many together.
  NamedParameter once = parameter("w", {3}, 1);
  Sgd plain({once}, {.step_units = step_units});
  once.variable.set_grad(grad);
  plain.step(0.1);
  EXPECT_NEAR(before[0] - values(once.variable.value())[0], 0.1 * 0.02, 1e-12);
  EXPECT_NEAR(before[2] - values(once.variable.value())[2], 0.1 * 5, 1e-12);
  // NaN must not become a number.
  once.variable.set_grad(Tensor::full({3}, NAN, DType::kF64));
  plain.step(0.1);
  for (const double value : values(once.variable.value())) EXPECT_TRUE(std::isnan(value));
}

TEST(Optimizer, RefusesAStepUnitUnlikeItsParameter) {
  NamedParameter w = parameter("w", {3}, 1);
  const auto message = [&](const StepUnit& unit) {
    return testing::message_of<std::invalid_argument>(
        [&] { Sgd({w}, {.step_units = [&](const NamedParameter&) { return unit; }}); });
  };
  EXPECT_EQ(message({Tensor::zeros({3})}),
            "[optimizer] expected a step unit like 'w', [3] f64 on cpu, got [3] f32 on cpu");
  EXPECT_EQ(message({Tensor::zeros({2}, DType::kF64)}),
            "[optimizer] expected a step unit like 'w', [3] f64 on cpu, got [2] f64 on cpu");
  EXPECT_EQ(message({Tensor::zeros({3}, DType::kF64), 0}),
            "[optimizer] expected a positive number of step units for 'w'");
}

TEST(Optimizer, BiasesAndNormsAreNotDecayed) {
  const auto all = {parameter("fc.weight", {2, 2}, 1), parameter("fc.bias", {2}, 2),
                    parameter("bn.weight", {2}, 3), parameter("odd.bias", {1, 2}, 4),
                    parameter("shift.value", {1, 1, 1, 2}, 5), parameter("value", {1, 1}, 6),
                    // Shapes as above under other names, and constants that are no channels'.
                    parameter("value.weight", {1, 2}, 7), parameter("places.value", {2, 2}, 8),
                    parameter("the_value", {2, 1, 1, 1}, 9)};
  const std::set<std::string> decays{"fc.weight", "value.weight", "places.value", "the_value"};
  Sgd sgd(all, {.weight_decay = 0.5});
  for (const NamedParameter& p : all) {
    const auto before = values(p.variable.value());
    Variable v = p.variable;
    v.set_grad(Tensor::zeros(v.shape(), DType::kF64));
    sgd.step(0.1);
    v.clear_grad();
    const double factor = decays.contains(p.name) ? 0.95 : 1.0;
    for (std::size_t i = 0; i < before.size(); ++i) {
      EXPECT_NEAR(values(v.value())[i], factor * before[i], 1e-15) << p.name;
    }
  }
}

TEST(Optimizer, TheExclusionsCanBeChosen) {
  NamedParameter w = parameter("w", {1, 1}, 1);
  NamedParameter b = parameter("b", {1}, 2);
  Sgd sgd({w, b},
          {.weight_decay = 0.5, .no_decay = [](const NamedParameter& p) { return p.name == "w"; }});
  const double w0 = w.variable.value().item();
  const double b0 = b.variable.value().item();
  w.variable.set_grad(Tensor::zeros({1, 1}, DType::kF64));
  b.variable.set_grad(Tensor::zeros({1}, DType::kF64));
  sgd.step(1.0);
  EXPECT_EQ(w.variable.value().item(), w0);
  EXPECT_EQ(b.variable.value().item(), 0.5 * b0);
}

TEST(Optimizer, SkipsParametersWithoutGradient) {
  NamedParameter used = parameter("used", {2, 2}, 1);
  NamedParameter idle = parameter("idle", {2, 2}, 2);
  NamedParameter fixed = parameter("fixed", {2, 2}, 3);
  AdamW adamw({used, idle, fixed}, {});
  used.variable.set_grad(random_tensor({2, 2}, 4));
  fixed.variable.set_grad(random_tensor({2, 2}, 5));
  fixed.variable.set_requires_grad(false);
  const auto idle_before = values(idle.variable.value());
  const auto fixed_before = values(fixed.variable.value());
  adamw.step(0.1);
  EXPECT_EQ(values(idle.variable.value()), idle_before);
  EXPECT_EQ(values(fixed.variable.value()), fixed_before);
  for (const NamedBuffer& b : adamw.named_state()) {
    if (b.name.ends_with("/step")) {
      EXPECT_EQ(b.tensor.item(), b.name == "used/step" ? 1 : 0) << b.name;
    }
  }
}

TEST(Optimizer, StateHasPublishedNames) {
  const std::vector<NamedParameter> all{parameter("a.w", {2}, 1), parameter("b.w", {3}, 2)};
  EXPECT_THAT(state_names(Sgd(all, {.momentum = 0.9})),
              ElementsAre("a.w/momentum", "b.w/momentum"));
  EXPECT_THAT(state_names(Sgd(all, {})), ElementsAre());
  EXPECT_THAT(state_names(AdamW(all, {})),
              ElementsAre("a.w/exp_avg", "b.w/exp_avg", "a.w/exp_avg_sq", "b.w/exp_avg_sq",
                          "a.w/step", "b.w/step"));
}

template <typename Make>
void expect_resumes_to_the_same_bits(const Make& make) {
  const auto run = [](Optimizer& optimizer, Variable& v, int from, int to) {
    for (int i = from; i < to; ++i) {
      v.set_grad(random_tensor(v.shape(), 70 + static_cast<std::uint64_t>(i)));
      optimizer.step(0.05);
    }
  };
  NamedParameter whole = parameter("w", {3, 3}, 1);
  const auto straight = make(whole);
  run(*straight, whole.variable, 0, 6);

  NamedParameter half = parameter("w", {3, 3}, 1);
  const auto first = make(half);
  run(*first, half.variable, 0, 3);
  NamedParameter rest{"w", Variable(half.variable.value().clone(), true)};
  const auto second = make(rest);
  for (std::size_t i = 0; i < first->named_state().size(); ++i) {
    second->named_state()[i].tensor.copy_from(first->named_state()[i].tensor);
  }
  run(*second, rest.variable, 3, 6);
  EXPECT_EQ(values(rest.variable.value()), values(whole.variable.value()));
}

TEST(Optimizer, RestoredStateContinuesToTheSameBits) {
  expect_resumes_to_the_same_bits([](const NamedParameter& p) {
    return std::make_unique<Sgd>(std::vector{p}, SgdOptions{.momentum = 0.9});
  });
  expect_resumes_to_the_same_bits([](const NamedParameter& p) {
    return std::make_unique<AdamW>(std::vector{p}, AdamWOptions{});
  });
}

// A module in two slots lists its parameters twice.
TEST(Optimizer, StepsOnceForAParameterThatIsGivenTwice) {
  const Variable shared(Tensor::full({1}, 1.0), true);
  const std::vector<NamedParameter> twice{{"a.w", shared}, {"b.w", shared}};
  Sgd sgd(twice, {.momentum = 0.5});
  AdamW adamw(twice, {});
  Variable(shared).set_grad(Tensor::full({1}, 1.0));
  sgd.step(0.25);
  EXPECT_THAT(values(shared.value()), ElementsAre(0.75));
  EXPECT_THAT(state_names(sgd), ElementsAre("a.w/momentum"));
  EXPECT_EQ(adamw.parameters().size(), 1U);
}

TEST(Optimizer, NamesWhatIsGivenTwice) {
  const NamedParameter w = parameter("fc.weight", {2}, 1);
  EXPECT_EQ(testing::message_of<std::invalid_argument>([&] {
              Sgd({w, parameter("b", {2}, 2), w}, {});
            }),
            "[optimizer] 'fc.weight' is given twice");
  EXPECT_EQ(testing::message_of<std::invalid_argument>([&] {
              AdamW({w, parameter("fc.weight", {2}, 2)}, {});
            }),
            "[optimizer] two parameters are named 'fc.weight': their state needs names, as "
            "named_parameters(prefix) gives them");
}

TEST(Optimizer, NeedsGradientsAndParametersOfTheirFirstShape) {
  const std::vector<NamedParameter> all{parameter("w", {2}, 1)};
  Sgd sgd(all, {.momentum = 0.5});
  Variable w = all[0].variable;
  EXPECT_THROW(w.set_grad(Tensor::zeros({1})), std::invalid_argument);
  w.set_value(Tensor::zeros({3}));
  w.set_grad(Tensor::zeros({3}));
  EXPECT_THROW(sgd.step(0.1), std::invalid_argument);
}

// set_grad() refuses such a gradient; the node takes any.
TEST(Optimizer, NamesTheParameterOfAGradientOfAnotherDtype) {
  const std::vector<NamedParameter> all{parameter("a.w", {2}, 1)};  // f64
  all[0].variable.node()->grad = Tensor::zeros({2});
  Sgd sgd(all, {});
  EXPECT_EQ(testing::message_of<std::invalid_argument>([&] { sgd.step(0.1); }),
            "[optimizer] expected a gradient f64 of 'a.w', got f32");
}

TEST(Optimizer, Errors) {
  const std::vector<NamedParameter> all{parameter("w", {2}, 1)};
  EXPECT_THROW(Sgd(all, {.momentum = 1.0}), std::invalid_argument);
  EXPECT_THROW(Sgd(all, {.nesterov = true}), std::invalid_argument);
  EXPECT_THROW(Sgd(all, {.weight_decay = -0.1}), std::invalid_argument);
  EXPECT_THROW(AdamW(all, {.beta2 = 1.0}), std::invalid_argument);
  EXPECT_THROW(AdamW(all, {.eps = 0.0}), std::invalid_argument);
  EXPECT_THROW(Sgd({{"half", Variable(Tensor::zeros({2}, DType::kF16))}}, {}),
               std::invalid_argument);
  Sgd sgd(all, {});
  AdamW adamw(all, {});
  for (const double lr : {-0.5, std::nan(""), std::numeric_limits<double>::infinity()}) {
    for (Optimizer* optimizer : {static_cast<Optimizer*>(&sgd), static_cast<Optimizer*>(&adamw)}) {
      const std::string message =
          testing::message_of<std::invalid_argument>([&] { optimizer->step(lr); });
      EXPECT_TRUE(message.starts_with("[" + optimizer->type_name() + "] expected a finite")) << lr;
    }
  }
  EXPECT_NO_THROW(sgd.step(0));
}

}  // namespace
}  // namespace steelyard
