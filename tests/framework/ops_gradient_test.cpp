// Finite differences for the small operations, and properties every operation shares.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>

#include "steelyard/framework/ops/elementwise/activations.h"
#include "steelyard/framework/ops/elementwise/arithmetic.h"
#include "steelyard/framework/ops/elementwise/dropout.h"
#include "steelyard/framework/ops/elementwise/relu.h"
#include "steelyard/framework/ops/elementwise/unary.h"
#include "steelyard/framework/ops/losses/ctc_loss.h"
#include "steelyard/framework/ops/losses/losses.h"
#include "steelyard/framework/ops/moves/choose.h"
#include "steelyard/framework/ops/moves/concat.h"
#include "steelyard/framework/ops/moves/expand.h"
#include "steelyard/framework/ops/moves/flatten.h"
#include "steelyard/framework/ops/moves/gather.h"
#include "steelyard/framework/ops/moves/input_part.h"
#include "steelyard/framework/ops/moves/output_parts.h"
#include "steelyard/framework/ops/moves/permute.h"
#include "steelyard/framework/ops/products/conv2d.h"
#include "steelyard/framework/ops/products/conv_transpose2d.h"
#include "steelyard/framework/ops/products/embedding.h"
#include "steelyard/framework/ops/products/gru.h"
#include "steelyard/framework/ops/products/linear.h"
#include "steelyard/framework/ops/products/lstm.h"
#include "steelyard/framework/ops/products/matmul.h"
#include "steelyard/framework/ops/reductions/batch_norm.h"
#include "steelyard/framework/ops/reductions/cumulative_sum.h"
#include "steelyard/framework/ops/reductions/extremes.h"
#include "steelyard/framework/ops/reductions/layer_norm.h"
#include "steelyard/framework/ops/reductions/pool.h"
#include "steelyard/framework/ops/reductions/softmax.h"
#include "tests/support/gradcheck.h"

