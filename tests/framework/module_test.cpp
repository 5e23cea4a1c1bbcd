#include "steelyard/framework/autograd/module.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <stdexcept>
#include <utility>

#include "steelyard/framework/autograd/tape_trace.h"
#include "steelyard/framework/ops/elementwise/arithmetic.h"
#include "tests/support/gradcheck.h"
#include "tests/support/tensors.h"

namespace steelyard {
namespace {

using ::testing::ElementsAre;
using testing::message_of;
using testing::names_of;

// Adds its parameter.
class Shift : public Module {
 public:
  explicit Shift(float by)
      : shift_(register_parameter("shift", Tensor::full({1}, by))),
        calls_(register_buffer("calls", Tensor::zeros(Shape{}, DType::kI64))) {}
  Variable forward(const Variable& x, ForwardContext&) override {
    ++*calls_.data<std::int64_t>();
    return add(x, shift_);
  }
  std::string type_name() const override { return "Shift"; }

 private:
  Variable& shift_;
  Tensor calls_;
};

// Children under the given names, one after another.
class Chain : public Module {
 public:
  explicit Chain(const std::vector<std::pair<std::string, std::shared_ptr<Module>>>& modules) {
    for (const auto& [name, module] : modules) register_child(name, module);
  }
  Variable forward(const Variable& x, ForwardContext& context) override {
    Variable y = x;
    for (const auto& child : children()) y = (*child)(y, context);
    return y;
  }
  std::string type_name() const override { return "Chain"; }
};

using Children = std::vector<std::pair<std::string, std::shared_ptr<Module>>>;

// layer.a, layer.b (below an unnamed slot) and head.
std::shared_ptr<Chain> nested() {
  auto pair = std::make_shared<Chain>(
      Children{{"a", std::make_shared<Shift>(1.0f)}, {"b", std::make_shared<Shift>(2.0f)}});
  auto layer = std::make_shared<Chain>(Children{{"", pair}});
  return std::make_shared<Chain>(
      Children{{"layer", layer}, {"head", std::make_shared<Shift>(4.0f)}});
}

double run(Module& module, double x) {
  ForwardContext context;
  return module.forward(Variable(Tensor::full({1}, x)), context).value().item();
}

TEST(Module, PathsFollowSlotsAndSkipUnnamedOnes) {
  const auto model = nested();
  EXPECT_THAT(names_of(model->named_parameters()),
              ElementsAre("layer.a.shift", "layer.b.shift", "head.shift"));
  EXPECT_THAT(names_of(model->named_buffers("net")),
              ElementsAre("net.layer.a.calls", "net.layer.b.calls", "net.head.calls"));
  EXPECT_THAT(names_of(model->named_modules()),
              ElementsAre("", "layer", "layer", "layer.a", "layer.b", "head"));
}

// Throws what it is given.
template <typename Error>
class Throws : public Module {
 public:
  Variable forward(const Variable&, ForwardContext&) override { throw Error("[op] no"); }
  std::string type_name() const override { return "Throws"; }
};

class OwnError : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

TEST(Module, ErrorsOfArgumentsBeginWithThePath) {
  const auto model = nested();
  const auto message = [&]<typename Error>(std::shared_ptr<Throws<Error>> module) {
    model->slot("layer.b").replace(std::move(module));
    return message_of<Error>([&] { run(*model, 0); });
  };
  EXPECT_EQ(message(std::make_shared<Throws<std::invalid_argument>>()), "layer.b: [op] no");
  EXPECT_EQ(message(std::make_shared<Throws<std::out_of_range>>()), "layer.b: [op] no");
  EXPECT_EQ(message(std::make_shared<Throws<OwnError>>()), "[op] no");
}

TEST(Module, AWatchSeesOutputsInTheOrderInWhichTheyAreDone) {
  const auto model = nested();
  std::vector<std::string> seen;
  {
    const OutputWatch watch([&](const std::string& module, const Variable& output) {
      seen.push_back(module + " " + std::to_string(static_cast<int>(output.value().item())));
    });
    run(*model, 0);
  }
  run(*model, 0);
  EXPECT_THAT(seen, ElementsAre("layer.a 1", "layer.b 3", "layer 3", "layer 3", "head 7"));
}

TEST(Module, AReplacedChildIsTheOneThatRuns) {
  const auto model = nested();
  EXPECT_EQ(run(*model, 0), 7);
  model->slot("layer.b").replace(std::make_shared<Shift>(20.0f));
  EXPECT_EQ(run(*model, 0), 25);
  const auto parameters = model->named_parameters();
  EXPECT_EQ(parameters[1].name, "layer.b.shift");
  EXPECT_EQ(parameters[1].variable.value().item(), 20);
}

TEST(Module, CallingAReplacedOneIsAnError) {
  const auto shift = std::make_shared<Shift>(1.0f);
  shift->set_replaced_by("an army of ants");
  ForwardContext context;
  const Variable zero(Tensor::zeros({1}));
  EXPECT_THAT(message_of<std::logic_error>([&] { (*shift)(zero, context); }),
              ::testing::HasSubstr("an army of ants: call the slot"));
  shift->set_replaced_by("");
  EXPECT_EQ((*shift)(zero, context).value().item(), 1);
}

// A module that takes children after it was made.
class Parent : public Module {
 public:
  void add(const char* name, std::shared_ptr<Module> child) {
    register_child(name, std::move(child));
  }
  Variable forward(const Variable& x, ForwardContext&) override { return x; }
  std::string type_name() const override { return "Parent"; }
};

TEST(Module, NoneIsInsideItself) {
  const auto outer = std::make_shared<Parent>(), inner = std::make_shared<Parent>();
  outer->add("inner", inner);
  EXPECT_THROW(inner->add("outer", outer), std::invalid_argument);
  EXPECT_THROW(inner->add("inner", inner), std::invalid_argument);
  EXPECT_EQ(outer->named_modules().size(), 2U);
}

TEST(Module, ParametersAreHandles) {
  const auto model = nested();
  auto parameters = model->named_parameters();
  parameters[0].variable.value().fill(10);
  EXPECT_EQ(run(*model, 0), 16);
  parameters[0].variable.set_value(Tensor::full({1}, -1.0));
  EXPECT_EQ(run(*model, 0), 5);
  EXPECT_TRUE(parameters[0].variable.requires_grad());
}

TEST(Module, BuffersShareStorageWithTheModule) {
  const auto model = nested();
  run(*model, 0);
  run(*model, 0);
  EXPECT_EQ(model->named_buffers()[0].tensor.item(), 2);
}

TEST(Module, ClearGradients) {
  const auto model = nested();
  ForwardContext context;
  model->forward(Variable(Tensor::zeros({1})), context).backward();
  EXPECT_TRUE(model->named_parameters()[0].variable.grad().defined());
  clear_gradients(*model);
  for (const auto& p : model->named_parameters()) EXPECT_FALSE(p.variable.grad().defined());
}

TEST(Module, SlotErrorsNameTheMissingPart) {
  const auto model = nested();
  EXPECT_EQ(message_of<std::out_of_range>([&] { model->slot("head.c"); }),
            "[module] Shift has no child 'c'");
  EXPECT_EQ(message_of<std::out_of_range>([&] { model->slot("layer.a.c"); }),
            "[module] Chain has no child 'a.c'");
  EXPECT_THROW(model->slot("lay"), std::out_of_range);
  EXPECT_THROW(model->slot("layers.a"), std::out_of_range);
  EXPECT_THROW(model->slot(""), std::out_of_range);
  EXPECT_THROW(model->slot("head").replace(nullptr), std::invalid_argument);
}

TEST(Module, NamesAreUniqueAndWithoutDots) {
  const auto shift = std::make_shared<Shift>(1.0f);
  EXPECT_THROW(Chain(Children{{"a", shift}, {"a", shift}}), std::invalid_argument);
  EXPECT_THROW(Chain(Children{{"a.b", shift}}), std::invalid_argument);
  EXPECT_THROW(Chain(Children{{"a/b", shift}}), std::invalid_argument);
  EXPECT_THROW(Chain(Children{{"a", nullptr}}), std::invalid_argument);
}

TEST(Module, DistinctParametersAreListedOnce) {
  const auto shared = std::make_shared<Shift>(1.0f);
  const Chain chain(Children{{"a", shared}, {"b", std::make_shared<Shift>(2.0f)}, {"c", shared}});
  EXPECT_THAT(names_of(chain.named_parameters()), ElementsAre("a.shift", "b.shift", "c.shift"));
  EXPECT_THAT(names_of(distinct(chain.named_parameters())), ElementsAre("a.shift", "b.shift"));
}

// Says whether it is called in training: 1 or 0.
class Training : public Module {
 public:
  Variable forward(const Variable&, ForwardContext& context) override {
    return Variable(Tensor::full({1}, context.training));
  }
  std::string type_name() const override { return "Training"; }
};

TEST(Module, ACallMayHaveAContextOfItsOwn) {
  const auto module = make_module<Training>();
  Module& base = *module;
  const Slot slot("slot", module);
  const Variable x(Tensor::zeros({1}));
  EXPECT_EQ(module(x, {.training = true}).value().item(), 1);
  EXPECT_EQ(module(x, {}).value().item(), 0);
  EXPECT_EQ((*module)(x, {.training = true}).value().item(), 1);
  EXPECT_EQ(base.forward(x, {.training = true}).value().item(), 1);
  EXPECT_EQ(slot(x, {.training = true}).value().item(), 1);
  ForwardContext training{.training = true};
  EXPECT_EQ(module(x, training).value().item(), 1);
  EXPECT_EQ(module->forward(x, training).value().item(), 1);
}

class GivesNothing : public Module {
 public:
  Variable forward(const Variable&, ForwardContext&) override { return {}; }
  std::string type_name() const override { return "GivesNothing"; }
};

TEST(Module, AnUndefinedOutputIsToldWhereItIsGiven) {
  const auto module = make_module<GivesNothing>();
  const Variable x(Tensor::zeros({1}));
  EXPECT_EQ(testing::message_of<std::logic_error>([&] { module(x, {}); }),
            "[GivesNothing] forward gave an undefined variable");
  EXPECT_EQ(testing::message_of<std::logic_error>([&] { Slot("fc", module)(x, {}); }),
            "[GivesNothing] fc: forward gave an undefined variable");
}

// Throws what it is told.
class Stumbles : public Module {
 public:
  explicit Stumbles(std::function<void()> by) : by_(std::move(by)) {}
  Variable forward(const Variable& x, ForwardContext&) override {
    by_();
    return x;
  }
  std::string type_name() const override { return "Stumbles"; }

