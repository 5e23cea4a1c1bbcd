#include "steelyard/layers/init.h"

#include <cmath>
#include <stdexcept>
#include <utility>

namespace steelyard {
namespace {

thread_local WeightCount* counting = nullptr;

std::string gibibytes(std::int64_t bytes) {
  return std::to_string(bytes >> 30) + "." + std::to_string((bytes >> 20) % 1024 * 10 / 1024) +
         " GiB";
}

}  // namespace

Tensor fan_in_uniform(Shape shape, std::int64_t fan_in, Rng& rng) {
  if (counting != nullptr) counting->add(shape);
  const double bound = 1.0 / std::sqrt(static_cast<double>(fan_in));
  Tensor t = Tensor::empty(std::move(shape));
  if (counting != nullptr) return t;
  for (float& value : t.span<float>()) {
    value = static_cast<float>((2.0 * rng.uniform() - 1.0) * bound);
  }
  return t;
}

void fill_fan_out_normal(const Tensor& weight, Rng& rng) {
  if (counting != nullptr) return;
  const auto fan_out = static_cast<double>(weight.size() / weight.dim(1));
  const double deviation = std::sqrt(2.0 / fan_out);
  for (float& w : weight.span<float>()) w = static_cast<float>(deviation * rng.normal());
}

WeightCount::WeightCount(std::int64_t max_bytes)
    : max_bytes_(max_bytes), previous_(std::exchange(counting, this)) {}

WeightCount::~WeightCount() { counting = previous_; }

void WeightCount::add(const Shape& shape) {
  bytes_ += shape_size(shape) * static_cast<std::int64_t>(sizeof(float));
  if (bytes_ > max_bytes_) {
    throw std::invalid_argument("the weights need more than the " + gibibytes(max_bytes_) +
                                " of memory of this machine");
  }
}

}  // namespace steelyard
