#include "steelyard/framework/data/sample_source.h"

#include <cstring>

namespace steelyard {

TensorSamples::TensorSamples(Tensor inputs)
    : inputs_(std::move(inputs)),
      shape_(inputs_.shape().begin() + 1, inputs_.shape().end()),
      sample_bytes_(
          inputs_.dim(0) == 0 ? 0 : static_cast<std::size_t>(inputs_.bytes() / inputs_.dim(0))) {}

const void* TensorSamples::in_memory(std::int64_t sample) const {
  return static_cast<const std::byte*>(inputs_.raw()) +
         static_cast<std::size_t>(sample) * sample_bytes_;
}

void TensorSamples::read(std::int64_t sample, Rng* /*random*/, void* to) const {
  std::memcpy(to, in_memory(sample), sample_bytes_);
}

std::int64_t sample_values(const SampleSource& source) {
  std::int64_t values = 1;
  for (const std::int64_t extent : source.shape()) values *= extent;
  return values;
}

std::int64_t sample_bytes(const SampleSource& source) {
  return sample_values(source) * static_cast<std::int64_t>(dtype_bytes(source.dtype()));
}

}  // namespace steelyard
