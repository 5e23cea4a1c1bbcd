/* Runs the integer model of an exported header on images, in C99 with the standard library only.
 *
 *   steelyard export RUN --format c
 *   cc -std=c99 -ffp-contract=off -I RUN/export 09_run_in_c.c -o run -lm
 *   ./run < inputs > outputs
 *
 * inputs: float32 numbers, the normalized input of one sample after the other. outputs: the int32
 * codes of each sample's output, the same as in `steelyard verify`, those of several outputs
 * (STEELYARD_OUTPUTS) one after another; of a regression in the units of its data
 * (STEELYARD_MAPPED_COLUMNS), the result is their value * scale + shift of each column.
 * Models with layers in float are refused. docs/exports.md explains the tables, docs/numerics.md
 * the arithmetic.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"

typedef const steelyard_value *value_t;
typedef const steelyard_node *node_t;

static int32_t *codes[STEELYARD_VALUES];
static float *input;

static void refuse(node_t n, const char *why) {
  fprintf(stderr, "%s (%s): %s\n", n->name, n->op, why);
  exit(1);
}

static int32_t size_of(value_t v) { return v->shape[0] * v->shape[1] * v->shape[2]; }

static int32_t clamped(float code, int32_t lo, int32_t hi) {
  return code < (float)lo ? lo : code > (float)hi ? hi : (int32_t)code;
}

static int32_t code_of(float x, value_t v) {
  return clamped(rintf(x / v->scale) + (float)v->zero_point, v->qmin, v->qmax);
}

/* The smallest and the largest code after an activation (0 none, 1 relu, 2 relu6). */
static void limits(value_t out, int activation, int32_t *lo, int32_t *hi) {
  *lo = activation ? code_of(0, out) : out->qmin;
  *hi = activation == 2 ? code_of(6, out) : out->qmax;
}

static int32_t requantized(int32_t sum, float multiplier, value_t out, int activation) {
  int32_t lo, hi;
  limits(out, activation, &lo, &hi);
  return clamped(rintf((float)sum * multiplier) + (float)out->zero_point, lo, hi);
}

/* The zero point of an output channel's weights. */
static int32_t weight_zero(node_t n, int32_t o) {
  return n->weight_zero_point ? n->weight_zero_point[o] : 0;
}

/* Each row of the last dimension by itself. */
static void linear(node_t n, value_t in, value_t out, const int32_t *x, int32_t *y) {
  const int32_t outputs = n->weight_shape[0], terms = n->weight_shape[1];
  for (int32_t row = 0; row < size_of(in) / terms; ++row) {
    for (int32_t o = 0; o < outputs; ++o) {
      int32_t sum = n->bias ? n->bias[o] : 0;
      for (int32_t i = 0; i < terms; ++i) {
        sum += (x[row * terms + i] - in->zero_point) *
               (n->weight[o * terms + i] - weight_zero(n, o));
      }
      y[row * outputs + o] =
          requantized(sum, in->scale * n->weight_scale[o] / out->scale, out, n->activation);
    }
  }
}

/* The index of the input pixel under element (kh, kw) of a window, or -1 in the padding. */
static int32_t pixel(node_t n, value_t in, int32_t oh, int32_t ow, int32_t kh, int32_t kw) {
  const int32_t h = oh * n->stride[0] - n->padding[0] + kh * n->dilation[0];
  const int32_t w = ow * n->stride[1] - n->padding[1] + kw * n->dilation[1];
  return h < 0 || w < 0 || h >= in->shape[0] || w >= in->shape[1] ? -1 : h * in->shape[1] + w;
}

