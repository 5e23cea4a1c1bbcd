// An exponential moving average of a model's weights, evaluated and deployed in their place.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "steelyard/framework/autograd/module.h"
#include "steelyard/framework/files/safetensors.h"

namespace steelyard {

struct WeightAverageOptions {
  double decay = 0.999;  // in [0, 1)
  // Buffers that are averaged like parameters; the others are the trained model's. Null: none.
  std::function<bool(const std::string& name)> averages_buffer{};
  // Names of the parameters that were set, not trained, since it was last called: their averages
  // begin anew. May be null.
  std::function<std::vector<std::string>()> take_set_parameters{};
  // Called while the model contains new averages, to update what depends on them. May be null.
  std::function<void()> refresh{};
};

// A second set of the model's parameters and buffers. After update number n of a tensor the average
// is d * average + (1 - d) * value with d = min(decay, (1 + n) / (10 + n)): early averages forget
// the start faster. An average begins with the first update that had a gradient for the parameter;
// until then it is the value itself. Source: Polyak and Juditsky 1992; the warm-up is that of
// TensorFlow's ExponentialMovingAverage.
class WeightAverage {
 public:
  // The model outlives the average and stays on its device. Throws std::invalid_argument on a decay
  // outside [0, 1).
  WeightAverage(Module& model, WeightAverageOptions options);

  // After each step of the optimizer.
  void update();

  // Exchanges the trained tensors with the averaged ones in the model, and back: what is changed
  // in between is part of the averaged model. Throw std::logic_error where the averaged tensors are
  // in the model already, or are not.
  void enter();
  void leave();
  // Whether the averaged tensors are in the model.
  bool entered() const { return entered_; }

  // The averaged model by the model's own names, while it is not in the model.
  std::vector<NamedTensor> averaged();
  // The other tensors that resuming needs: "<name>/trained" for every tensor of the model, which
  // share the model's storage, and "average/updates".
  std::vector<NamedBuffer> named_state() const;
  // The model's tensors, just loaded, are the averaged ones; named_state() is restored next.
  void restore_averaged();

 private:
  struct Entry {
    std::string name;
    Tensor in_model;  // shares the model's storage
    Tensor aside;     // the averaged tensor, the trained one between enter() and leave()
    Variable parameter;
    bool averaged = false;
  };

  // Moves the averages of one dtype, f32 or f64, among the chosen entries.
  void move_averages(DType dtype, const std::vector<std::size_t>& chosen);

  WeightAverageOptions options_;
  std::vector<Entry> entries_;
  Tensor updates_;       // i64 [entries], 0 where an average has not begun; on the CPU
  Tensor host_weights_;  // f64 [entries]: of the value in the next average
  Tensor weights_;       // the same where the model is
  bool entered_ = false;
  bool stale_ = true;  // the averaged model lacks what follows from the last update
};

// The averaged model is in place while one lives; null: nothing happens.
class AveragedScope {
 public:
  explicit AveragedScope(WeightAverage* average) : average_(average) {
    if (average_ != nullptr) average_->enter();
  }
  ~AveragedScope() {
    if (average_ != nullptr && average_->entered()) average_->leave();
  }
  AveragedScope(const AveragedScope&) = delete;
  AveragedScope& operator=(const AveragedScope&) = delete;

 private:
  WeightAverage* average_;
};

}  // namespace steelyard
