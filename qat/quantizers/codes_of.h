// The codes of a value as kernels take them.
#pragma once

#include "steelyard/kernels/requantize/formulas.h"
#include "steelyard/qat/quantizers/quantized_value.h"

namespace steelyard::qat {

// What kernels read of a value with one scale, whose codes have this type.
template <typename Code>
kernels::CodesOf<Code> codes_of(const QuantizedValue& value) {
  return {value.codes.data<Code>(), value.qparams.scale.data<float>(),
          value.qparams.zero_point.data<std::int32_t>()};
}

}  // namespace steelyard::qat
