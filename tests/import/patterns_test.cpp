// Activations, norms and softmax that exporters write as several nodes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "steelyard/framework/ops/elementwise/activations.h"
#include "steelyard/framework/ops/elementwise/arithmetic.h"
#include "steelyard/framework/ops/elementwise/unary.h"
#include "steelyard/framework/ops/reductions/softmax.h"
#include "steelyard/import/translate.h"
#include "tests/import/onnx_support.h"
#include "tests/support/gradcheck.h"

namespace steelyard::imports {
namespace {

using testing::all_close;
using ::testing::ElementsAre;
using testing::message_of;
using testing::random_tensor;

using Ints = std::vector<std::int64_t>;

// x -> the pattern -> y, as the types of modules and as values.
struct Pattern {
  std::string type;
  std::function<std::string(ModelMaker&)> make;
  std::function<Variable(const Variable&)> expected;
};

std::string erf_gate(ModelMaker& m, bool divides) {
  const std::string scaled = divides ? m.node("Div", {"x", m.number(std::sqrt(2.0F))})
                                     : m.node("Mul", {m.number(std::sqrt(0.5F)), "x"});
  return m.node("Add", {m.node("Erf", {scaled}), m.number(1)});
}

std::string tanh_gate(ModelMaker& m, const std::string& cube) {
  const std::string sum = m.node("Add", {"x", cube});
  return m.node("Add",
                {m.number(1), m.node("Tanh", {m.node("Mul", {m.number(0.79788456F), sum})})});
}

TEST(Patterns, RecognisesHowExportersSpellActivations) {
  const auto clip = [](ModelMaker& m) {
    return m.node("Clip", {m.node("Add", {m.number(3), "x"}), m.number(0), m.number(6)});
  };
  const Pattern patterns[] = {
      {"Hardswish",
       [&](ModelMaker& m) {
         return m.node("Mul", {"x", m.node("Div", {clip(m), m.number(6)})});
       },
       hardswish},
      {"Hardswish",
       [&](ModelMaker& m) {
         return m.node("Mul", {m.node("Mul", {clip(m), "x"}), m.number(1 / 6.0F)});
       },
       hardswish},
      {"Hardswish",
       [](ModelMaker& m) {
         return m.node("Mul", {m.node("HardSigmoid", {"x"}, {{"alpha", 1 / 6.0F}}), "x"});
       },
       hardswish},
      {"HardSigmoid",
       [&](ModelMaker& m) {
         return m.node("Div", {clip(m), m.number(6)});
       },
       [](const Variable& x) { return hard_sigmoid(x, 1 / 6.0, 0.5); }},
      {"SiLU",
       [](ModelMaker& m) {
         const std::string scaled = m.node("Mul", {"x", m.number(1)});
         return m.node("Mul", {"x", m.node("Sigmoid", {scaled})});
       },
       silu},
      {"GELU",
       [](ModelMaker& m) {
         return m.node("Mul", {m.node("Mul", {"x", erf_gate(m, true)}), m.number(0.5F)});
       },
       gelu},
      {"GELU",
       [](ModelMaker& m) {
         return m.node("Mul", {m.node("Mul", {m.number(0.5F), "x"}), erf_gate(m, false)});
       },
       gelu},
      {"TanhGELU",
       [](ModelMaker& m) {
         std::string cube = m.node("Mul", {m.number(0.044715F), "x"});
         cube = m.node("Mul", {"x", m.node("Mul", {"x", cube})});
         return m.node("Mul", {"x", m.node("Mul", {m.number(0.5F), tanh_gate(m, cube)})});
       },
       tanh_gelu},
      {"TanhGELU",
       [](ModelMaker& m) {
         const std::string cube =
             m.node("Mul", {m.node("Pow", {"x", m.number(3)}), m.number(0.044715F)});
         return m.node("Mul", {m.node("Mul", {"x", m.number(0.5F)}), tanh_gate(m, cube)});
       },
       tanh_gelu},
      {"DivNoNan",
       [](ModelMaker& m) {
         const std::string zero = m.node("Equal", {"x", m.number(0)});
         return m.node("Where", {zero, m.number(0), m.node("Div", {"x", "x"})});
       },
       [](const Variable& x) { return divide_no_nan(x, x); }},
      {"TanhGELU",
       [](ModelMaker& m) {
         return m.node("Gelu", {"x"}, {{"approximate", std::string("tanh")}});
       },
       tanh_gelu},
  };
  const Tensor x = testing::spread_tensor({2, 60}).to(DType::kF32);
  for (const Pattern& pattern : patterns) {
    ModelMaker m({{std::nullopt}, {60}});
    const Imported imported = translate(m.ending_in(pattern.make(m)), {60});
    EXPECT_THAT(types_of(imported), ElementsAre(pattern.type));
    EXPECT_TRUE(
        all_close(output_of(imported, x), pattern.expected(Variable(x)).value(), 1e-5, 1e-6))
        << pattern.type;
  }
}

// Its sigmoid is 0 in float32 below -88, whose logarithm would be infinite; the slope would be NaN.
TEST(Patterns, TheLogarithmOfASigmoidIsFinite) {
  ModelMaker m({{std::nullopt}, {5}});
  const Imported imported = translate(m.ending_in(m.node("Log", {m.node("Sigmoid", {"x"})})), {5});
  EXPECT_THAT(types_of(imported), ElementsAre("Affine", "Softplus", "Affine"));
  const Tensor x = Tensor::from<float>({-1000, -100, -1, 0, 200}, {1, 5});
  EXPECT_TRUE(all_close(output_of(imported, x),
                        Tensor::from<float>({-1000, -100, -1.3132617F, -0.6931472F, 0}, {1, 5}),
                        1e-6, 1e-6));
}

TEST(Patterns, WhatOnlyLooksLikeAPatternStays) {
  ModelMaker m({{std::nullopt}, {4}});
  const std::string gate = m.node("Sigmoid", {"x"});
  const std::string product = m.node("Mul", {"x", gate});
  // The gate has another reader.
  const Imported imported = translate(m.ending_in(m.node("Add", {product, gate})), {4});
  EXPECT_THAT(types_of(imported), ElementsAre("Sigmoid", "Mul", "Add"));
}

// Its factor is one number for all features.
TEST(Patterns, ALayerNormMayHaveOneFactor) {
  ModelMaker m({{std::nullopt}, {4}});
  const OnnxAttributeValue last = Ints{-1};
  const std::string centred = m.node("Sub", {"x", m.node("ReduceMean", {"x"}, {{"axes", last}})});
  const std::string variance =
      m.node("ReduceMean", {m.node("Mul", {centred, centred})}, {{"axes", last}});
  const std::string root = m.node("Sqrt", {m.node("Add", {variance, m.number(1)})});
  const std::string scaled =
      m.node("Mul", {m.node("Div", {centred, root}), m.reals("factor", {1}, {2})});
  const std::string y = m.node("Add", {scaled, m.reals("shift", {4}, {0, 1, 2, 3})});
  const Imported imported = translate(m.ending_in(y), {4});
  const Tensor x = Tensor::from<float>({1, 1, -1, -1}, {1, 4});
  const float one = 2 / std::sqrt(2.0F);
  EXPECT_TRUE(all_close(output_of(imported, x),
                        Tensor::from<float>({one, 1 + one, 2 - one, 3 - one}, {1, 4}), 1e-6, 1e-6));
}

// A number of three dimensions makes a value of three: values that have them already are as before.
TEST(Patterns, NumbersAddNoDimensions) {
  const auto network = [](const std::string& pattern, std::vector<OnnxDim> dims) {
    ModelMaker m(std::move(dims));
    const auto number = [&](float value) {
      return m.reals("number " + std::to_string(value), {1, 1, 1}, {value});
    };
    std::string y;
    if (pattern == "Pow") {
      y = m.node("Pow", {"x", number(1.5F)});
    } else if (pattern == "Hardswish") {
      y = m.node("Clip", {m.node("Add", {"x", m.number(3)}), m.number(0), m.number(6)});
      y = m.node("Div", {m.node("Mul", {"x", y}), number(6)});
    } else {
      const OnnxAttributeValue last = Ints{-1};
      const std::string centred =
          m.node("Sub", {"x", m.node("ReduceMean", {"x"}, {{"axes", last}})});
      y = m.node("ReduceMean", {m.node("Mul", {centred, centred})}, {{"axes", last}});
      y = m.node("Div", {centred, m.node("Sqrt", {m.node("Add", {y, number(1e-3F)})})});
    }
    return m.ending_in(y);
  };
  for (const std::string pattern : {"Pow", "Hardswish", "LayerNorm"}) {
    EXPECT_THAT(types_of(translate(network(pattern, {{std::nullopt}, {2}, {4}}), {2, 4})),
                ElementsAre(pattern));
    EXPECT_THAT(message_of<InputError>([&] {
                  translate(network(pattern, {{std::nullopt}, {4}}), {4});
                }),
                ::testing::ContainsRegex("has (3|more) dimensions"));
  }
}

TEST(Patterns, RecognisesLayerNorm) {
  ModelMaker m({{std::nullopt}, {3}, {8}});
  const OnnxAttributeValue last = Ints{-1};
  const std::string centred = m.node("Sub", {"x", m.node("ReduceMean", {"x"}, {{"axes", last}})});
  const std::string variance =
      m.node("ReduceMean", {m.node("Pow", {centred, m.number(2)})}, {{"axes", last}});
  const std::string root = m.node("Sqrt", {m.node("Add", {variance, m.number(1e-3F)})});
  const std::string scaled =
      m.node("Mul", {m.node("Div", {centred, root}), m.weight("ln.weight", {8})});
  const Imported imported =
      translate(m.ending_in(m.node("Add", {scaled, m.weight("ln.bias", {8})})), {3, 8});
  EXPECT_THAT(types_of(imported), ElementsAre("LayerNorm"));
  EXPECT_THAT(names_of(imported), ElementsAre("ln"));
  EXPECT_NEAR(std::get<double>(imported.graph.nodes[0].options.at("eps")), 1e-3, 1e-9);
}

// What a reduction dropped, under the shape of what it is combined with.
std::string spread(ModelMaker& m, const std::string& x, const Ints& kept, const Ints& shape) {
  return m.node("Expand", {m.node("Reshape", {x, m.integers(kept)}), m.integers(shape)});
}

TEST(Patterns, RecognisesASoftmaxThatIsSpeltOut) {
  const auto imported = [](const Ints& axes, bool centres) {
    ModelMaker m({{std::nullopt}, {3}, {3}});
    std::string x = "x";
    if (centres) {
      const std::string largest =
          m.node("ReduceMax", {x}, {{"axes", axes}, {"keepdims", std::int64_t{0}}});
      const std::string bound = m.node("Max", {m.number(-INFINITY), largest});
      x = m.node("Sub", {x, spread(m, bound, {-1, 3, 1}, {1, 3, 1})});
    }
    x = m.node("Exp", {x});
    const std::string sum =
        m.node("ReduceSum", {x, m.integers(axes)}, {{"keepdims", std::int64_t{0}}});
    return translate(m.ending_in(m.node("Div", {x, spread(m, sum, {-1, 3, 1}, {1, 3, 1})})),
                     {3, 3});
  };
  const Tensor x = random_tensor({2, 3, 3}, 1, DType::kF32);
  for (const bool centres : {true, false}) {
    const Imported last = imported({2}, centres);
    EXPECT_THAT(types_of(last), ElementsAre("Softmax"));
    EXPECT_TRUE(all_close(output_of(last, x), softmax(Variable(x)).value(), 1e-6, 1e-7));
  }
  // Sums of columns under the shape of rows are something else.
  const auto others = types_of(imported({1}, true));
  EXPECT_EQ(std::count(others.begin(), others.end(), "Softmax"), 0);
  EXPECT_EQ(others.back(), "Div");
}

// With the mean of squares less the square of the mean, along dimension 1.
TEST(Patterns, RecognisesALayerNormOfMoments) {
  const auto imported = [](float bound) {
    ModelMaker m({{std::nullopt}, {6}, {4}});
    const auto mean = [&](const std::string& x) {
      const std::string sum =
          m.node("ReduceSum", {x, m.integers({1})}, {{"keepdims", std::int64_t{0}}});
      return m.node("Mul", {sum, m.number(1 / 6.0F)});
    };
    const std::string average = mean("x"), squares = mean(m.node("Mul", {"x", "x"}));
    const std::string variance = m.node(
        "Max", {m.number(bound), m.node("Sub", {squares, m.node("Mul", {average, average})})});
    const std::string shifted =
        m.node("Add", {spread(m, variance, {-1, 1, 4}, {1, 1, 4}), m.number(1e-3F)});
    const std::string inverse = m.node("Reciprocal", {m.node("Sqrt", {shifted})});
    const std::string factor = m.node("Mul", {inverse, m.weight("gamma", {1, 6, 1})});
    const std::string centred = m.node("Sub", {"x", spread(m, average, {-1, 1, 4}, {1, 1, 4})});
    return translate(
        m.ending_in(m.node("Add", {m.node("Mul", {centred, factor}), m.weight("beta", {6, 1})})),
        {6, 4});
  };
  const Imported norm = imported(0), other = imported(0.5F);
  EXPECT_THAT(types_of(norm), ElementsAre("Permute", "LayerNorm", "Permute"));
  const auto types = types_of(other);  // whose variance is no variance
  EXPECT_EQ(std::count(types.begin(), types.end(), "LayerNorm"), 0);
  const Tensor x = random_tensor({3, 6, 4}, 1, DType::kF32);
  const Tensor large = [&] {
    Tensor scaled = x.clone();
    for (float& v : scaled.span<float>()) v *= 4;  // its variances are above the bound
    return scaled;
  }();
  EXPECT_TRUE(all_close(output_of(norm, large), output_of(other, large), 1e-4, 1e-5));
}

}  // namespace
}  // namespace steelyard::imports
