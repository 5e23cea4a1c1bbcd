// The families whose kernels all have one body for both devices: their headers are all they need.
#pragma once

#include "steelyard/kernels/activation/activation.h"
#include "steelyard/kernels/broadcast/broadcast.h"
#include "steelyard/kernels/convert/convert.h"
#include "steelyard/kernels/counter/counter.h"
#include "steelyard/kernels/dropout/dropout.h"
#include "steelyard/kernels/elementwise/elementwise.h"
#include "steelyard/kernels/fixed_lstm/fixed_lstm.h"
#include "steelyard/kernels/gru/gru.h"
#include "steelyard/kernels/layer_norm/layer_norm.h"
#include "steelyard/kernels/losses/losses.h"
#include "steelyard/kernels/lstm/lstm.h"
#include "steelyard/kernels/norm_fold/norm_fold.h"
#include "steelyard/kernels/oscillation/oscillation.h"
#include "steelyard/kernels/rms_norm/rms_norm.h"
#include "steelyard/kernels/rotary/rotary.h"
#include "steelyard/kernels/scan/scan.h"
#include "steelyard/kernels/softmax/softmax.h"
#include "steelyard/kernels/swiglu/swiglu.h"
#include "steelyard/kernels/transposed_conv/transposed_conv.h"
#include "steelyard/kernels/unary/unary.h"

namespace steelyard::kernels {

// Several lists: nvcc stops at a table of about a hundred kernels.
using SharedArithmetic =
    JoinedKernels<ActivationKernels, BroadcastKernels, ElementwiseKernels, UnaryKernels>;
using SharedBookkeeping =
    JoinedKernels<ConvertKernels, CounterKernels, DropoutKernels, FixedLstmKernels, GruKernels,
                  LossKernels, LstmKernels, OscillationKernels, RotaryKernels, SwiGluKernels,
                  TransposedConvKernels>;
using SharedRows =
    JoinedKernels<LayerNormKernels, NormFoldKernels, RmsNormKernels, ScanKernels, SoftmaxKernels>;
using SharedBodies = JoinedKernels<SharedArithmetic, SharedBookkeeping, SharedRows>;

}  // namespace steelyard::kernels
