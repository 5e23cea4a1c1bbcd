// Kernels that share memory or launch twice give the same bits in whatever order threads and blocks
// run.
#include <gtest/gtest.h>

#include "framework/evaluate.h"
#include "framework/gradient_clipping.h"
#include "framework/on_device.h"
#include "framework/ops/embedding.h"
#include "framework/ops/flatten.h"
#include "framework/ops/losses.h"
#include "kernels/elementwise.h"
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

TEST(EmulatedOrders, SumsAndCounts) {
  expect_same_in_every_order([] {
    const Tensor x = on_gpu({700, 35}, 1);
    const Tensor sums = Tensor::empty({35}, DType::kF32, kCudaDevice);
    kernels::column_sums(cuda_queue(kCudaDevice), 700, 35, x.data<float>(), sums.data<float>());
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

}  // namespace
}  // namespace steelyard::testing
