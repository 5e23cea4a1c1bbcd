#include "steelyard/framework/data/normalization.h"

#include <string>

#include "steelyard/framework/data/normalizers.h"
#include "steelyard/framework/tensor/error.h"

namespace steelyard {

Tensor normalized(const Tensor& inputs, const Normalization& normalization) {
  if (!inputs.defined()) throw InputError("inputs: expected u8 or f32, got an undefined tensor");
  const bool bytes = inputs.dtype() == DType::kU8;
  if ((!bytes && inputs.dtype() != DType::kF32) || inputs.rank() < 2) {
    throw InputError("inputs: expected u8 or f32 of rank 2 or more, got " +
                     std::string(dtype_name(inputs.dtype())) + " " + shape_string(inputs.shape()));
  }
  const std::int64_t channels = inputs.dim(-1);
  if (!normalization.mean.empty() &&
      static_cast<std::int64_t>(normalization.mean.size()) != channels) {
    throw InputError("inputs: expected " + std::to_string(normalization.mean.size()) +
                     " channels, got " + std::to_string(channels));
  }
  Tensor out = Tensor::empty(inputs.shape());
  if (out.size() == 0) return out;
  if (bytes) {
    normalize(ByteNormalizer(normalization, channels), inputs.data<std::uint8_t>(),
              out.data<float>(), out.size() / channels, channels);
  } else {
    normalize(FloatNormalizer(normalization, channels), inputs.data<float>(), out.data<float>(),
              out.size() / channels, channels);
  }
  return out;
}

}  // namespace steelyard
