// Initial values of parameters.
#pragma once

#include <cstdint>

#include "steelyard/framework/tensor/rng.h"
#include "steelyard/framework/tensor/tensor.h"

namespace steelyard {

// An f32 tensor, uniform in [-b, b) with b = 1 / sqrt(fan_in): PyTorch's default for the weights
// and biases of Linear and Conv2d (He et al., ICCV 2015, with a = sqrt(5)). fan_in > 0.
Tensor fan_in_uniform(Shape shape, std::int64_t fan_in, Rng& rng);

// Sets an f32 weight [out, in, ...] to normal values with variance 2 / fan_out (He et al., "Delving
// Deep into Rectifiers", ICCV 2015).
void fill_fan_out_normal(const Tensor& weight, Rng& rng);

// Sets an f32 tensor to normal values of that deviation, and to uniform ones in [-bound, bound).
void fill_normal(const Tensor& values, double deviation, Rng& rng);
void fill_uniform(const Tensor& values, double bound, Rng& rng);

// While an object exists, the functions above only count the bytes of weights made on this thread
// and do not set them: a model can be tried before time and memory are spent on it. Beyond
// `max_bytes` they throw std::invalid_argument.
class WeightCount {
 public:
  explicit WeightCount(std::int64_t max_bytes);
  ~WeightCount();
  WeightCount(const WeightCount&) = delete;
  WeightCount& operator=(const WeightCount&) = delete;

  void add(const Shape& shape);

 private:
  std::int64_t max_bytes_;
  std::int64_t bytes_ = 0;
  WeightCount* previous_;
};

// While an object exists, the functions above set zeros on this thread: the weights come later,
// from a file.
class WeightsLater {
 public:
  WeightsLater();
  ~WeightsLater();
  WeightsLater(const WeightsLater&) = delete;
  WeightsLater& operator=(const WeightsLater&) = delete;

 private:
  bool previous_;
};

}  // namespace steelyard
