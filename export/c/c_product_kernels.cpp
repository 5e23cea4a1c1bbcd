// The kernels of linear maps in C programs. @ is the width of a weight.
#include "steelyard/export/c/c_kernels.h"

namespace steelyard::deploy {
namespace {

constexpr std::string_view kProduct = R"(
/* Sums of weights times codes. Weights are those of one output after another, packed, the first in
   the lowest bits; biases are less in_zero times the sum of the weights where a kernel takes the
   codes as they are. */
typedef struct {
  const int8_t *weight;
  const int32_t *bias;
  const int32_t *multiplier; /* of each output channel */
  const int8_t *shift;
  int32_t in_h, in_w, in_c, out_h, out_w, out_c;
  int32_t kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
  int32_t group_in, group_out; /* channels of a group */
  int32_t in_zero, out_zero, least, most;
} product;

static int8_t product_code(const product *n, int32_t sum, int32_t o) {
  return coded(scaled(sum, n->multiplier[o], n->shift[o]), n->out_zero, n->least, n->most);
}
)";

constexpr std::string_view kHelium = R"(
#if defined(__ARM_FEATURE_MVE) && !defined(__ARM_BIG_ENDIAN)
#define STEELYARD_HELIUM /* vectors of sixteen codes */
#include <arm_mve.h>
#endif
)";

constexpr std::string_view kRow8 = R"(
/* The weights of one output: `count` from `first` on. */
static const int8_t *row_8(const int8_t *weight, int32_t first, int32_t count, int8_t *row) {
  (void)count;
  (void)row;
  return &weight[first];
}
)";
constexpr std::string_view kRow4 = R"(
/* The weights of one output, `count` from `first` on: their bytes are unpacked to `row`. */
static const int8_t *row_4(const int8_t *weight, int32_t first, int32_t count,
                           int8_t *restrict row) {
  const int8_t *from = &weight[first / 2];
  const int32_t bytes = ((first + count + 1) / 2) - (first / 2);
  int32_t i = 0;
#if defined(STEELYARD_HELIUM)
  for (; (i + 16) <= bytes; i += 16) {
    const int8x16_t some = vldrbq_s8(&from[i]);
    int8x16x2_t codes;
    codes.val[0] = vshrq_n_s8(vshlq_n_s8(some, 4), 4);
    codes.val[1] = vshrq_n_s8(some, 4);
    vst2q_s8(&row[2 * i], codes);
  }
#endif
  for (; i < bytes; ++i) {
    const uint32_t byte = (uint8_t)from[i];
    row[2 * i] = (int8_t)((int32_t)((byte & 15U) ^ 8U) - 8);
    row[(2 * i) + 1] = (int8_t)((int32_t)((byte >> 4) ^ 8U) - 8);
  }
  return &row[first % 2];
}
)";
constexpr std::string_view kRow2 = R"(
/* The weights of one output, `count` from `first` on: their bytes are unpacked to `row`. */
static const int8_t *row_2(const int8_t *weight, int32_t first, int32_t count,
                           int8_t *restrict row) {
  const int8_t *from = &weight[first / 4];
  const int32_t bytes = ((first + count + 3) / 4) - (first / 4);
  int32_t i = 0;
#if defined(STEELYARD_HELIUM)
  for (; (i + 16) <= bytes; i += 16) {
    const int8x16_t some = vldrbq_s8(&from[i]);
    int8x16x4_t codes;
    codes.val[0] = vshrq_n_s8(vshlq_n_s8(some, 6), 6);
    codes.val[1] = vshrq_n_s8(vshlq_n_s8(some, 4), 6);
    codes.val[2] = vshrq_n_s8(vshlq_n_s8(some, 2), 6);
    codes.val[3] = vshrq_n_s8(some, 6);
    vst4q_s8(&row[4 * i], codes);
  }
#endif
  for (; i < bytes; ++i) {
    const uint32_t byte = (uint8_t)from[i];
    row[4 * i] = (int8_t)((int32_t)((byte & 3U) ^ 2U) - 2);
    row[(4 * i) + 1] = (int8_t)((int32_t)(((byte >> 2) & 3U) ^ 2U) - 2);
    row[(4 * i) + 2] = (int8_t)((int32_t)(((byte >> 4) & 3U) ^ 2U) - 2);
    row[(4 * i) + 3] = (int8_t)((int32_t)((byte >> 6) ^ 2U) - 2);
  }
  return &row[first % 4];
}
)";