static void conv2d(node_t n, value_t in, value_t out, const int32_t *x, int32_t *y) {
  const int32_t outputs = n->weight_shape[0], channels = n->weight_shape[1];
  for (int32_t oh = 0; oh < out->shape[0]; ++oh) {
    for (int32_t ow = 0; ow < out->shape[1]; ++ow) {
      for (int32_t o = 0; o < outputs; ++o) {
        const int32_t first = o / (outputs / n->groups) * channels;
        int32_t sum = n->bias ? n->bias[o] : 0;
        for (int32_t kh = 0; kh < n->kernel[0]; ++kh) {
          for (int32_t kw = 0; kw < n->kernel[1]; ++kw) {
            const int32_t p = pixel(n, in, oh, ow, kh, kw);
            for (int32_t c = 0; p >= 0 && c < channels; ++c) {
              const int32_t w = ((o * channels + c) * n->kernel[0] + kh) * n->kernel[1] + kw;
              sum += (x[p * in->shape[2] + first + c] - in->zero_point) *
                     (n->weight[w] - weight_zero(n, o));
            }
          }
        }
        *y++ = requantized(sum, in->scale * n->weight_scale[o] / out->scale, out, n->activation);
      }
    }
  }
}

static void pool(node_t n, value_t in, value_t out, const int32_t *x, int32_t *y, int maximum) {
  const int32_t count = n->kernel[0] * n->kernel[1];
  const float multiplier = in->scale * (1.0f / (float)count) / out->scale;
  for (int32_t oh = 0; oh < out->shape[0]; ++oh) {
    for (int32_t ow = 0; ow < out->shape[1]; ++ow) {
      for (int32_t c = 0; c < in->shape[2]; ++c) {
        int32_t sum = 0, largest = INT32_MIN;
        for (int32_t k = 0; k < count; ++k) {
          const int32_t p = pixel(n, in, oh, ow, k / n->kernel[1], k % n->kernel[1]);
          if (p < 0) continue;
          const int32_t code = x[p * in->shape[2] + c];
          sum += code - in->zero_point;
          if (code > largest) largest = code;
        }
        *y++ = maximum ? largest : requantized(sum, multiplier, out, 0);
      }
    }
  }
}

static void global_average(value_t in, value_t out, const int32_t *x, int32_t *y) {
  const int32_t count = in->shape[0] * in->shape[1], channels = in->shape[2];
  for (int32_t c = 0; c < channels; ++c) {
    int32_t sum = 0;
    for (int32_t p = 0; p < count; ++p) sum += x[p * channels + c] - in->zero_point;
    y[c] = requantized(sum, in->scale / ((float)count * out->scale), out, 0);
  }
}

/* As QLinearAdd: codes are counted from the lowest of their type, with fused multiply-adds. */
static void add(node_t n, value_t out, int32_t *y) {
  value_t a = &steelyard_values[n->inputs[0]], b = &steelyard_values[n->inputs[1]];
  const int32_t *of_a = codes[n->inputs[0]], *of_b = codes[n->inputs[1]];
  const float lowest_a = a->qmin < 0 ? -128 : 0, lowest_b = b->qmin < 0 ? -128 : 0;
  const float lowest = out->qmin < 0 ? -128 : 0;
  const float ratio_a = a->scale / out->scale, ratio_b = b->scale / out->scale;
  const float base =
      (float)out->zero_point - lowest -
      fmaf(ratio_a, (float)a->zero_point - lowest_a, ratio_b * ((float)b->zero_point - lowest_b));
  int32_t lo, hi;
  limits(out, n->activation, &lo, &hi);
  for (int32_t i = 0; i < size_of(out); ++i) {
    const float second = fmaf((float)of_b[i] - lowest_b, ratio_b, base);
    y[i] = clamped(rintf(fmaf((float)of_a[i] - lowest_a, ratio_a, second)) + lowest, lo, hi);
  }
}

/* Where element (h, w, c) of an output lies in an operand: sizes of 1 repeat. */
static int32_t repeated(value_t v, int32_t h, int32_t w, int32_t c) {
  return ((v->shape[0] > 1 ? h : 0) * v->shape[1] + (v->shape[1] > 1 ? w : 0)) * v->shape[2] +
         (v->shape[2] > 1 ? c : 0);
}

