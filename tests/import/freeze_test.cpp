// Inputs that become constants, and the branches that these choose.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "steelyard/framework/tensor/error.h"
#include "steelyard/import/onnx/freeze.h"
#include "tests/import/onnx_support.h"
#include "tests/support/gradcheck.h"

namespace steelyard::imports {
namespace {

using ::testing::ElementsAre;
using testing::message_of;

// x [N, 3], `rate` a whole number, `scale` [1, 3] and `part` [3, ?] of floats, `is_on` a truth.
ModelMaker maker() {
  ModelMaker m({{std::nullopt}, {3}});
  m.model().inputs.push_back({"rate", "int64", {}});
  m.model().inputs.push_back({"scale", "float", {{1}, {3}}});
  m.model().inputs.push_back({"part", "float", {{3}, {std::nullopt, "n"}}});
  m.model().inputs.push_back({"is_on", "bool", {}});
  return m;
}

TEST(Freeze, MakesConstantsOfTheInputsTypeAndShape) {
  OnnxModel model = maker().model();
  freeze_inputs(model, {"rate=16000", "scale=1,-0.5,2e1", "part=1,2,3,4,5,6", "is_on=true"});
  ASSERT_EQ(model.inputs.size(), 1u);
  EXPECT_EQ(model.inputs[0].name, "x");
  const Constant& rate = model.initializers.at("rate");
  EXPECT_FALSE(rate.floating);
  EXPECT_EQ(rate.shape, Shape{});
  EXPECT_EQ(rate.integers.at(0).value, 16000);
  const Constant& scale = model.initializers.at("scale");
  EXPECT_EQ(scale.shape, (Shape{1, 3}));
  EXPECT_THAT(scale.reals, ElementsAre(1.0F, -0.5F, 20.0F));
  EXPECT_EQ(model.initializers.at("part").shape, (Shape{3, 2}));
  EXPECT_EQ(model.initializers.at("is_on").integers.at(0).value, 1);
}

TEST(Freeze, OthersAreOneLine) {
  const auto problem = [](const std::string& given) {
    OnnxModel model = maker().model();
    return message_of<InputError>([&] { freeze_inputs(model, {given}); });
  };
  EXPECT_EQ(problem("speed=1"),
            "test.onnx: freeze: no input is called 'speed'; the inputs are x, rate, scale, part, "
            "is_on");
  EXPECT_EQ(problem("rate=1.5"),
            "test.onnx: freeze: the input 'rate' expects whole numbers (int64)");
  EXPECT_EQ(problem("is_on=2"),
            "test.onnx: freeze: the input 'is_on' expects true or false (bool)");
  EXPECT_EQ(problem("rate=1,2"), "test.onnx: freeze: the input 'rate' is [], got 2 values");
  EXPECT_EQ(problem("scale=1"), "test.onnx: freeze: the input 'scale' is [1, 3], got 1 value");
  EXPECT_EQ(problem("part=1,2,3,4"), "test.onnx: freeze: the input 'part' is [3, n], got 4 values");
  for (const std::string wrong : {"rate", "=3", "rate=", "rate=abc", "rate=1,,2", "rate=nan"}) {
    EXPECT_EQ(problem(wrong),
              "freeze: expected an input and its value such as sr=16000, got '" + wrong + "'");
  }
}

// A branch that gives inputs times a number, called as the branch's values in other branches.
std::shared_ptr<OnnxBranch> times(const std::string& x, float factor) {
  return std::make_shared<OnnxBranch>(OnnxBranch{
      .nodes = {{.name = "inner", .op = "Mul", .inputs = {x, "factor"}, .outputs = {"y"}}},
      .initializers = {{"factor", {.shape = {}, .floating = true, .reals = {factor}}}},
      .outputs = {"y"}});
}

OnnxNode choice(const std::string& name, std::vector<std::string> inputs,
                std::shared_ptr<OnnxBranch> yes, std::shared_ptr<OnnxBranch> no) {
  return {.name = name,
          .op = "If",
          .inputs = std::move(inputs),
          .outputs = {name + ":0"},
          .branches = {{"then_branch", std::move(yes)}, {"else_branch", std::move(no)}}};
}

TEST(Freeze, ChoosesBranchesAlsoInside) {
  for (const char* rate : {"rate=16000", "rate=8000", "rate=1"}) {
    ModelMaker m = maker();
    const std::string first = m.node("Equal", {"rate", m.number_of(16000)});
    const std::string second = m.node("Equal", {"rate", m.number_of(8000)});
    const std::string before = m.node("Relu", {"x"});
    const auto inner = std::make_shared<OnnxBranch>(
        OnnxBranch{.nodes = {choice("deep", {second, before}, times(before, 3), times(before, 5))},
                   .outputs = {"deep:0"}});
    m.model().nodes.push_back(choice("top", {first, before, second}, times(before, 2), inner));
    OnnxModel model = m.ending_in(m.node("Relu", {"top:0"}));
    freeze_inputs(model, {rate, "scale=1,1,1", "part=1,1,1", "is_on=false"});
    const Imported imported = translate(model, {3});
    const float factor = rate == std::string("rate=16000")  ? 2
                         : rate == std::string("rate=8000") ? 3
                                                            : 5;
    const Tensor y = output_of(imported, Tensor::from(std::vector<float>{1, -2, 4}, {1, 3}));
    EXPECT_THAT(std::vector<float>(y.span<float>().begin(), y.span<float>().end()),
                ElementsAre(factor, 0.0F, 4 * factor));
  }
}

TEST(Freeze, AConditionThatIsComputedIsRefusedByTheNodesName) {
  ModelMaker m({{std::nullopt}, {3}});
  m.model().inputs.push_back({"is_on", "bool", {{std::nullopt}}});
  m.model().nodes.push_back(choice("top", {"is_on", "x"}, times("x", 2), times("x", 3)));
  const OnnxModel model = m.ending_in("top:0");
  const std::string told = message_of<UnsupportedGraph>([&] {
    translate(model, {{4}, {{"x", {3}}, {"is_on", {1}}}});
  });
  EXPECT_NE(told.find("top"), std::string::npos) << told;
  EXPECT_NE(told.find("If"), std::string::npos) << told;
}

}  // namespace
}  // namespace steelyard::imports
