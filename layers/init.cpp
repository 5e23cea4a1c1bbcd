#include "steelyard/layers/init.h"

#include <cmath>
#include <stdexcept>
#include <utility>

namespace steelyard {
namespace {

thread_local WeightCount* counting = nullptr;
thread_local bool later = false;

std::string gibibytes(std::int64_t bytes) {
  return std::to_string(bytes >> 30) + "." + std::to_string((bytes >> 20) % 1024 * 10 / 1024) +
         " GiB";
}

}  // namespace

Tensor fan_in_uniform(Shape shape, std::int64_t fan_in, Rng& rng) {
  if (counting != nullptr) counting->add(shape);
  Tensor t = Tensor::empty(std::move(shape));
  fill_uniform(t, 1.0 / std::sqrt(static_cast<double>(fan_in)), rng);
  return t;
}

void fill_fan_out_normal(const Tensor& weight, Rng& rng) {
  fill_normal(weight, std::sqrt(2.0 / static_cast<double>(weight.size() / weight.dim(1))), rng);
}

void fill_normal(const Tensor& values, double deviation, Rng& rng) {
  if (counting != nullptr) return;
  if (later) return values.fill(0);
  for (float& value : values.span<float>()) value = static_cast<float>(deviation * rng.normal());
}

void fill_uniform(const Tensor& values, double bound, Rng& rng) {
  if (counting != nullptr) return;
  if (later) return values.fill(0);
  for (float& value : values.span<float>()) {
    value = static_cast<float>((2.0 * rng.uniform() - 1.0) * bound);
  }
}

WeightsLater::WeightsLater() : previous_(std::exchange(later, true)) {}

WeightsLater::~WeightsLater() { later = previous_; }

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