constexpr std::string_view kDot = R"(
/* The sum of `count` products. */
#if defined(STEELYARD_HELIUM)
static int32_t dot(const int8_t *w, const int8_t *x, int32_t count) {
  int32_t sum = 0;
  int32_t i;
  for (i = 0; (i + 16) <= count; i += 16) {
    sum = vmladavaq_s8(sum, vldrbq_s8(&w[i]), vldrbq_s8(&x[i]));
  }
  if (i < count) {
    const mve_pred16_t rest = vctp8q((uint32_t)(count - i));
    sum = vmladavaq_s8(sum, vldrbq_z_s8(&w[i], rest), vldrbq_z_s8(&x[i], rest));
  }
  return sum;
}
#else
#if defined(__ARM_FEATURE_SIMD32) && !defined(__ARM_BIG_ENDIAN)
#include <arm_acle.h>

static inline int32_t four_codes(const int8_t *at) {
  return (int32_t)((uint32_t)(uint8_t)at[0] | ((uint32_t)(uint8_t)at[1] << 8) |
                   ((uint32_t)(uint8_t)at[2] << 16) | ((uint32_t)(uint8_t)at[3] << 24));
}
#endif

static int32_t dot(const int8_t *w, const int8_t *x, int32_t count) {
  int32_t sum = 0;
  int32_t i = 0;
#if defined(__ARM_FEATURE_SIMD32) && !defined(__ARM_BIG_ENDIAN)
  for (; (i + 4) <= count; i += 4) { /* two products at a time */
    const int32_t weights = four_codes(&w[i]);
    const int32_t codes = four_codes(&x[i]);
    sum = __smlad(__sxtb16(weights), __sxtb16(codes), sum);
    sum = __smlad(__sxtb16((int32_t)((uint32_t)weights >> 8)),
                  __sxtb16((int32_t)((uint32_t)codes >> 8)), sum);
  }
#endif
  for (; i < count; ++i) {
    sum += (int32_t)w[i] * x[i];
  }
  return sum;
}
#endif
)";

constexpr std::string_view kLinear = R"(
/* in_h rows of in_c features; weights [out_c, in_c]. */
static void linear_@(const product *n, const int8_t *x, int8_t *y, int8_t *row) {
  int32_t o;
  int32_t i;
  for (o = 0; o < n->out_c; ++o) {
    const int8_t *w = row_@(n->weight, o * n->in_c, n->in_c, row);
    for (i = 0; i < n->in_h; ++i) {
      const int32_t sum = n->bias[o] + dot(w, &x[i * n->in_c], n->in_c);
      y[(i * n->out_c) + o] = product_code(n, sum, o);
    }
  }
}
)";

constexpr std::string_view kWindow = R"(
/* The sum of `count` weights: what codes outside of the image, in_zero, are multiplied by. */
static int32_t total(const int8_t *w, int32_t count) {
  int32_t sum = 0;
  int32_t i = 0;
#if defined(STEELYARD_HELIUM)
  for (; (i + 16) <= count; i += 16) {
    sum = vaddvaq_s8(sum, vldrbq_s8(&w[i]));
  }
#endif
  for (; i < count; ++i) {
    sum += w[i];
  }
  return sum;
}

/* The products of the window whose first pixel is (top, left). Pixels next to each other are one
   run of codes where there is one group and no dilation along rows. */
