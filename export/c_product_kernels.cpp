// The kernels of linear maps in C programs. @ is the width of a weight.
#include "steelyard/export/c_kernels.h"

namespace steelyard::deploy {
namespace {

constexpr std::string_view kProduct = R"(
/* Sums of weights times codes. */
typedef struct {
  const int8_t *weight;      /* packed, the first in the lowest bits */
  const int32_t *bias;       /* but in transposed ones less in_zero times the sum of the weights */
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

constexpr std::string_view kWeight8 = R"(
static int32_t weight_8(const int8_t *weight, int32_t i) { return weight[i]; }
)";
constexpr std::string_view kWeight4 = R"(
static int32_t weight_4(const int8_t *weight, int32_t i) {
  const uint32_t byte = (uint8_t)weight[i / 2];
  return (int32_t)(((byte >> ((uint32_t)(i % 2) * 4U)) & 15U) ^ 8U) - 8;
}
)";
constexpr std::string_view kWeight2 = R"(
static int32_t weight_2(const int8_t *weight, int32_t i) {
  const uint32_t byte = (uint8_t)weight[i / 4];
  return (int32_t)(((byte >> ((uint32_t)(i % 4) * 2U)) & 3U) ^ 2U) - 2;
}
)";

constexpr std::string_view kDot8 = R"(
#if defined(__ARM_FEATURE_SIMD32) && !defined(__ARM_BIG_ENDIAN)
#include <arm_acle.h>

static inline int32_t four_codes(const int8_t *at) {
  return (int32_t)((uint32_t)(uint8_t)at[0] | ((uint32_t)(uint8_t)at[1] << 8) |
                   ((uint32_t)(uint8_t)at[2] << 16) | ((uint32_t)(uint8_t)at[3] << 24));
}
#endif

static int32_t dot_8(const int8_t *weight, int32_t first, const int8_t *x, int32_t count) {
  const int8_t *w = &weight[first];
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
)";
constexpr std::string_view kDot = R"(
static int32_t dot_@(const int8_t *weight, int32_t first, const int8_t *x, int32_t count) {
  int32_t sum = 0;
  int32_t i;
  for (i = 0; i < count; ++i) {
    sum += weight_@(weight, first + i) * x[i];
  }
  return sum;
}
)";

constexpr std::string_view kLinear = R"(
/* in_h rows of in_c features; weights [out_c, in_c]. */
static void linear_@(const product *n, const int8_t *restrict x, int8_t *restrict y) {
  int32_t row;
  int32_t o;
  for (row = 0; row < n->in_h; ++row) {
    const int8_t *from = &x[row * n->in_c];
    for (o = 0; o < n->out_c; ++o) {
      const int32_t sum = n->bias[o] + dot_@(n->weight, o * n->in_c, from, n->in_c);
      y[(row * n->out_c) + o] = product_code(n, sum, o);
    }
  }
}
)";

constexpr std::string_view kConv = R"(
/* The sum of `count` weights: what codes outside of the image, in_zero, are multiplied by. */
static int32_t total_@(const int8_t *weight, int32_t first, int32_t count) {
  int32_t sum = 0;
  int32_t i;
  for (i = 0; i < count; ++i) {
    sum += weight_@(weight, first + i);
  }
  return sum;
}

/* One output channel of the window whose first pixel is (top, left). Pixels next to each other are
   one run of codes where there is one group and no dilation along rows. */
static int32_t window_@(const product *n, const int8_t *x, int32_t top, int32_t left, int32_t o) {
  const int32_t runs = ((n->group_in == n->in_c) && (n->dilation_w == 1)) ? 1 : 0;
  int32_t sum = n->bias[o];
  int32_t first = o * n->kernel_h * n->kernel_w * n->group_in;
  int32_t kh;
  for (kh = 0; kh < n->kernel_h; ++kh) {
    const int32_t h = top + (kh * n->dilation_h);
    int32_t kw = 0;
    while (kw < n->kernel_w) {
      const int32_t w = left + (kw * n->dilation_w);
      int32_t pixels = 1;
      if ((h >= 0) && (h < n->in_h) && (w >= 0) && (w < n->in_w)) {
        if (runs != 0) {
          const int32_t in_kernel = n->kernel_w - kw;
          const int32_t in_row = n->in_w - w;
          pixels = (in_kernel < in_row) ? in_kernel : in_row;
        }
        sum += dot_@(n->weight, first, &x[((h * n->in_w) + w) * n->in_c], pixels * n->group_in);
      } else {
        sum += n->in_zero * total_@(n->weight, first, n->group_in);
      }
      kw += pixels;
      first += pixels * n->group_in;
    }
  }
  return sum;
}

/* Weights [out_c, kernel_h, kernel_w, group_in]. */
static void conv_@(const product *n, const int8_t *restrict x, int8_t *restrict y) {
  int8_t *to = y;
  int32_t h;
  int32_t w;
  int32_t group;
  int32_t i;
  for (h = 0; h < n->out_h; ++h) {
    for (w = 0; w < n->out_w; ++w) {
      const int32_t top = (h * n->stride_h) - n->pad_h;
      const int32_t left = (w * n->stride_w) - n->pad_w;
      int32_t o = 0;
      for (group = 0; o < n->out_c; ++group) {
        const int8_t *from = &x[group * n->group_in];
        for (i = 0; i < n->group_out; ++i) {
          *to = product_code(n, window_@(n, from, top, left, o), o);
          ++to;
          ++o;
        }
      }
    }
  }
}
)";