/* As QLinearMul: the zero point of the unsigned byte is added before rounding. */
static void mul(node_t n, value_t out, int32_t *y) {
  value_t a = &steelyard_values[n->inputs[0]], b = &steelyard_values[n->inputs[1]];
  const float ratio = a->scale * b->scale / out->scale;
  const int32_t shift = out->qmin < 0 ? 128 : 0;
  for (int32_t i = 0; i < size_of(out); ++i) {
    const int32_t c = i % out->shape[2], w = i / out->shape[2] % out->shape[1];
    const int32_t h = i / out->shape[2] / out->shape[1];
    const int32_t product = (codes[n->inputs[0]][repeated(a, h, w, c)] - a->zero_point) *
                            (codes[n->inputs[1]][repeated(b, h, w, c)] - b->zero_point);
    const float unsigned_code = rintf((float)product * ratio + (float)(out->zero_point + shift));
    y[i] = clamped(unsigned_code - (float)shift, out->qmin, out->qmax);
  }
}

static void concat(node_t n, value_t out, int32_t *y) {
  const int32_t width = out->shape[out->rank - 1], rows = size_of(out) / width;
  int32_t first = 0;
  for (int32_t part = 0; part < n->input_count; ++part) {
    value_t in = &steelyard_values[n->inputs[part]];
    const int32_t channels = in->shape[in->rank - 1];
    for (int32_t i = 0; i < rows * channels; ++i) {
      const float real = (float)(codes[n->inputs[part]][i] - in->zero_point) * in->scale;
      y[i / channels * width + first + i % channels] = code_of(real, out);
    }
    first += channels;
  }
}

static void flatten(value_t in, const int32_t *x, int32_t *y) {
  const int32_t pixels = in->shape[0] * in->shape[1], channels = in->shape[2];
  if (in->rank != 3) {
    memcpy(y, x, (size_t)size_of(in) * sizeof *y);
    return;
  }
  for (int32_t i = 0; i < pixels * channels; ++i) y[i] = x[i % pixels * channels + i / pixels];
}

static void activate(node_t n, value_t out, const int32_t *x, int32_t *y) {
  int32_t lo, hi;
  limits(out, strcmp(n->op, "relu6") == 0 ? 2 : 1, &lo, &hi);
  for (int32_t i = 0; i < size_of(out); ++i) y[i] = x[i] < lo ? lo : x[i] > hi ? hi : x[i];
}

/* Functions of one code: computed in double, rounded to float, then quantized. */
static double smooth_value(node_t n, double x) {
  const double line = n->slope * x + n->offset;
  if (strcmp(n->op, "sigmoid") == 0) return 1 / (1 + exp(-x));
  if (strcmp(n->op, "silu") == 0) return x * (1 / (1 + exp(-x)));
  if (strcmp(n->op, "hard_sigmoid") == 0) return line <= 0 ? 0 : line >= 1 ? 1 : line;
  if (strcmp(n->op, "leaky_relu") == 0) return x > 0 ? x : (float)n->slope * x;
  if (strcmp(n->op, "gelu") == 0) return x / 2 * erfc(-x / sqrt(2));
  if (strcmp(n->op, "hardswish") == 0) return x <= -3 ? 0 : x >= 3 ? x : x * (x + 3) / 6;
  return x / (1 + exp(-sqrt(8 / 3.141592653589793) * (x + 0.044715 * x * x * x))); /* tanh_gelu */
}

static int is_smooth(const char *op) {
  static const char *const all[] = {"sigmoid",    "silu", "hard_sigmoid", "hardswish",
                                    "leaky_relu", "gelu", "tanh_gelu"};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) {
    if (strcmp(op, all[i]) == 0) return 1;
  }
  return 0;
}

static void smooth(node_t n, value_t in, value_t out, const int32_t *x, int32_t *y) {
  for (int32_t i = 0; i < size_of(out); ++i) {
    const double real = (float)(x[i] - in->zero_point) * in->scale;
    y[i] = code_of((float)smooth_value(n, real), out);
  }
}

