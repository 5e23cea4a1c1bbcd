// Ranges from data, before or instead of training: post-training quantization.
#pragma once

#include <cstdint>
#include <functional>

#include "steelyard/framework/autograd/module.h"
#include "steelyard/framework/tensor/tensor.h"

namespace steelyard::qat {

// How weights are used while the ranges of activations are measured.
enum class CalibrationWeights { kQuantized, kFloat };

// Shows `batches` >= 1 batches to every observer in `model`: batch norms use their running
// statistics, nothing drops out, activations are not quantized, weights as `weights` says. Then
// batch 0 passes once more with both quantized, since the scales of weights follow that of their
// input where a bias needs it. Switches are as before afterwards. `inputs(i)` is batch i. Throws
// TrainingDiverged that names the batch and the quantizer when NaN or infinite values reach one.
void calibrate(Module& model, std::int64_t batches,
               const std::function<Tensor(std::int64_t)>& inputs,
               CalibrationWeights weights = CalibrationWeights::kQuantized);

// Whether scales of weights follow the weights and biases that a pass finds.
enum class WeightScales { kFollow, kKeep };

// Measures the ranges of activations again, on these batches alone, since weights or biases were
// changed after calibrate(): as it does, weights quantized. Activations whose ranges are learned
// already or given keep them. False where there is nothing to measure.
bool measure_again(Module& model, std::int64_t batches,
                   const std::function<Tensor(std::int64_t)>& inputs, WeightScales scales);

}  // namespace steelyard::qat
