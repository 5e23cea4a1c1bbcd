// Where a tensor's memory lives.
#pragma once

#include <string>
#include <string_view>

namespace steelyard {

struct Device {
  enum class Kind { kCpu, kCuda };
  Kind kind = Kind::kCpu;
  int index = 0;

  bool operator==(const Device&) const = default;
};

// "cpu", "cuda:0".
std::string device_name(Device device);

// Parses "auto", "cpu", "cuda" or "cuda:N"; auto picks the first GPU that works, else the CPU.
// Throws InputError on other words and DeviceError when the device is not available.
Device resolve_device(std::string_view name);

// Why "auto" is the CPU; empty where it is a GPU.
std::string why_no_gpu();

}  // namespace steelyard
