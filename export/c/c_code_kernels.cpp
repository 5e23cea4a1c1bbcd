// The kernels of operations without weights in C programs.
#include "steelyard/export/c/c_kernels.h"

namespace steelyard::deploy {
namespace {

constexpr std::string_view kAdd = R"(
/* The sum of two tensors, both brought to one scale with 20 more bits. */
typedef struct {
  int32_t count;
  int32_t zero_a, multiplier_a, shift_a;
  int32_t zero_b, multiplier_b, shift_b;
  int32_t multiplier, shift, out_zero, least, most;
} add_node;

static int32_t raised(int32_t x) { return (int32_t)((uint32_t)x << 20); }

/* y may be a or b. */
static void add(const add_node *n, const int8_t *a, const int8_t *b, int8_t *y) {
  int32_t i;
  for (i = 0; i < n->count; ++i) {
    const int32_t of_a = scaled(raised(a[i] - n->zero_a), n->multiplier_a, n->shift_a);
    const int32_t of_b = scaled(raised(b[i] - n->zero_b), n->multiplier_b, n->shift_b);
    const int32_t sum = (int32_t)((uint32_t)of_a + (uint32_t)of_b);
    y[i] = coded(scaled(sum, n->multiplier, n->shift), n->out_zero, n->least, n->most);
  }
}
)";

constexpr std::string_view kPool = R"(
/* Windows of each channel. */
typedef struct {
  int32_t in_h, in_w, channels, out_h, out_w;
  int32_t kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w;
} pool_node;
)";

constexpr std::string_view kMaxPool = R"(
static int8_t largest(const pool_node *n, const int8_t *x, int32_t top, int32_t left) {
  int8_t most = INT8_MIN;
  int32_t h;
  int32_t w;
  for (h = top; h < (top + n->kernel_h); ++h) {
    for (w = left; w < (left + n->kernel_w); ++w) {
      if ((h >= 0) && (h < n->in_h) && (w >= 0) && (w < n->in_w)) {
        const int8_t code = x[((h * n->in_w) + w) * n->channels];
        if (code > most) {
          most = code;
        }
      }
    }
  }
  return most;
}

static void max_pool(const pool_node *n, const int8_t *restrict x, int8_t *restrict y) {
  int8_t *to = y;
  int32_t h;
  int32_t w;
  int32_t c;
  for (h = 0; h < n->out_h; ++h) {
    for (w = 0; w < n->out_w; ++w) {
      for (c = 0; c < n->channels; ++c) {
        *to = largest(n, &x[c], (h * n->stride_h) - n->pad_h, (w * n->stride_w) - n->pad_w);
        ++to;
      }
    }
  }
}
)";

constexpr std::string_view kAveragePool = R"(
static int8_t average(const pool_node *n, const int8_t *x) {
  const int32_t count = n->kernel_h * n->kernel_w;
  int32_t sum = 0;
  int32_t h;
  int32_t w;
  for (h = 0; h < n->kernel_h; ++h) {
    for (w = 0; w < n->kernel_w; ++w) {
      sum += x[((h * n->in_w) + w) * n->channels];
    }
  }
  sum += (sum > 0) ? (count / 2) : -(count / 2);
  return (int8_t)(sum / count);
}

static void average_pool(const pool_node *n, const int8_t *restrict x, int8_t *restrict y) {
  int8_t *to = y;
  int32_t h;
  int32_t w;
  int32_t c;
  for (h = 0; h < n->out_h; ++h) {
    for (w = 0; w < n->out_w; ++w) {
      const int32_t first = ((h * n->stride_h * n->in_w) + (w * n->stride_w)) * n->channels;
      for (c = 0; c < n->channels; ++c) {
        *to = average(n, &x[first + c]);
        ++to;
      }
    }
  }
}
)";

constexpr std::string_view kMean = R"(
/* The mean of all pixels; the division is in the multiplier. */
typedef struct {
  int32_t pixels, channels, in_zero, multiplier, shift, out_zero, least, most;
} mean_node;

static void mean(const mean_node *n, const int8_t *restrict x, int8_t *restrict y) {
  int32_t c;
  int32_t i;
  for (c = 0; c < n->channels; ++c) {
    int32_t sum = 0;
    for (i = 0; i < n->pixels; ++i) {
      sum += x[(i * n->channels) + c] - n->in_zero;
    }
    y[c] = coded(scaled(sum, n->multiplier, n->shift), n->out_zero, n->least, n->most);
  }
}
)";

