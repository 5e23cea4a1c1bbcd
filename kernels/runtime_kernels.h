// The kernels that a program has which only runs exported models (STEELYARD_RUNTIME_ONLY): what
// runtime/ and the tensors that it links run. One that is missing here does not link there.
#pragma once

#include "steelyard/kernels/activation/activation.h"
#include "steelyard/kernels/broadcast/broadcast.h"
#include "steelyard/kernels/convert/convert.h"
#include "steelyard/kernels/elementwise/elementwise.h"
#include "steelyard/kernels/fake_quantize/fake_quantize.h"
#include "steelyard/kernels/fixed_requantize/fixed_requantize.h"
#include "steelyard/kernels/integer_groups/integer_groups.h"
#include "steelyard/kernels/integer_product/integer_product.h"
#include "steelyard/kernels/ordered_product/ordered_product.h"
#include "steelyard/kernels/pool/pool.h"
#include "steelyard/kernels/requantize/requantize.h"
#include "steelyard/kernels/softmax/softmax.h"
#include "steelyard/kernels/transposed_conv/transposed_conv.h"
#include "steelyard/kernels/wide_codes/wide_codes.h"

namespace steelyard::kernels {

template <typename CodeA, typename CodeB>
using RuntimeSums =
    KernelList<RequantizeAdd<CodeA, CodeB, std::int8_t>, RequantizeAdd<CodeA, CodeB, std::uint8_t>>;

using RuntimeTensors = JoinedKernels<
    ForTypes<Fill, float, double, std::int64_t, std::int32_t, std::int8_t, std::uint8_t>,
    ConvertKernels>;
using RuntimeProducts =
    JoinedKernels<IntegerProductKernels, IntegerGroupsKernels, TransposedConvKernels,
                  OrderedProductKernels, KernelList<SubtractZeroPoints>>;
using RuntimeCodes =
    JoinedKernels<KernelList<Quantize<float, std::int8_t>, Quantize<float, std::uint8_t>>,
                  ForTypes<QuantizeReals, std::int8_t, std::uint8_t, std::int32_t>,
                  ForTypes<RequantizeAccumulators, std::int8_t, std::uint8_t>,
                  ForTypes<RequantizeAverage, std::int8_t, std::uint8_t>,
                  RuntimeSums<std::int8_t, std::int8_t>, RuntimeSums<std::int8_t, std::uint8_t>,
                  RuntimeSums<std::uint8_t, std::int8_t>, RuntimeSums<std::uint8_t, std::uint8_t>,
                  KernelList<FixedRequantize, FixedRequantizeAdd, FixedRequantizeAverage,
                             DequantizeAccumulators, CountNan, DequantizeWideSums>,
                  ForTypes<SplitCodes, std::uint8_t, std::int32_t>>;
using RuntimePools = JoinedKernels<ForTypes<MaxPool, std::int8_t, std::uint8_t, std::int32_t>,
                                   ForTypes<IntegerWindowSums, std::int8_t, std::uint8_t>>;
using RuntimeElements = JoinedKernels<
    KernelList<MapBytes, MultiplyToCodes, Combine<float, Total>, Combine<float, Product>>,
    ForTypes<CopyStrided, float, double, std::int8_t, std::uint8_t, std::int32_t>,
    KernelList<SoftmaxTable, SoftmaxCodes<std::int8_t, std::int8_t>,
               SoftmaxCodes<std::int8_t, std::uint8_t>, SoftmaxCodes<std::uint8_t, std::int8_t>,
               SoftmaxCodes<std::uint8_t, std::uint8_t>>>;
using RuntimeKernels =
    JoinedKernels<RuntimeTensors, RuntimeProducts, RuntimeCodes, RuntimePools, RuntimeElements>;

}  // namespace steelyard::kernels
