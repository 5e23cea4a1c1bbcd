// The families whose kernels all have one body for both devices: their headers are all they need.
#pragma once

#include "steelyard/kernels/activation/activation.h"
#include "steelyard/kernels/broadcast/broadcast.h"
#include "steelyard/kernels/convert/convert.h"
#include "steelyard/kernels/counter/counter.h"
#include "steelyard/kernels/dropout/dropout.h"
#include "steelyard/kernels/losses/losses.h"
#include "steelyard/kernels/lstm/lstm.h"
#include "steelyard/kernels/oscillation/oscillation.h"
#include "steelyard/kernels/transposed_conv/transposed_conv.h"
#include "steelyard/kernels/unary/unary.h"

namespace steelyard::kernels {

// Two lists: nvcc stops at a table of about a hundred kernels.
using SharedArithmetic = JoinedKernels<ActivationKernels, BroadcastKernels, UnaryKernels>;
using SharedBookkeeping = JoinedKernels<ConvertKernels, CounterKernels, DropoutKernels, LossKernels,
                                        LstmKernels, OscillationKernels, TransposedConvKernels>;
using SharedBodies = JoinedKernels<SharedArithmetic, SharedBookkeeping>;

}  // namespace steelyard::kernels
