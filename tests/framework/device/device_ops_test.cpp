// Elementwise operations, norms, pools and losses on a GPU against the CPU.
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

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
#include "steelyard/framework/ops/moves/slice.h"
#include "steelyard/framework/ops/products/conv_transpose2d.h"
#include "steelyard/framework/ops/products/embedding.h"
#include "steelyard/framework/ops/products/gru.h"
#include "steelyard/framework/ops/products/lstm.h"
#include "steelyard/framework/ops/products/matmul.h"
#include "steelyard/framework/ops/reductions/cumulative_sum.h"
#include "steelyard/framework/ops/reductions/extremes.h"
#include "steelyard/framework/ops/reductions/softmax.h"
#include "steelyard/framework/train/evaluate.h"
#include "tests/framework/device/device_cases.h"
#include "tests/support/gradcheck.h"

namespace steelyard::testing {
namespace {

using Vs = std::vector<Variable>;
using Place = std::function<Tensor(const Tensor&)>;

Tensor labels_below(std::int64_t n, std::int64_t limit) {
  Tensor labels = Tensor::empty({n}, DType::kI64);
  for (std::int64_t i = 0; i < n; ++i) labels.data<std::int64_t>()[i] = (i * i + 3) % limit;
  return labels;
}

// Losses of rows that take one warp, several and the whole block, with odd sizes.
void add_losses(std::vector<DeviceCase>& op_cases) {
  for (const auto& [rows, classes] :
       std::vector<std::array<std::int64_t, 2>>{{1, 1}, {37, 10}, {3, 33}, {5, 1000}, {300, 7}}) {
    const Tensor logits = spread_tensor({rows, classes});
    const Tensor labels = labels_below(rows, classes);
    for (const double smoothing : {0.0, 0.1}) {
      op_cases.push_back({"cross_entropy", {logits}, [=](const Vs& v, const Place& place) {
                            return cross_entropy(v[0], place(labels), smoothing);
                          }});
    }
    op_cases.push_back(
        {"distillation", {random_tensor({rows, classes}, 3)}, [=](const Vs& v, const Place& place) {
           const Tensor teacher = random_tensor({rows, classes}, 4, v[0].dtype());
           return distillation_loss(v[0], place(teacher), 2.5);
         }});
  }
  for (const std::int64_t n : {1, 300, 2048, 5001}) {
    op_cases.push_back({"mse", {random_tensor({n}, 1)}, [=](const Vs& v, const Place& place) {
                          return mse_loss(v[0], place(random_tensor({n}, 2, v[0].dtype())));
                        }});
    op_cases.push_back({"huber", {random_tensor({n}, 1)}, [=](const Vs& v, const Place& place) {
                          return huber_loss(v[0], place(random_tensor({n}, 2, v[0].dtype())), 0.4);
                        }});
  }
  op_cases.push_back(
      {"mix_losses", {random_tensor({4, 3}, 1)}, [](const Vs& v, const Place& place) {
         const Variable hard = cross_entropy(v[0], place(labels_below(4, 3)));
         const Tensor teacher = random_tensor({4, 3}, 4, v[0].dtype());
         return mix_losses(hard, distillation_loss(v[0], place(teacher)), 0.3);
       }});
}

void add_task_losses(std::vector<DeviceCase>& op_cases) {
  for (const auto& [rows, classes] : std::vector<std::array<std::int64_t, 2>>{{1, 2}, {70, 9}}) {
    const Tensor labels = labels_below(rows, classes);
    const Tensor weights = random_tensor({classes}, 3);
    for (double& w : weights.span<double>()) w += 2;
    const auto halves = [rows = rows, classes = classes](DType dtype) {
      Tensor marks = random_tensor({rows, classes}, 2);
      for (double& mark : marks.span<double>()) mark = (mark + 1) / 2;
      return marks.to(dtype);
    };
    const Tensor logits = spread_tensor({rows, classes});
    op_cases.push_back({"weighted_cross_entropy", {logits}, [=](const Vs& v, const Place& place) {
                          return cross_entropy(v[0], place(labels), 0.1, {place(weights)});
                        }});
    op_cases.push_back({"soft_cross_entropy", {logits}, [=](const Vs& v, const Place& place) {
                          return cross_entropy(v[0], place(halves(v[0].dtype())), 0.1);
                        }});
    op_cases.push_back({"binary_cross_entropy", {logits}, [=](const Vs& v, const Place& place) {
                          return binary_cross_entropy(v[0], place(halves(v[0].dtype())),
                                                      place(weights));
                        }});
    op_cases.push_back({"cosine", {logits}, [=](const Vs& v, const Place& place) {
                          return cosine_loss(v[0], place(halves(v[0].dtype())));
                        }});
  }
  op_cases.push_back({"ctc", {random_tensor({70, 6, 4}, 1)}, [](const Vs& v, const Place& place) {
                        Tensor texts = labels_below(140, 3).reshape({70, 2});
                        for (std::int64_t& character : texts.span<std::int64_t>()) ++character;
                        texts.data<std::int64_t>()[1] = -1;
                        return ctc_loss(v[0], place(texts));
                      }});
}

void add_layouts(std::vector<DeviceCase>& op_cases) {
  for (const Shape& shape : std::vector<Shape>{
           {2, 5, 7, 3}, {3, 1, 1, 4}, {2, 33, 2, 40}, {0, 2, 2, 3}, {1, 9, 9, 65}}) {
    op_cases.push_back({"flatten", {random_tensor(shape, 1)}, [](const Vs& v, const Place&) {
                          return flatten(v[0]);
                        }});
  }
  op_cases.push_back({"concat",
                      {random_tensor({3, 17, 5}, 1), random_tensor({3, 17, 0}, 2),
                       random_tensor({3, 17, 8}, 3), random_tensor({3, 17, 1}, 4)},
                      [](const Vs& v, const Place&) { return concat(v); }});
  op_cases.push_back({"concat_empty",
                      {random_tensor({0, 2}, 1), random_tensor({0, 3}, 2)},
                      [](const Vs& v, const Place&) { return concat(v); }});
}

void add_lookups(std::vector<DeviceCase>& op_cases) {
  for (const auto& [count, width] :
       std::vector<std::array<std::int64_t, 2>>{{0, 4}, {1, 1}, {90, 5}, {130, 40}}) {
    op_cases.push_back({"embedding",
                        {random_tensor({7, width}, 1)},
                        [count = count](const Vs& v, const Place& place) {
                          // The last row is never used, the others often.
                          return embedding(place(labels_below(count, 6)), v[0]);
                        }});
  }
  for (const Shape& shape : std::vector<Shape>{{7, 40}, {3, 7, 5}, {2, 3, 7}, {0, 7, 2}}) {
    const std::int64_t axis = shape.size() == 2 || shape[1] == 3 ? std::ssize(shape) - 1 : 1;
    op_cases.push_back(
        {"gather", {random_tensor(shape, 1)}, [axis](const Vs& v, const Place& place) {
           return gather(v[0], place(labels_below(130, 6).reshape({13, 10})), axis);
         }});
  }
  for (const std::int64_t n : {0, 1, 8, 1003}) {
    op_cases.push_back({"dropout", {random_tensor({n}, 1)}, [](const Vs& v, const Place&) {
                          Rng rng(5, 7);
                          rng.next_u32();
                          return dropout(v[0], 0.3, rng);
                        }});
  }
}

void add_functions(std::vector<DeviceCase>& op_cases) {
  using Unary = Variable (*)(const Variable&);
  for (const auto& [name, f] :
       std::vector<std::pair<const char*, Unary>>{{"sqrt", sqrt},
                                                  {"exp", exp},
                                                  {"log", log},
                                                  {"abs", abs},
                                                  {"erf", erf},
                                                  {"tanh", tanh},
                                                  {"sin", sin},
                                                  {"cos", cos},
                                                  {"softplus", softplus},
                                                  {"sign", sign},
                                                  {"floor", floor},
                                                  {"ceil", ceil},
                                                  {"round", round},
                                                  {"tanh_gelu", tanh_gelu}}) {
    for (const std::int64_t n : {1, 1003}) {
      op_cases.push_back({name, {random_tensor({n}, 1)}, [f = f](const Vs& v, const Place&) {
                            return f(v[0] + 1.5);
                          }});
    }
  }
  op_cases.push_back({"elu", {random_tensor({1003}, 1)}, [](const Vs& v, const Place&) {
                        return elu(v[0], 0.75);
                      }});
  op_cases.push_back({"pow", {random_tensor({1003}, 1)}, [](const Vs& v, const Place&) {
                        return pow(v[0] + 1.5, -0.75);
                      }});
  for (const auto& [a, b] : std::vector<std::array<Shape, 2>>{{Shape{37, 29}, Shape{37, 29}},
                                                              {Shape{3, 1, 70}, Shape{41, 1}}}) {
    op_cases.push_back({"maximum",
                        {spread_tensor(a), spread_tensor(b)},  // some are equal
                        [](const Vs& v, const Place&) { return maximum(v[0], v[1]); }});
    op_cases.push_back({"minimum",
                        {spread_tensor(a), random_tensor(b, 2)},
                        [](const Vs& v, const Place&) { return minimum(v[0], v[1]); }});
  }
  op_cases.push_back({"div_no_nan",
                      {random_tensor({40}, 1), spread_tensor({30, 40})},
                      [](const Vs& v, const Place&) { return divide_no_nan(v[0], relu(v[1])); }});
  op_cases.push_back({"amax", {spread_tensor({5, 33, 7})}, [](const Vs& v, const Place&) {
                        return amax(v[0] * v[0], {0, 2});
                      }});
  op_cases.push_back({"amin", {random_tensor({70, 40}, 1)}, [](const Vs& v, const Place&) {
                        return amin(v[0], {-1}, ReducedAxes::kKeep);
                      }});
  for (const Comparison comparison : {Comparison::kGreater, Comparison::kEqual}) {
    op_cases.push_back({comparison == Comparison::kEqual ? "where_equal" : "where_greater",
                        {random_tensor({5, 33, 7}, 1), random_tensor({33, 1}, 2)},
                        [comparison](const Vs& v, const Place& place) {
                          const Variable x(place(labels_below(7, 5)).to(v[0].dtype()));
                          return choose(comparison, x, constant(3, x), v[0], v[1]);
                        }});
  }
  op_cases.push_back({"expand", {random_tensor({3, 1, 40}, 1)}, [](const Vs& v, const Place&) {
                        return expand(v[0], {2, 3, 33, 40});
                      }});
  op_cases.push_back(
      {"lstm",
       {random_tensor({5, 7, 11}, 1), random_tensor({36, 11}, 2), random_tensor({36, 9}, 3),
        random_tensor({36}, 4), random_tensor({9}, 5), random_tensor({9}, 6)},
       [](const Vs& v, const Place&) {
         return lstm(v[0], {v[1], v[2], v[3], v[4], v[5]}, {.reverse = true, .final_cell = true});
       }});
  op_cases.push_back(
      {"gru",
       {random_tensor({5, 7, 11}, 1), random_tensor({27, 11}, 2), random_tensor({27, 9}, 3),
        random_tensor({27}, 4), random_tensor({9}, 5), random_tensor({9}, 6)},
       [](const Vs& v, const Place&) {
         return gru(v[0], {v[1], v[2], v[3], v[4], v[5]}, {.reverse = true});
       }});
  op_cases.push_back({"input_part", {random_tensor({37, 12, 5}, 1)}, [](const Vs& v, const Place&) {
                        return input_part(v[0], {.first = 7, .shape = {4, 11}});
                      }});
  op_cases.push_back({"output_parts",
                      {random_tensor({37, 12, 5}, 1), random_tensor({37}, 2)},
                      [](const Vs& v, const Place&) {
                        return output_parts({v[0], v[1]});
                      }});
  op_cases.push_back(
      {"embedding_of_floats", {random_tensor({7, 40}, 1)}, [](const Vs& v, const Place& place) {
         const Tensor rows = labels_below(130, 6).to(v[0].dtype());
         return embedding(Variable(place(rows)), v[0]);
       }});
}

std::vector<DeviceCase> op_cases() {
  std::vector<DeviceCase> all{
      {"add",
       {random_tensor({37, 29}, 1), random_tensor({37, 29}, 2)},
       [](const Vs& v, const Place&) { return add(v[0], v[1]); }},
      {"add_twice",
       {random_tensor({3}, 1)},
       [](const Vs& v, const Place&) { return add(v[0], v[0]); }},
      {"add_empty",
       {random_tensor({0, 3}, 1), random_tensor({0, 3}, 2)},
       [](const Vs& v, const Place&) { return add(v[0], v[1]); }},
      {"add_broadcast",
       {random_tensor({37, 1, 5}, 1), random_tensor({29, 1}, 2)},
       [](const Vs& v, const Place&) { return v[0] + v[1]; }},
      {"subtract",
       {random_tensor({37, 29}, 1), random_tensor({29}, 2)},
       [](const Vs& v, const Place&) { return v[0] - v[1]; }},
      {"multiply",
       {random_tensor({37, 29}, 1), random_tensor({37, 1}, 2)},
       [](const Vs& v, const Place&) { return 2.0 * v[0] * v[1]; }},
      {"divide",
       {random_tensor({37, 29}, 1), random_tensor({37, 29}, 2)},
       [](const Vs& v, const Place&) { return v[0] / (v[1] + 3.0); }},
      {"where",
       {spread_tensor({37, 29}), random_tensor({29}, 2)},
       [](const Vs& v, const Place&) { return where(v[0] >= 0, v[0], v[1]); }},
      {"sum", {random_tensor({37, 290}, 1)}, [](const Vs& v, const Place&) { return sum(v[0]); }},
      {"sum_axes",
       {random_tensor({7, 29, 5}, 1)},
       [](const Vs& v, const Place&) {
         return sum(v[0], {0, 2});
       }},
      {"mean",
       {random_tensor({7, 29, 5}, 1)},
       [](const Vs& v, const Place&) { return mean(v[0], {1}); }},
      {"relu", {random_tensor({300, 7}, 1)}, [](const Vs& v, const Place&) { return relu(v[0]); }},
      {"matmul",
       {random_tensor({3, 2, 17, 9}, 1), random_tensor({3, 2, 9, 21}, 2)},
       [](const Vs& v, const Place&) { return matmul(v[0], v[1]); }},
      {"matmul_shared",
       {random_tensor({3, 17, 9}, 1), random_tensor({9, 21}, 2)},
       [](const Vs& v, const Place&) { return matmul(v[0], v[1]); }},
      {"conv_transpose2d",
       {random_tensor({2, 5, 6, 4}, 1), random_tensor({4, 7, 3, 3}, 2), random_tensor({7}, 3)},
       [](const Vs& v, const Place&) {
         return conv_transpose2d(
             v[0], v[1], v[2],
             {.conv = {.stride = {2, 2}, .padding = {1, 1}}, .output_padding = {1, 1}});
       }},
      {"leaky_relu",
       {random_tensor({300, 7}, 1)},
       [](const Vs& v, const Place&) { return leaky_relu(v[0], 0.1); }},
      {"softmax",
       {random_tensor({37, 3, 45}, 1)},
       [](const Vs& v, const Place&) { return softmax(v[0]); }},
      {"cumulative_sum",
       {random_tensor({37, 3, 45}, 1)},
       [](const Vs& v, const Place&) { return cumulative_sum(v[0], {.exclusive = true}); }},
      {"log_softmax",
       {random_tensor({37, 3, 45}, 1)},
       [](const Vs& v, const Place&) { return log_softmax(v[0]); }},
      {"permute",
       {random_tensor({5, 3, 9, 7}, 1)},
       [](const Vs& v, const Place&) {
         return permute(v[0], {3, 1, 0, 2});
       }},
      {"relu6", {spread_tensor({40, 15})}, [](const Vs& v, const Place&) { return relu6(v[0]); }},
      {"clamp",
       {spread_tensor({40, 15})},
       [](const Vs& v, const Place&) { return clamp(v[0], -3.0, 8.0); }},
      {"hard_sigmoid",
       {spread_tensor({40, 15})},
       [](const Vs& v, const Place&) { return hard_sigmoid(v[0], 0.2, 0.5); }},
      {"slice",
       {random_tensor({3, 5, 7, 4}, 1)},
       [](const Vs& v, const Place&) {
         return slice(v[0], {{0, 3, 1}, {4, 2, -2}, {1, 3, 2}, {0, 4, 1}});
       }},
      {"pad",
       {random_tensor({3, 5, 7, 4}, 1)},
       [](const Vs& v, const Place&) {
         return pad(v[0], {0, 1, -2, 0}, {0, 0, 3, 1}, 0.5);
       }},
  };
  add_losses(all);
  add_task_losses(all);
  add_layouts(all);
  add_lookups(all);
  add_functions(all);
  return all;
}

using OpsOnCuda = OnCuda;
TEST_P(OpsOnCuda, MatchTheCpuInDouble) { expect_close(DType::kF64); }
TEST_P(OpsOnCuda, MatchTheCpuInFloat) { expect_close(DType::kF32); }
INSTANTIATE_TEST_SUITE_P(Ops, OpsOnCuda, ::testing::ValuesIn(op_cases()), device_case_name);

using LossOnCuda = WithCudaDevice;

// What the CPU refuses is marked where nobody may wait to look at it.
TEST_F(LossOnCuda, ALabelThatIsNoClassMakesTheLossNan) {
  for (const std::int64_t bad : {std::int64_t{-1}, std::int64_t{3}}) {
    const Variable logits(random_tensor({4, 3}, 1, DType::kF32).to(kCudaDevice), true);
    const Tensor labels = Tensor::from<std::int64_t>({0, bad, 2, 1}, {4}).to(kCudaDevice);
    const Variable loss = cross_entropy(logits, labels);
    EXPECT_TRUE(std::isnan(loss.value().item()));
    const Tensor weights = Tensor::full({3}, 1, DType::kF64, kCudaDevice);
    EXPECT_TRUE(std::isnan(cross_entropy(logits, labels, 0, {weights}).value().item()));
    if (bad == 3) {
      const Variable frames(random_tensor({4, 2, 3}, 1, DType::kF32).to(kCudaDevice));
      EXPECT_TRUE(std::isnan(ctc_loss(frames, labels.reshape({4, 1})).value().item()));
    }
    loss.backward();
    const auto gradient = values(logits.grad().to(kCpuDevice));
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      EXPECT_EQ(std::isnan(gradient[i]), i / 3 == 1) << i;
    }
  }
}

TEST_F(LossOnCuda, ANanAnywhereInARowMakesTheLossNan) {
  for (const std::int64_t at : {0, 40, 69}) {
    Tensor logits = random_tensor({1, 70}, 1, DType::kF32);
    logits.data<float>()[at] = std::numeric_limits<float>::quiet_NaN();
    const Variable x(logits.to(kCudaDevice));
    const Tensor teacher = random_tensor({1, 70}, 2, DType::kF32).to(kCudaDevice);
    const Tensor label = Tensor::zeros({1}, DType::kI64, kCudaDevice);
    EXPECT_TRUE(std::isnan(cross_entropy(x, label).value().item())) << at;
    EXPECT_TRUE(std::isnan(cross_entropy(x, teacher).value().item())) << at;
    EXPECT_TRUE(std::isnan(binary_cross_entropy(x, teacher).value().item())) << at;
    EXPECT_TRUE(std::isnan(cosine_loss(x, teacher).value().item())) << at;
    EXPECT_TRUE(std::isnan(distillation_loss(x, teacher).value().item())) << at;
    EXPECT_TRUE(std::isnan(distillation_loss(Variable(teacher), x.value()).value().item())) << at;
    EXPECT_TRUE(std::isnan(mse_loss(x, teacher).value().item())) << at;
    EXPECT_TRUE(std::isnan(huber_loss(x, teacher).value().item())) << at;
  }
}

using LookupOnCuda = WithCudaDevice;

TEST_F(LookupOnCuda, AnIndexOutsideGivesNanAndNoGradient) {
  const Variable table(random_tensor({3, 2}, 1, DType::kF32).to(kCudaDevice), true);
  const Tensor indices = Tensor::from<std::int64_t>({2, -1, 3}, {3}).to(kCudaDevice);
  const Variable y = embedding(indices, table);
  y.backward(Tensor::full({3, 2}, 1, DType::kF32, kCudaDevice));
  const auto rows = values(y.value().to(kCpuDevice));
  for (std::size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(std::isnan(rows[i]), i >= 2) << i;
  EXPECT_EQ(values(table.grad().to(kCpuDevice)), (std::vector<double>{0, 0, 0, 0, 1, 1}));
  EXPECT_EQ(values(gather(table, indices).value().to(kCpuDevice))[1], rows[1]);
  EXPECT_TRUE(std::isnan(values(gather(table, indices).value().to(kCpuDevice))[5]));
  EXPECT_EQ(message_of<std::invalid_argument>([&] { gather(table, indices.to(kCpuDevice)); }),
            "[gather] expected indices on cuda:0, got cpu");
}

using DropoutOnCuda = WithCudaDevice;

TEST_F(DropoutOnCuda, DrawsTheBitsOfTheCpu) {
  Rng here(3, 4);
  Rng there(3, 4);
  for (const double p : {0.0, 0.5, 0.9}) {
    const Tensor mask = dropout_mask({5003}, {p}, there, kCudaDevice);
    EXPECT_EQ(mask.device(), kCudaDevice);
    EXPECT_EQ(values(mask.to(kCpuDevice)), values(dropout_mask({5003}, {p}, here)));
  }
  for (const DropoutUnit unit : {DropoutUnit::kChannel, DropoutUnit::kSample}) {
    const Tensor mask = dropout_mask({17, 5, 13}, {0.5, unit}, there, kCudaDevice);
    EXPECT_EQ(values(mask.to(kCpuDevice)), values(dropout_mask({17, 5, 13}, {0.5, unit}, here)));
  }
  EXPECT_EQ(here.state(), there.state());
}

using CountOnCuda = WithCudaDevice;

// The first of equals counts, and a NaN is largest and never right.
TEST_F(CountOnCuda, CountsTheRowsOfTheCpu) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const std::int64_t classes : {1, 3, 32, 50, 100}) {
    Tensor logits = random_tensor({67, classes}, 5, DType::kF32);
    for (std::int64_t i = 0; i < logits.size(); ++i) {
      float& value = logits.data<float>()[i];
      value = i % 97 == 50 ? nan : std::round(value * 3);
    }
    const Tensor labels = labels_below(67, classes);
    const std::int64_t expected = count_correct(logits, labels);
    const Tensor count = Tensor::full({}, 1000, DType::kI64, kCudaDevice);
    add_correct(logits.to(kCudaDevice), labels.to(kCudaDevice), count);
    add_correct(logits.to(kCudaDevice), labels.to(kCudaDevice), count);
    EXPECT_EQ(count.item(), static_cast<double>(1000 + 2 * expected)) << classes;
    EXPECT_EQ(count_correct(logits.to(kCudaDevice), labels.to(kCudaDevice)), expected);
    EXPECT_EQ(count_correct(logits.reshape({67, 1, 1, classes}), labels), expected);
  }
}

}  // namespace
}  // namespace steelyard::testing
