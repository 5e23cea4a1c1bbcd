#include <algorithm>
#include <vector>

#include "steelyard/kernels/cpu/run.h"
#include "steelyard/kernels/cpu/set_runs.h"
#include "steelyard/kernels/cpu/set_walker.h"
#include "steelyard/kernels/cpu/value_io.h"
#include "steelyard/kernels/quant_kernels.h"
#include "steelyard/kernels/quant_sums.h"

namespace steelyard::kernels {

extern template void run(const QuantBackward&);  // emitted in a file of its own

namespace {

// Where the terms of a run go, and how: written for a sum that follows, or added to lanes.
struct Write {
  template <typename T>
  static void put(T& to, T term) {
    to = term;
  }
};
struct Add {
  template <typename T>
  static void put(T& to, T term) {
    to += term;
  }
};

template <typename Put, bool kZeroPoint, typename T, typename Params>
void gradients_run(std::int64_t n, Params params, const T* x, const T* grad_y, T* grad_x,
                   T* scale_terms, T* zero_point_terms) {
  STEELYARD_VECTORIZE
  for (std::int64_t i = 0; i < n; ++i) {
    const Affine<T> p = params[i];
    const T grad = grad_y[i];
    const LearnedGradients<T> of = learned_gradients(x[i], grad, p);
    grad_x[i] = of.x;
    Put::put(scale_terms[i], of.scale);
    if constexpr (kZeroPoint) Put::put(zero_point_terms[i], of.zero_point);
  }
}

// The sums of several sets whose elements are met in logical order, each in its own lanes.
template <typename T>
class SetLanes {
 public:
  // The sets that follow are [first, first + sets), each from an element on that begins a chunk.
  void begin_sets(std::int64_t first, std::int64_t sets) {
    first_ = first;
    next_.assign(static_cast<std::size_t>(sets), 0);
    lanes_.assign(static_cast<std::size_t>(sets * kSumLanes), T(0));
  }

  // Adds the next `length` terms of each of `runs` sets from `set` on. kSumLanes values before and
  // after the terms are readable.
  void add(std::int64_t set, std::int64_t runs, std::int64_t length, const T* terms) {
    const std::int64_t slot = set - first_;
    for (std::int64_t r = slot; r < slot + runs; ++r, terms += length) {
      next_[r] = add_run(length, terms, next_[r], lanes_.data() + r * kSumLanes);
    }
  }

  // Ends the sums: calls use(set, sum) on each.
  template <typename Use>
  void for_each_set(Use&& use) {
    for (std::size_t slot = 0; slot < next_.size(); ++slot) {
      use(first_ + static_cast<std::int64_t>(slot),
          static_cast<double>(add_in_halves<kSumLanes>(lanes_.data() + slot * kSumLanes)));
    }
  }

 private:
  // Returns the lane after that of the last term.
  static std::int64_t add_run(std::int64_t count, const T* terms, std::int64_t lane, T* lanes) {
    for (; lane == 0 && count >= kSumLanes; count -= kSumLanes, terms += kSumLanes) {
      STEELYARD_VECTORIZE
      for (std::int64_t i = 0; i < kSumLanes; ++i) lanes[i] += terms[i];
    }
    while (count > 0) {
      const std::int64_t length = std::min(count, kSumLanes - lane);
      add_some(lane, lane + length, terms - lane, lanes);
      terms += length;
      count -= length;
      lane = (lane + length) % kSumLanes;
    }
    return lane;
  }
  // Adds terms [begin, end) to their lanes. A loop over all lanes is one of whole vectors.
  static void add_some(std::int64_t begin, std::int64_t end, const T* terms, T* lanes) {
    STEELYARD_VECTORIZE
    for (std::int64_t i = 0; i < kSumLanes; ++i) {
      const bool is_added = (i >= begin) & (i < end);
      const T sum = lanes[i] + terms[i];
      lanes[i] = is_added ? sum : lanes[i];
    }
  }

  std::int64_t first_ = 0;
  std::vector<std::int64_t> next_;  // lane of the set's next element
  std::vector<T> lanes_;
};

// Rows [begin, end) of columns [first, first + width) of a [rows, channels] array.
struct Columns {
  std::int64_t begin, end, first, width;
};

template <typename V, bool kZeroPoint>
class ParameterGradients {
 public:
  using T = ComputeType<V>;