constexpr std::string_view kClamp = R"(
typedef struct {
  int32_t count, least, most;
} clamp_node;

/* y may be x. */
static void clamp(const clamp_node *n, const int8_t *x, int8_t *y) {
  int32_t i;
  for (i = 0; i < n->count; ++i) {
    y[i] = coded(x[i], 0, n->least, n->most);
  }
}
)";

constexpr std::string_view kFill = R"(
typedef struct {
  int32_t count, code;
} fill_node;

static void fill(const fill_node *n, int8_t *y) {
  int32_t i;
  for (i = 0; i < n->count; ++i) {
    y[i] = (int8_t)n->code;
  }
}
)";

constexpr std::string_view kMap = R"(
/* Codes by a table. */
typedef struct {
  const int8_t *table;
  int32_t rows, count, step, first;
} map_node;

/* y may be x. */
static void map(const map_node *n, const int8_t *x, int8_t *y) {
  int32_t row;
  int32_t i;
  for (row = 0; row < n->rows; ++row) {
    for (i = n->first; i < (n->first + n->count); ++i) {
      y[(row * n->step) + i] = n->table[(uint8_t)x[(row * n->step) + i]];
    }
  }
}
)";

constexpr std::string_view kMul = R"(
/* Products of codes; an operand whose step is 0 repeats along the dimension. */
typedef struct {
  int32_t size[4], a_step[4], b_step[4];
  int32_t zero_a, zero_b, multiplier, shift, out_zero, least, most;
} mul_node;

static void mul_row(const mul_node *n, const int8_t *a, const int8_t *b, int8_t *y) {
  int32_t i;
  for (i = 0; i < n->size[3]; ++i) {
    const int32_t both = (a[i * n->a_step[3]] - n->zero_a) * (b[i * n->b_step[3]] - n->zero_b);
    y[i] = coded(scaled(both, n->multiplier, n->shift), n->out_zero, n->least, n->most);
  }
}

static void mul(const mul_node *n, const int8_t *a, const int8_t *b, int8_t *restrict y) {
  int8_t *to = y;
  int32_t i;
  int32_t j;
  int32_t k;
  for (i = 0; i < n->size[0]; ++i) {
    for (j = 0; j < n->size[1]; ++j) {
      for (k = 0; k < n->size[2]; ++k) {
        mul_row(n, &a[(i * n->a_step[0]) + (j * n->a_step[1]) + (k * n->a_step[2])],
                &b[(i * n->b_step[0]) + (j * n->b_step[1]) + (k * n->b_step[2])], to);
        to += n->size[3];
      }
    }
  }
}
)";

constexpr std::string_view kSoftmax = R"(
/* Shares exp(x) / sum(exp(x)) of each row in numbers of 31 bits; codes of scale 2^-8 from -128. */
typedef struct {
  int32_t rows, columns, multiplier, shift, radius;
} softmax_node;

static int32_t times(int32_t a, int32_t b) {
  return (int32_t)((((int64_t)a * b) + ((int64_t)1 << 30)) >> 31);
}

/* x / 2^right, halves away from 0. */
static int32_t divided(int32_t x, int32_t right) {
  const int32_t mask = (int32_t)(((uint32_t)1 << right) - 1U);
  const int32_t half = (mask >> 1) + ((x < 0) ? 1 : 0);
  return (x >> right) + (((x & mask) > half) ? 1 : 0);
}

/* x * 2^left, the largest or smallest number where it does not fit. */
static int32_t shifted(int32_t x, int32_t left) {
  const int64_t wide = (int64_t)x * ((int64_t)1 << left);
  int32_t result = (int32_t)wide;
  if (wide > INT32_MAX) {
    result = INT32_MAX;
  }
  if (wide < INT32_MIN) {
    result = INT32_MIN;
  }
  return result;
}

/* exp(a) for a <= 0 with 5 bits before the point: a series around -1/8 for the last quarter, and a
   factor for each bit before it. */
