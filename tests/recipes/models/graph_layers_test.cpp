// Layers that are graphs, nodes that join values, and functions: from a recipe's text to a module.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "steelyard/layers/catalogue.h"
#include "steelyard/recipes/models/models.h"
#include "steelyard/recipes/schema/recipe_options.h"
#include "tests/recipes/recipe_support.h"
#include "tests/support/tensors.h"

namespace steelyard {
namespace {

using ::testing::HasSubstr;

std::shared_ptr<Module> module_of(const std::string& layers, const Shape& input) {
  const Registries& registries = builtin_registries();
  const std::string text =
      with(kSmallRecipe, "{type: mlp, hidden: [8]}", "{layers: [" + layers + "]}");
  const Recipe recipe = parse_recipe(text, "r.yaml", {}, registries);
  Rng rng(1);
  return build_model(recipe.model, input, 10, rng, registries.models);
}

std::string refusal_of(const std::string& layers, const Shape& input) {
  return rejection([&] { module_of(layers, input); });
}

Tensor numbers(const Shape& shape) {
  Tensor x = Tensor::empty(shape);
  for (std::int64_t i = 0; i < x.size(); ++i) {
    x.data<float>()[i] = static_cast<float>(std::sin(0.7 * static_cast<double>(i)));
  }
  return x;
}

Tensor output_of(Module& module, const Tensor& x) {
  const NoGradGuard no_grad;
  ForwardContext context;
  return module.forward(Variable(x), context).value();
}

constexpr const char* kEnd = ", {type: Flatten}, {type: Linear, out_features: 10}";

TEST(GraphLayers, NodesReadWhatTheyName) {
  const auto module = module_of(
      "{type: Graph, nodes: ["
      "{name: double, type: Affine, slope: 2}, "
      "{name: shifted, type: Affine, offset: 1, inputs: [input]}, "
      "{name: product, type: Mul, inputs: [double, shifted]}, "
      "{name: less, type: Sub, inputs: [product, input]}]}",
      {10});
  const Tensor x = numbers({2, 10});
  const Tensor y = output_of(*module, x);
  for (std::int64_t i = 0; i < x.size(); ++i) {
    const float v = x.data<float>()[i];
    EXPECT_FLOAT_EQ(y.data<float>()[i], 2 * v * (v + 1) - v);
  }
}

TEST(GraphLayers, ValuesOfOtherShapesMeet) {
  const auto module = module_of(
      "{type: Graph, nodes: ["
      "{name: turned, type: Permute, order: [2, 1]}, "
      "{name: gram, type: MatMul, inputs: [turned, input]}, "
      "{name: largest, type: ReduceMax, axes: [1], keep: true, inputs: [gram]}, "
      "{name: both, type: Cat, axis: 1, inputs: [gram, largest]}]}" +
          std::string(kEnd),
      {6, 3});
  EXPECT_EQ(output_of(*module, numbers({2, 6, 3})).shape(), (Shape{2, 10}));
  EXPECT_THAT(module->named_parameters()[0].variable.shape(), (Shape{10, 12}));
}

TEST(GraphLayers, MistakesAreNamedWithTheirPlaces) {
  EXPECT_THAT(refusal_of("{type: Graph, nodes: [{name: a, type: ReLU, inputs: [b]}]}", {10}),
              HasSubstr("expected `input` or the name of a node before this one, got 'b'"));
  EXPECT_THAT(
      refusal_of("{type: Graph, nodes: [{name: a, type: ReLU}, {name: a, type: ReLU}]}", {10}),
      HasSubstr("the name 'a' stands for another value of the graph"));
  EXPECT_THAT(refusal_of("{type: Graph, nodes: [{name: input, type: ReLU}]}", {10}),
              HasSubstr("the name 'input' stands for another value of the graph"));
  EXPECT_THAT(refusal_of("{type: Graph, nodes: [{type: ReLU}]}", {10}),
              HasSubstr("expected a `name` of the graph's node"));
  EXPECT_THAT(refusal_of("{type: ReLU, inputs: [input]}", {10}),
              HasSubstr("`inputs` is of nodes of a Graph"));
  EXPECT_THAT(
      refusal_of("{type: Graph, nodes: [{name: a, type: ReLU, inputs: [input, input]}]}", {10}),
      HasSubstr("it takes one input, got 2"));
  EXPECT_THAT(refusal_of("{type: Add}", {10}),
              HasSubstr("expected a node of a Graph with two or more `inputs`, got one"));
  EXPECT_THAT(refusal_of("{type: Graph, nodes: [{name: a, type: Linear, out_features: 3}, "
                         "{name: b, type: Add, inputs: [a, input]}]}",
                         {10}),
              HasSubstr("Add on inputs of [3] and [10]: "));
  EXPECT_THAT(refusal_of("{type: Graph, nodes: [{name: a, type: ReLU}, "
                         "{name: b, type: ReLU, inputs: [input]}]}",
                         {10}),
              HasSubstr("Graph"));
}

// Batches of as many samples as a sequence has steps hid it.
TEST(GraphLayers, SamplesDoNotMeet) {
  EXPECT_THAT(refusal_of("{type: Graph, nodes: [{name: mean, type: ReduceMean, axes: [1]}, "
                         "{name: product, type: Mul, inputs: [input, mean]}]}",
                         {16, 8}),
              HasSubstr("expected values of as many dimensions, got [16, 8] and [8]"));
  EXPECT_THAT(refusal_of("{type: Graph, nodes: [{name: one, type: Linear, out_features: 1}, "
                         "{name: product, type: MatMul, inputs: [one, input]}]}",
                         {8}),
              HasSubstr("MatMul on inputs of [1] and [8]: "));
}

TEST(GraphLayers, PartsOfASampleReadTheGraphsInput) {
  const Registries& registries = builtin_registries();
  const std::string text =
      with(kSmallRecipe, "{type: mlp, hidden: [8]}",
           "{layers: [{type: Graph, nodes: [{name: a, type: InputPart, input: a}, "
           "{name: b, type: InputPart, input: b}, {name: both, type: Cat, inputs: [b, a]}]}]}");
  const Recipe recipe = parse_recipe(text, "r.yaml", {}, registries);
  Rng rng(1);
  const auto module =
      build_model(recipe.model, {{5}, {{"a", {2}}, {"b", {3}}}}, 5, rng, registries.models);
  const Tensor x = numbers({1, 5});
  const Tensor y = output_of(*module, x);
  for (const std::int64_t i : {0, 1, 2, 3, 4}) {
    EXPECT_EQ(y.data<float>()[i], x.data<float>()[(i + 2) % 5]);
  }
}

TEST(GraphLayers, CatOfTheLastDimensionIsTheOneThatIsQuantized) {
  for (const char* axis : {"", "axis: 2, "}) {
    const auto module =
        module_of("{type: Graph, nodes: [{name: a, type: ReLU}, {name: both, type: Cat, " +
                      std::string(axis) + "inputs: [a, input]}]}" + kEnd,
                  {4, 3});
    EXPECT_THAT(module->named_modules()[3].module->type_name(), "Cat") << axis;
  }
}

// softmax(q k^T / sqrt(width)) v of each head, from the parameters, in double.
TEST(GraphLayers, AttentionIsThePapersFormula) {
  constexpr std::int64_t kLength = 5, kChannels = 6, kHeads = 2, kWidth = kChannels / kHeads;
  const auto module =
      module_of("{type: Attention, heads: 2}" + std::string(kEnd), {kLength, kChannels});
  std::map<std::string, Tensor> parameters;
  for (const NamedParameter& p : module->named_parameters()) {
    parameters.emplace(p.name, p.variable.value());
  }
  const Tensor x = numbers({1, kLength, kChannels});
  const auto linear = [&](const std::string& name, const std::vector<double>& in) {
    const Tensor& w = parameters.at(name + ".weight");
    const Tensor& b = parameters.at(name + ".bias");
    const std::int64_t inputs = w.dim(1), outputs = w.dim(0);
    std::vector<double> out;
    for (std::int64_t row = 0; row * inputs < std::ssize(in); ++row) {
      for (std::int64_t o = 0; o < outputs; ++o) {
        double sum = double{b.data<float>()[o]};
        for (std::int64_t i = 0; i < inputs; ++i) {
          sum += in[static_cast<std::size_t>(row * inputs + i)] *
                 double{w.data<float>()[o * inputs + i]};
        }
        out.push_back(sum);
      }
    }
    return out;
  };
  const std::vector<double> input(x.span<float>().begin(), x.span<float>().end());
  const auto q = linear("0.q_proj", input), k = linear("0.k_proj", input),
             v = linear("0.v_proj", input);
  const auto at = [](std::int64_t step, std::int64_t head, std::int64_t i) {
    return static_cast<std::size_t>(step * kChannels + head * kWidth + i);
  };
  std::vector<double> context(static_cast<std::size_t>(kLength * kChannels), 0);
  for (std::int64_t head = 0; head < kHeads; ++head) {
    for (std::int64_t to = 0; to < kLength; ++to) {
      std::vector<double> share;
      double total = 0;
      for (std::int64_t from = 0; from < kLength; ++from) {
        double score = 0;
        for (std::int64_t i = 0; i < kWidth; ++i)
          score += q[at(to, head, i)] * k[at(from, head, i)];
        share.push_back(std::exp(score / std::sqrt(double{kWidth})));
        total += share.back();
      }
      for (std::int64_t from = 0; from < kLength; ++from) {
        for (std::int64_t i = 0; i < kWidth; ++i) {
          context[at(to, head, i)] +=
              share[static_cast<std::size_t>(from)] / total * v[at(from, head, i)];
        }
      }
    }
  }
  const auto steps = linear("0.out_proj", context);
  std::vector<double> flat;  // channel by channel, as Flatten gives it
  for (std::int64_t c = 0; c < kChannels; ++c) {
    for (std::int64_t step = 0; step < kLength; ++step) {
      flat.push_back(steps[static_cast<std::size_t>(step * kChannels + c)]);
    }
  }
  const auto expected = linear("2", flat);
  const Tensor y = output_of(*module, x);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(y.data<float>()[i], expected[i], 1e-5) << i;
  }
  EXPECT_THAT(refusal_of("{type: Attention, heads: 4}", {kLength, kChannels}),
              HasSubstr("expected a divisor of the 6 channels, got 4"));
  EXPECT_THAT(refusal_of("{type: Attention, heads: 2}", {10}),
              HasSubstr("Attention expects a sequence [length, channels] of floats, got [10]"));
}

struct Formula {
  const char* layer;
  double (*of)(double);
};

TEST(GraphLayers, FunctionsAreTheirFormulas) {
  const Formula formulas[] = {
      {"{type: Tanh}", [](double x) { return std::tanh(x); }},
      {"{type: Exp}", [](double x) { return std::exp(x); }},
      {"{type: Abs}", [](double x) { return std::abs(x); }},
      {"{type: Sin}", [](double x) { return std::sin(x); }},
      {"{type: Softplus}", [](double x) { return std::log1p(std::exp(x)); }},
      {"{type: Elu, alpha: 0.5}", [](double x) { return x > 0 ? x : 0.5 * std::expm1(x); }},
      {"{type: Pow, exponent: 2}", [](double x) { return x * x; }},
      {"{type: HardSigmoid}", [](double x) { return std::clamp(x / 6 + 0.5, 0.0, 1.0); }},
      {"{type: Affine, slope: 3, offset: -1}", [](double x) { return 3 * x - 1; }},
      {"{type: Clamp, lo: -0.25, hi: 0.5}", [](double x) { return std::clamp(x, -0.25, 0.5); }},
      {"{type: PReLU, per_channel: true}", [](double x) { return x > 0 ? x : 0.25 * x; }}};
  const Tensor x = numbers({3, 10});
  for (const Formula& formula : formulas) {
    const Tensor y = output_of(*module_of(formula.layer, {10}), x);
    for (std::int64_t i = 0; i < x.size(); ++i) {
      EXPECT_NEAR(y.data<float>()[i], formula.of(double{x.data<float>()[i]}), 1e-5)
          << formula.layer << " of " << x.data<float>()[i];
    }
  }
}

TEST(GraphLayers, MovesGiveTheShapesThatTheySay) {
  const auto shape_after = [](const std::string& layer, const Shape& input) {
    Shape batch = input;
    batch.insert(batch.begin(), 2);
    const auto module = module_of(layer + kEnd, input);
    return module->named_parameters().back().variable.shape() == Shape{10}
               ? module->named_parameters()[module->named_parameters().size() - 2]
                     .variable.shape()[1]
               : -1;
  };
  EXPECT_EQ(shape_after("{type: Upsample, factor: [2, 3]}", {4, 4, 2}), 4 * 4 * 2 * 6);
  EXPECT_EQ(shape_after("{type: Slice, axis: 1, first: 1, count: 2}", {4, 5}), 10);
  EXPECT_EQ(shape_after("{type: Slice, axis: 2, first: 4, count: 3, step: -2}", {4, 5}), 12);
  EXPECT_EQ(shape_after("{type: Reshape, shape: [2, -1]}, {type: ReduceMean, axes: [1]}", {12}), 6);
  EXPECT_EQ(shape_after("{type: ReduceSum, axes: [1, 2]}", {4, 4, 7}), 7);
  EXPECT_THAT(refusal_of("{type: Reshape, shape: [0, 8]}", {4, 8}),
              HasSubstr("expected sizes of at least 1, or -1 once, got 0"));
  EXPECT_EQ(shape_after("{type: Embedding, count: 5, width: 3}", {4}), 12);
  EXPECT_EQ(shape_after("{type: InstanceNorm, eps: 0.01}", {4, 4, 2}), 32);
}

// What a catalogue's layer is called is what recipes call it, where they have it.
TEST(GraphLayers, NamesAreThoseOfTheCatalogue) {
  const ModelRegistry registry = builtin_models();
  std::size_t shared = 0;
  for (const std::string& type : registry.layer_types()) {
    shared += find_layer_type(type) != nullptr ? 1 : 0;
  }
  EXPECT_GE(shared, 45U);
}

}  // namespace
}  // namespace steelyard
