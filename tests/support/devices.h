// Devices that a test runs on; one that is not there is skipped, and said.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "steelyard/framework/tensor/device.h"
#include "steelyard/framework/tensor/error.h"

namespace steelyard::testing {

inline const Device kCpuDevice{};
inline const Device kCudaDevice{Device::Kind::kCuda, 0};

inline bool has_cuda_device() {
  try {
    resolve_device("cuda");
    return true;
  } catch (const DeviceError&) {
    return false;
  }
}

// A base of test fixtures that need a GPU.
class WithCudaDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  }
};

// A test's name for a device: "cpu", "cuda".
inline std::string device_word(Device device) {
  return device.kind == Device::Kind::kCpu ? "cpu" : "cuda";
}

}  // namespace steelyard::testing