namespace steelyard {
namespace {

using testing::gradcheck;
using testing::leaf;
using testing::random_leaf;
using testing::random_tensor;
using testing::spread_tensor;
using testing::values;

struct OpCase {
  std::string name;  // Function::name()
  std::vector<Tensor> inputs;
  std::function<Variable(const std::vector<Variable>&)> op;
};

using Vs = std::vector<Variable>;

// From [-1, 1) to [0, 1).
Tensor half(const Tensor& x) {
  for (double& value : x.span<double>()) value = (value + 1) / 2;
  return x;
}

// From [-1, 1) to [0.5, 2.5).
Tensor positive(const Shape& shape) {
  const Tensor x = random_tensor(shape, 1);
  for (double& value : x.span<double>()) value += 1.5;
  return x;
}

// 2 sequences of 4 steps of 3 numbers, and the parameters of 2 units.
std::vector<Tensor> of_lstm() {
  return {random_tensor({2, 4, 3}, 1), random_tensor({8, 3}, 2), random_tensor({8, 2}, 3),
          random_tensor({8}, 4),       random_tensor({2}, 5),    random_tensor({2}, 6)};
}

std::vector<Tensor> of_gru() {
  return {random_tensor({2, 4, 3}, 1), random_tensor({6, 3}, 2), random_tensor({6, 2}, 3),
          random_tensor({6}, 4),       random_tensor({2}, 5),    random_tensor({2}, 6)};
}

const std::vector<OpCase>& op_cases() {
  static const std::vector<OpCase> all{
      {"linear",
       {random_tensor({2, 3, 4}, 1), random_tensor({5, 4}, 2), random_tensor({5}, 3)},
       [](const Vs& v) { return linear(v[0], v[1], v[2]); }},
      {"linear",
       {random_tensor({3, 4}, 1), random_tensor({5, 4}, 2)},
       [](const Vs& v) { return linear(v[0], v[1], {}); }},
      // spread_tensor stays 0.05 away from 0 and from 6.
      {"relu", {spread_tensor({3, 5})}, [](const Vs& v) { return relu(v[0]); }},
      {"relu6", {spread_tensor({10, 15})}, [](const Vs& v) { return relu6(v[0]); }},
      {"matmul",
       {random_tensor({2, 3, 4, 5}, 1), random_tensor({2, 3, 5, 2}, 2)},
       [](const Vs& v) { return matmul(v[0], v[1]); }},
      {"matmul",
       {random_tensor({2, 4, 5}, 1), random_tensor({5, 3}, 2)},
       [](const Vs& v) { return matmul(v[0], v[1]); }},
      {"conv_transpose2d",
       {random_tensor({2, 3, 4, 4}, 1), random_tensor({4, 3, 3, 2}, 2), random_tensor({6}, 3)},
       [](const Vs& v) {
         return conv_transpose2d(v[0], v[1], v[2],
                                 {.conv = {.stride = {2, 1}, .padding = {1, 0}, .groups = 2},
                                  .output_padding = {1, 0}});
       }},
      {"leaky_relu", {spread_tensor({3, 5})}, [](const Vs& v) { return leaky_relu(v[0], 0.2); }},
      {"sigmoid", {random_tensor({3, 5}, 1)}, [](const Vs& v) { return sigmoid(v[0]); }},
      {"softmax", {random_tensor({2, 3, 5}, 1)}, [](const Vs& v) { return softmax(v[0]); }},
      {"cumulative_sum",
       {random_tensor({2, 3, 5}, 1)},
       [](const Vs& v) { return cumulative_sum(v[0]); }},
      {"cumulative_sum",
       {random_tensor({2, 3, 5}, 1)},
       [](const Vs& v) { return cumulative_sum(v[0], {.exclusive = true, .reverse = true}); }},
      {"log_softmax", {random_tensor({2, 3, 5}, 1)}, [](const Vs& v) { return log_softmax(v[0]); }},
      {"permute",
       {random_tensor({2, 3, 4, 5}, 1)},
       [](const Vs& v) {
         return permute(v[0], {2, 0, 3, 1});
       }},
      {"permute", {random_tensor({3, 4}, 1)}, [](const Vs& v) { return transpose(v[0], -1, 0); }},
      {"reshape",
       {random_tensor({3, 4}, 1)},
       [](const Vs& v) {
         return reshape(v[0], {2, 6});
       }},
      {"gelu", {random_tensor({3, 5}, 1)}, [](const Vs& v) { return gelu(v[0]); }},
      {"silu", {random_tensor({3, 5}, 1)}, [](const Vs& v) { return silu(v[0]); }},
      {"hardswish", {spread_tensor({10, 15})}, [](const Vs& v) { return hardswish(v[0]); }},
      {"layer_norm",
       {random_tensor({2, 3, 5}, 1), random_tensor({5}, 2), random_tensor({5}, 3)},
       [](const Vs& v) { return layer_norm(v[0], v[1], v[2]); }},
      {"embedding",
       {random_tensor({4, 3}, 1)},
       [](const Vs& v) {
         return embedding(Tensor::from<std::int64_t>({3, 0, 3, 1}, {2, 2}), v[0]);
       }},
      {"embedding",
       {random_tensor({4, 3}, 1)},
       [](const Vs& v) {
         return embedding(Variable(Tensor::from<double>({3, 0.2, 2.9, 1}, {2, 2})), v[0]);
       }},
      {"gather",
       {random_tensor({2, 4, 3}, 1)},
       [](const Vs& v) {
         return gather(v[0], Tensor::from<std::int64_t>({3, 0, 3, 1, 3, 1}, {2, 3}), 1);
       }},
      {"gather",
       {random_tensor({2, 4}, 1)},
       [](const Vs& v) {
         return gather(v[0], Tensor::from<std::int64_t>({2, 2, 0}, {3}), -1);
       }},
      {"gather",
       {random_tensor({3, 2}, 1)},
       [](const Vs& v) { return gather(v[0], Tensor::from<std::int64_t>({1}, {})); }},
      {"input_part",
       {random_tensor({3, 2, 5}, 1)},
       [](const Vs& v) {
         return input_part(v[0], {.first = 3, .shape = {2, 1, 3}});
       }},
      {"output_parts",
       {random_tensor({3, 2, 5}, 1), random_tensor({3}, 2), random_tensor({3, 4}, 3)},
       [](const Vs& v) {
         return output_parts({v[0], v[1], v[2], v[0]});
       }},
      {"lstm", of_lstm(),
       [](const Vs& v) {
         return lstm(v[0], {v[1], v[2], v[3], v[4], v[5]});
       }},
      {"lstm", of_lstm(),
       [](const Vs& v) {
         return lstm(v[0], {v[1], v[2], v[3], v[4], v[5]}, {.reverse = true, .final_cell = true});
       }},
      {"gru", of_gru(),
       [](const Vs& v) {
         return gru(v[0], {v[1], v[2], v[3], v[4], v[5]});
       }},
      {"gru", of_gru(),
       [](const Vs& v) {
         return gru(v[0], {v[1], v[2], v[3], v[4], v[5]}, {.reverse = true});
       }},
      {"sqrt", {positive({3, 5})}, [](const Vs& v) { return sqrt(v[0]); }},
      {"exp", {random_tensor({3, 5}, 1)}, [](const Vs& v) { return exp(v[0]); }},
      {"log", {positive({3, 5})}, [](const Vs& v) { return log(v[0]); }},
      {"abs", {spread_tensor({3, 5})}, [](const Vs& v) { return abs(v[0]); }},
      {"erf", {random_tensor({3, 5}, 1)}, [](const Vs& v) { return erf(v[0]); }},
      {"tanh", {random_tensor({3, 5}, 1)}, [](const Vs& v) { return tanh(v[0]); }},
      {"sin", {random_tensor({3, 5}, 1)}, [](const Vs& v) { return sin(v[0]); }},
      {"cos", {random_tensor({3, 5}, 1)}, [](const Vs& v) { return cos(v[0]); }},
      {"softplus", {random_tensor({3, 5}, 1)}, [](const Vs& v) { return softplus(v[0]); }},
      {"elu", {random_tensor({3, 5}, 1)}, [](const Vs& v) { return elu(v[0], 0.75); }},
      {"mul",  // by steps
       {random_tensor({3, 5}, 1)},
       [](const Vs& v) {
         return v[0] * (sign(v[0]) + floor(v[0]) + ceil(v[0] * 3.0) + round(v[0] * 2.0));
       }},
      {"pow", {positive({3, 5})}, [](const Vs& v) { return pow(v[0], -0.75); }},
      {"pow", {spread_tensor({3, 5})}, [](const Vs& v) { return pow(v[0], 3); }},
      {"pow", {spread_tensor({3, 5})}, [](const Vs& v) { return pow(v[0], 0); }},
      {"affine", {random_tensor({3, 5}, 1)}, [](const Vs& v) { return affine(v[0], -1.5, 0.25); }},
      {"where_greater",
       {random_tensor({4, 3}, 2), random_tensor({3}, 3)},
       [](const Vs& v) {
         const Variable x(random_tensor({2, 1, 3}, 1)), y(random_tensor({4, 1}, 4));
         return choose(Comparison::kGreater, x, y, v[0], v[1]);
       }},
      {"where_greater_equal",
       {random_tensor({3}, 2), random_tensor({4, 3}, 3)},
       [](const Vs& v) {
         const Variable x(Tensor::from<double>({0, 1, 2, NAN}, {4, 1}));
         return choose(Comparison::kGreaterEqual, x, constant(1, x), v[0], v[1]);
       }},
      {"where_equal",
       {random_tensor({3}, 2), random_tensor({4, 3}, 3)},
       [](const Vs& v) {
         const Variable x(Tensor::from<double>({0, INFINITY, 1, NAN}, {4, 1}));
         return choose(Comparison::kEqual, x, constant(INFINITY, x), v[0], v[1]);
       }},
      {"tanh_gelu", {random_tensor({3, 5}, 1)}, [](const Vs& v) { return tanh_gelu(v[0]); }},
      {"maximum",
       {spread_tensor({2, 1, 3}), random_tensor({4, 1}, 2)},
       [](const Vs& v) { return maximum(v[0], v[1]); }},
      {"minimum",
       {random_tensor({3, 4}, 1), random_tensor({3, 4}, 2)},
       [](const Vs& v) { return minimum(v[0], v[1]); }},
      {"amax",
       {spread_tensor({2, 3, 4})},
       [](const Vs& v) {
         return amax(v[0], {0, -1});
       }},
      {"amin",
       {spread_tensor({2, 3, 4})},
       [](const Vs& v) { return amin(v[0], {1}, ReducedAxes::kKeep); }},
      {"expand",
       {random_tensor({2, 1, 3}, 1)},
       [](const Vs& v) {
         return expand(v[0], {4, 2, 5, 3});
       }},
      {"add",
       {random_tensor({2, 1, 3}, 1), random_tensor({4, 1}, 2)},
       [](const Vs& v) { return v[0] + v[1]; }},
      {"sub",
       {random_tensor({2, 3}, 1), random_tensor({3}, 2)},
       [](const Vs& v) { return v[0] - v[1]; }},
      {"mul",
       {random_tensor({2, 3}, 1), random_tensor({2, 1}, 2)},
       [](const Vs& v) { return v[0] * v[1]; }},
      {"mul", {random_tensor({2, 3}, 1)}, [](const Vs& v) { return -v[0]; }},
      // Divisors from 2 to 4.
      {"div",
       {random_tensor({3}, 1), random_tensor({2, 3}, 2)},
       [](const Vs& v) { return v[0] / (v[1] + 3.0); }},
      {"div", {random_tensor({3}, 1)}, [](const Vs& v) { return 2.0 / (v[0] + 3.0); }},
      {"div_no_nan",
       {random_tensor({3}, 1), spread_tensor({2, 3})},
       [](const Vs& v) { return divide_no_nan(v[0], v[1]); }},
      {"where",
       {spread_tensor({3, 4}), random_tensor({4}, 2)},
       [](const Vs& v) { return where(v[0] > 0, v[0], 0.1 * v[1]); }},
      {"sum", {random_tensor({2, 3, 4}, 1)}, [](const Vs& v) { return sum(v[0]); }},
      {"sum",
       {random_tensor({2, 3, 4}, 1)},
       [](const Vs& v) {
         return sum(v[0], {0, -1});
       }},
      {"sum",
       {random_tensor({2, 3, 4}, 1)},
       [](const Vs& v) { return sum(v[0], {1}, ReducedAxes::kKeep); }},
      {"div",
       {random_tensor({2, 3, 4}, 1)},
       [](const Vs& v) {
         return mean(v[0], {1, 2});
       }},
      {"add",
       {random_tensor({2, 3}, 1), random_tensor({2, 3}, 2)},
       [](const Vs& v) { return add(v[0], v[1]); }},
      {"concat",
       {random_tensor({2, 3, 2}, 1), random_tensor({2, 3, 1}, 2), random_tensor({2, 3, 4}, 3)},
       [](const Vs& v) { return concat(v); }},
      {"concat", {random_tensor({3, 2}, 1)}, [](const Vs& v) { return concat(v); }},
      {"flatten", {random_tensor({2, 2, 3, 4}, 1)}, [](const Vs& v) { return flatten(v[0]); }},
      {"flatten", {random_tensor({2, 1, 1, 4}, 1)}, [](const Vs& v) { return flatten(v[0]); }},
      {"flatten", {random_tensor({2, 3, 2, 1}, 1)}, [](const Vs& v) { return flatten(v[0]); }},
      {"conv2d",
       {random_tensor({1, 4, 4, 2}, 1), random_tensor({3, 2, 3, 3}, 2), random_tensor({3}, 3)},
       [](const Vs& v) {
         return conv2d(v[0], v[1], v[2], {.padding = {1, 1}});
       }},
      {"max_pool2d",
       {spread_tensor({1, 4, 4, 2})},
       [](const Vs& v) { return max_pool2d(v[0], {}); }},
      {"avg_pool2d",
       {random_tensor({1, 4, 4, 2}, 1)},
       [](const Vs& v) { return avg_pool2d(v[0], {}); }},
      {"global_avg_pool",
       {random_tensor({2, 2, 3, 2}, 1)},
       [](const Vs& v) { return global_avg_pool(v[0]); }},
      {"batch_norm",
       {random_tensor({4, 3}, 1), random_tensor({3}, 2), random_tensor({3}, 3)},
       [](const Vs& v) {
         return batch_norm(v[0], v[1], v[2],
                           {.running_mean = Tensor::zeros({3}),
                            .running_var = Tensor::full({3}, 1.0),
                            .batch_statistics = true});
       }},
      {"dropout",
       {random_tensor({3, 5}, 1)},
       [](const Vs& v) {
         Rng rng(1);
         return dropout(v[0], 0.5, rng);
       }},
      {"cross_entropy",
       {random_tensor({2, 3}, 1)},
       [](const Vs& v) {
         return cross_entropy(v[0], Tensor::from<std::int64_t>({2, 0}, {2}), 0.1);
       }},
      {"mse_loss",
       {random_tensor({2, 3}, 1)},
       [](const Vs& v) {
         return mse_loss(v[0], random_tensor({2, 3}, 2));
       }},
      {"huber_loss",
       {random_tensor({4, 5}, 1)},
       [](const Vs& v) {
         return huber_loss(v[0], random_tensor({4, 5}, 2), 0.4);
       }},
      {"binary_cross_entropy",
       {random_tensor({2, 3}, 1)},
       [](const Vs& v) {
         return binary_cross_entropy(v[0], half(random_tensor({2, 3}, 2)));
       }},
      {"cosine_loss",
       {random_tensor({2, 3}, 1)},
       [](const Vs& v) {
         return cosine_loss(v[0], random_tensor({2, 3}, 2));
       }},
      {"ctc_loss",
       {random_tensor({2, 4, 3}, 1)},
       [](const Vs& v) {
         return ctc_loss(v[0], Tensor::from<std::int64_t>({1, 1, 2, -1}, {2, 2}));
       }},
  };
  return all;
}

class EveryOp : public ::testing::TestWithParam<OpCase> {
 protected:
  Vs leaves() const {
    Vs all;
    for (const Tensor& input : GetParam().inputs) all.push_back(leaf(input.clone()));
    return all;
  }
};

TEST_P(EveryOp, MatchesFiniteDifferences) {
  const Vs v = leaves();
  EXPECT_TRUE(gradcheck([&] { return GetParam().op(v); }, v));
}

TEST_P(EveryOp, IsNamedOnTheTape) {
  EXPECT_EQ(tape_of(GetParam().op(leaves())).back()->name(), GetParam().name);
}

TEST_P(EveryOp, BackwardRepeatsAndChangesNeitherInputsNorGradOutput) {
  const Vs v = leaves();
  const Variable y = GetParam().op(v);
  const auto y_before = values(y.value());
  const Tensor r = random_tensor(y.shape(), 7);
  const Tensor r_before = r.clone();
  const auto gradients = [&] {
    std::vector<std::vector<double>> all;
    for (Variable input : v) {
      input.clear_grad();
    }
    y.backward(r);
    for (const Variable& input : v) all.push_back(values(input.grad()));
    return all;
  };
  const auto first = gradients();
  EXPECT_EQ(gradients(), first);
  EXPECT_EQ(values(r), values(r_before));
  EXPECT_EQ(values(y.value()), y_before);
  for (std::size_t i = 0; i < v.size(); ++i) {
    EXPECT_EQ(values(v[i].value()), values(GetParam().inputs[i]));
  }
}

TEST_P(EveryOp, RecordsNothingWithoutNeed) {
  Vs v = leaves();
  {
    const NoGradGuard guard;
    EXPECT_FALSE(GetParam().op(v).requires_grad());
  }
  const auto expected = values(GetParam().op(v).value());
  for (Variable& input : v) input.set_requires_grad(false);
  const Variable y = GetParam().op(v);
  EXPECT_FALSE(y.requires_grad());
  EXPECT_EQ(values(y.value()), expected);
}

// Each input alone: the others' gradients must neither be needed nor made.
TEST_P(EveryOp, EachInputAloneGetsItsGradient) {
  for (std::size_t i = 0; i < GetParam().inputs.size(); ++i) {
    Vs v = leaves();
    for (std::size_t j = 0; j < v.size(); ++j) v[j].set_requires_grad(j == i);
    EXPECT_TRUE(gradcheck([&] { return GetParam().op(v); }, {v[i]})) << "input " << i;
    for (std::size_t j = 0; j < v.size(); ++j) {
      EXPECT_EQ(v[j].grad().defined(), j == i) << j;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, EveryOp, ::testing::ValuesIn(op_cases()), [](const auto& param) {
  return param.param.name + "_" + std::to_string(param.index);
});

TEST(Gradcheck, NoticesAWrongGradient) {
  const Variable x = leaf(Tensor::zeros({2}, DType::kF64));  // on the kink of relu
  EXPECT_FALSE(gradcheck([&] { return relu(x); }, {x}));
}

}  // namespace
}  // namespace steelyard