 private:
  std::function<void()> by_;
};

[[noreturn]] void name_part(const std::string& part) {
  try {
    throw;
  } catch (const std::exception& error) {
    throw std::runtime_error(part + ": " + error.what());
  } catch (...) {
    throw std::runtime_error(part + ": a number");
  }
}

TEST(Module, ErrorsOfAPartBeginWithItsName) {
  const Variable x(Tensor::zeros({1}));
  // net.block.fc, of which the part is net.block.
  const auto net_of = [&](const std::function<void()>& by) {
    const auto block = make_module<Chain>(Children{{"fc", make_module<Stumbles>(by)}});
    block->set_part({"the layer 'mine'", name_part});
    return std::pair(Slot("net", make_module<Chain>(Children{{"block", block}})), block);
  };
  const auto [number, block] = net_of([] { throw 7; });
  EXPECT_EQ(message_of<std::runtime_error>([&] { number(x, {}); }), "the layer 'mine': a number");
  EXPECT_EQ(message_of<std::runtime_error>([&] { block(x, {}); }), "the layer 'mine': a number");
  const auto shape = net_of([] { throw std::invalid_argument("no such shape"); }).first;
  EXPECT_EQ(message_of<std::runtime_error>([&] { shape(x, {}); }),
            "the layer 'mine': net.block.fc: no such shape");
  // Of the kind that it was, and named once.
  const auto index = net_of([] { throw std::out_of_range("no such index"); }).first;
  EXPECT_EQ(message_of<std::out_of_range>([&] { index(x, {}); }),
            "the layer 'mine': net.block.fc: no such index");
}

TEST(Module, JoinPath) {
  EXPECT_EQ(join_path("a", "b"), "a.b");
  EXPECT_EQ(join_path("", "b"), "b");
  EXPECT_EQ(join_path("a", ""), "a");
  EXPECT_EQ(join_path("", ""), "");
}

}  // namespace
}  // namespace steelyard
