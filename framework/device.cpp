#include "framework/device.h"

#include <algorithm>
#include <cctype>

#include "framework/error.h"

namespace steelyard {

std::string device_name(Device device) {
  return device.kind == Device::Kind::kCpu ? "cpu" : "cuda:" + std::to_string(device.index);
}

Device resolve_device(std::string_view name) {
  if (name == "auto" || name == "cpu") return Device{};
  const bool has_index =
      name.starts_with("cuda:") && name.size() > 5 && name.size() < 9 &&
      std::all_of(name.begin() + 5, name.end(), [](unsigned char c) { return std::isdigit(c); });
  if (name == "cuda" || has_index) {
    throw DeviceError("device '" + std::string(name) +
                      "' is not available: this version trains on the CPU only");
  }
  throw InputError("unknown device '" + std::string(name) +
                   "': expected auto, cpu, cuda or cuda:N");
}

}  // namespace steelyard