/* Softmax along the last dimension, in integers (docs/numerics.md). */
static void softmax(value_t in, value_t out, const int32_t *x, int32_t *y) {
  const int32_t columns = in->shape[in->rank - 1], rows = size_of(in) / columns;
  const double most = 4294967295.0 / columns, one = most < 8388607 ? most : 8388607;
  const uint64_t steps = (uint64_t)(1 / out->scale);
  for (int32_t row = 0; row < rows; ++row, x += columns, y += columns) {
    int32_t largest = x[0];
    uint64_t sum = 0;
    for (int32_t c = 1; c < columns; ++c) largest = x[c] > largest ? x[c] : largest;
    for (int32_t c = 0; c < columns; ++c) {
      sum += (uint64_t)rint(one * exp((double)(x[c] - largest) * in->scale));
    }
    for (int32_t c = 0; c < columns; ++c) {
      const uint64_t e = (uint64_t)rint(one * exp((double)(x[c] - largest) * in->scale));
      const int32_t code = (int32_t)((e * steps + sum / 2) / sum) + out->zero_point;
      y[c] = code > out->qmax ? out->qmax : code;
    }
  }
}

static void run(node_t n) {
  value_t in = &steelyard_values[n->inputs[0]], out = &steelyard_values[n->output];
  const int32_t *x = codes[n->inputs[0]];
  int32_t *y = codes[n->output];
  const int quantizes = strcmp(n->op, "quantize") == 0;
  if (!out->is_codes) refuse(n, "its output is floats");
  if (in->is_codes == quantizes) refuse(n, "its input is floats");
  if (quantizes) {
    if (n->inputs[0] != STEELYARD_INPUT) refuse(n, "a layer before it is in float");
    for (int32_t i = 0; i < size_of(out); ++i) y[i] = code_of(input[i], out);
  } else if (strcmp(n->op, "linear") == 0 || strcmp(n->op, "conv2d") == 0) {
    if (!n->is_integer) refuse(n, "its product is in float");
    (n->op[0] == 'l' ? linear : conv2d)(n, in, out, x, y);
  } else if (strcmp(n->op, "max_pool2d") == 0 || strcmp(n->op, "avg_pool2d") == 0) {
    pool(n, in, out, x, y, n->op[0] == 'm');
  } else if (strcmp(n->op, "global_avg_pool") == 0) {
    global_average(in, out, x, y);
  } else if (strcmp(n->op, "add") == 0) {
    add(n, out, y);
  } else if (strcmp(n->op, "concat") == 0) {
    concat(n, out, y);
  } else if (strcmp(n->op, "flatten") == 0) {
    flatten(in, x, y);
  } else if (strcmp(n->op, "mul") == 0) {
    mul(n, out, y);
  } else if (is_smooth(n->op)) {
    smooth(n, in, out, x, y);
  } else if (strcmp(n->op, "softmax") == 0) {
    softmax(in, out, x, y);
  } else if (strncmp(n->op, "relu", 4) == 0) {
    activate(n, out, x, y);
  } else {
    refuse(n, "unknown operation");
  }
}

static void write_codes(int32_t value) {
  fwrite(codes[value], sizeof **codes, (size_t)size_of(&steelyard_values[value]), stdout);
}

int main(void) {
  const size_t in = (size_t)size_of(&steelyard_values[STEELYARD_INPUT]);
  input = malloc(in * sizeof *input);
  for (int i = 0; i < STEELYARD_VALUES; ++i) {
    codes[i] = malloc((size_t)size_of(&steelyard_values[i]) * sizeof **codes);
  }
  while (fread(input, sizeof *input, in, stdin) == in) {
    for (int i = 0; i < STEELYARD_NODES; ++i) run(&steelyard_nodes[i]);
#ifdef STEELYARD_OUTPUTS
    for (int i = 0; i < STEELYARD_OUTPUTS; ++i) write_codes(steelyard_outputs[i].value);
#else
    write_codes(STEELYARD_OUTPUT);
#endif
  }
  return 0;
}