constexpr std::string_view kDepthwise = R"(
/* Each channel has outputs of its own; weights [kernel_h, kernel_w, out_c]. */
static void depthwise_@(const product *n, const int8_t *restrict x, int8_t *restrict y) {
  int8_t *to = y;
  int32_t h;
  int32_t w;
  int32_t c;
  int32_t i;
  int32_t kh;
  int32_t kw;
  for (h = 0; h < n->out_h; ++h) {
    for (w = 0; w < n->out_w; ++w) {
      const int32_t top = (h * n->stride_h) - n->pad_h;
      const int32_t left = (w * n->stride_w) - n->pad_w;
      int32_t o = 0;
      for (c = 0; c < n->in_c; ++c) {
        for (i = 0; i < n->group_out; ++i) {
          int32_t sum = n->bias[o];
          int32_t at = o;
          for (kh = 0; kh < n->kernel_h; ++kh) {
            const int32_t in_y = top + (kh * n->dilation_h);
            const int32_t has_row = ((in_y >= 0) && (in_y < n->in_h)) ? 1 : 0;
            for (kw = 0; kw < n->kernel_w; ++kw) {
              const int32_t in_x = left + (kw * n->dilation_w);
              int32_t code = n->in_zero;
              if ((has_row != 0) && (in_x >= 0) && (in_x < n->in_w)) {
                code = x[(((in_y * n->in_w) + in_x) * n->in_c) + c];
              }
              sum += weight_@(n->weight, at) * code;
              at += n->out_c;
            }
          }
          *to = product_code(n, sum, o);
          ++to;
          ++o;
        }
      }
    }
  }
}
)";

constexpr std::string_view kTransposed = R"(
/* One output channel of a pixel: which pixels of the input each weight spreads there. */
static int32_t spread_@(const product *n, const int8_t *x, int32_t row, int32_t column, int32_t o) {
  int32_t sum = n->bias[o];
  int32_t first = o * n->kernel_h * n->kernel_w * n->group_in;
  int32_t kh;
  int32_t kw;
  int32_t i;
  for (kh = 0; kh < n->kernel_h; ++kh) {
    const int32_t from_h = row + n->pad_h - (kh * n->dilation_h);
    const int32_t h = from_h / n->stride_h;
    const int32_t has_row = ((from_h >= 0) && (h < n->in_h) && ((h * n->stride_h) == from_h)) ? 1 : 0;
    for (kw = 0; kw < n->kernel_w; ++kw) {
      const int32_t from_w = column + n->pad_w - (kw * n->dilation_w);
      const int32_t w = from_w / n->stride_w;
      if ((has_row != 0) && (from_w >= 0) && (w < n->in_w) && ((w * n->stride_w) == from_w)) {
        const int8_t *from = &x[((h * n->in_w) + w) * n->in_c];
        for (i = 0; i < n->group_in; ++i) {
          sum += weight_@(n->weight, first + i) * (from[i] - n->in_zero);
        }
      }
      first += n->group_in;
    }
  }
  return sum;
}

/* Weights [out_c, kernel_h, kernel_w, in_c]. */
static void transposed_@(const product *n, const int8_t *restrict x, int8_t *restrict y) {
  int8_t *to = y;
  int32_t h;
  int32_t w;
  int32_t o;
  for (h = 0; h < n->out_h; ++h) {
    for (w = 0; w < n->out_w; ++w) {
      for (o = 0; o < n->out_c; ++o) {
        *to = product_code(n, spread_@(n, x, h, w, o), o);
        ++to;
      }
    }
  }
}
)";

}  // namespace

std::vector<CKernel> c_product_kernels() {
  return {
      {"product", kProduct, {"scaled", "coded"}},
      {"weight_8", kWeight8},
      {"weight_4", kWeight4},
      {"weight_2", kWeight2},
      {"dot_8", kDot8},
      {"dot_4", kDot, {"weight_4"}},
      {"dot_2", kDot, {"weight_2"}},
      {"linear_8", kLinear, {"product", "dot_8"}},
      {"linear_4", kLinear, {"product", "dot_4"}},
      {"linear_2", kLinear, {"product", "dot_2"}},
      {"conv_8", kConv, {"product", "weight_8", "dot_8"}},
      {"conv_4", kConv, {"product", "dot_4"}},
      {"conv_2", kConv, {"product", "dot_2"}},
      {"depthwise_8", kDepthwise, {"product", "weight_8"}},
      {"depthwise_4", kDepthwise, {"product", "weight_4"}},
      {"depthwise_2", kDepthwise, {"product", "weight_2"}},
      {"transposed_8", kTransposed, {"product", "weight_8"}},
      {"transposed_4", kTransposed, {"product", "weight_4"}},
      {"transposed_2", kTransposed, {"product", "weight_2"}},
  };
}

}  // namespace steelyard::deploy