static int32_t window(const product *n, const int8_t *w, const int8_t *x, int32_t top,
                      int32_t left) {
  const int32_t runs = ((n->group_in == n->in_c) && (n->dilation_w == 1)) ? 1 : 0;
  const int8_t *at = w;
  int32_t sum = 0;
  int32_t kh;
  for (kh = 0; kh < n->kernel_h; ++kh) {
    const int32_t in_y = top + (kh * n->dilation_h);
    int32_t kw = 0;
    while (kw < n->kernel_w) {
      const int32_t in_x = left + (kw * n->dilation_w);
      int32_t pixels = 1;
      if ((in_y >= 0) && (in_y < n->in_h) && (in_x >= 0) && (in_x < n->in_w)) {
        if (runs != 0) {
          const int32_t in_kernel = n->kernel_w - kw;
          const int32_t in_row = n->in_w - in_x;
          pixels = (in_kernel < in_row) ? in_kernel : in_row;
        }
        sum += dot(at, &x[((in_y * n->in_w) + in_x) * n->in_c], pixels * n->group_in);
      } else {
        sum += n->in_zero * total(at, n->group_in);
      }
      kw += pixels;
      at = &at[pixels * n->group_in];
    }
  }
  return sum;
}

/* One output channel of all pixels. */
static void conv_channel(const product *n, const int8_t *w, const int8_t *restrict x,
                         int8_t *restrict y, int32_t o) {
  const int8_t *from = &x[(o / n->group_out) * n->group_in];
  int8_t *to = &y[o];
  int32_t h;
  int32_t i;
  for (h = 0; h < n->out_h; ++h) {
    for (i = 0; i < n->out_w; ++i) {
      const int32_t top = (h * n->stride_h) - n->pad_h;
      const int32_t left = (i * n->stride_w) - n->pad_w;
      *to = product_code(n, n->bias[o] + window(n, w, from, top, left), o);
      to = &to[n->out_c];
    }
  }
}
)";

constexpr std::string_view kConv = R"(
/* Weights [out_c, kernel_h, kernel_w, group_in]. */
static void conv_@(const product *n, const int8_t *x, int8_t *y, int8_t *row) {
  const int32_t terms = n->kernel_h * n->kernel_w * n->group_in;
  int32_t o;
  for (o = 0; o < n->out_c; ++o) {
    conv_channel(n, row_@(n->weight, o * terms, terms, row), x, y, o);
  }
}
)";

constexpr std::string_view kDepthwiseChannel = R"(
/* How many of `count` taps at `at`, at + step, ... lie below the bound. */
static int32_t taps_below(int32_t bound, int32_t at, int32_t step, int32_t count) {
  int32_t taps = (at < bound) ? count : 0;
  while ((taps > 0) && ((at + ((taps - 1) * step)) >= bound)) {
    --taps;
  }
  return taps;
}

/* One output channel of all pixels, of one channel of the input. */
static void depthwise_channel(const product *n, const int8_t *w, const int8_t *restrict x,
                              int8_t *restrict y, int32_t o) {
  const int8_t *from = &x[o / n->group_out];
  int8_t *to = &y[o];
  int32_t h;
  int32_t i;
  int32_t kh;
  int32_t kw;
  for (h = 0; h < n->out_h; ++h) {
    const int32_t top = (h * n->stride_h) - n->pad_h;
    const int32_t first_h = taps_below(0, top, n->dilation_h, n->kernel_h);
    const int32_t end_h = taps_below(n->in_h, top, n->dilation_h, n->kernel_h);
    for (i = 0; i < n->out_w; ++i) {
      const int32_t left = (i * n->stride_w) - n->pad_w;
      const int32_t first_w = taps_below(0, left, n->dilation_w, n->kernel_w);
      const int32_t end_w = taps_below(n->in_w, left, n->dilation_w, n->kernel_w);
      int32_t sum = n->bias[o];
      for (kh = first_h; kh < end_h; ++kh) {
        const int32_t row = (top + (kh * n->dilation_h)) * n->in_w;
        for (kw = first_w; kw < end_w; ++kw) {
          const int32_t pixel = row + left + (kw * n->dilation_w);
          sum += w[(kh * n->kernel_w) + kw] * (from[pixel * n->in_c] - n->in_zero);
        }
      }
      *to = product_code(n, sum, o);
      to = &to[n->out_c];
    }
  }
}
)";

