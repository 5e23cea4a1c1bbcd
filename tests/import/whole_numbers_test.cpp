// Inputs of whole numbers: what chooses rows of tables.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "tests/import/onnx_support.h"
#include "tests/support/gradcheck.h"

namespace steelyard::imports {
namespace {

using testing::all_close;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;

OnnxModel of_whole_numbers(const std::function<std::string(ModelMaker&)>& make) {
  ModelMaker m({{std::nullopt}, {5}});
  m.model().inputs[0].type = "int64";
  return m.ending_in(make(m));
}

// Which class it is says nothing where there is one.
TEST(WholeNumbers, EqualWithOneNumberIsAComparison) {
  ModelMaker m({{std::nullopt}, {1}});
  m.model().inputs[0].type = "int64";
  const std::string equal = m.node("Equal", {"x", m.integers({0})});
  const std::string number = m.node("Cast", {equal}, {{"to", std::int64_t{1}}});
  const std::string y = m.node("Mul", {number, m.reals("w", {1, 2}, {3, 5})});
  const Imported imported = translate(m.ending_in(y), {1});
  EXPECT_THAT(testing::values(output_of(imported, Tensor::from<float>({0, 2}, {2, 1}))),
              ElementsAre(3, 5, 0, 0));
}

TEST(WholeNumbers, OneHotTimesATableIsAnEmbedding) {
  const auto table = [](ModelMaker& m) {
    return m.reals("table.weight", {3, 2}, {0, 1, 2, 3, 4, 5});
  };
  const std::vector<std::function<std::string(ModelMaker&)>> spellings{
      [&](ModelMaker& m) {
        std::string x = m.node("Reshape", {"x", m.integers({-1, 5, 1})});
        x = m.node("Equal", {m.node("Expand", {x, m.integers({1, 5, 1})}), m.integers({0, 1, 2})});
        x = m.node("Cast", {x}, {{"to", std::int64_t{1}}});
        return m.node("MatMul", {x, table(m)});
      },
      [&](ModelMaker& m) {
        const std::string x = m.node("OneHot", {"x", m.integers({3}), m.reals("v", {2}, {0, 1})});
        return m.node("MatMul", {x, table(m)});
      },
      [&](ModelMaker& m) {
        return m.node("Gather", {table(m), m.node("Cast", {"x"}, {{"to", std::int64_t{6}}})});
      }};
  for (const auto& spelling : spellings) {
    const Imported imported = translate(of_whole_numbers(spelling), {5});
    EXPECT_EQ(imported.graph.nodes.back().type, "Embedding");
    EXPECT_EQ(imported.graph.nodes.back().name, "table");
    EXPECT_EQ(imported.graph.input.type, "int64");
    EXPECT_EQ(graph_from(text_of(imported.graph), "file").input, imported.graph.input);
    const Tensor y = output_of(imported, Tensor::from<float>({2, 0, 1, 1, 2}, {1, 5}));
    EXPECT_TRUE(all_close(y, Tensor::from<float>({4, 5, 0, 1, 2, 3, 2, 3, 4, 5}, {1, 5, 2}), 0, 0));
  }
}

TEST(WholeNumbers, OtherUsesAreRefused) {
  const auto refusal = [](const std::function<std::string(ModelMaker&)>& make) {
    const OnnxModel model = of_whole_numbers(make);
    return message_of<InputError>([&] { translate(model, {5}); });
  };
  EXPECT_THAT(refusal([](ModelMaker& m) {
                const std::string x = m.node("Reshape", {"x", m.integers({-1, 5, 1})});
                return m.node("Relu", {m.node("Equal", {x, m.integers({1, 2, 3})})});
              }),
              HasSubstr("Relu_2 (Relu): of whole numbers"));
  EXPECT_THAT(refusal([](ModelMaker& m) {
                return m.node("Div", {"x", "x"});
              }),
              HasSubstr("Div_0 (Div): of whole numbers"));
  EXPECT_THAT(refusal([](ModelMaker& m) {
                return m.node("Add", {"x", m.number(1)});
              }),
              HasSubstr("Add_0 (Add): of integers"));
  EXPECT_THAT(refusal([](ModelMaker& m) {
                const std::string none = m.node("Less", {"x", m.integers({0})});
                return m.node("Where", {none, m.number(0), "x"});
              }),
              HasSubstr("(Where): between floats and whole numbers"));
  EXPECT_THAT(refusal([](ModelMaker& m) { return m.node("Identity", {"x"}); }),
              HasSubstr("holds whole numbers"));
  EXPECT_THAT(
      refusal([](ModelMaker& m) {
        const std::string x = m.node("OneHot", {"x", m.integers({3}), m.reals("v", {2}, {0, 1})});
        return m.node("Relu", {m.node("Cast", {x}, {{"to", std::int64_t{1}}})});
      }),
      HasSubstr("of whole numbers"));
}

// Positions that count from the table's end, as TensorFlow's exporter writes them.
TEST(WholeNumbers, ArithmeticOfIndicesStaysWhole) {
  const std::vector<std::function<std::string(ModelMaker&, const std::string&)>> spellings{
      [](ModelMaker& m, const std::string& x) {
        const std::string below = m.node("Less", {x, m.integers({0})});
        return m.node("Where", {below, m.node("Add", {x, m.integers({3})}), x});
      },
      [](ModelMaker& m, const std::string& x) {
        const std::string below = m.node("Less", {x, m.integers({0})});
        const std::string above =
            m.node("Cast", {m.node("Not", {below})}, {{"to", std::int64_t{6}}});
        const std::string wrapped = m.node("Add", {x, m.integers({3})});
        return m.node("Add",
                      {m.node("Mul", {m.node("Cast", {below}, {{"to", std::int64_t{6}}}), wrapped}),
                       m.node("Mul", {above, x})});
      },
      [](ModelMaker& m, const std::string& x) {
        const std::string last = m.node("Min", {m.node("Neg", {x}), m.integers({2})});
        return m.node("Sub", {m.integers({2}), m.node("Max", {last, m.integers({0})})});
      }};
  const std::vector<std::vector<double>> chosen{{1, 0, 2, 1, 2}, {1, 0, 2, 1, 2}, {2, 2, 1, 0, 2}};
  for (std::size_t i = 0; i < spellings.size(); ++i) {
    const Imported imported =
        translate(of_whole_numbers([&](ModelMaker& m) {
                    const std::string at = spellings[i](m, "x");
                    return m.node("Gather", {m.reals("t", {3, 1}, {0, 1, 2}), at});
                  }),
                  {5});
    const Tensor y = output_of(imported, Tensor::from<float>({1, 0, -1, -2, 2}, {1, 5}));
    EXPECT_EQ(testing::values(y), chosen[i]) << i;
    for (const NamedTensor& weight : imported.weights) {  // no constant of indices is trained
      EXPECT_TRUE(weight.name.ends_with(".weight") || weight.tensor.size() == 1) << weight.name;
    }
  }
}

TEST(WholeNumbers, ATableOfDifferentNumbersAtComputedIndicesIsRefused) {
  const auto elements = [](ModelMaker& m) {
    const std::string at =
        m.node("GatherElements", {m.integers({0, 1, 0}), "x"}, {{"axis", std::int64_t{0}}});
    return m.node("Gather", {m.reals("t", {2, 1}, {5, 6}), at});
  };
  EXPECT_THAT(message_of<InputError>([&] { translate(of_whole_numbers(elements), {5}); }),
              HasSubstr("of a table with different numbers, at indices that are computed"));
}

// A mask of words, of which only those that hold are counted.
TEST(WholeNumbers, TruthsAreInputsToo) {
  ModelMaker m({{std::nullopt}, {3}});
  m.model().inputs[0].type = "bool";
  const std::string other = m.node("Not", {"x"});
  const std::string y =
      m.node("Where", {other, m.number(-1), m.node("Cast", {"x"}, {{"to", std::int64_t{1}}})});
  const Imported imported = translate(m.ending_in(y), {3});
  EXPECT_EQ(imported.graph.input.type, "bool");
  EXPECT_EQ(graph_from(text_of(imported.graph), "file").input, imported.graph.input);
  EXPECT_THAT(testing::values(output_of(imported, Tensor::from<float>({1, 0, 1}, {1, 3}))),
              ElementsAre(1, -1, 1));
}

// Of an input of floats.
TEST(WholeNumbers, ACastRoundsTowardsZero) {
  ModelMaker m({{std::nullopt}, {4}});
  const std::string at = m.node("Cast", {"x"}, {{"to", std::int64_t{6}}});
  const std::string sum = m.node("Add", {at, m.integers({1})});
  const Imported imported =
      translate(m.ending_in(m.node("Gather", {m.reals("t", {3, 1}, {5, 6, 7}), sum})), {4});
  EXPECT_EQ(imported.graph.input.type, "float");
  const Tensor y = output_of(imported, Tensor::from<float>({-1.0F, 0.99F, -0.5F, 1.5F}, {1, 4}));
  EXPECT_THAT(testing::values(y), ElementsAre(5, 6, 6, 7));
}

// One position of each list stays whole: it chooses a row, and is no output.
TEST(WholeNumbers, APositionOfAListIsOne) {
  const auto first = [](ModelMaker& m) {
    return m.node("Gather", {"x", m.number_of(0)}, {{"axis", std::int64_t{1}}});
  };
  const Imported imported =
      translate(of_whole_numbers([&](ModelMaker& m) {
                  const std::string table = m.reals("t", {3, 2}, {0, 1, 2, 3, 4, 5});
                  return m.node("Gather", {table, first(m)});
                }),
                {5});
  EXPECT_EQ(imported.graph.nodes.back().type, "Embedding");
  const Tensor y = output_of(imported, Tensor::from<float>({2, 0, 1, 1, 2, 1, 1, 1, 1, 1}, {2, 5}));
  EXPECT_TRUE(all_close(y, Tensor::from<float>({4, 5, 2, 3}, {2, 2}), 0, 0));
  EXPECT_EQ(message_of<InputError>([&] { translate(of_whole_numbers(first), {5}); }),
            "test.onnx: the output 'Gather_0:0' holds whole numbers");
}

}  // namespace
}  // namespace steelyard::imports
