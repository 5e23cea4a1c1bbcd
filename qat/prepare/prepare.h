// From a float model to a quantization-aware one.
#pragma once

#include <memory>

#include "steelyard/framework/autograd/module.h"
#include "steelyard/qat/forms/quantized_form.h"
#include "steelyard/qat/prepare/plan.h"
#include "steelyard/qat/quantizers/fake_quantize.h"
#include "steelyard/qat/quantizers/qconfig.h"

namespace steelyard::qat {

struct PreparedModel {
  ModulePtr<> model;
  Plan plan;
};

// Swaps every chosen weighted layer (Linear, Conv2d, Conv1d, ConvTranspose2d) inside `model` for
// its quantized form, lets them take along batch norms that follow (config.bn_fold) and ReLU and
// ReLU6, lets pooling, flattening, dropout and residual sums work on codes, and puts a quantizer on
// the model's input. Parameter names stay; only BatchNormFold::kFrozen lets a batch norm's tensors
// disappear into the layer's weight and bias. `model` is taken apart: use the result only.
//
// What becomes of a module is a row of a table (qat/forms/quantized_form.h); rows of one's own for
// one's own modules come before the library's. Every GraphModule (Sequential, Residual, Concat,
// Graph) is part of one graph; inside other containers each chosen child is swapped by itself and
// quantizes inputs that arrive without codes. Of values that are not finite the result throws
// TrainingDiverged: in evaluation, backward() and Optimizer::step() (set_fault_errors(),
// qat/model/faults.h). Throws InputError when a target or ignore entry matches nothing or only what
// has no quantized form, and when a group has no targets or groups before it take all of its
// layers; std::invalid_argument on a config that validate() refuses and on a model that is prepared
// already or whose parameters are not in float32. Optimizers that hold parameters of before which
// the result does not have throw std::logic_error in step(). A layer in two places has a form at
// each, which share the weights: the plan says so. After an exception `model` is as it was.
PreparedModel prepare(std::shared_ptr<Module> model, const QuantizeConfig& config,
                      const QuantizedForms& own_forms = {});

}  // namespace steelyard::qat
