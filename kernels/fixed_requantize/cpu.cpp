#include "steelyard/kernels/fixed_requantize/fixed_requantize.h"

#include "steelyard/kernels/cpu/blocks.h"
#include "steelyard/kernels/cpu/byte_lanes.h"
#include "steelyard/kernels/cpu/mask.h"
#include "steelyard/kernels/cpu/run.h"
#include "steelyard/kernels/cpu/vectorize.h"
#include "steelyard/kernels/requantize/requantizer.h"

namespace steelyard::kernels {
namespace {

// The rounding is known where a loop is compiled.
template <Rounding rounding>
struct RoundedBy {
  std::int32_t operator()(std::int32_t x, FixedMultiplier by) const {
    return fixed_product(x, by, rounding);
  }
};

// What belongs to the channel of each accumulator of a run.
struct OfFixedChannels {
  const std::int32_t *bias, *multiplier, *shift;
  const float* product_scale;
};

template <class Product>
void fixed_run(std::int64_t n, const std::int32_t* acc, OfFixedChannels of, FixedCodes out,
               std::int32_t zero_point, ByteLane* codes, ByteLane* passes) {
  const Product product;
  STEELYARD_VECTORIZE
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int32_t sum = acc[i] + of.bias[i];
    const FixedMultiplier by{of.multiplier[i], of.shift[i]};
    const std::int32_t code = wrapped_sum(product(sum, by), zero_point);
    codes[i] = static_cast<ByteLane>(out.code(code));
    passes[i] = out.passes(code, dequantize_sum(sum, of.product_scale[i])) ? 1 : 0;
  }
}

struct FixedAddition {
  FixedAdd add;
  CodeGrid<float> of_a, of_b;
  FixedCodes out;
};

template <Rounding rounding>
void fixed_add_run(std::int64_t n, const std::int8_t* a, const std::int8_t* b, FixedAddition of,
                   ByteLane* codes, ByteLane* passes) {
  STEELYARD_VECTORIZE
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int32_t code = fixed_add_code(a[i], b[i], of.add, rounding);
    const float real = real_sum(a[i], of.of_a, b[i], of.of_b);
    codes[i] = static_cast<ByteLane>(of.out.code(code));
    passes[i] = of.out.passes(code, real) ? 1 : 0;
  }
}

// Writes the codes and mask of elements [0, n): run(first, count, codes, passes) those of a piece.
template <typename Run>
void write_fixed(std::int64_t n, std::int8_t* codes, std::uint8_t* mask, const Run& run) {
  parallel_blocks(n, [&](std::int64_t begin, std::int64_t end) {
    alignas(64) std::uint8_t passes[kBlockElements];
    run(begin, end, reinterpret_cast<std::uint8_t*>(codes + begin), passes);
    if (mask != nullptr) pack_flags(passes, end - begin, mask + begin / 8);
  });
}

}  // namespace

static void compute(const FixedRequantize& k) {
  const TiledChannels tiled(k.op, k.bias, k.product_scale);
  const RunPlan& plan = tiled.plan;
  const KeptVector<std::int32_t> multiplier = tile_values<std::int32_t>(plan, k.multiplier);
  const KeptVector<std::int32_t> shift = tile_values<std::int32_t>(plan, k.shift);
  const FixedCodes out = fixed_codes(k.op.activation, k.range, *k.scale, *k.zero_point);
  const auto run = k.rounding == Rounding::kFixedOnce ? fixed_run<RoundedBy<Rounding::kFixedOnce>>
                                                      : fixed_run<RoundedBy<Rounding::kFixedTwice>>;
  write_fixed(
      k.op.rows * k.op.channels, k.codes, k.mask,
      [&](std::int64_t begin, std::int64_t end, std::uint8_t* codes, std::uint8_t* passes) {
        plan.for_each(begin, end, [&](std::int64_t first, std::int64_t length, std::int64_t slot) {
          const std::int64_t at = first - begin;
          write_bytes<2>(length, {codes + at, passes + at},
                         [&](std::int64_t from, std::int64_t some, const auto& lanes) {
                           const std::int64_t channel = slot + from;
                           run(some, k.acc + first + from,
                               {tiled.bias.data() + channel, multiplier.data() + channel,
                                shift.data() + channel, tiled.product_scale.data() + channel},
                               out, *k.zero_point, lanes[0], lanes[1]);
                         });
        });
      });
}

static void compute(const FixedRequantizeAdd& k) {
  const FixedAddition of{
      make_fixed_add(k.a.grid(), k.b.grid(), whole_grid<std::int8_t>(*k.scale, *k.zero_point),
                     k.rounding),
      k.a.grid(), k.b.grid(), fixed_codes(k.activation, k.range, *k.scale, *k.zero_point)};
  const auto run = k.rounding == Rounding::kFixedOnce ? fixed_add_run<Rounding::kFixedOnce>
                                                      : fixed_add_run<Rounding::kFixedTwice>;
  write_fixed(k.n, k.codes, k.mask,
              [&](std::int64_t begin, std::int64_t end, std::uint8_t* codes, std::uint8_t* passes) {
                write_bytes<2>(end - begin, {codes, passes},
                               [&](std::int64_t first, std::int64_t count, const auto& lanes) {
                                 const std::int64_t at = begin + first;
                                 run(count, k.a.codes + at, k.b.codes + at, of, lanes[0], lanes[1]);
                               });
              });
}

// Averages are few: their windows take the time.
static void compute(const FixedRequantizeAverage& k) {
  const FixedAverager averager =
      fixed_averager(k.average, *k.in_scale, *k.scale, *k.zero_point, k.rounding);
  const FixedCodes out = fixed_codes(Activation::kNone, k.range, *k.scale, *k.zero_point);
  write_fixed(k.n, k.codes, k.mask,
              [&](std::int64_t begin, std::int64_t end, std::uint8_t*, std::uint8_t* passes) {
                for (std::int64_t i = begin; i < end; ++i) {
                  const std::int32_t code = averager(k.sums[i]);
                  k.codes[i] = static_cast<std::int8_t>(out.code(code));
                  passes[i - begin] = out.passes(code, 0) ? 1 : 0;
                }
              });
}

template struct CpuKernels<FixedRequantizeKernels>;

}  // namespace steelyard::kernels
