// The kernels of every family, on each device.
#pragma once

#include "steelyard/kernels/attention/attention.h"
#include "steelyard/kernels/conv/conv.h"
#include "steelyard/kernels/embedding/embedding.h"
#include "steelyard/kernels/fake_quantize/fake_quantize.h"
#include "steelyard/kernels/fixed_codes/fixed_codes.h"
#include "steelyard/kernels/fixed_requantize/fixed_requantize.h"
#include "steelyard/kernels/ggml_blocks/ggml_blocks.h"
#include "steelyard/kernels/histogram/histogram.h"
#include "steelyard/kernels/histogram_ranges/histogram_ranges.h"
#include "steelyard/kernels/integer_groups/integer_groups.h"
#include "steelyard/kernels/integer_product/integer_product.h"
#include "steelyard/kernels/matmul/matmul.h"
#include "steelyard/kernels/norm/norm.h"
#include "steelyard/kernels/optimizer_step/optimizer_step.h"
#include "steelyard/kernels/ordered_product/ordered_product.h"
#include "steelyard/kernels/percentile/percentile.h"
#include "steelyard/kernels/pool/pool.h"
#include "steelyard/kernels/quant_plan/quant_kernels.h"
#include "steelyard/kernels/quantizer_state/quantizer_state.h"
#include "steelyard/kernels/reduce/reduce.h"
#include "steelyard/kernels/requantize/requantize.h"
#include "steelyard/kernels/shared_bodies.h"
#include "steelyard/kernels/shrunken_range/shrunken_range.h"
#include "steelyard/kernels/transpose/transpose.h"
#include "steelyard/kernels/weight_codes/weight_codes.h"
#include "steelyard/kernels/wide_codes/wide_codes.h"

namespace steelyard::kernels {

using SharedKernels =
    JoinedKernels<AttentionKernels, ConvKernels, EmbeddingKernels, FakeQuantizeKernels,
                  FixedCodesKernels, FixedRequantizeKernels, GgmlBlocksKernels, HistogramKernels,
                  HistogramRangesKernels, IntegerGroupsKernels, IntegerProductKernels,
                  MatmulKernels, NormKernels, OptimizerStepKernels, PercentileKernels, PoolKernels,
                  QuantKernels, QuantizerStateKernels, ReduceKernels, RequantizeKernels,
                  SharedBodies, ShrunkenRangeKernels, TransposeKernels, WeightCodesKernels,
                  WideCodesKernels>;
using AllCpuKernels = JoinedKernels<SharedKernels, ConvOfBf16Kernels, OrderedProductKernels>;
using AllCudaKernels =
    JoinedKernels<SharedKernels, ConvOfCodesKernels, RoundedGradientKernels, RowSumsKernels>;

}  // namespace steelyard::kernels
