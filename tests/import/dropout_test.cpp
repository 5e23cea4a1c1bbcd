// Dropout of files that are exported for training.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "steelyard/layers/dropout.h"
#include "tests/import/onnx_support.h"
#include "tests/support/gradcheck.h"

namespace steelyard::imports {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;

// A Relu between, so that a graph without Dropout has an operation.
Imported imported_with(std::vector<std::string> (*operands)(ModelMaker&)) {
  ModelMaker m({{std::nullopt}, {8}});
  std::vector<std::string> inputs = operands(m);
  inputs.insert(inputs.begin(), m.node("Relu", {"x"}));
  return translate(m.ending_in(m.node("Dropout", inputs)), Shape{8});
}

std::string ratio(ModelMaker& m, float p) { return m.reals("ratio", {}, {p}); }

TEST(ImportedDropout, IsActiveInTrainingWhereTheFileSaysSo) {
  const Imported imported = imported_with([](ModelMaker& m) {
    return std::vector{ratio(m, 0.25F), m.number_of(1)};
  });
  EXPECT_THAT(types_of(imported), ElementsAre("ReLU", "Dropout"));
  const auto module = module_of(imported);
  Rng rng(1);
  const NoGradGuard no_grad;
  const Variable ones(Tensor::full({64, 8}, 1));
  const Tensor trained = (*module)(ones, {.training = true, .rng = &rng}).value();
  EXPECT_THAT(trained.span<float>(), ::testing::Contains(0.0F));
  EXPECT_THAT(trained.span<float>(), ::testing::Contains(::testing::FloatEq(1 / 0.75F)));
  EXPECT_THAT((*module)(ones, {}).value().span<float>(), ::testing::Each(1.0F));
}

TEST(ImportedDropout, OfInferenceIsLeftOut) {
  EXPECT_THAT(types_of(imported_with([](ModelMaker&) { return std::vector<std::string>{}; })),
              ElementsAre("ReLU"));
  EXPECT_THAT(types_of(imported_with([](ModelMaker& m) { return std::vector{ratio(m, 0.25F)}; })),
              ElementsAre("ReLU"));
  EXPECT_THAT(types_of(imported_with([](ModelMaker& m) {
                return std::vector{ratio(m, 0.25F), m.number_of(0)};
              })),
              ElementsAre("ReLU"));
  EXPECT_THAT(types_of(imported_with([](ModelMaker& m) {
                return std::vector{ratio(m, 0), m.number_of(1)};
              })),
              ElementsAre("ReLU"));
}

TEST(ImportedDropout, HasAHalfWithoutARatio) {
  const Imported imported = imported_with([](ModelMaker& m) {
    return std::vector{std::string(), m.number_of(1)};
  });
  EXPECT_EQ(std::get<double>(imported.graph.nodes.at(1).options.at("p")), 0.5);
}

Imported imported_units(const std::string& unit) {
  ModelMaker m({{std::nullopt}, {3}, {4}, {4}});
  const std::string y =
      m.node("Dropout", {m.node("Relu", {"x"})}, {{"unit", unit}, {"ratio", 0.25F}});
  m.model().nodes.back().domain = "steelyard.training";
  return translate(m.ending_in(y), Shape{3, 4, 4});
}

TEST(ImportedDropout, OfWholeChannelsAndSamplesComesFromThePythonPackage) {
  for (const std::string unit : {"channel", "sample"}) {
    const Imported imported = imported_units(unit);
    const auto& nodes = imported.graph.nodes;
    const auto dropout = std::find_if(nodes.begin(), nodes.end(),
                                      [](const auto& node) { return node.type == "Dropout"; });
    ASSERT_NE(dropout, nodes.end());
    EXPECT_EQ(std::get<std::string>(dropout->options.at("unit")), unit);
    const auto module = module_of(imported);
    Rng rng(1);
    const NoGradGuard no_grad;
    const Tensor y =
        (*module)(Variable(Tensor::full({64, 3, 4, 4}, 1)), {.training = true, .rng = &rng})
            .value();
    ASSERT_EQ(y.shape(), unit == "channel" ? Shape({64, 4, 4, 3}) : Shape({64, 3, 4, 4}));
    const auto values = y.span<float>();
    const auto channels = static_cast<std::size_t>(unit == "channel" ? 3 : 1);
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(values[i], values[i / 48 * 48 + i % channels]) << unit << i;
    }
    EXPECT_THAT(values, ::testing::Contains(0.0F));
    EXPECT_THAT(values, ::testing::Contains(::testing::FloatEq(1 / 0.75F)));
  }
  EXPECT_THAT(message_of<InputError>([] { imported_units("row"); }),
              HasSubstr("unit: expected element, channel or sample, got 'row'"));
}

TEST(ImportedDropout, OfEverythingIsRefused) {
  const auto refusal = message_of<InputError>([] {
    imported_with([](ModelMaker& m) { return std::vector{ratio(m, 1), m.number_of(1)}; });
  });
  EXPECT_THAT(refusal, HasSubstr("(Dropout): ratio: expected a number of at least 0 and below 1"));
}

}  // namespace
}  // namespace steelyard::imports