static int32_t exponential(int32_t a) {
  static const int32_t factors[7] = {1672461947, 1302514674, 790015084, 290630308,
                                     39332535,   720401,     242};
  const int32_t quarter = (int32_t)1 << 24;
  const int32_t last = (a & (quarter - 1)) - quarter;
  const int32_t x = (last * 32) + ((int32_t)1 << 28);
  const int32_t x2 = times(x, x);
  const int32_t x4 = divided(times(x2, x2), 2);
  const int32_t rest = divided(times(x4 + times(x2, x), 715827883) + x2, 1);
  const uint32_t bits = (uint32_t)(last - a) >> 24;
  int32_t result = 1895147668 + times(1895147668, x + rest);
  int32_t i;
  for (i = 0; i < 7; ++i) {
    if (((bits >> i) & 1U) != 0U) {
      result = times(result, factors[i]);
    }
  }
  return (a == 0) ? INT32_MAX : result;
}

/* exp() of a code less the row's largest. */
static int32_t exponential_of(const softmax_node *n, int32_t below) {
  int32_t result = 0;
  if (below >= -n->radius) {
    result = exponential(scaled(below, n->multiplier, n->shift));
  }
  return result;
}

/* 1 / (1 + a) for a in [0, 1): three steps of Newton's method. */
static int32_t inverse_of_one_plus(int32_t a) {
  const int32_t half = (int32_t)(((int64_t)a + INT32_MAX + 1) / 2);
  int32_t x = 1515870810 + times(half, -1010580540);
  int32_t i;
  for (i = 0; i < 3; ++i) {
    x += shifted(times(x, ((int32_t)1 << 29) - times(half, x)), 2);
  }
  return shifted(x, 1);
}

static void softmax(const softmax_node *n, const int8_t *restrict x, int8_t *restrict y) {
  int32_t row;
  int32_t i;
  for (row = 0; row < n->rows; ++row) {
    const int8_t *from = &x[row * n->columns];
    int8_t *to = &y[row * n->columns];
    int32_t largest = from[0];
    int32_t sum = 0;
    int32_t zeros = 0;
    int32_t inverse;
    for (i = 1; i < n->columns; ++i) {
      if (from[i] > largest) {
        largest = from[i];
      }
    }
    for (i = 0; i < n->columns; ++i) {
      sum += divided(exponential_of(n, from[i] - largest), 12);
    }
    while (((uint32_t)sum >> (31 - zeros)) == 0U) {
      ++zeros;
    }
    inverse = inverse_of_one_plus((int32_t)(((uint32_t)sum << zeros) - 0x80000000U));
    for (i = 0; i < n->columns; ++i) {
      const int32_t share = times(inverse, exponential_of(n, from[i] - largest));
      to[i] = coded(divided(share, 35 - zeros), -128, INT8_MIN, INT8_MAX);
    }
  }
}
)";

constexpr std::string_view kMove = R"(
/* Codes in another order: element i of dimension d lies at i * from_step[d] and i * to_step[d]. */
typedef struct {
  int32_t size[6], from_step[6], to_step[6];
  int32_t from, to;
} move_node;

static void move(const move_node *n, const int8_t *restrict x, int8_t *restrict y) {
  int32_t at[5] = {0, 0, 0, 0, 0};
  int32_t from = n->from;
  int32_t to = n->to;
  int32_t d;
  do {
    int32_t i;
    for (i = 0; i < n->size[5]; ++i) {
      y[to + (i * n->to_step[5])] = x[from + (i * n->from_step[5])];
    }
    for (d = 4; d >= 0; --d) {
      ++at[d];
      from += n->from_step[d];
      to += n->to_step[d];
      if (at[d] < n->size[d]) {
        break;
      }
      from -= n->size[d] * n->from_step[d];
      to -= n->size[d] * n->to_step[d];
      at[d] = 0;
    }
  } while (d >= 0);
}
)";

}  // namespace

std::vector<CKernel> c_code_kernels() {
  return {
      {"add", kAdd, {"scaled", "coded"}},
      {"pool", kPool},
      {"max_pool", kMaxPool, {"pool"}},
      {"average_pool", kAveragePool, {"pool"}},
      {"mean", kMean, {"scaled", "coded"}},
      {"clamp", kClamp, {"coded"}},
      {"fill", kFill},
      {"map", kMap},
      {"mul", kMul, {"scaled", "coded"}},
      {"softmax", kSoftmax, {"scaled", "coded"}},
      {"move", kMove},
  };
}

}  // namespace steelyard::deploy
