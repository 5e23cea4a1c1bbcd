// The kinds of devices.
#pragma once

namespace steelyard::kernels {

enum class DeviceType { kCpu, kCuda };

}  // namespace steelyard::kernels
