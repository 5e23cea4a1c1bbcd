// What most programs need: tensors and gradients, layers, training, ONNX files, quantization,
// integer models, runs by recipe. Some parts are left out, such as datasets read without a recipe
// (framework/data/idx.h), equalization (qat/ptq/equalize.h) and plugins (recipes/runs/plugin.h).
// Each part can be included by itself.
#pragma once

// The engine.
#include "steelyard/framework/autograd/print.h"
#include "steelyard/framework/data/data_loader.h"
#include "steelyard/framework/files/checkpoint.h"
#include "steelyard/framework/files/safetensors.h"
#include "steelyard/framework/ops/elementwise/activations.h"
#include "steelyard/framework/ops/elementwise/arithmetic.h"
#include "steelyard/framework/ops/elementwise/relu.h"
#include "steelyard/framework/ops/elementwise/unary.h"
#include "steelyard/framework/ops/losses/ctc_loss.h"
#include "steelyard/framework/ops/losses/losses.h"
#include "steelyard/framework/ops/moves/concat.h"
#include "steelyard/framework/ops/moves/flatten.h"
#include "steelyard/framework/ops/moves/gather.h"
#include "steelyard/framework/ops/moves/permute.h"
#include "steelyard/framework/ops/moves/slice.h"
#include "steelyard/framework/ops/products/conv2d.h"
#include "steelyard/framework/ops/products/conv_transpose2d.h"
#include "steelyard/framework/ops/products/gru.h"
#include "steelyard/framework/ops/products/lstm.h"
#include "steelyard/framework/ops/products/matmul.h"
#include "steelyard/framework/ops/reductions/batch_norm.h"
#include "steelyard/framework/ops/reductions/cumulative_sum.h"
#include "steelyard/framework/ops/reductions/extremes.h"
#include "steelyard/framework/ops/reductions/pool.h"
#include "steelyard/framework/ops/reductions/softmax.h"
#include "steelyard/framework/train/evaluate.h"
#include "steelyard/framework/train/gradient_clipping.h"
#include "steelyard/framework/train/lr_schedule.h"
#include "steelyard/framework/train/optimizer.h"
#include "steelyard/framework/train/trainer.h"
#include "steelyard/layers/containers/builders.h"

// Networks from ONNX files.
#include "steelyard/import/onnx/onnx_file.h"
#include "steelyard/import/translate.h"

// Quantization.
#include "steelyard/qat/model/faults.h"
#include "steelyard/qat/model/named_quantizers.h"
#include "steelyard/qat/model/schedule.h"
#include "steelyard/qat/prepare/latent_units.h"
#include "steelyard/qat/prepare/prepare.h"
#include "steelyard/qat/ptq/calibrate.h"
#include "steelyard/qat/quantizers/learned_scale.h"

// The integer model.
#include "steelyard/export/formats.h"
#include "steelyard/export/graph_file.h"
#include "steelyard/export/trace.h"
#include "steelyard/export/verify.h"
#include "steelyard/runtime/graph_file.h"
#include "steelyard/runtime/interpreter.h"

// Runs by recipe.
#include "steelyard/recipes/runs/deployment.h"
#include "steelyard/recipes/runs/loaded_run.h"
#include "steelyard/recipes/runs/run.h"

namespace steelyard {

using qat::prepare;
using qat::w8a8;

}  // namespace steelyard
