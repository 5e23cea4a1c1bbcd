// One forward call on the CPU, block by block: what all forward kernels are made of.
#pragma once

#include <algorithm>
#include <atomic>

#include "steelyard/kernels/cpu/blocks.h"
#include "steelyard/kernels/cpu/byte_lanes.h"
#include "steelyard/kernels/cpu/mask.h"
#include "steelyard/kernels/cpu/pack_codes.h"
#include "steelyard/kernels/cpu/range_slots.h"
#include "steelyard/kernels/cpu/set_runs.h"
#include "steelyard/kernels/cpu/value_io.h"
#include "steelyard/kernels/quant_plan/quant_kernels.h"
#include "steelyard/kernels/quant_plan/quant_problem.h"

namespace steelyard::kernels {

template <typename T, typename Params>
void fake_quantize_run(std::int64_t n, const Params& given, const T* x, T* y) {
  const Params params = given.from(0);
  STEELYARD_VECTORIZE
  for (std::int64_t i = 0; i < n; ++i) y[i] = fake_quantize_value(x[i], params[i]);
}

// fake_quantize_run(), and the extremes of x, which y does not alias.
template <typename T>
RunExtremes<T> fake_quantize_and_measure(std::int64_t n, const UniformParams<T>& given, const T* x,
                                         T* y) {
  if (n == 0) return {};
  const CodeGrid<T> p = given[0];
  const BitExtremes<T> seen = visit_with_extremes(
      n, x, [=](std::int64_t i, T value) { y[i] = fake_quantize_value(value, p); });
  return seen.all_finite() ? seen.values() : finite_extremes(n, x);
}

// fake_quantize_run() with a lane for each element: whether it is inside.
template <typename T, typename Params>
void fake_quantize_lanes(std::int64_t n, const Params& given, const T* x, T* y, ByteLane* inside) {
  const Params params = given.from(0);
  STEELYARD_VECTORIZE
  for (std::int64_t i = 0; i < n; ++i) {
    const CodeGrid<T> p = params[i];
    const T code = unclamped_code(x[i], p);
    const T clamped = clamp_code(code, p);
    y[i] = dequantize_code(clamped, p.zero_point, p.scale);
    inside[i] = is_unchanged(code, clamped) ? 1 : 0;
  }
}

// fake_quantize_run() with a byte for each element: whether it is inside.
template <typename T, typename Params>
void fake_quantize_run(std::int64_t n, const Params& params, const T* x, T* y,
                       std::uint8_t* inside) {
  write_bytes<1>(n, {inside}, [&](std::int64_t first, std::int64_t count, const auto& lanes) {
    fake_quantize_lanes(count, params.from(first), x + first, y + first, lanes[0]);
  });
}

template <bool kMask, typename T, typename Params>
std::int32_t quantize_lanes(std::int64_t n, const Params& given, const T* x, ByteLane* codes,
                            ByteLane* inside) {
  const Params params = given.from(0);
  std::int32_t nan = 0;
  STEELYARD_VECTORIZE
  for (std::int64_t i = 0; i < n; ++i) {
    const CodeGrid<T> p = params[i];
    const T unclamped = unclamped_code(x[i], p);
    const bool is_number = unclamped == unclamped;
    const T code = is_number ? unclamped : p.zero_point;
    const T clamped = clamp_code(code, p);
    codes[i] = static_cast<ByteLane>(static_cast<std::int32_t>(clamped));
    if constexpr (kMask) inside[i] = is_unchanged(code, clamped) ? 1 : 0;
    nan += is_number ? 0 : 1;
  }
  return nan;
}

// Writes the low byte of each code and, kMask, whether it is inside. Returns the number of NaN.
template <bool kMask, typename T, typename Params>
std::int32_t quantize_run(std::int64_t n, const Params& params, const T* x, std::uint8_t* codes,
                          std::uint8_t* inside) {
  std::int32_t nan = 0;
  const auto quantize = [&](std::int64_t first, std::int64_t count, const auto& lanes) {
    nan += quantize_lanes<kMask>(count, params.from(first), x + first, lanes[0], lanes.back());
  };
  if constexpr (kMask) {
    write_bytes<2>(n, {codes, inside}, quantize);
  } else {
    write_bytes<1>(n, {codes}, quantize);
  }
  return nan;
}

template <typename T, typename Code, typename Params>
void dequantize_run(std::int64_t n, const Params& given, const Code* codes, T* y) {
  const Params params = given.from(0);
  STEELYARD_VECTORIZE
  for (std::int64_t i = 0; i < n; ++i) {
    const CodeGrid<T> p = params[i];
    y[i] = dequantize_code(static_cast<T>(codes[i]), p.zero_point, p.scale);
  }
}

inline std::uint8_t* code_byte(const QuantProblem& problem, const QuantArgs& args,
                               std::int64_t index) {
  return static_cast<std::uint8_t*>(args.codes) + index * code_bits(problem.code_type) / 8;
}

// One forward call; its blocks may be run by any thread in any order. Blocks start at multiples of
// eight elements, so that no two share a byte of codes or mask.
template <typename V>
class Forward {
 public:
  using T = ComputeType<V>;

