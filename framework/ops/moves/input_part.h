// Some of a sample's values as a tensor of their own.
#pragma once

#include "steelyard/framework/autograd/autograd.h"
#include "steelyard/framework/tensor/fields.h"

namespace steelyard {

// Where the values lie in a sample, and the shape that they get, without the batch.
struct SamplePart {
  std::int64_t first = 0;
  Shape shape;
  static constexpr auto fields() {
    return std::tuple(field("first", &SamplePart::first), field("shape", &SamplePart::shape));
  }
};

// For x [N, ...], of each sample the values from `part.first` on, in row-major order, as
// [N, part.shape...]. Throws std::invalid_argument where a sample has not so many.
Variable input_part(const Variable& x, const SamplePart& part);

}  // namespace steelyard
