#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>

#include "kernels/cpu/mask.h"
#include "kernels/cpu/pack_codes.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/quant_cpu.h"
#include "kernels/cpu/range_slots.h"
#include "kernels/cpu/set_runs.h"
#include "kernels/cpu/value_io.h"
#include "kernels/qparams.h"

namespace steelyard::kernels {
namespace {

// Runs take their parameters by value: codes and masks are bytes, which might alias anything else.
template <typename T, typename Params>
void fake_quantize_run(std::int64_t n, Params params, const T* x, T* y) {
  STEELYARD_VECTORIZE
  for (std::int64_t i = 0; i < n; ++i) y[i] = fake_quantize_value(x[i], params[i]);
}

// The same, and the extremes of x, which y does not alias.
template <typename T>
RunExtremes<T> fake_quantize_and_measure(std::int64_t n, Affine<T> p, const T* x, T* y) {
  if (n == 0) return {};
  const BitExtremes<T> seen = visit_with_extremes(
      n, x, [=](std::int64_t i, T value) { y[i] = fake_quantize_value(value, p); });
  return seen.all_finite() ? seen.values() : finite_extremes(n, x);
}

// The same, with a byte for each element: whether it is inside.
template <typename T, typename Params>
void fake_quantize_run(std::int64_t n, Params params, const T* x, T* y, std::uint8_t* inside) {
  STEELYARD_VECTORIZE
  for (std::int64_t i = 0; i < n; ++i) {
    const Affine<T> p = params[i];
    const T code = unclamped_code(x[i], p);
    y[i] = dequantize_code(clamp_code(code, p), p.zero_point, p.scale);
    inside[i] = code_is_inside(code, p) ? 1 : 0;
  }
}

// Writes the low byte of each code and whether it is inside. Returns the number of NaN.
template <typename T, typename Params>
std::int32_t quantize_run(std::int64_t n, Params params, const T* x, std::uint8_t* codes,
                          std::uint8_t* inside) {
  std::int32_t nan = 0;
  STEELYARD_VECTORIZE
  for (std::int64_t i = 0; i < n; ++i) {
    const Affine<T> p = params[i];
    const T code = unclamped_code(x[i], p);
    codes[i] = static_cast<std::uint8_t>(to_integer_code(code, p));
    inside[i] = code_is_inside(code, p) ? 1 : 0;
    nan += x[i] != x[i] ? 1 : 0;
  }
  return nan;
}

template <typename T, typename Code, typename Params>
void dequantize_run(std::int64_t n, Params params, const Code* codes, T* y) {
  STEELYARD_VECTORIZE
  for (std::int64_t i = 0; i < n; ++i) {
    const Affine<T> p = params[i];
    y[i] = dequantize_code(static_cast<T>(codes[i]), p.zero_point, p.scale);
  }
}

std::uint8_t* code_byte(const QuantProblem& problem, const QuantArgs& args, std::int64_t index) {
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
        return quantize(begin, end);
      case QuantOperation::kDequantize:
        dequantize(begin, end);
        return 0;
      case QuantOperation::kFakeQuantize:
        fake_quantize(begin, end);
        return 0;
    }
    return 0;
  }

