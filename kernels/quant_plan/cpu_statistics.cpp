#include <algorithm>
#include <atomic>
#include <mutex>
#include <numeric>
#include <type_traits>

#include "steelyard/kernels/backend.h"
#include "steelyard/kernels/cpu/run.h"
#include "steelyard/kernels/cpu/set_walker.h"
#include "steelyard/kernels/quant_plan/cpu_forward.h"
#include "steelyard/kernels/quant_plan/quant_kernels.h"

namespace steelyard::kernels {
namespace {

// follow_set() of sets [first, first + n), whose extremes are lo and hi. Returns whether one of
// them met a finite value.
template <typename V, bool kAverages, bool kSymmetric>
bool follow_sets_of(SetRule<ComputeType<V>> rule, std::int64_t first, std::int64_t n,
                    const ComputeType<V>* lo, const ComputeType<V>* hi) {
  rule.averages = kAverages;
  rule.symmetric = kSymmetric;
  std::int32_t met = 0;
  STEELYARD_VECTORIZE
  for (std::int64_t i = 0; i < n; ++i) {
    follow_set<V>(rule, first + i, lo[i], hi[i]);
    met |= lo[i] <= hi[i] ? 1 : 0;
  }
  return met != 0;
}

// A quantizer that chooses its own scale: one call's extremes, the moving average, scale and zero
// point, set by set.
template <typename V>
class StatisticsPass {
 public:
  using T = ComputeType<V>;

  StatisticsPass(const QuantProblem& problem, const QuantArgs& args)
      : problem_(problem), args_(args), plan_(problem.map), parts_(problem.map), seen_(0) {}

  void run() {
    const bool dynamic = problem_.statistics == Statistics::kDynamic;
    const bool observing = dynamic || is_on(args_.observing);
    const bool quantizing = is_on(args_.quantizing);
    // Values pass until the average has seen a finite one, in whatever set.
    const bool settled = dynamic || (observing && quantizing && *args_.initialized != 0);
    const bool in_parts = parts_.sets > 0 && parts_.count(problem_.map) >= num_threads();
    if (settled && in_parts && !plan_.tiled()) {
      part_by_part();
      return;
    }
    seen_.reset(problem_.map.sets);
    if (problem_.statistics == Statistics::kDelayed) {
      forward(quantizing && *args_.initialized != 0, observing);
      if (observing) update();
      return;
    }
    if (observing) {
      measure();
      update();
    }
    forward(quantizing && (dynamic || *args_.initialized != 0), false);
  }

 private:
  const V* x() const { return static_cast<const V*>(args_.x); }

  void measure() {
    each_block(true, [&](RangeSlots<T>& slots, std::int64_t begin, std::int64_t end) {
      add(slots, begin, end);
    });
  }