  ParameterGradients(const QuantProblem& problem, void* workspace, const QuantArgs& args)
      : problem_(problem),
        args_(args),
        params_(problem.map, problem.range, static_cast<const T*>(args.scale), args.zero_point),
        chunks_(sum_chunks_per_set(problem.map)),
        stream_(args.grad_y != args.grad_x &&
                exceeds_cache(problem.map.elements * 3 * static_cast<int>(sizeof(V)))),
        scale_sums_(static_cast<double*>(workspace)),
        zero_point_sums_(scale_sums_ + problem.map.sets * chunks_) {}

  void run() {
    const ChannelLayout layout = problem_.map.as_channels();
    if (layout.channels > 1 && layout.inner == 1) {
      by_columns(layout);
    } else if (layout.channels > 1 && layout.outer > 1 && layout.inner < kSumChunk / 4) {
      by_planes(layout);
    } else if (const SetParts parts(problem_.map);
               parts.sets > 0 && chunks_ == 1 &&
               problem_.map.block[problem_.map.rank - 1] < kSumChunk / 4) {
      by_parts(parts);
    } else {
      by_sets();
    }
    constexpr std::int64_t kGrain = 64;
    parallel_for(problem_.map.sets, kGrain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t set = begin; set < end; ++set) {
        write_total(args_.grad_scale, scale_sums_, set);
        if (kZeroPoint) write_total(args_.grad_zero_point, zero_point_sums_, set);
      }
    });
  }

 private:
  const V* x() const { return static_cast<const V*>(args_.x); }
  const V* grad_y() const { return static_cast<const V*>(args_.grad_y); }

