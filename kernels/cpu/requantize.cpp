#include <algorithm>
#include <limits>
#include <mutex>
#include <vector>

#include "kernels/cpu/blocks.h"
#include "kernels/cpu/mask.h"
#include "kernels/cpu/set_runs.h"
#include "kernels/cpu/vectorize.h"
#include "kernels/integer.h"

namespace steelyard::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The open interval on which an activation is the identity; it clamps to its ends.
struct LinearPart {
  float lower;
  float upper;

  float clamp(float value) const { return clamp_keeping_nan(value, lower, upper); }
  bool contains(float value) const { return (value > lower) & (value < upper); }
};

LinearPart linear_part(Activation activation) {
  switch (activation) {
    case Activation::kRelu:
      return {0.0F, kInfinity};
    case Activation::kRelu6:
      return {0.0F, 6.0F};
    case Activation::kNone:
      break;
  }
  return {-kInfinity, kInfinity};
}

// The output's quantization: its own range decides the mask, the narrower range of the activation's
// values (relu: from the code of 0) clamps the codes.
struct OutputCodes {
  Affine<float> full;
  Affine<float> clamped;
  LinearPart linear;

  std::int32_t code(float unclamped) const { return to_integer_code(unclamped, clamped); }
  std::uint8_t passes(float unclamped, float real) const {
    return code_is_inside(unclamped, full) && linear.contains(real) ? 1 : 0;
  }
};

OutputCodes output_codes(Activation activation, float scale, std::int32_t zero_point,
                         CodeRange range) {
  const LinearPart linear = linear_part(activation);
  const Affine<float> full = make_affine(range, scale, zero_point);
  const CodeRange narrowed = activation_code_range(activation, range, scale, zero_point);
  return {full, make_affine(narrowed, scale, zero_point), linear};
}

// Bias, product scale and multiplier of each accumulator of a tile of rows.
struct TiledChannels {
  explicit TiledChannels(const Requantize& op)
      : plan(RunPlan::tiles_of_rows(op.rows, op.channels)),
        bias(static_cast<std::size_t>(plan.tile()), 0),
        product_scale(tile_values<float>(plan, op.product_scale)) {
    if (op.bias != nullptr) bias = tile_values<std::int32_t>(plan, op.bias);
  }

  RunPlan plan;
  std::vector<std::int32_t> bias;
  std::vector<float> product_scale;
};

void dequantize_run(std::int64_t n, const std::int32_t* acc, const std::int32_t* bias,
                    const float* product_scale, LinearPart linear, float* out) {
  STEELYARD_VECTORIZE
  for (std::int64_t i = 0; i < n; ++i) {
    out[i] = linear.clamp(dequantize_sum(acc[i] + bias[i], product_scale[i]));
  }
}

template <typename Code>
void requantize_run(std::int64_t n, const std::int32_t* acc, const std::int32_t* bias,
                    const float* product_scale, const float* multiplier, const OutputCodes& output,
                    Code* codes, std::uint8_t* passes) {
  const OutputCodes out = output;
  STEELYARD_VECTORIZE
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int32_t sum = acc[i] + bias[i];
    const float code = requantized_code(sum, multiplier[i], out.full.zero_point);
    codes[i] = static_cast<Code>(out.code(code));
    passes[i] = out.passes(code, dequantize_sum(sum, product_scale[i]));
  }
}

// One operand of a quantized sum, as floats.
struct AddOperand {
  explicit AddOperand(QuantizedOperand params)
      : scale(params.scale), zero_point(static_cast<float>(params.zero_point)) {}
  float scale;
  float zero_point;
};

template <typename Code>
constexpr float lowest() {
  return static_cast<float>(std::numeric_limits<Code>::min());
}

float real_sum(float a, const AddOperand& of_a, float b, const AddOperand& of_b) {
  return dequantize_code(a, of_a.zero_point, of_a.scale) +
         dequantize_code(b, of_b.zero_point, of_b.scale);
}

template <typename CodeA, typename CodeB, typename CodeY>
void add_run(std::int64_t n, const CodeA* a, AddOperand of_a, const CodeB* b, AddOperand of_b,
             AddRequantizer add, OutputCodes out, CodeY* codes, std::uint8_t* passes) {
  STEELYARD_VECTORIZE
  for (std::int64_t i = 0; i < n; ++i) {
    const float code_a = static_cast<float>(a[i]);
    const float code_b = static_cast<float>(b[i]);
    const float code = requantized_add_code(code_a, code_b, add);
    codes[i] = static_cast<CodeY>(out.code(code));
    passes[i] = out.passes(code, real_sum(code_a, of_a, code_b, of_b));
  }
}

