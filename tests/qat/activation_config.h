// The quantizer that tests of layers give their activations.
#pragma once

#include "steelyard/qat/quantizers/qconfig.h"

namespace steelyard::qat {

// 8 bits, affine, per tensor.
inline QuantizerConfig activations(bool is_signed) {
  QuantizerConfig config = *default_w8a8().activations;
  config.scheme.is_signed = is_signed;
  return config;
}

}  // namespace steelyard::qat