  Forward(const QuantProblem& problem, const QuantArgs& args)
      : problem_(problem),
        args_(args),
        params_(problem.map, problem.range, static_cast<const T*>(args.scale), args.zero_point),
        bits_(code_bits(problem.code_type)),
        stream_(args.x != args.y && exceeds_cache(problem.map.elements * bytes_per_element())) {}

  // Elements [begin, end), at most kBlockElements. Returns the number of NaN quantized.
  std::int64_t block(std::int64_t begin, std::int64_t end) const {
    switch (problem_.operation) {
      case QuantOperation::kQuantize:
        return args_.mask != nullptr ? quantize<true>(begin, end) : quantize<false>(begin, end);
      case QuantOperation::kDequantize:
        dequantize(begin, end);
        return 0;
      case QuantOperation::kFakeQuantize:
        fake_quantize(begin, end);
        return 0;
    }
    return 0;
  }

  // block(), or the values themselves where the quantizer is off.
  std::int64_t block_or_pass(std::int64_t begin, std::int64_t end) const {
    if (is_on(args_.quantizing)) return block(begin, end);
    pass_block(begin, end);
    return 0;
  }

  // Fake-quantizes elements [begin, end) without a mask and measures them, in one pass. Only where
  // runs are long.
  void measured_block(std::int64_t begin, std::int64_t end, RangeSlots<T>& slots) const {
    write_values(problem_.strides, y(), begin, end, stream_, kMaxChunkBytes,
                 [&](std::int64_t first, std::int64_t count, T* out) {
                   T buffer[kBlockElements];
                   const T* in = load_values(problem_.strides, x(), first, count, buffer);
                   slots.add_runs(first, count,
                                  [&](std::int64_t start, std::int64_t length, std::int64_t set) {
                                    const std::int64_t at = start - first;
                                    return fake_quantize_and_measure<T>(length, params_.of_set(set),
                                                                        in + at, out + at);
                                  });
                 });
  }

  // The values themselves, every one inside: what a quantizer that is off gives.
  void pass_block(std::int64_t begin, std::int64_t end) const {
    if (args_.x != args_.y) {
      write_values(problem_.strides, y(), begin, end, stream_, kSmallChunkBytes,
                   [&](std::int64_t first, std::int64_t count, T* out) {
                     T buffer[kBlockElements];
                     const T* in = load_values(problem_.strides, x(), first, count, buffer);
                     std::copy(in, in + count, out);
                   });
    }
    if (args_.mask == nullptr) return;
    alignas(kCacheLine) std::uint8_t inside[kBlockElements];
    std::fill_n(inside, end - begin, std::uint8_t{1});
    pack_flags(inside, end - begin, args_.mask + begin / 8);
  }

 private:
  const V* x() const { return static_cast<const V*>(args_.x); }
  V* y() const { return static_cast<V*>(args_.y); }

  std::int64_t bytes_per_element() const {
    const auto value = static_cast<std::int64_t>(sizeof(V));
    return value + (problem_.operation == QuantOperation::kFakeQuantize ? value : 1);
  }