// Extremes of the accumulators per slot of a tile. Integers: the real value grows with the sum.
struct SumExtremes {
  explicit SumExtremes(std::int64_t size)
      : lo(static_cast<std::size_t>(size), std::numeric_limits<std::int32_t>::max()),
        hi(static_cast<std::size_t>(size), std::numeric_limits<std::int32_t>::min()) {}

  void take(std::int64_t slot, std::int64_t n, const std::int32_t* below,
            const std::int32_t* above) {
    std::int32_t* const low = lo.data() + slot;
    std::int32_t* const high = hi.data() + slot;
    STEELYARD_VECTORIZE
    for (std::int64_t i = 0; i < n; ++i) {
      low[i] = std::min(low[i], below[i]);
      high[i] = std::max(high[i], above[i]);
    }
  }

  std::vector<std::int32_t> lo;
  std::vector<std::int32_t> hi;
};

template <typename Code>
void add_pixel(std::int64_t channels, const Code* x, std::int32_t zero_point, std::int32_t* sums) {
  STEELYARD_VECTORIZE
  for (std::int64_t c = 0; c < channels; ++c) sums[c] += x[c] - zero_point;
}

}  // namespace

void dequantize_accumulators(const Requantize& op, const std::int32_t* acc, float* out) {
  const TiledChannels tiled(op);
  const LinearPart linear = linear_part(op.activation);
  parallel_blocks(op.rows * op.channels, [&](std::int64_t begin, std::int64_t end) {
    tiled.plan.for_each(begin, end, [&](std::int64_t first, std::int64_t count) {
      const std::int64_t slot = first % tiled.plan.tile();
      dequantize_run(count, acc + first, tiled.bias.data() + slot,
                     tiled.product_scale.data() + slot, linear, out + first);
    });
  });
}

void accumulator_min_max(const Requantize& op, const std::int32_t* acc, float* lo, float* hi) {
  const TiledChannels tiled(op);
  const LinearPart linear = linear_part(op.activation);
  const RunPlan& plan = tiled.plan;
  SumExtremes total(plan.tile());
  std::mutex mutex;
  parallel_for(op.rows * op.channels, 8 * kBlockElements,
               [&](std::int64_t begin, std::int64_t end) {
                 SumExtremes part(plan.tile());
                 plan.for_each(begin, end, [&](std::int64_t first, std::int64_t count) {
                   part.take(first % plan.tile(), count, acc + first, acc + first);
                 });
                 const std::lock_guard<std::mutex> lock(mutex);
                 total.take(0, plan.tile(), part.lo.data(), part.hi.data());
               });
  *lo = kInfinity;
  *hi = -kInfinity;
  for (std::int64_t slot = 0; slot < plan.tile(); ++slot) {
    if (total.lo[slot] > total.hi[slot]) continue;  // a slot beyond the last row
    const float scale = tiled.product_scale[slot];
    *lo = std::min(*lo, linear.clamp(dequantize_sum(total.lo[slot] + tiled.bias[slot], scale)));
    *hi = std::max(*hi, linear.clamp(dequantize_sum(total.hi[slot] + tiled.bias[slot], scale)));
  }
}

template <typename Code>
void requantize(const Requantize& op, const std::int32_t* acc, float scale, std::int32_t zero_point,
                CodeRange range, Code* codes, std::uint8_t* mask) {
  const TiledChannels tiled(op);
  const OutputCodes output = output_codes(op.activation, scale, zero_point, range);
  std::vector<float> multiplier(tiled.product_scale.size());
  for (std::size_t i = 0; i < multiplier.size(); ++i) {
    multiplier[i] = requantize_multiplier(tiled.product_scale[i], scale);
  }
  parallel_blocks(op.rows * op.channels, [&](std::int64_t begin, std::int64_t end) {
    alignas(64) std::uint8_t passes[kBlockElements];
    tiled.plan.for_each(begin, end, [&](std::int64_t first, std::int64_t count) {
      const std::int64_t slot = first % tiled.plan.tile();
      requantize_run(count, acc + first, tiled.bias.data() + slot,
                     tiled.product_scale.data() + slot, multiplier.data() + slot, output,
                     codes + first, passes + (first - begin));
    });
    if (mask != nullptr) pack_flags(passes, end - begin, mask + begin / 8);
  });
}

