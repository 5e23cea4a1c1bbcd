// The bits of a number as another type.
#pragma once

#include <cstring>

#include "steelyard/kernels/host_device.h"

namespace steelyard::kernels {

template <typename To, typename From>
STEELYARD_HOST_DEVICE inline To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof(To));
  return to;
}

}  // namespace steelyard::kernels
