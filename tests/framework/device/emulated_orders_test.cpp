// Kernels that share memory or launch twice give the same bits in whatever order threads and blocks
// run.
#include <gtest/gtest.h>

#include "steelyard/framework/ops/losses/losses.h"
#include "steelyard/framework/ops/moves/flatten.h"
#include "steelyard/framework/ops/products/conv2d.h"
#include "steelyard/framework/ops/products/embedding.h"
#include "steelyard/framework/ops/reductions/batch_norm.h"
#include "steelyard/framework/ops/reductions/layer_norm.h"
#include "steelyard/framework/ops/reductions/pool.h"
#include "steelyard/framework/tensor/on_device.h"
#include "steelyard/framework/train/evaluate.h"
#include "steelyard/framework/train/gradient_clipping.h"
#include "steelyard/kernels/elementwise/elementwise.h"
#include "tests/support/cuda_emulation/emulation.h"
#include "tests/support/devices.h"
#include "tests/support/tensors.h"

namespace steelyard::testing {
namespace {

template <typename F>
void expect_same_in_every_order(const F& compute) {
  std::vector<double> first;
  emulation::for_each_order([&](const emulation::Options& options) {
    const std::vector<double> found = compute();
    if (first.empty()) first = found;
    EXPECT_EQ(found, first) << to_string(options);
  });
  EXPECT_FALSE(first.empty());
}

Tensor on_gpu(const Shape& shape, std::uint64_t seed) {
  return random_tensor(shape, seed, DType::kF32).to(kCudaDevice);
}

// The loss and its gradient.
template <typename F>
std::vector<double> with_gradient(const Shape& shape, const F& op) {
  const Variable x(on_gpu(shape, 1), true);
  const Variable y = op(x);
  y.backward(on_gpu(y.shape(), 5));
  auto all = values(y.value().to(kCpuDevice));
  for (const double g : values(x.grad().to(kCpuDevice))) all.push_back(g);
  return all;
}

TEST(EmulatedOrders, Losses) {
  Tensor labels = Tensor::zeros({9}, DType::kI64, kCudaDevice);
  expect_same_in_every_order([&] {
    return with_gradient({9, 300},
                         [&](const Variable& x) { return cross_entropy(x, labels, 0.1); });
  });
  const Tensor teacher = on_gpu({9, 300}, 2);
  expect_same_in_every_order([&] {
    return with_gradient({9, 300},
                         [&](const Variable& x) { return distillation_loss(x, teacher, 2); });
  });
  expect_same_in_every_order([&] {
    return with_gradient({9, 300}, [&](const Variable& x) { return huber_loss(x, teacher, 0.3); });
  });
}

TEST(EmulatedOrders, LayoutsAndLookups) {
  expect_same_in_every_order([] {
    return with_gradient({2, 5, 9, 35}, [](const Variable& x) { return flatten(x); });
  });
  Tensor indices = Tensor::zeros({90}, DType::kI64);
  for (std::int64_t i = 0; i < 90; ++i) indices.data<std::int64_t>()[i] = i * i % 4;
  const Tensor there = indices.to(kCudaDevice);
  expect_same_in_every_order([&] {
    return with_gradient({4, 40}, [&](const Variable& x) { return embedding(there, x); });
  });
}

// Wherever the pointer is: a member of a kernel, or one of a struct in a struct.
TEST(EmulatedMemory, AKernelThatPointsToTheHostIsRefused) {
  const Tensor there = on_gpu({4}, 1);
  std::vector<float> here(4);
  const auto refusal = [&](const float* x, float* y) -> std::string {
    try {
      run(kCudaDevice, kernels::Scale<float>{.n = 4, .x = x, .factor = 2, .y = y});
      run(kCudaDevice, kernels::ColumnSums<float>{.rows = 1, .channels = 4, .x = x, .sums = y});
    } catch (const std::logic_error& error) {
      return error.what();
    }
    return "accepted";
  };
  const std::string expected = "[emulation] parameter 1 of a kernel points to the host's memory";
  EXPECT_EQ(refusal(there.data<float>(), there.data<float>()), "accepted");
  EXPECT_EQ(refusal(here.data(), there.data<float>()), expected);
  EXPECT_EQ(refusal(there.data<float>(), here.data()), expected);
}

TEST(EmulatedOrders, SumsAndCounts) {
  expect_same_in_every_order([] {
    const Tensor x = on_gpu({700, 35}, 1);
    const Tensor sums = Tensor::empty({35}, DType::kF32, kCudaDevice);
    run(kCudaDevice,
        kernels::ColumnSums<float>{
            .rows = 700, .channels = 35, .x = x.data<float>(), .sums = sums.data<float>()});
    return values(sums.to(kCpuDevice));
  });
  expect_same_in_every_order([] {
    std::vector<NamedParameter> all{{"a", Variable(on_gpu({5000}, 1), true)},
                                    {"b", Variable(on_gpu({10}, 2), true)}};
    for (NamedParameter& p : all) p.variable.set_grad(p.variable.value().clone());
    std::vector<double> found{clip_grad_norm(all, 0.5).item()};
    for (const double g : values(all[0].variable.grad().to(kCpuDevice))) found.push_back(g);
    return found;
  });
  const Tensor labels = Tensor::zeros({70}, DType::kI64, kCudaDevice);
  expect_same_in_every_order([&] {
    return std::vector<double>{static_cast<double>(count_correct(on_gpu({70, 3}, 4), labels))};
  });
}

TEST(EmulatedOrders, Norms) {
  Variable gamma(on_gpu({35}, 2), true), beta(on_gpu({35}, 3), true);
  const auto with_parameters = [&](const auto& op) {
    gamma.clear_grad();
    beta.clear_grad();
    auto all = with_gradient({700, 35}, op);
    for (const Variable& v : {gamma, beta}) {
      for (const double g : values(v.grad())) all.push_back(g);
    }
    return all;
  };
  expect_same_in_every_order([&] {
    const Tensor mean = on_gpu({35}, 6), variance = on_gpu({35}, 7);
    auto all = with_parameters([&](const Variable& x) {
      return batch_norm(x, gamma, beta,
                        {.running_mean = mean, .running_var = variance, .batch_statistics = true});
    });
    for (const double v : values(mean)) all.push_back(v);
    for (const double v : values(variance)) all.push_back(v);
    return all;
  });
  expect_same_in_every_order([&] {
    return with_parameters([&](const Variable& x) { return layer_norm(x, gamma, beta, 1e-5); });
  });
}

TEST(EmulatedOrders, DepthwiseWeightsAndGlobalAverages) {
  expect_same_in_every_order([] {
    const Variable x(on_gpu({4, 15, 15, 6}, 1));
    return with_gradient({6, 1, 3, 3}, [&](const Variable& w) {
      return conv2d(x, w, Variable(), {.padding = {1, 1}, .groups = 6});
    });
  });
  expect_same_in_every_order([] {
    return with_gradient({2, 40, 30, 5}, [](const Variable& x) { return global_avg_pool(x); });
  });
}

}  // namespace
}  // namespace steelyard::testing
