// Einsum as the products of matrices that it stands for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "tests/import/onnx_support.h"
#include "tests/support/gradcheck.h"

namespace steelyard::imports {
namespace {

using testing::all_close;
using ::testing::HasSubstr;
using testing::message_of;
using testing::random_tensor;

// Sums over all of an equation's letters, one element after another.
Tensor summed(const std::string& a, const std::string& b, const std::string& result,
              const Tensor& x, const Tensor& y) {
  std::map<char, std::int64_t> sizes, at;
  for (std::size_t i = 0; i < a.size(); ++i) sizes[a[i]] = x.shape()[i];
  for (std::size_t i = 0; i < b.size(); ++i) sizes[b[i]] = y.shape()[i];
  Shape shape;
  for (const char c : result) shape.push_back(sizes[c]);
  std::int64_t count = 1;
  for (const auto& [letter, size] : sizes) count *= size;
  Tensor sums = Tensor::zeros(shape);
  const auto place = [&](const std::string& letters) {
    std::int64_t index = 0;
    for (const char c : letters) index = index * sizes[c] + at[c];
    return index;
  };
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t rest = i;
    for (const auto& [letter, size] : sizes) {
      at[letter] = rest % size;
      rest /= size;
    }
    sums.data<float>()[place(result)] +=
        x.data<float>()[place(a)] * (b.empty() ? 1 : y.data<float>()[place(b)]);
  }
  return sums;
}

struct EinsumCase {
  std::string a, b, result;
  Shape constant = {};  // of the second operand; else it is the first one squared
};

TEST(Einsum, ComputesWhatItsEquationSays) {
  const std::vector<EinsumCase> cases{
      {"bct", "", "btc"},                  // a Transpose
      {"bct", "bcs", "bts"},               // attention's scores
      {"bct", "bst", "bcs"},               //
      {"bct", "bct", "bt"},                // dots
      {"bct", "bsk", "bctsk", {}},         // refused below
      {"bct", "td", "bcd", {5, 3}},        // a linear layer
      {"bct", "cd", "bdt", {4, 3}},        // of other than the last dimension
      {"bct", "dct", "bd", {3, 4, 5}},     // of two of them
      {"bct", "tdk", "bdkc", {5, 2, 3}}};  // to two
  for (const EinsumCase& each : cases) {
    const std::string equation = each.a + (each.b.empty() ? "" : "," + each.b) + "->" + each.result;
    ModelMaker m({{std::nullopt}, {4}, {5}});
    std::vector<std::string> inputs{"x"};
    const Tensor constant = random_tensor(each.constant, 7, DType::kF32);
    if (!each.constant.empty()) {
      const auto values = constant.span<float>();
      inputs.push_back(m.reals("w", each.constant, {values.begin(), values.end()}));
    } else if (!each.b.empty()) {
      inputs.push_back(m.node("Mul", {"x", "x"}));
    }
    const OnnxModel model = m.ending_in(m.node("Einsum", inputs, {{"equation", equation}}));
    if (each.result.size() > 4) {
      EXPECT_THAT(message_of<InputError>([&] {
                    translate(model, {4, 5});
                  }),
                  HasSubstr("the equation bct,bsk->bctsk is no product of two matrices"));
      continue;
    }
    const Imported imported = translate(model, {4, 5});
    const Tensor x = random_tensor({2, 4, 5}, 1, DType::kF32);
    Tensor square = x.clone();
    for (float& value : square.span<float>()) value *= value;
    const Tensor expected =
        summed(each.a, each.b, each.result, x, each.constant.empty() ? square : constant);
    EXPECT_TRUE(all_close(output_of(imported, x), expected, 1e-5, 1e-5)) << equation;
  }
}

TEST(Einsum, OtherEquationsAreRefused) {
  for (const char* equation : {"...t->t...", "btt->bt", "bct->bc", "bct", "bct,bcs,bct->bs"}) {
    ModelMaker m({{std::nullopt}, {4}, {4}});
    const OnnxModel model =
        m.ending_in(m.node("Einsum", {"x"}, {{"equation", std::string(equation)}}));
    EXPECT_THAT(message_of<InputError>([&] {
                  translate(model, {4, 4});
                }),
                HasSubstr("(Einsum): the equation"))
        << equation;
  }
}

}  // namespace
}  // namespace steelyard::imports