template <typename CodeA, typename CodeB, typename CodeY>
void requantize_add(std::int64_t n, Activation activation, const CodeA* a,
                    QuantizedOperand a_params, const CodeB* b, QuantizedOperand b_params,
                    float scale, std::int32_t zero_point, CodeRange range, CodeY* codes,
                    std::uint8_t* mask) {
  const AddOperand of_a(a_params);
  const AddOperand of_b(b_params);
  const OutputCodes output = output_codes(activation, scale, zero_point, range);
  const AddRequantizer add = make_add_requantizer({of_a.scale, of_a.zero_point, lowest<CodeA>()},
                                                  {of_b.scale, of_b.zero_point, lowest<CodeB>()},
                                                  {scale, output.full.zero_point, lowest<CodeY>()});
  parallel_blocks(n, [&](std::int64_t begin, std::int64_t end) {
    alignas(64) std::uint8_t passes[kBlockElements];
    add_run(end - begin, a + begin, of_a, b + begin, of_b, add, output, codes + begin, passes);
    if (mask != nullptr) pack_flags(passes, end - begin, mask + begin / 8);
  });
}

template <typename CodeA, typename CodeB>
void dequantize_add(std::int64_t n, Activation activation, const CodeA* a,
                    QuantizedOperand a_params, const CodeB* b, QuantizedOperand b_params,
                    float* out) {
  const AddOperand of_a(a_params);
  const AddOperand of_b(b_params);
  const LinearPart linear = linear_part(activation);
  parallel_blocks(n, [&](std::int64_t begin, std::int64_t end) {
    STEELYARD_VECTORIZE
    for (std::int64_t i = begin; i < end; ++i) {
      out[i] =
          linear.clamp(real_sum(static_cast<float>(a[i]), of_a, static_cast<float>(b[i]), of_b));
    }
  });
}

template void requantize(const Requantize&, const std::int32_t*, float, std::int32_t, CodeRange,
                         std::int8_t*, std::uint8_t*);
template void requantize(const Requantize&, const std::int32_t*, float, std::int32_t, CodeRange,
                         std::uint8_t*, std::uint8_t*);

template void dequantize_add(std::int64_t, Activation, const std::int8_t*, QuantizedOperand,
                             const std::int8_t*, QuantizedOperand, float*);
template void dequantize_add(std::int64_t, Activation, const std::int8_t*, QuantizedOperand,
                             const std::uint8_t*, QuantizedOperand, float*);
template void dequantize_add(std::int64_t, Activation, const std::uint8_t*, QuantizedOperand,
                             const std::int8_t*, QuantizedOperand, float*);
template void dequantize_add(std::int64_t, Activation, const std::uint8_t*, QuantizedOperand,
                             const std::uint8_t*, QuantizedOperand, float*);

template void requantize_add(std::int64_t, Activation, const std::int8_t*, QuantizedOperand,
                             const std::int8_t*, QuantizedOperand, float, std::int32_t, CodeRange,
                             std::int8_t*, std::uint8_t*);
template void requantize_add(std::int64_t, Activation, const std::int8_t*, QuantizedOperand,
                             const std::int8_t*, QuantizedOperand, float, std::int32_t, CodeRange,
                             std::uint8_t*, std::uint8_t*);
template void requantize_add(std::int64_t, Activation, const std::int8_t*, QuantizedOperand,
                             const std::uint8_t*, QuantizedOperand, float, std::int32_t, CodeRange,
                             std::int8_t*, std::uint8_t*);
template void requantize_add(std::int64_t, Activation, const std::int8_t*, QuantizedOperand,
                             const std::uint8_t*, QuantizedOperand, float, std::int32_t, CodeRange,
                             std::uint8_t*, std::uint8_t*);
template void requantize_add(std::int64_t, Activation, const std::uint8_t*, QuantizedOperand,
                             const std::int8_t*, QuantizedOperand, float, std::int32_t, CodeRange,
                             std::int8_t*, std::uint8_t*);
template void requantize_add(std::int64_t, Activation, const std::uint8_t*, QuantizedOperand,
                             const std::int8_t*, QuantizedOperand, float, std::int32_t, CodeRange,
                             std::uint8_t*, std::uint8_t*);
template void requantize_add(std::int64_t, Activation, const std::uint8_t*, QuantizedOperand,
                             const std::uint8_t*, QuantizedOperand, float, std::int32_t, CodeRange,
                             std::int8_t*, std::uint8_t*);
template void requantize_add(std::int64_t, Activation, const std::uint8_t*, QuantizedOperand,
                             const std::uint8_t*, QuantizedOperand, float, std::int32_t, CodeRange,
                             std::uint8_t*, std::uint8_t*);

}  // namespace steelyard::kernels