constexpr std::string_view kDepthwise = R"(
/* Each channel has outputs of its own; weights [out_c, kernel_h, kernel_w]. */
static void depthwise_@(const product *n, const int8_t *x, int8_t *y, int8_t *row) {
  const int32_t terms = n->kernel_h * n->kernel_w;
  int32_t o;
  for (o = 0; o < n->out_c; ++o) {
    depthwise_channel(n, row_@(n->weight, o * terms, terms, row), x, y, o);
  }
}
)";

constexpr std::string_view kSpread = R"(
/* One output channel of a pixel: which pixels of the input each weight spreads there. */
static int32_t spread(const product *n, const int8_t *w, const int8_t *x, int32_t row,
                      int32_t column) {
  const int8_t *at = w;
  int32_t sum = 0;
  int32_t kh;
  int32_t kw;
  int32_t i;
  for (kh = 0; kh < n->kernel_h; ++kh) {
    const int32_t from_y = row + n->pad_h - (kh * n->dilation_h);
    const int32_t in_y = from_y / n->stride_h;
    const int32_t has_row =
        ((from_y >= 0) && (in_y < n->in_h) && ((in_y * n->stride_h) == from_y)) ? 1 : 0;
    for (kw = 0; kw < n->kernel_w; ++kw) {
      const int32_t from_x = column + n->pad_w - (kw * n->dilation_w);
      const int32_t in_x = from_x / n->stride_w;
      if ((has_row != 0) && (from_x >= 0) && (in_x < n->in_w) &&
          ((in_x * n->stride_w) == from_x)) {
        const int8_t *from = &x[((in_y * n->in_w) + in_x) * n->in_c];
        for (i = 0; i < n->group_in; ++i) {
          sum += at[i] * (from[i] - n->in_zero);
        }
      }
      at = &at[n->group_in];
    }
  }
  return sum;
}
)";

constexpr std::string_view kTransposed = R"(
/* Weights [out_c, kernel_h, kernel_w, in_c]. */
static void transposed_@(const product *n, const int8_t *x, int8_t *y, int8_t *row) {
  const int32_t terms = n->kernel_h * n->kernel_w * n->group_in;
  int32_t o;
  int32_t h;
  int32_t i;
  for (o = 0; o < n->out_c; ++o) {
    const int8_t *w = row_@(n->weight, o * terms, terms, row);
    int8_t *to = &y[o];
    for (h = 0; h < n->out_h; ++h) {
      for (i = 0; i < n->out_w; ++i) {
        *to = product_code(n, n->bias[o] + spread(n, w, x, h, i), o);
        to = &to[n->out_c];
      }
    }
  }
}
)";

}  // namespace

std::vector<CKernel> c_product_kernels() {
  return {
      {"product", kProduct, {"scaled", "coded"}},
      {"helium", kHelium},
      {"row_8", kRow8},
      {"row_4", kRow4, {"helium"}},
      {"row_2", kRow2, {"helium"}},
      {"dot", kDot, {"helium"}},
      {"window", kWindow, {"product", "dot"}},
      {"depthwise_channel", kDepthwiseChannel, {"product"}},
      {"spread", kSpread, {"product"}},
      {"linear_8", kLinear, {"product", "dot", "row_8"}},
      {"linear_4", kLinear, {"product", "dot", "row_4"}},
      {"linear_2", kLinear, {"product", "dot", "row_2"}},
      {"conv_8", kConv, {"window", "row_8"}},
      {"conv_4", kConv, {"window", "row_4"}},
      {"conv_2", kConv, {"window", "row_2"}},
      {"depthwise_8", kDepthwise, {"depthwise_channel", "row_8"}},
      {"depthwise_4", kDepthwise, {"depthwise_channel", "row_4"}},
      {"depthwise_2", kDepthwise, {"depthwise_channel", "row_2"}},
      {"transposed_8", kTransposed, {"spread", "row_8"}},
      {"transposed_4", kTransposed, {"spread", "row_4"}},
      {"transposed_2", kTransposed, {"spread", "row_2"}},
  };
}

}  // namespace steelyard::deploy
