#include "layers/init.h"

#include <cmath>

namespace steelyard {

Tensor fan_in_uniform(Shape shape, std::int64_t fan_in, Rng& rng) {
  const double bound = 1.0 / std::sqrt(static_cast<double>(fan_in));
  Tensor t = Tensor::empty(std::move(shape));
  for (float& value : t.span<float>()) {
    value = static_cast<float>((2.0 * rng.uniform() - 1.0) * bound);
  }
  return t;
}

}  // namespace steelyard
