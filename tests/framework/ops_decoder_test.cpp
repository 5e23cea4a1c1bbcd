// The operations of language models against plain formulas in double, and their gradients.
#include <gtest/gtest.h>

#include <cmath>

#include "steelyard/framework/ops/elementwise/rotary.h"
#include "steelyard/framework/ops/elementwise/swiglu.h"
#include "steelyard/framework/ops/products/attention.h"
#include "steelyard/framework/ops/reductions/rms_norm.h"
#include "tests/support/gradcheck.h"

namespace steelyard {
namespace {

using testing::all_close;
using testing::gradcheck;
using testing::message_of;
using testing::random_leaf;
using testing::random_tensor;

// Attention by its definition, with all scores of a row.
Tensor plain_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                       const AttentionHeads& heads, const Tensor& starts) {
  const std::int64_t width = q.dim(2) / heads.queries, earlier = k.dim(1) - q.dim(1);
  const auto at = [&](const Tensor& t, std::int64_t n, std::int64_t i, std::int64_t head) {
    return t.data<double>() + (n * t.dim(1) + i) * t.dim(2) + head * width;
  };
  Tensor y = Tensor::zeros(q.shape(), DType::kF64);
  for (std::int64_t n = 0; n < q.dim(0); ++n) {
    for (std::int64_t h = 0; h < heads.queries; ++h) {
      const std::int64_t kv = h / (heads.queries / heads.keys);
      for (std::int64_t i = 0; i < q.dim(1); ++i) {
        const std::int64_t last = earlier + i;
        const auto first =
            starts.defined() ? static_cast<std::int64_t>(starts.data<double>()[n * k.dim(1) + last])
                             : 0;
        std::vector<double> shares;
        double sum = 0;
        for (std::int64_t j = first; j <= last; ++j) {
          double score = 0;
          for (std::int64_t d = 0; d < width; ++d) score += at(q, n, i, h)[d] * at(k, n, j, kv)[d];
          shares.push_back(std::exp(score / std::sqrt(double(width))));
          sum += shares.back();
        }
        for (std::int64_t j = first; j <= last; ++j) {
          for (std::int64_t d = 0; d < width; ++d) {
            at(y, n, i, h)[d] += shares[j - first] / sum * at(v, n, j, kv)[d];
          }
        }
      }
    }
  }
  return y;
}

struct AttentionCase {
  std::int64_t samples, length, width;
  AttentionHeads heads;
  std::int64_t earlier = 0;    // keys before the first query
  std::int64_t documents = 0;  // their largest length; 0: a sample is one
};

// [samples, length] of documents whose lengths differ between samples.
Tensor some_starts(std::int64_t samples, std::int64_t length, std::int64_t most) {
  const Tensor tokens = Tensor::zeros({samples, length}, DType::kF64);
  for (std::int64_t n = 0; n < samples; ++n) {
    for (std::int64_t i = n; i < length; i += 1 + (i + n) % most) {
      tokens.data<double>()[n * length + i] = 7;
    }
  }
  return document_starts(tokens, 7);
}

class CausalAttentionOp : public ::testing::TestWithParam<AttentionCase> {
 protected:
  std::vector<Tensor> inputs() const {
    const auto& [samples, length, width, heads, earlier, documents] = GetParam();
    const Shape keys{samples, earlier + length, heads.keys * width};
    return {random_tensor({samples, length, heads.queries * width}, 1), random_tensor(keys, 2),
            random_tensor(keys, 3)};
  }
  Tensor starts() const {
    const AttentionCase& c = GetParam();
    return c.documents > 0 ? some_starts(c.samples, c.earlier + c.length, c.documents) : Tensor();
  }
};

TEST_P(CausalAttentionOp, AgreesWithItsDefinition) {
  const std::vector<Tensor> x = inputs();
  const AttentionHeads& heads = GetParam().heads;
  const Tensor expected = plain_attention(x[0], x[1], x[2], heads, starts());
  const auto of = [&](DType dtype) {
    std::vector<Variable> v;
    for (const Tensor& t : x) v.emplace_back(t.to(dtype));
    const Tensor at = starts();
    return causal_attention(v[0], v[1], v[2], heads, at.defined() ? at.to(dtype) : at).value();
  };
  EXPECT_TRUE(all_close(of(DType::kF64), expected, 1e-12, 1e-12));
  EXPECT_TRUE(all_close(of(DType::kF32).to(DType::kF64), expected, 1e-5, 1e-6));
}

using CausalAttentionGradient = CausalAttentionOp;
TEST_P(CausalAttentionGradient, IsThatOfFiniteDifferences) {
  std::vector<Variable> v;
  for (Tensor& t : inputs()) v.emplace_back(t, true);
  EXPECT_TRUE(
      gradcheck([&] { return causal_attention(v[0], v[1], v[2], GetParam().heads, starts()); }, v));
}

const AttentionCase kSmallCases[] = {{2, 5, 4, {4, 2}},         {1, 1, 2, {1, 1}},
                                     {1, 70, 2, {2, 1}},  // more keys than are visited at once
                                     {0, 3, 4, {1, 1}},         {2, 3, 4, {4, 2}, 4},
                                     {1, 1, 2, {2, 1}, 69},     {3, 9, 2, {2, 1}, 0, 4},
                                     {1, 75, 2, {2, 1}, 0, 70}, {2, 4, 2, {1, 1}, 5, 3}};
INSTANTIATE_TEST_SUITE_P(Small, CausalAttentionOp, ::testing::ValuesIn(kSmallCases));
INSTANTIATE_TEST_SUITE_P(Small, CausalAttentionGradient, ::testing::ValuesIn(kSmallCases));
INSTANTIATE_TEST_SUITE_P(Long, CausalAttentionOp,
                         ::testing::Values(AttentionCase{1, 200, 6, {6, 3}},
                                           AttentionCase{2, 150, 6, {6, 3}, 50, 90}));

// Scores of thousands: exponents are differences to the largest.
TEST(CausalAttention, LargeScoresStayFinite) {
  Tensor q = random_tensor({1, 130, 4}, 1, DType::kF32);
  for (float& x : q.span<float>()) x *= 3000;
  const Variable k(random_tensor({1, 130, 4}, 2, DType::kF32));
  const Tensor y = causal_attention(Variable(q), k, k, {1, 1}).value();
  for (const float x : y.span<float>()) ASSERT_TRUE(std::isfinite(x));
}

TEST(CausalAttention, RefusesShapesThatDoNotFit) {
  const Variable q(Tensor::zeros({1, 3, 8})), k(Tensor::zeros({1, 3, 4}));
  const auto message = [](const auto& f) { return message_of<std::invalid_argument>(f); };
  EXPECT_EQ(message([&] {
              causal_attention(q, k, k, {3, 2});
            }),
            "[causal_attention] expected heads of queries that are a multiple of those of keys, "
            "got 3 and 2");
  EXPECT_EQ(message([&] {
              causal_attention(q, q, k, {4, 2});
            }),
            "[causal_attention] expected keys [1, 3, 4], got [1, 3, 8]");
  EXPECT_EQ(message([&] {
              causal_attention(q, k, Variable(Tensor::zeros({1, 2, 4})), {4, 2});
            }),
            "[causal_attention] expected values [1, 3, 4], got [1, 2, 4]");
  const Variable few(Tensor::zeros({1, 2, 4}));
  EXPECT_EQ(message([&] {
              causal_attention(q, few, few, {4, 2});
            }),
            "[causal_attention] expected keys [1, 3, 4], got [1, 2, 4]");
  EXPECT_EQ(message([&] {
              causal_attention(q, k, k, {4, 2}, Tensor::zeros({1, 2}));
            }),
            "[causal_attention] expected starts f32 [1, 3], got f32 [1, 2]");
  const Variable wide(Tensor::zeros({1, 1, 258}));
  EXPECT_EQ(message([&] {
              causal_attention(wide, wide, wide, {1, 1});
            }),
            "[causal_attention] expected heads of at most 256 values, got 258");
}

Tensor plain_rotary(const Tensor& x, const RotaryOptions& o) {
  Tensor y = Tensor::empty(x.shape(), DType::kF64);
  const std::int64_t pairs = o.width / 2;
  for (std::int64_t i = 0; i < x.size() / 2; ++i) {
    const std::int64_t pair = i % pairs, head = i / pairs;
    const std::int64_t row = head / (x.dim(2) / o.width);
    const std::int64_t start =
        o.starts.defined() ? static_cast<std::int64_t>(o.starts.data<double>()[row]) : 0;
    const std::int64_t position = o.first + row % x.dim(1) - start;
    double angle = double(position) * std::pow(o.base, -2.0 * double(pair) / double(o.width));
    if (o.factors.defined()) angle /= double(o.factors.data<float>()[pair]);
    const bool halves = o.pairs == RotaryPairs::kHalves;
    const std::int64_t first = head * o.width + (halves ? pair : 2 * pair);
    const std::int64_t second = first + (halves ? pairs : 1);
    const double *from = x.data<double>(), c = std::cos(angle), s = std::sin(angle);
    y.data<double>()[first] = from[first] * c - from[second] * s;
    y.data<double>()[second] = from[first] * s + from[second] * c;
  }
  return y;
}

TEST(Rotary, AgreesWithItsFormulaAndHasItsGradient) {
  for (const RotaryPairs pairs : {RotaryPairs::kNeighbours, RotaryPairs::kHalves}) {
    for (const Tensor& factors : {Tensor(), Tensor::from<float>({1, 2, 8}, {3})}) {
      const RotaryOptions options{.width = 6, .base = 100, .pairs = pairs, .factors = factors};
      const Variable x = random_leaf({2, 7, 12}, 1);
      const Tensor expected = plain_rotary(x.value(), options);
      EXPECT_TRUE(all_close(rotary(x, options).value(), expected, 1e-12, 1e-12));
      const Variable narrow(x.value().to(DType::kF32));
      EXPECT_TRUE(all_close(rotary(narrow, options).value().to(DType::kF64), expected, 0, 1e-6));
      EXPECT_TRUE(gradcheck([&] { return rotary(x, options); }, {x}));
    }
  }
}

TEST(Rotary, BeginsAtAPosition) {
  const RotaryOptions options{.width = 6, .base = 100, .first = 5};
  const Variable x = random_leaf({2, 3, 12}, 1);
  const Tensor expected = plain_rotary(x.value(), options);
  EXPECT_TRUE(all_close(rotary(x, options).value(), expected, 1e-12, 1e-12));
  EXPECT_TRUE(gradcheck([&] { return rotary(x, options); }, {x}));
}

TEST(Rotary, BeginsAgainWithEachDocument) {
  const RotaryOptions options{.width = 4, .base = 100, .starts = some_starts(2, 9, 4)};
  const Variable x = random_leaf({2, 9, 8}, 1);
  const Tensor expected = plain_rotary(x.value(), options);
  EXPECT_TRUE(all_close(rotary(x, options).value(), expected, 1e-12, 1e-12));
  EXPECT_TRUE(gradcheck([&] { return rotary(x, options); }, {x}));
}

TEST(DocumentStarts, AreThePositionsAfterBorders) {
  const Tensor tokens = Tensor::from<float>({1, 7, 7, 2, 3, 7, 5, 6, 1, 7}, {2, 5});
  const Tensor expected = Tensor::from<float>({0, 0, 2, 3, 3, 0, 1, 1, 1, 1}, {2, 5});
  EXPECT_TRUE(all_close(document_starts(tokens, 7), expected, 0, 0));
  EXPECT_TRUE(all_close(document_starts(tokens, 9), Tensor::zeros({2, 5}), 0, 0));
  EXPECT_EQ(message_of<std::invalid_argument>([] { document_starts(Tensor::zeros({3}), 1); }),
            "[document_starts] expected tokens [samples, length], got [3]");
}

TEST(Rotary, RefusesWhatDoesNotFit) {
  const auto message = [](const Shape& shape, const RotaryOptions& options) {
    return message_of<std::invalid_argument>(
        [&] { rotary(Variable(Tensor::zeros(shape)), options); });
  };
  EXPECT_EQ(message({1, 2, 6}, {.width = 3}),
            "[rotary] expected heads of an even width of at least 2, got 3");
  EXPECT_EQ(message({1, 2, 6}, {.width = 4}),
            "[rotary] expected input [samples, length, heads * 4], got [1, 2, 6]");
  EXPECT_EQ(message({1, 2, 4}, {.width = 4, .base = 0}), "[rotary] expected a base above 0, got 0");
  EXPECT_EQ(message({1, 2, 4}, {.width = 4, .factors = Tensor::zeros({3})}),
            "[rotary] expected factors f32 [2], got f32 [3]");
  EXPECT_EQ(message({1, 2, 4}, {.width = 4, .first = -1}),
            "[rotary] expected a first position of at least 0, got -1");
  EXPECT_EQ(message({1, 2, 4}, {.width = 4, .first = 1, .starts = Tensor::zeros({1, 2})}),
            "[rotary] expected starts f32 [1, 2] and a first position of 0, got f32 [1, 2] and 1");
}

TEST(RmsNorm, AgreesWithItsFormulaAndHasItsGradients) {
  const Variable x = random_leaf({3, 2, 5}, 1), gamma = random_leaf({5}, 2);
  const Tensor y = rms_norm(x, gamma, 1e-3).value();
  for (std::int64_t r = 0; r < 6; ++r) {
    const double* row = x.value().data<double>() + r * 5;
    double squares = 0;
    for (int c = 0; c < 5; ++c) squares += row[c] * row[c];
    for (int c = 0; c < 5; ++c) {
      EXPECT_NEAR(y.data<double>()[r * 5 + c],
                  row[c] / std::sqrt(squares / 5 + 1e-3) * gamma.value().data<double>()[c], 1e-14);
    }
  }
  EXPECT_TRUE(gradcheck([&] { return rms_norm(x, gamma, 1e-3); }, {x, gamma}));
  const Variable fixed(gamma.value());
  EXPECT_TRUE(gradcheck([&] { return rms_norm(x, fixed); }, {x}));
  EXPECT_EQ(message_of<std::invalid_argument>([&] { rms_norm(gamma, x); }),
            "[rms_norm] expected gamma [5], got [3, 2, 5]");
  EXPECT_EQ(message_of<std::invalid_argument>([&] { rms_norm(x, gamma, 0); }),
            "[rms_norm] expected eps above 0, got 0");
}

TEST(SwiGlu, AgreesWithItsFormulaAndHasItsGradients) {
  const Variable gate = random_leaf({3, 5}, 1), up = random_leaf({3, 5}, 2);
  const Tensor y = swiglu(gate, up).value();
  for (std::int64_t i = 0; i < y.size(); ++i) {
    const double g = gate.value().data<double>()[i], u = up.value().data<double>()[i];
    EXPECT_NEAR(y.data<double>()[i], g / (1 + std::exp(-g)) * u, 1e-14);
  }
  EXPECT_TRUE(gradcheck([&] { return swiglu(gate, up); }, {gate, up}));
  EXPECT_EQ(message_of<std::invalid_argument>([&] { swiglu(gate, Variable(Tensor::zeros({5}))); }),
            "[swiglu] expected two tensors of one shape, as the gate's [3, 5], got [5]");
}

}  // namespace
}  // namespace steelyard
