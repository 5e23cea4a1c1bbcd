// What an ONNX file may ask for and has no form here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

// Of a model of rows [N, 3], or of samples of another shape.
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
