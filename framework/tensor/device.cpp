#include "steelyard/framework/tensor/device.h"

#include <algorithm>
#include <cctype>
#include <optional>

#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/printable.h"
#include "steelyard/kernels/cuda/cuda_memory.h"

namespace steelyard {

std::string device_name(Device device) {
  return device.kind == Device::Kind::kCpu ? "cpu" : "cuda:" + std::to_string(device.index);
}

namespace {

std::optional<Device> first_gpu_that_works() {
  for (int index = 0; index < kernels::cuda_device_count(); ++index) {
    if (kernels::cuda_device_problem(index).empty()) return Device{Device::Kind::kCuda, index};
  }
  return std::nullopt;
}

}  // namespace

std::string why_no_gpu() {
  if (first_gpu_that_works()) return "";
  return kernels::cuda_device_count() == 0 ? kernels::cuda_absence()
                                           : kernels::cuda_device_problem(0);
}

Device resolve_device(std::string_view name) {
  if (name == "cpu") return Device{};
  if (name == "auto") return first_gpu_that_works().value_or(Device{});
  const std::string_view digits = name.starts_with("cuda:") ? name.substr(5) : std::string_view();
  const bool has_index =
      !digits.empty() && digits.size() < 4 &&
      std::all_of(digits.begin(), digits.end(), [](unsigned char c) { return std::isdigit(c); });
  if (name != "cuda" && !has_index) {
    throw InputError("unknown device '" + printable(name) +
                     "': expected auto, cpu, cuda or cuda:N");
  }
  const int index = has_index ? std::stoi(std::string(digits)) : 0;
  const int count = kernels::cuda_device_count();
  const auto require = [&](const std::string& problem) {
    if (problem.empty()) return;
    throw DeviceError("device '" + std::string(name) + "' is not available: " + problem);
  };
  if (count == 0) require(kernels::cuda_absence());
  if (index >= count) {
    std::string problem = "this machine has " + std::to_string(count) + " CUDA device";
    if (count > 1) problem += "s";
    require(problem);
  }
  require(kernels::cuda_device_problem(index));
  return {Device::Kind::kCuda, index};
}

}  // namespace steelyard