  void by_sets() {
    constexpr std::int64_t kGrain = 8;
    parallel_for(problem_.map.sets * chunks_, kGrain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) chunk(i / chunks_, i % chunks_);
      stream_fence();
    });
  }

  // The gradients of one chunk of a set, and its two sums.
  void chunk(std::int64_t set, std::int64_t index) {
    const std::int64_t k = index * kSumChunk;
    const std::int64_t count =
        std::clamp<std::int64_t>(problem_.map.size_of(set) - k, 0, kSumChunk);
    alignas(kCacheLine) T scale_terms[kSumChunk];
    alignas(kCacheLine) T zero_point_terms[kSumChunk];
    const UniformParams<T> params = params_.of_set(set);
    SetElements elements(problem_.map, set, k);
    for (std::int64_t at = 0; at < count;) {
      const std::int64_t length = std::min(count - at, elements.length());
      put_run<Write>(params, elements.index(), length, scale_terms + at, zero_point_terms + at);
      elements.advance(length);
      at += length;
    }
    const std::int64_t at = set * chunks_ + index;
    scale_sums_[at] = sum_chunk<T>(count, [&](std::int64_t i) { return scale_terms[i]; });
    if constexpr (kZeroPoint) {
      zero_point_sums_[at] =
          sum_chunk<T>(count, [&](std::int64_t i) { return zero_point_terms[i]; });
    }
  }

  // Sets of few elements, or of short runs: those of a part together, in logical order.
  void by_parts(const SetParts& parts) {
    const SetMap& map = problem_.map;
    parallel_for(parts.count(map), 1, [&](std::int64_t begin, std::int64_t end) {
      SetLanes<T> scale_lanes, zero_point_lanes;
      for (std::int64_t part = begin; part < end; ++part) {
        const std::int64_t first_set = part * parts.sets;
        const std::int64_t sets = std::min(parts.sets, map.sets - first_set);
        scale_lanes.begin_sets(first_set, sets);
        zero_point_lanes.begin_sets(first_set, kZeroPoint ? sets : 0);
        const std::int64_t first = part * parts.elements;
        add_in_order(first, std::min(map.elements, first + parts.elements), scale_lanes,
                     zero_point_lanes);
        write_sums(0, scale_lanes, zero_point_lanes);
      }
      stream_fence();
    });
  }

  // Channels of small planes, as convolutions of NCHW have them: a chunk of neighbouring channels
  // together, in logical order.
  void by_planes(const ChannelLayout& layout) {
    const std::int64_t width = std::min(layout.channels, kBlockElements / layout.inner + 1);
    const std::int64_t parts = (layout.channels + width - 1) / width;
    parallel_for(chunks_ * parts, 1, [&](std::int64_t begin, std::int64_t end) {
      SetLanes<T> scale_lanes, zero_point_lanes;
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t chunk = i / parts, channel = i % parts * width;
        const std::int64_t channels = std::min(width, layout.channels - channel);
        scale_lanes.begin_sets(channel, channels);
        zero_point_lanes.begin_sets(channel, kZeroPoint ? channels : 0);
        planes(layout, chunk, channel, channels, scale_lanes, zero_point_lanes);
        write_sums(chunk, scale_lanes, zero_point_lanes);
      }
      stream_fence();
    });
  }

  // Elements [chunk * kSumChunk, ...) of each channel, plane by plane.
  void planes(const ChannelLayout& layout, std::int64_t chunk, std::int64_t channel,
              std::int64_t channels, SetLanes<T>& scale_lanes,
              SetLanes<T>& zero_point_lanes) const {
    const std::int64_t size = layout.outer * layout.inner;
    const std::int64_t stop = std::min(size, (chunk + 1) * kSumChunk);
    for (std::int64_t k = chunk * kSumChunk; k < stop;) {
      const std::int64_t into_plane = k % layout.inner;
      const std::int64_t length = std::min(stop - k, layout.inner - into_plane);
      const std::int64_t first =
          (k / layout.inner * layout.channels + channel) * layout.inner + into_plane;
      if (length == layout.inner) {
        add_in_order(first, first + channels * layout.inner, scale_lanes, zero_point_lanes);
      } else {
        for (std::int64_t c = 0; c < channels; ++c) {
          const std::int64_t of_channel = first + c * layout.inner;
          add_in_order(of_channel, of_channel + length, scale_lanes, zero_point_lanes);
        }
      }
      k += length;
    }
  }

  // Adds the terms of elements [begin, end) to the lanes of their sets.
  void add_in_order(std::int64_t begin, std::int64_t end, SetLanes<T>& scale_lanes,
                    SetLanes<T>& zero_point_lanes) const {
    constexpr std::int64_t kPiece = 256;  // elements summed while as many of the next are fetched
    alignas(kCacheLine) T scale_buffer[kSumChunk + 2 * kSumLanes];
    alignas(kCacheLine) T zero_point_buffer[kSumChunk + 2 * kSumLanes];
    T* scale_terms = std::fill_n(scale_buffer, kSumLanes, T(0));
    T* zero_point_terms = std::fill_n(zero_point_buffer, kSumLanes, T(0));
    SetWalker walker(problem_.map, begin);
    for (; begin < end; begin += kSumChunk) {
      const std::int64_t stop = std::min(end, begin + kSumChunk);
      params_.for_each_run(begin, stop,
                           [&](std::int64_t first, std::int64_t count, const auto& params) {
                             put_run<Write>(params, first, count, scale_terms + (first - begin),
                                            zero_point_terms + (first - begin));
                           });
      std::fill_n(scale_terms + (stop - begin), kSumLanes, T(0));
      std::fill_n(zero_point_terms + (stop - begin), kSumLanes, T(0));
      for (std::int64_t at = begin; at < stop;) {
        const std::int64_t whole = walker.whole_runs(std::min(stop - at, kPiece));
        const std::int64_t runs = std::max<std::int64_t>(1, whole);
        const std::int64_t length = std::min(stop - at, walker.length());
        const std::int64_t next = at + kSumChunk;
        prefetch(x(), next, next + runs * length, problem_.map.elements);
        prefetch(grad_y(), next, next + runs * length, problem_.map.elements);
        scale_lanes.add(walker.set(), runs, length, scale_terms + (at - begin));
        if constexpr (kZeroPoint) {
          zero_point_lanes.add(walker.set(), runs, length, zero_point_terms + (at - begin));
        }
        if (whole > 0) {
          walker.advance_runs(whole);
        } else {
          walker.advance(length);
        }
        at += runs * length;
      }
    }
  }

  void write_sums(std::int64_t chunk, SetLanes<T>& scale_lanes,
                  SetLanes<T>& zero_point_lanes) const {
    scale_lanes.for_each_set(
        [&](std::int64_t set, double sum) { scale_sums_[set * chunks_ + chunk] = sum; });
    zero_point_lanes.for_each_set(
        [&](std::int64_t set, double sum) { zero_point_sums_[set * chunks_ + chunk] = sum; });
  }

  // The channels of each row follow each other. Element k of a channel is in row k: rows go to the
  // lanes of all channels at once.
  void by_columns(const ChannelLayout& layout) {
    constexpr std::int64_t kWidth = 64;
    const std::int64_t parts = (layout.channels + kWidth - 1) / kWidth;
    const std::int64_t width = (layout.channels + parts - 1) / parts;
    parallel_for(chunks_ * parts, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t chunk = i / parts, first = i % parts * width;
        columns<kWidth>(layout, chunk,
                        {chunk * kSumChunk, std::min(layout.outer, (chunk + 1) * kSumChunk), first,
                         std::min(width, layout.channels - first)});
      }
      stream_fence();
    });
  }

  template <std::int64_t kWidth>
  void columns(const ChannelLayout& layout, std::int64_t chunk, const Columns& part) {
    alignas(kCacheLine) T scale_lanes[kSumLanes * kWidth] = {};
    alignas(kCacheLine) T zero_point_lanes[kSumLanes * kWidth] = {};
    alignas(kCacheLine) T scale[kSumLanes * kWidth];
    alignas(kCacheLine) T zero_point[kSumLanes * kWidth];
    for (std::int64_t i = 0; i < kSumLanes * part.width; ++i) {
      const Affine<T> p = params_.of_set(part.first + i % part.width).value;
      scale[i] = p.scale;
      zero_point[i] = p.zero_point;
    }
    // All channels: the rows of all lanes are one run.
    const std::int64_t together = part.width == layout.channels ? kSumLanes : 1;
    for (std::int64_t row = part.begin; row < part.end; row += together) {
      const std::int64_t rows = std::min(together, part.end - row);
      const std::int64_t lane = (row - part.begin) % kSumLanes * part.width;
      put_run<Add>(params_.of_elements(scale, zero_point), row * layout.channels + part.first,
                   rows * part.width, scale_lanes + lane, zero_point_lanes + lane);
    }
    write_lanes(chunk, part, scale_lanes, scale_sums_);
    if constexpr (kZeroPoint) write_lanes(chunk, part, zero_point_lanes, zero_point_sums_);
  }

  void write_lanes(std::int64_t chunk, const Columns& part, T* lanes, double* sums) const {
    for (std::int64_t half = kSumLanes / 2 * part.width; half >= part.width; half /= 2) {
      for (std::int64_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
    }
    for (std::int64_t c = 0; c < part.width; ++c) {
      sums[(part.first + c) * chunks_ + chunk] = static_cast<double>(lanes[c]);
    }
  }

  template <typename Put, typename Params>
  void put_run(const Params& params, std::int64_t first, std::int64_t count, T* scale_terms,
               T* zero_point_terms) const {
    write_values(problem_.strides, static_cast<V*>(args_.grad_x), first, first + count, stream_,
                 kMaxChunkBytes, [&](std::int64_t start, std::int64_t length, T* grad_x) {
                   T x_buffer[kBlockElements];
                   T grad_buffer[kBlockElements];
                   const T* in = load_values(problem_.strides, x(), start, length, x_buffer);
                   const T* grad =
                       load_values(problem_.strides, grad_y(), start, length, grad_buffer);
                   const std::int64_t at = start - first;
                   gradients_run<Put, kZeroPoint>(length, params.from(at), in, grad, grad_x,
                                                  scale_terms + at, zero_point_terms + at);
                 });
  }

  void write_total(void* to, const double* sums, std::int64_t set) const {
    static_cast<T*>(to)[set] =
        static_cast<T>(problem_.gradient_factor * sum_of_chunks(sums + set * chunks_, chunks_));
  }

  const QuantProblem& problem_;
  const QuantArgs& args_;
  SetParams<T> params_;
  std::int64_t chunks_;
  bool stream_;
  double* scale_sums_;
  double* zero_point_sums_;
};

template <typename V>
void pass_without_gradients(const QuantProblem& problem, const QuantArgs& args) {
  run(QuantBackward{problem, args});
  using T = ComputeType<V>;
  std::fill_n(static_cast<T*>(args.grad_scale), problem.map.sets, T(0));
  if (args.grad_zero_point == nullptr) return;
  std::fill_n(static_cast<T*>(args.grad_zero_point), problem.map.sets, T(0));
}

}  // namespace

static void compute(const QuantParameterGradients& k) {
  visit_value_type(k.problem.value_type, [&]<typename V>(V*) {
    if (!is_on(k.args.quantizing)) {
      pass_without_gradients<V>(k.problem, k.args);
    } else if (k.args.grad_zero_point == nullptr) {
      ParameterGradients<V, false>(k.problem, k.workspace, k.args).run();
    } else {
      ParameterGradients<V, true>(k.problem, k.workspace, k.args).run();
    }
  });
}

template struct CpuKernels<KernelList<QuantParameterGradients>>;

}  // namespace steelyard::kernels