  // Calls run(count, params, x, offset) over [first, first + count); offset counts from `first`.
  template <typename Run>
  void for_each_run(std::int64_t first, std::int64_t count, Run&& run) const {
    T buffer[kBlockElements];
    const T* in = load_values(problem_.strides, x(), first, count, buffer);
    params_.for_each_run(first, first + count,
                         [&](std::int64_t start, std::int64_t length, const auto& params) {
                           run(length, params, in + (start - first), start - first);
                         });
  }

  void fake_quantize(std::int64_t begin, std::int64_t end) const {
    if (args_.mask == nullptr) {
      write_values(problem_.strides, y(), begin, end, stream_, params_.chunk_bytes(),
                   [&](std::int64_t first, std::int64_t count, T* out) {
                     for_each_run(first, count,
                                  [&](std::int64_t length, const auto& params, const T* in,
                                      std::int64_t offset) {
                                    fake_quantize_run(length, params, in, out + offset);
                                  });
                   });
      return;
    }
    alignas(kCacheLine) std::uint8_t inside[kBlockElements];
    write_values(problem_.strides, y(), begin, end, stream_, params_.chunk_bytes(),
                 [&](std::int64_t first, std::int64_t count, T* out) {
                   for_each_run(first, count,
                                [&](std::int64_t length, const auto& params, const T* in,
                                    std::int64_t offset) {
                                  fake_quantize_run(length, params, in, out + offset,
                                                    inside + (first - begin) + offset);
                                });
                 });
    pack_flags(inside, end - begin, args_.mask + begin / 8);
  }

  template <bool kMask>
  std::int64_t quantize(std::int64_t begin, std::int64_t end) const {
    alignas(kCacheLine) std::uint8_t inside[kBlockElements];
    std::int64_t nan = 0;
    const auto produce = [&](std::int64_t at, std::int64_t count, std::uint8_t* out) {
      for_each_run(begin + at, count,
                   [&](std::int64_t length, const auto& params, const T* in, std::int64_t offset) {
                     nan += quantize_run<kMask>(length, params, in, out + offset,
                                                inside + at + offset);
                   });
    };
    if (bits_ == 8) {
      write_block(code_byte(problem_, args_, begin), end - begin, stream_, params_.chunk_bytes(),
                  produce);
    } else {
      alignas(kCacheLine) std::uint8_t codes[kBlockElements];
      produce(0, end - begin, codes);
      pack_codes(codes, end - begin, bits_, code_byte(problem_, args_, begin));
    }
    if constexpr (kMask) pack_flags(inside, end - begin, args_.mask + begin / 8);
    return nan;
  }

  void dequantize(std::int64_t begin, std::int64_t end) const {
    const bool is_signed = code_is_signed(problem_.code_type);
    alignas(kCacheLine) std::uint8_t unpacked[kBlockElements];
    const std::uint8_t* codes = code_byte(problem_, args_, begin);
    if (bits_ != 8) {
      unpack_codes(codes, end - begin, bits_, is_signed, unpacked);
      codes = unpacked;
    }
    write_values(problem_.strides, y(), begin, end, stream_, params_.chunk_bytes(),
                 [&](std::int64_t first, std::int64_t count, T* out) {
                   params_.for_each_run(
                       first, first + count,
                       [&](std::int64_t start, std::int64_t length, const auto& params) {
                         const std::uint8_t* from = codes + (start - begin);
                         T* to = out + (start - first);
                         if (is_signed) {
                           dequantize_run(length, params,
                                          reinterpret_cast<const std::int8_t*>(from), to);
                         } else {
                           dequantize_run(length, params, from, to);
                         }
                       });
                 });
  }

  const QuantProblem& problem_;
  const QuantArgs& args_;
  SetParams<T> params_;
  int bits_;
  bool stream_;
};

// The kernel for values of type V.
template <typename V>
void run_forward(const QuantForward& k) {
  const auto& [problem, args] = k;
  const Forward<V> forward(problem, args);
  std::atomic<std::int64_t> nan{0};
  parallel_blocks(problem.map.elements, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t block_nan = forward.block_or_pass(begin, end);
    if (block_nan != 0) nan.fetch_add(block_nan, std::memory_order_relaxed);
  });
  if (args.non_finite_count != nullptr) *args.non_finite_count += nan.load();
}

}  // namespace steelyard::kernels