  // Quantizes (or passes) every block and, where asked, measures it while it is in the cache.
  void forward(bool quantizing, bool observing) {
    const Forward<V> forward(problem_, args_);
    each_block(observing, [&](RangeSlots<T>& slots, std::int64_t begin, std::int64_t end) {
      if (observing && quantizing) {
        measure_and_quantize(forward, slots, begin, end);
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

  void measure_and_quantize(const Forward<V>& forward, RangeSlots<T>& slots, std::int64_t begin,
                            std::int64_t end) const {
    const bool together =
        args_.mask == nullptr && args_.x != args_.y && !plan_.tiled() && plan_.has_long_runs();
    if (together) {
      forward.measured_block(begin, end, slots);
    } else {
      add(slots, begin, end);  // before y is written
      quantize_in_pieces(forward, begin, end, kBlockElements);
    }
  }

  // Quantizes [begin, end), which lies in the cache, and fetches the values `ahead` elements
  // further on.
  std::int64_t quantize_in_pieces(const Forward<V>& forward, std::int64_t begin, std::int64_t end,
                                  std::int64_t ahead) const {
    constexpr std::int64_t kPiece = 512;
    std::int64_t nan = 0;
    for (; begin < end; begin += kPiece) {
      const std::int64_t stop = std::min(end, begin + kPiece);
      prefetch(x(), begin + ahead, stop + ahead, problem_.map.elements);
      nan += forward.block_or_pass(begin, stop);
    }
    return nan;
  }

  void add(RangeSlots<T>& slots, std::int64_t begin, std::int64_t end) const {
    T buffer[kBlockElements];
    slots.add(begin, end - begin, load_values(problem_.strides, x(), begin, end - begin, buffer));
  }

  // Calls body(slots, begin, end) on every block. If `observing`, the slots of all threads are
  // merged into seen_.
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

  void update() {
    const std::int64_t skipped = follow(0, seen_);
    if (args_.non_finite_count != nullptr) *args_.non_finite_count += skipped;
  }

  // The sets from `first` on follow what was seen of them. Returns the elements skipped.
  std::int64_t follow(std::int64_t first, const Extremes<T>& seen) const {
    const SetRule<T> rule(problem_, args_);
    const auto sets = static_cast<std::int64_t>(seen.lo.size());
    const auto of = [&]<bool kAverages>(std::bool_constant<kAverages>) {
      const auto each =
          rule.symmetric ? follow_sets_of<V, kAverages, true> : follow_sets_of<V, kAverages, false>;
      return each(rule, first, sets, seen.lo.data(), seen.hi.data());
    };
    note_finite(problem_, args_, rule.averages ? of(std::true_type()) : of(std::false_type()));
    return std::accumulate(seen.skipped.begin(), seen.skipped.end(), std::int64_t{0});
  }

  // Each part is read, measured and quantized while it is in the cache.
  void part_by_part() {
    const Forward<V> forward(problem_, args_);
    std::atomic<std::int64_t> skipped{0};
    parallel_for(parts_.count(problem_.map), 1, [&](std::int64_t first, std::int64_t last) {
      RangeSlots<T> slots(plan_, 0);
      std::int64_t found = 0;
      for (std::int64_t part = first; part < last; ++part) {
        found += one_part(forward, slots, part);
      }
      skipped.fetch_add(found, std::memory_order_relaxed);
      stream_fence();
    });
    if (args_.non_finite_count != nullptr) *args_.non_finite_count += skipped.load();
  }

  // Returns the elements skipped.
  std::int64_t one_part(const Forward<V>& forward, RangeSlots<T>& slots, std::int64_t part) const {
    const std::int64_t begin = part * parts_.elements;
    const std::int64_t end = std::min(problem_.map.elements, begin + parts_.elements);
    const std::int64_t first_set = part * parts_.sets;
    slots.begin_sets(first_set, std::min(parts_.sets, problem_.map.sets - first_set));
    const bool delayed = problem_.statistics == Statistics::kDelayed;
    const auto each = [&](auto&& body) {
      for (std::int64_t at = begin; at < end; at += kBlockElements) {
        body(at, std::min(end, at + kBlockElements));
      }
    };
    each([&](std::int64_t from, std::int64_t to) {
      if (delayed) {
        measure_and_quantize(forward, slots, from, to);
      } else {
        add(slots, from, to);
      }
    });
    const std::int64_t skipped = follow(first_set, slots.of_sets());
    if (!delayed) {
      each([&](std::int64_t from, std::int64_t to) {
        quantize_in_pieces(forward, from, to, parts_.elements);
      });
    }
    return skipped;
  }

  const QuantProblem& problem_;
  const QuantArgs& args_;
  RunPlan plan_;
  SetParts parts_;
  Extremes<T> seen_;
};

}  // namespace

static void compute(const QuantWithStatistics& k) {
  visit_value_type(k.problem.value_type,
                   [&]<typename V>(V*) { StatisticsPass<V>(k.problem, k.args).run(); });
}

template struct CpuKernels<KernelList<QuantWithStatistics>>;

}  // namespace steelyard::kernels
