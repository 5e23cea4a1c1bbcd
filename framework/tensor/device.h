// The device that holds a tensor's memory.
#pragma once

#include <string>
#include <string_view>

#include "steelyard/kernels/device_type.h"

namespace steelyard {

struct Device {
  using Kind = kernels::DeviceType;
  Kind kind = Kind::kCpu;
  int index = 0;

  static constexpr Device cpu() { return {}; }
  static constexpr Device cuda(int index = 0) { return {Kind::kCuda, index}; }

  bool operator==(const Device&) const = default;
};

// "cpu", "cuda:0".
std::string device_name(Device device);

// Parses "auto", "cpu", "cuda" or "cuda:N"; auto picks the first GPU that works, else the CPU.
// Throws InputError on other words and DeviceError when the device is not available.
Device resolve_device(std::string_view name);

// Why "auto" selects the CPU; empty if it selects a GPU.
std::string why_no_gpu();

}  // namespace steelyard