  // Fake-quantizes elements [begin, end) without a mask and measures them, in one pass. Only where
  // runs lie in one set.
  void measured_block(std::int64_t begin, std::int64_t end, RangeSlots<T>& slots) const {
    write_values(
        problem_.strides, y(), begin, end, stream_, kMaxChunkBytes,
        [&](std::int64_t first, std::int64_t count, T* out) {
          for_each_run(
              first, count,
              [&](std::int64_t length, const auto& params, const T* in, std::int64_t offset) {
                slots.add_run(first + offset,
                              fake_quantize_and_measure<T>(length, params[0], in, out + offset));
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
                         [&](std::int64_t start, std::int64_t length, auto params) {
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

  std::int64_t quantize(std::int64_t begin, std::int64_t end) const {
    alignas(kCacheLine) std::uint8_t inside[kBlockElements];
    std::int64_t nan = 0;
    const auto produce = [&](std::int64_t at, std::int64_t count, std::uint8_t* out) {
      for_each_run(begin + at, count,
                   [&](std::int64_t length, const auto& params, const T* in, std::int64_t offset) {
                     nan += quantize_run(length, params, in, out + offset, inside + at + offset);
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
    if (args_.mask != nullptr) pack_flags(inside, end - begin, args_.mask + begin / 8);
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
    write_values(
        problem_.strides, y(), begin, end, stream_, params_.chunk_bytes(),
        [&](std::int64_t first, std::int64_t count, T* out) {
          params_.for_each_run(
              first, first + count, [&](std::int64_t start, std::int64_t length, auto params) {
                const std::uint8_t* from = codes + (start - begin);
                T* to = out + (start - first);
                if (is_signed) {
                  dequantize_run(length, params, reinterpret_cast<const std::int8_t*>(from), to);
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

bool is_on(const std::uint8_t* flag) { return flag == nullptr || *flag != 0; }

// A quantizer that chooses its own scale: one call's extremes, the moving average, scale and zero
// point, set by set.
template <typename V>
class StatisticsPass {
 public:
  using T = ComputeType<V>;

  StatisticsPass(const QuantProblem& problem, const QuantArgs& args)
      : problem_(problem), args_(args), plan_(problem.map), seen_(problem.map.sets) {}

  void run() {
    const bool observing = is_on(args_.observing);
    const bool quantizing = is_on(args_.quantizing);
    switch (problem_.statistics) {
      case Statistics::kGiven:
        return;
      case Statistics::kDynamic:
        if (sets_follow_each_other()) {
          quantize_set_by_set();
          return;
        }
        measure();
        update();
        forward(quantizing, false);
        return;
      case Statistics::kCurrent:
        if (observing) {
          measure();
          update();
        }
        forward(quantizing && *args_.initialised != 0, false);
        return;
      case Statistics::kDelayed:
        forward(quantizing && *args_.initialised != 0, observing);
        if (observing) update();
        return;
    }
  }

 private:
  const V* x() const { return static_cast<const V*>(args_.x); }
  T* range_lo() const { return static_cast<T*>(args_.range_lo); }
  T* range_hi() const { return static_cast<T*>(args_.range_hi); }

  bool sets_follow_each_other() const {
    const ChannelLayout layout = problem_.map.as_channels();
    return layout.channels > 1 && layout.outer == 1 && !plan_.tiled();
  }

  void measure() {
    each_block(true, [&](RangeSlots<T>& slots, std::int64_t begin, std::int64_t end) {
      add(slots, begin, end);
    });
  }

  // Quantizes (or passes) every block and, where asked, measures it while it is in the cache.
  void forward(bool quantizing, bool observing) {
    const Forward<V> forward(problem_, args_);
    const bool together =
        observing && quantizing && args_.mask == nullptr && args_.x != args_.y && !plan_.tiled();
    each_block(observing, [&](RangeSlots<T>& slots, std::int64_t begin, std::int64_t end) {
      if (together) {
        forward.measured_block(begin, end, slots);
        return;
      }
      if (observing) add(slots, begin, end);  // before y is written: it may be x
      if (quantizing) {
        forward.block(begin, end);
      } else {
        forward.pass_block(begin, end);
      }
    });
  }

  void add(RangeSlots<T>& slots, std::int64_t begin, std::int64_t end) const {
    T buffer[kBlockElements];
    slots.add(begin, end - begin, load_values(problem_.strides, x(), begin, end - begin, buffer));
  }

  // Calls body(slots, begin, end) on every block; what the slots of all threads gathered enters
  // seen_ where `observing`.
  template <typename Body>
  void each_block(bool observing, Body&& body) {
    constexpr std::int64_t kGrain = 8;
    const std::int64_t n = problem_.map.elements;
    std::mutex mutex;
    parallel_for((n + kBlockElements - 1) / kBlockElements, kGrain,
                 [&](std::int64_t first, std::int64_t last) {
                   RangeSlots<T> slots(plan_);
                   for (std::int64_t block = first; block < last; ++block) {
                     body(slots, block * kBlockElements, std::min(n, (block + 1) * kBlockElements));
                   }
                   stream_fence();
                   if (!observing) return;
                   const std::lock_guard<std::mutex> lock(mutex);
                   slots.fold_into(seen_);
                 });
  }

  // Each set's extremes enter its average, if there is one, and give its scale.
  void update() {
    for (std::int64_t set = 0; set < problem_.map.sets; ++set) {
      T lo = seen_.lo[set] + T(0);  // -0 + 0 = +0
      T hi = seen_.hi[set] + T(0);
      if (problem_.statistics != Statistics::kDynamic) {
        if (lo <= hi) *args_.initialised = 1;
        update_range(range_lo()[set], range_hi()[set], lo, hi, problem_.averaging_constant);
        lo = range_lo()[set];
        hi = range_hi()[set];
      }
      set_qparams(set, lo, hi);
      if (args_.non_finite_count != nullptr) *args_.non_finite_count += seen_.skipped[set];
    }
  }

  void set_qparams(std::int64_t set, T lo, T hi) const {
    const auto chosen = qparams_of_range<T>(static_cast<double>(lo), static_cast<double>(hi),
                                            problem_.range, problem_.symmetric);
    static_cast<T*>(args_.scale)[set] = chosen.scale;
    args_.zero_point[set] = chosen.zero_point;
  }

  // Each set is read, measured and quantized while it is in the cache.
  void quantize_set_by_set() {
    const ChannelLayout layout = problem_.map.as_channels();
    constexpr std::int64_t kSetsTogether = 8;  // so that no two parts share a byte
    const Forward<V> forward(problem_, args_);
    std::atomic<std::int64_t> skipped{0};
    const std::int64_t parts = (layout.channels + kSetsTogether - 1) / kSetsTogether;
    parallel_for(parts, 1, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t part = first; part < last; ++part) {
        const std::int64_t from = part * kSetsTogether;
        const std::int64_t to = std::min(layout.channels, from + kSetsTogether);
        for (std::int64_t set = from; set < to; ++set) {
          skipped.fetch_add(measure_set(set, layout.inner), std::memory_order_relaxed);
        }
        for (std::int64_t at = from * layout.inner; at < to * layout.inner; at += kBlockElements) {
          const std::int64_t end = std::min(to * layout.inner, at + kBlockElements);
          if (is_on(args_.quantizing)) {
            forward.block(at, end);
          } else {
            forward.pass_block(at, end);
          }
        }
      }
      stream_fence();
    });
    if (args_.non_finite_count != nullptr) *args_.non_finite_count += skipped.load();
  }

  // Chooses the scale of a set of `size` consecutive elements. Returns the elements skipped.
  std::int64_t measure_set(std::int64_t set, std::int64_t size) const {
    RunExtremes<T> seen;
    for (std::int64_t at = 0; at < size; at += kBlockElements) {
      const std::int64_t count = std::min(kBlockElements, size - at);
      T buffer[kBlockElements];
      const auto part = extremes_of_run(
          count, load_values(problem_.strides, x(), set * size + at, count, buffer));
      seen.lo = std::min(seen.lo, part.lo);
      seen.hi = std::max(seen.hi, part.hi);
      seen.skipped += part.skipped;
    }
    set_qparams(set, seen.lo + T(0), seen.hi + T(0));
    return seen.skipped;
  }

  const QuantProblem& problem_;
  const QuantArgs& args_;
  RunPlan plan_;
  Extremes<T> seen_;
};

template <typename V>
void run_forward(const QuantProblem& problem, const QuantArgs& args) {
  if (problem.statistics != Statistics::kGiven) {
    StatisticsPass<V>(problem, args).run();
    return;
  }
  const Forward<V> forward(problem, args);
  if (!is_on(args.quantizing)) {
    parallel_blocks(problem.map.elements,
                    [&](std::int64_t begin, std::int64_t end) { forward.pass_block(begin, end); });
    return;
  }
  std::atomic<std::int64_t> nan{0};
  parallel_blocks(problem.map.elements, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t block_nan = forward.block(begin, end);
    if (block_nan != 0) nan.fetch_add(block_nan, std::memory_order_relaxed);
  });
  if (args.non_finite_count != nullptr) *args.non_finite_count += nan.load();
}

template <typename V>
void run_batch(const std::vector<QuantCall>& calls) {
  std::vector<Forward<V>> forwards;
  std::vector<std::int64_t> first_block{0};  // of each call, then the end
  for (const QuantCall& call : calls) {
    forwards.emplace_back(*call.problem, call.args);
    const std::int64_t blocks = (call.problem->map.elements + kBlockElements - 1) / kBlockElements;
    first_block.push_back(first_block.back() + blocks);
  }
  std::vector<std::atomic<std::int64_t>> nan(calls.size());
  parallel_for(first_block.back(), 8, [&](std::int64_t begin, std::int64_t end) {
    const auto after = std::upper_bound(first_block.begin(), first_block.end(), begin);
    auto call = static_cast<std::size_t>(after - first_block.begin()) - 1;
    for (std::int64_t block = begin; block < end; ++block) {
      while (block >= first_block[call + 1]) ++call;
      const std::int64_t at = (block - first_block[call]) * kBlockElements;
      const std::int64_t stop = std::min(calls[call].problem->map.elements, at + kBlockElements);
      if (!is_on(calls[call].args.quantizing)) {
        forwards[call].pass_block(at, stop);
      } else if (const std::int64_t found = forwards[call].block(at, stop); found != 0) {
        nan[call].fetch_add(found, std::memory_order_relaxed);
      }
    }
    stream_fence();
  });
  for (std::size_t i = 0; i < calls.size(); ++i) {
    if (calls[i].args.non_finite_count != nullptr) *calls[i].args.non_finite_count += nan[i].load();
  }
}

}  // namespace

void quant_batch_cpu(const std::vector<QuantCall>& calls) {
  if (calls.empty()) return;
  visit_value_type(calls.front().problem->value_type,
                   [&](auto* tag) { run_batch<std::remove_pointer_t<decltype(tag)>>(calls); });
}

void quant_forward_cpu(const QuantProblem& problem, const QuantArgs& args) {
  visit_value_type(problem.value_type, [&](auto* tag) {
    run_forward<std::remove_pointer_t<decltype(tag)>>(problem, args);
  });
}

}  // namespace steelyard::kernels
