// Ranges from data, before or instead of training: post-training quantization.
#pragma once

#include <cstdint>
#include <functional>

#include "framework/module.h"
#include "framework/tensor.h"

namespace steelyard::qat {

// Shows `batches` >= 1 batches to every observer in `model`: batch norms use their running
// statistics, nothing drops out, weights are quantized and activations are not. Then batch 0 passes
// once more with activations quantized, since the scales of weights follow that of their input
// where a bias needs it. Switches are as before afterwards. `inputs(i)` is batch i. Throws
// TrainingDiverged that names the batch and the quantizer when NaN or infinite values reach one.
void calibrate(Module& model, std::int64_t batches,
               const std::function<Tensor(std::int64_t)>& inputs);

}  // namespace steelyard::qat
