// What most programs need: tensors and gradients, layers, training, ONNX files, quantization,
// integer models, runs by recipe. Some parts are left out, such as datasets read without a recipe
// (framework/data/idx.h), equalization (qat/equalize.h) and plugins (recipes/runs/plugin.h). Each
// part can be included by itself.
#pragma once

// The engine.
#include "steelyard/framework/checkpoint.h"
#include "steelyard/framework/data/data_loader.h"
#include "steelyard/framework/evaluate.h"
#include "steelyard/framework/lr_schedule.h"
#include "steelyard/framework/ops/activations.h"
#include "steelyard/framework/ops/arithmetic.h"
#include "steelyard/framework/ops/concat.h"
#include "steelyard/framework/ops/conv2d.h"
#include "steelyard/framework/ops/ctc_loss.h"
#include "steelyard/framework/ops/extremes.h"
#include "steelyard/framework/ops/gather.h"
#include "steelyard/framework/ops/losses.h"
#include "steelyard/framework/ops/matmul.h"
#include "steelyard/framework/ops/permute.h"
#include "steelyard/framework/ops/pool.h"
#include "steelyard/framework/ops/relu.h"
#include "steelyard/framework/ops/slice.h"
#include "steelyard/framework/ops/softmax.h"
#include "steelyard/framework/ops/unary.h"
#include "steelyard/framework/optimizer.h"
#include "steelyard/framework/print.h"
#include "steelyard/framework/safetensors.h"
#include "steelyard/framework/trainer.h"
#include "steelyard/layers/builders.h"

// Networks from ONNX files.
#include "steelyard/import/onnx_file.h"
#include "steelyard/import/translate.h"

// Quantization.
#include "steelyard/qat/calibrate.h"
#include "steelyard/qat/faults.h"
#include "steelyard/qat/latent_units.h"
#include "steelyard/qat/learned_scale.h"
#include "steelyard/qat/prepare.h"
#include "steelyard/qat/schedule.h"

// The integer model.
#include "steelyard/export/formats.h"
#include "steelyard/export/graph_file.h"
#include "steelyard/export/interpreter.h"
#include "steelyard/export/trace.h"
#include "steelyard/export/verify.h"

// Runs by recipe.
#include "steelyard/recipes/runs/deployment.h"
#include "steelyard/recipes/runs/loaded_run.h"
#include "steelyard/recipes/runs/run.h"

namespace steelyard {

using qat::prepare;
using qat::w8a8;

}  // namespace steelyard
