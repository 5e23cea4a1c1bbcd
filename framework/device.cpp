#include "framework/device.h"

#include <algorithm>
#include <cctype>

#include "framework/error.h"
#include "kernels/cuda/cuda_memory.h"

namespace steelyard {

std::string device_name(Device device) {
  return device.kind == Device::Kind::kCpu ? "cpu" : "cuda:" + std::to_string(device.index);
}

Device resolve_device(std::string_view name) {
  if (name == "cpu") return Device{};
  if (name == "auto")
    return kernels::cuda_device_count() > 0 ? Device{Device::Kind::kCuda} : Device{};
  const std::string_view digits = name.starts_with("cuda:") ? name.substr(5) : std::string_view();
  const bool has_index =
      !digits.empty() && digits.size() < 4 &&
      std::all_of(digits.begin(), digits.end(), [](unsigned char c) { return std::isdigit(c); });
  if (name != "cuda" && !has_index) {
    throw InputError("unknown device '" + std::string(name) +
                     "': expected auto, cpu, cuda or cuda:N");
  }
  const int index = has_index ? std::stoi(std::string(digits)) : 0;
  const int count = kernels::cuda_device_count();
  if (index >= count) {
    throw DeviceError("device '" + std::string(name) + "' is not available: " +
                      (count == 0 ? kernels::cuda_absence()
                                  : "this machine has " + std::to_string(count) +
                                        (count == 1 ? " CUDA device" : " CUDA devices")));
  }
  return {Device::Kind::kCuda, index};
}

}  // namespace steelyard
