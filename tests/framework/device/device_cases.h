// One operation on any device in float and double, held against the CPU's float64.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "steelyard/framework/autograd/autograd.h"
#include "tests/support/devices.h"
#include "tests/support/tensors.h"

namespace steelyard::testing {

struct DeviceCase {
  std::string name;
  std::vector<Tensor> inputs;  // f64 on the CPU; each gets a gradient
  // `place` takes a tensor of the CPU to the device that the case runs on.
  std::function<Variable(const std::vector<Variable>&,
                         const std::function<Tensor(const Tensor&)>& place)>
      op;
  std::vector<Tensor> state{};  // f64 on the CPU: what op changes in place, given after the inputs
  double rtol = 1e-5;           // of f32; f64 is held to 1e-12
  double atol = 1e-5;
};

inline void PrintTo(const DeviceCase& c, std::ostream* out) { *out << c.name; }

struct DeviceOutcome {
  Tensor y;
  std::vector<Tensor> gradients;
  std::vector<Tensor> state;
};

inline DeviceOutcome run_case(const DeviceCase& c, Device device, DType dtype) {
  const auto place = [&](const Tensor& t) { return t.to(device); };
  std::vector<Variable> leaves;
  for (const Tensor& input : c.inputs) leaves.emplace_back(place(input.to(dtype)), true);
  std::vector<Variable> all = leaves;
  for (const Tensor& t : c.state) all.emplace_back(place(t.to(dtype)));
  const Variable y = c.op(all, place);
  EXPECT_EQ(y.value().device(), device);
  y.backward(place(random_tensor(y.shape(), 77, dtype)));
  DeviceOutcome outcome{y.value().to(Device{}), {}, {}};
  for (const Variable& leaf : leaves) {
    EXPECT_EQ(leaf.grad().device(), device);
    outcome.gradients.push_back(leaf.grad().to(Device{}));
  }
  for (std::size_t i = leaves.size(); i < all.size(); ++i) {
    outcome.state.push_back(all[i].value().to(Device{}));
  }
  return outcome;
}

class OnCuda : public ::testing::TestWithParam<DeviceCase> {
 protected:
  void SetUp() override {
    if (!has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  }

  static void expect_close(DType dtype) {
    const DeviceCase& c = GetParam();
    const DeviceOutcome expected = run_case(c, kCpuDevice, DType::kF64);
    const DeviceOutcome actual = run_case(c, kCudaDevice, dtype);
    const double rtol = dtype == DType::kF64 ? 1e-12 : c.rtol;
    const double atol = dtype == DType::kF64 ? 1e-12 : c.atol;
    EXPECT_TRUE(all_close(actual.y, expected.y, rtol, atol)) << "output";
    for (std::size_t i = 0; i < expected.gradients.size(); ++i) {
      EXPECT_TRUE(all_close(actual.gradients[i], expected.gradients[i], rtol, atol))
          << "gradient " << i;
    }
    for (std::size_t i = 0; i < expected.state.size(); ++i) {
      EXPECT_TRUE(all_close(actual.state[i], expected.state[i], rtol, atol)) << "state " << i;
    }
  }
};

inline std::string device_case_name(const ::testing::TestParamInfo<DeviceCase>& info) {
  return info.param.name + "_" + std::to_string(info.index);
}

}  // namespace steelyard::testing
