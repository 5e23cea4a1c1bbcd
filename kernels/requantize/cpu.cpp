#include "steelyard/kernels/requantize/requantize.h"

#include <algorithm>
#include <limits>
#include <mutex>
#include <vector>

#include "steelyard/kernels/cpu/blocks.h"
#include "steelyard/kernels/cpu/byte_lanes.h"
#include "steelyard/kernels/cpu/mask.h"
#include "steelyard/kernels/cpu/run.h"
#include "steelyard/kernels/cpu/vectorize.h"
#include "steelyard/kernels/requantize/requantizer.h"

namespace steelyard::kernels {
namespace {

struct Addition {
  CodeGrid<float> of_a, of_b;
  AddRequantizer requantizer;
  OutputCodes out;
};

// `passes` is null where there is no mask.
template <bool kMasked, typename CodeA, typename CodeB>
void add_run(std::int64_t n, const CodeA* a, const CodeB* b, Addition add, ByteLane* codes,
             ByteLane* passes) {
  STEELYARD_VECTORIZE
  for (std::int64_t i = 0; i < n; ++i) {
    const float code_a = static_cast<float>(a[i]);
    const float code_b = static_cast<float>(b[i]);
    const float code = requantized_add_code(code_a, code_b, add.requantizer);
    codes[i] = static_cast<ByteLane>(add.out.code(code));
    if constexpr (kMasked) {
      passes[i] = add.out.passes(code, real_sum(code_a, add.of_a, code_b, add.of_b)) ? 1 : 0;
    }
  }
}

void average_run(std::int64_t n, const std::int32_t* sums, float multiplier, CodeGrid<float> grid,
                 ByteLane* codes, ByteLane* inside) {
  STEELYARD_VECTORIZE
  for (std::int64_t i = 0; i < n; ++i) {
    const float code = requantized_code(sums[i], multiplier, grid.zero_point);
    codes[i] = static_cast<ByteLane>(to_integer_code(code, grid));
    inside[i] = is_unchanged(code, clamp_code(code, grid)) ? 1 : 0;
  }
}

// Extremes of the accumulators per slot of a tile. The integers are enough, because the real value
// grows with the sum.
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

}  // namespace

static void compute(const ObserveAccumulators& k) {
  const TiledChannels tiled(k.op, k.bias, k.product_scale);
  const LinearPart linear = linear_part(k.op.activation);
  const RunPlan& plan = tiled.plan;
  SumExtremes total(plan.tile());
  std::mutex mutex;
  parallel_for(
      k.op.rows * k.op.channels, 8 * kBlockElements, [&](std::int64_t begin, std::int64_t end) {
        SumExtremes part(plan.tile());
        plan.for_each(begin, end, [&](std::int64_t first, std::int64_t count, std::int64_t slot) {
          part.take(slot, count, k.acc + first, k.acc + first);
        });
        const std::lock_guard<std::mutex> lock(mutex);
        total.take(0, plan.tile(), part.lo.data(), part.hi.data());
      });
  RealExtremes real;
  for (std::int64_t slot = 0; slot < plan.tile(); ++slot) {
    if (total.lo[slot] > total.hi[slot]) continue;  // a slot beyond the last row
    const float scale = tiled.product_scale[slot];
    real.take(linear.clamp(dequantize_sum(total.lo[slot] + tiled.bias[slot], scale)));
    real.take(linear.clamp(dequantize_sum(total.hi[slot] + tiled.bias[slot], scale)));
  }
  const RealExtremes observed = real.observed(k.op.rows * k.op.channels);
  *k.to.non_finite += observed.skipped;
  follow_extremes(k.rule, k.to, observed.lo, observed.hi);
}

template <typename Code>
void compute(const RequantizeAccumulators<Code>& k) {
  requantize_all(k);
}

template <typename Code>
void compute(const RequantizeAverage<Code>& k) {
  const CodeGrid<float> grid = make_code_grid(k.range, *k.scale, *k.zero_point);
  const float multiplier = average_multiplier(k.average, *k.in_scale, *k.scale);
  parallel_blocks(k.n, [&](std::int64_t begin, std::int64_t end) {
    alignas(64) std::uint8_t inside[kBlockElements];
    write_bytes<2>(end - begin, {reinterpret_cast<std::uint8_t*>(k.codes + begin), inside},
                   [&](std::int64_t first, std::int64_t count, const auto& lanes) {
                     average_run(count, k.sums + begin + first, multiplier, grid, lanes[0],
                                 lanes[1]);
                   });
    if (k.mask != nullptr) pack_flags(inside, end - begin, k.mask + begin / 8);
  });
}

template <typename CodeA, typename CodeB, typename CodeY>
void compute(const RequantizeAdd<CodeA, CodeB, CodeY>& k) {
  const CodeGrid<float> left = k.a.grid();
  const CodeGrid<float> right = k.b.grid();
  const CodeGrid<float> result = whole_grid<CodeY>(*k.scale, *k.zero_point);
  const Addition add{left, right, make_add_requantizer(left, right, result),
                     output_codes(k.activation, *k.scale, *k.zero_point, k.range)};
  parallel_blocks(k.n, [&](std::int64_t begin, std::int64_t end) {
    auto* const codes = reinterpret_cast<std::uint8_t*>(k.codes + begin);
    const CodeA* const a = k.a.codes + begin;
    const CodeB* const b = k.b.codes + begin;
    if (!kHasMasks || k.mask == nullptr) {
      return write_bytes<1>(end - begin, {codes},
                            [&](std::int64_t first, std::int64_t count, const auto& lanes) {
                              add_run<false>(count, a + first, b + first, add, lanes[0], nullptr);
                            });
    }
    if constexpr (kHasMasks) {
      alignas(64) std::uint8_t passes[kBlockElements];
      write_bytes<2>(end - begin, {codes, passes},
                     [&](std::int64_t first, std::int64_t count, const auto& lanes) {
                       add_run<true>(count, a + first, b + first, add, lanes[0], lanes[1]);
                     });
      pack_flags(passes, end - begin, k.mask + begin / 8);
    }
  });
}

template <typename Code>
void compute(const ActivateCodes<Code>& k) {
  const CodeRange range = activation_code_range(k.activation, k.range, *k.scale, *k.zero_point);
  parallel_blocks(k.n, [&](std::int64_t begin, std::int64_t end) {
    alignas(64) std::uint8_t passes[kBlockElements];
    const Code* const x = k.x;
    Code* const codes = k.codes;
    const Activation activation = k.activation;
    const CodeRange left = range;
    STEELYARD_VECTORIZE
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int32_t code = x[i];
      passes[i - begin] = code_is_linear(code, activation, left) ? 1 : 0;
      codes[i] = static_cast<Code>(clamp_keeping_nan(code, left.qmin, left.qmax));
    }
    if (k.mask != nullptr) pack_flags(passes, end - begin, k.mask + begin / 8);
  });
}

template <typename Code>
void compute(const DropCodes<Code>& k) {
  const Code zero = static_cast<Code>(*k.zero_point);
  parallel_blocks(k.n, [&](std::int64_t begin, std::int64_t end) {
    alignas(64) std::uint8_t keeps[kBlockElements];
    unpack_flags(k.mask + begin / 8, end - begin, keeps);
    const Code* const x = k.x;
    Code* const codes = k.codes;
    STEELYARD_VECTORIZE
    for (std::int64_t i = begin; i < end; ++i) {
      const int kept = keeps[i - begin] != 0 ? -1 : 0;  // clang 14: no vectors of a choice of codes
      codes[i] = static_cast<Code>((x[i] & kept) | (zero & ~kept));
    }
  });
}

template struct CpuKernels<RequantizeKernels>;

}  // namespace steelyard::kernels
