// The deployed operations, each once: Op, the declarations of their rows (ops/rows.h here and in
// export/) and both tables (op_info.cpp, export/op_form.cpp) are made of this list.
#pragma once

// X(enumerator of Op, name of the functions NAME_op() and NAME_form() that make the rows, and for a
// reader what the enumerator does not say).
// clang-format off
#define STEELYARD_DEPLOYED_OPS(X) \
  X(kQuantize, quantize)                        /* f32 to codes */ \
  X(kLinear, linear)                            /* weight [O, I] */ \
  X(kConv2d, conv2d)                            /* weight [O, C/groups, KH, KW] */ \
  X(kAdd, add)                                  /* of two values; of one shape where they are codes */ \
  X(kConcat, concat)                            /* of values along a dimension */ \
  X(kRelu, relu) \
  X(kRelu6, relu6) \
  X(kMaxPool2d, max_pool2d) \
  X(kAvgPool2d, avg_pool2d)                     /* padding counts as zero and in the divisor */ \
  X(kGlobalAvgPool, global_avg_pool)            /* [H, W, C] to [C] */ \
  X(kFlatten, flatten)                          /* [H, W, C] to [C*H*W], in that order */ \
  X(kSigmoid, sigmoid) \
  X(kHardswish, hardswish) \
  X(kSoftmax, softmax)                          /* along the last dimension */ \
  X(kMul, mul)                                  /* of two values whose shapes broadcast */ \
  X(kHardSigmoid, hard_sigmoid) \
  X(kSilu, silu) \
  /* Floats only, or codes that stay as they are: what imported graphs consist of besides. */ \
  X(kReshape, reshape) \
  X(kPermute, permute) \
  X(kSlice, slice) \
  X(kPad, pad) \
  X(kResize, resize) \
  X(kSub, sub) \
  X(kDiv, div) \
  X(kSum, sum)                                  /* over some dimensions */ \
  X(kMatmul, matmul)                            /* of two values, or of one and a matrix */ \
  X(kGelu, gelu) \
  X(kLeakyRelu, leaky_relu) \
  X(kClamp, clamp) \
  X(kLayerNorm, layer_norm) \
  X(kConvTranspose2d, conv_transpose2d)         /* weight [O, C/groups, KH, KW] */ \
  X(kScaleShift, scale_shift)                   /* x * scale + shift, numbers of each channel: a batch norm */ \
  X(kAffine, affine)                            /* slope * x + offset */ \
  X(kSqrt, sqrt) \
  X(kExp, exp) \
  X(kLog, log) \
  X(kAbs, abs) \
  X(kErf, erf) \
  X(kTanh, tanh) \
  X(kPow, pow)                                  /* to a fixed exponent */ \
  X(kTanhGelu, tanh_gelu)                       /* by tanh */ \
  X(kMaximum, maximum)                          /* of two values, or of one and a constant */ \
  X(kMinimum, minimum) \
  X(kDivNoNan, div_no_nan)                      /* 0 where the divisor is 0 */ \
  X(kReduceMax, reduce_max)                     /* over some dimensions */ \
  X(kReduceMin, reduce_min) \
  X(kExpand, expand)                            /* repeated along dimensions of size 1 */ \
  X(kEmbedding, embedding)                      /* rows of a table [rows, width] at whole numbers */ \
  X(kInputPart, input_part)                     /* some of the model's input under another shape: one of several inputs */ \
  X(kLstm, lstm)                                /* one direction of a long short-term memory over a sequence */ \
  X(kGru, gru)                                  /* one direction of a gated recurrent unit over a sequence */ \
  X(kWhereGreater, where_greater)               /* of (x, y, a, b): a where x > y, else b */ \
  X(kWhereGreaterEqual, where_greater_equal) \
  X(kWhereEqual, where_equal) \
  X(kSin, sin) \
  X(kCos, cos) \
  X(kSoftplus, softplus)                        /* log(1 + exp(x)) */ \
  X(kElu, elu)                                  /* below 0 alpha * (exp(x) - 1) */ \
  X(kSign, sign) \
  X(kFloor, floor) \
  X(kCeil, ceil) \
  X(kRound, round)                              /* halves to the even number */ \
  X(kLogSoftmax, log_softmax)                   /* along the last dimension */ \
  X(kCumulativeSum, cumulative_sum)             /* along the last dimension */ \
  X(kFixedLstm, fixed_lstm)                     /* an LSTM of codes in fixed point, from the first step on */ \
  X(kOutputParts, output_parts)                 /* several outputs of the model: the last node */
// clang-format on
