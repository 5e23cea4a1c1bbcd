#include <algorithm>
#include <atomic>
#include <mutex>

#include "steelyard/kernels/cpu/parallel.h"
#include "steelyard/kernels/cpu/quant_cpu.h"
#include "steelyard/kernels/cpu/quant_forward.h"

namespace steelyard::kernels {
namespace {

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
        forward(quantizing && *args_.initialized != 0, false);
        return;
      case Statistics::kDelayed:
        forward(quantizing && *args_.initialized != 0, observing);
        if (observing) update();
        return;
    }
  }

 private:
  const V* x() const { return static_cast<const V*>(args_.x); }

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
    for (std::int64_t set = 0; set < problem_.map.sets; ++set) {
      follow_set<V>(problem_, args_, set, seen_.lo[set], seen_.hi[set]);
      if (args_.non_finite_count != nullptr) *args_.non_finite_count += seen_.skipped[set];
    }
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
          forward.block_or_pass(at, std::min(to * layout.inner, at + kBlockElements));
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
    follow_set<V>(problem_, args_, set, seen.lo, seen.hi);
    return seen.skipped;
  }

  const QuantProblem& problem_;
  const QuantArgs& args_;
  RunPlan plan_;
  Extremes<T> seen_;
};

}  // namespace

void quant_forward_with_statistics_cpu(const QuantProblem& problem, const QuantArgs& args) {
  visit_value_type(problem.value_type, [&](auto* tag) {
    StatisticsPass<std::remove_pointer_t<decltype(tag)>>(problem, args).run();
  });
}

}  // namespace steelyard::kernels
