// What an ONNX file may ask for and has no form here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "tests/import/onnx_support.h"
#include "tests/support/gradcheck.h"

namespace steelyard::imports {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;

using Ints = std::vector<std::int64_t>;
using Make = std::function<std::string(ModelMaker&)>;

constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();

// Why a model of rows [N, 3], or of samples of another shape, is refused.
std::string refusal(const Make& make, Shape sample = {3}) {
  std::vector<OnnxDim> dims{{std::nullopt}};
  for (const std::int64_t dim : sample) dims.push_back({dim});
  ModelMaker m(dims);
  const OnnxModel model = m.ending_in(make(m));
  if (sample.size() == 3) std::rotate(sample.begin(), sample.begin() + 1, sample.end());
  return message_of<InputError>([&] { translate(model, sample); });
}

TEST(Refusals, SayWhatOfAGemmDoesNotFit) {
  EXPECT_THAT(
      refusal([](ModelMaker& m) {
        return m.node("Gemm", {"x", m.weight("w", {3, 4}), m.weight("c", {2, 1})});
      }),
      HasSubstr("Gemm_0 (Gemm): its third operand [2, 1] beside the matrix [3, 4]: expected "
                "a number for each output"));
  EXPECT_THAT(refusal([](ModelMaker& m) {
                return m.node("Gemm", {"x", m.weight("w", {3, 4})}, {{"transA", std::int64_t{1}}});
              }),
              HasSubstr("Gemm_0 (Gemm): transA is set"));
  EXPECT_THAT(refusal([](ModelMaker& m) {
                return m.node("Gemm", {"x", "x"});
              }),
              HasSubstr("Gemm_0 (Gemm): its second matrix is computed"));
}

TEST(Refusals, ASoftmaxOverTheBatch) {
  EXPECT_THAT(refusal([](ModelMaker& m) {
                const std::string sum =
                    m.node("ReduceSum", {"x", m.integers({1})}, {{"keepdims", std::int64_t{0}}});
                return m.node("Softmax", {sum}, {{"axis", std::int64_t{0}}});
              }),
              HasSubstr("Softmax_1 (Softmax): over the batch"));
}

// Products and sums of a hostile file's sizes stay in 64 bits; a build with UBSan says where not.
TEST(Refusals, SizesOfAHostileFile) {
  const Shape image{3, 4, 4};
  const auto up = [](const char* attribute, Ints values) -> Make {
    return [=](ModelMaker& m) {
      return m.node("ConvTranspose", {"x", m.weight("w", {3, 4, 2, 2})}, {{attribute, values}});
    };
  };
  EXPECT_THAT(refusal(up("strides", {kHuge / 2, 2}), image), HasSubstr("strides: expected 2"));
  EXPECT_THAT(refusal(up("dilations", {kHuge, 2}), image), HasSubstr("dilations: expected 2"));
  EXPECT_THAT(refusal(up("pads", {kHuge, 0, kHuge, 0}), image), HasSubstr("pads: expected 4"));
  for (const std::string op : {"Conv", "ConvTranspose"}) {
    const Make grouped = [&](ModelMaker& m) {
      const std::string y = m.node(op, {"x", m.weight("w", {3, 4, 2, 2})}, {{"group", kHuge / 2}});
      return m.node("Add", {y, m.weight("b", {4, 1, 1})});
    };
    EXPECT_THAT(refusal(grouped, image), HasSubstr("its weight [3, 4, 2, 2] does not fit"));
  }
  EXPECT_THAT(refusal(
                  [](ModelMaker& m) {
                    const std::string pads = m.integers({0, 0, kHuge, 0, 0, 0, kHuge, 0});
                    return m.node("AveragePool", {m.node("Pad", {"x", pads})},
                                  {{"kernel_shape", Ints{2, 2}}, {"pads", Ints{1, 0, 1, 0}}});
                  },
                  image),
              HasSubstr("too large"));
  EXPECT_THAT(refusal(
                  [](ModelMaker& m) {
                    const std::string x = m.node("Transpose", {"x"}, {{"perm", Ints{1, 0, 2, 3}}});
                    return m.node("Gather", {x, m.number_of(kHuge)}, {{"axis", std::int64_t{0}}});
                  },
                  image),
              HasSubstr("an index is outside of its dimension"));
  EXPECT_THAT(
      refusal([](ModelMaker& m) {
        return m.node("Split", {"x", m.integers({kHuge, kHuge, 5})}, {{"axis", std::int64_t{1}}});
      }),
      HasSubstr("of 3"));
  EXPECT_THAT(refusal([](ModelMaker& m) {
                const std::string above = m.node("Greater", {"x", m.number_of(-kHuge - 1)});
                return m.node("Where", {above, "x", m.number(0)});
              }),
              HasSubstr("with a whole number that no float holds"));
}

TEST(Refusals, BoundsThatAreNoNumbers) {
  const auto bounded = [](const std::string& op) -> Make {
    return [=](ModelMaker& m) { return m.node(op, {"x", m.number(NAN)}); };
  };
  EXPECT_THAT(refusal(bounded("Max")),
              HasSubstr("Max_0 (Max): its value holds values that are not"));
  EXPECT_THAT(refusal(bounded("Min")),
              HasSubstr("Min_0 (Min): its value holds values that are not"));
  EXPECT_THAT(refusal(bounded("Clip")),
              HasSubstr("Clip_0 (Clip): min: expected a number, got nan"));
}

// The names of operations are those of one domain.
TEST(Refusals, OperationsOfOthersInPatterns) {
  const auto of_others = [](ModelMaker& m, const std::string& value) {
    m.model().nodes.back().domain = "acme";
    return value;
  };
  EXPECT_THAT(
      refusal([&](ModelMaker& m) {
        const std::string sum = m.node("Add", {"x", m.number(3)});
        const std::string clip = of_others(m, m.node("Clip", {sum, m.number(0), m.number(6)}));
        return m.node("Div", {m.node("Mul", {"x", clip}), m.number(6)});
      }),
      HasSubstr("Clip_1 (Clip): operations of the domain 'acme' are not supported"));
  EXPECT_THAT(
      refusal([&](ModelMaker& m) {
        const std::string linear = of_others(m, m.node("Linear", {"x", m.weight("w", {4, 3})}));
        return m.node("Add", {linear, m.weight("b", {4})});
      }),
      HasSubstr("Linear_0 (Linear): operations of the domain 'acme' are not supported"));
}

}  // namespace
}  // namespace steelyard::imports
