// The kernels of every family.
#pragma once

#include "kernels/activation/activation.h"
#include "kernels/convert/convert.h"
#include "kernels/counter/counter.h"
#include "kernels/dropout/dropout.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/embedding/embedding.h"
#include "kernels/histogram/histogram.h"
#include "kernels/histogram_ranges/histogram_ranges.h"
#include "kernels/integer_pool/integer_pool.h"
#include "kernels/layer_norm/layer_norm.h"
#include "kernels/norm/norm.h"
#include "kernels/norm_fold/norm_fold.h"
#include "kernels/optimizer_step/optimizer_step.h"
#include "kernels/oscillation/oscillation.h"
#include "kernels/percentile/percentile.h"
#include "kernels/pool/pool.h"
#include "kernels/quantizer_state/quantizer_state.h"
#include "kernels/reduce/reduce.h"
#include "kernels/requantize/requantize.h"
#include "kernels/shrunken_range/shrunken_range.h"
#include "kernels/softmax/softmax.h"
#include "kernels/transpose/transpose.h"

namespace steelyard::kernels {

using AllKernels =
    JoinedKernels<ActivationKernels, ConvertKernels, CounterKernels, DropoutKernels,
                  ElementwiseKernels, EmbeddingKernels, HistogramKernels, HistogramRangesKernels,
                  IntegerPoolKernels, LayerNormKernels, NormKernels, NormFoldKernels,
                  OptimizerStepKernels, OscillationKernels, PercentileKernels, PoolKernels,
                  QuantizerStateKernels, ReduceKernels, RequantizeKernels, ShrunkenRangeKernels,
                  SoftmaxKernels, TransposeKernels>;

}  // namespace steelyard::kernels
