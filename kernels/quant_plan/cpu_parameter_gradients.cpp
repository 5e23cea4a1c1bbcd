#include <algorithm>
#include <cstring>
#include <type_traits>
#include <vector>

#include "steelyard/kernels/cpu/chunk_sums.h"
#include "steelyard/kernels/cpu/line_buffer.h"
#include "steelyard/kernels/cpu/run.h"
#include "steelyard/kernels/cpu/set_runs.h"
#include "steelyard/kernels/cpu/set_walker.h"
#include "steelyard/kernels/cpu/value_io.h"
#include "steelyard/kernels/quant_plan/quant_kernels.h"

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
void gradients_run(std::int64_t n, const Params& given, const T* x, const T* grad_y, T* grad_x,
                   T* scale_terms, T* zero_point_terms) {
  const Params params = given.from(0);
  STEELYARD_VECTORIZE
  for (std::int64_t i = 0; i < n; ++i) {
    const CodeGrid<T> p = params[i];
    const T grad = grad_y[i];
    const LearnedGradients<T> of = learned_gradients(x[i], grad, p);
    grad_x[i] = of.x;
    Put::put(scale_terms[i], of.scale);
    if constexpr (kZeroPoint) Put::put(zero_point_terms[i], of.zero_point);
  }
}

// The terms of several sets that are met in logical order: a row for each, in the set's order.
template <typename T, int kSlot>
class SetTerms {
 public:
  static constexpr std::int64_t kLine = kCacheLine / sizeof(T);

  // The sets that follow are [first, first + sets), of `most` terms or fewer.
  void begin_sets(std::int64_t first, std::int64_t sets, std::int64_t most) {
    first_ = first;
    row_ = (most / kLine + 2) * kLine;
    counts_.assign(static_cast<std::size_t>(sets), 0);
    terms_ = line_buffer<T, kSlot>(sets * row_);
  }

  // Where the set's next `count` terms go.
  T* next(std::int64_t set, std::int64_t count) {
    std::int64_t& filled = counts_[static_cast<std::size_t>(set - first_)];
    T* to = terms_ + (set - first_) * row_ + filled;
    filled += count;
    return to;
  }
  // Copies terms to next(). A line after the terms is readable.
  void add(std::int64_t set, std::int64_t count, const T* terms) {
    T* to = next(set, count);
    for (std::int64_t i = 0; i < count; i += kLine) {
      std::memcpy(to + i, terms + i, kCacheLine);
    }
  }

  // sums[set * stride] becomes the sum of each set's terms.
  void write_sums(std::int64_t stride, double* sums) const {
    const T* terms = terms_;
    for (std::size_t slot = 0; slot < counts_.size(); ++slot, terms += row_) {
      const std::int64_t set = first_ + static_cast<std::int64_t>(slot);
      sums[set * stride] = sum_chunk(counts_[slot], terms);
    }
  }

 private:
  std::int64_t first_ = 0, row_ = 0;
  std::vector<std::int64_t> counts_;
  T* terms_ = nullptr;
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
    write_totals(args_.grad_scale, scale_sums_);
    if constexpr (kZeroPoint) write_totals(args_.grad_zero_point, zero_point_sums_);
  }

 private:
  const V* x() const { return static_cast<const V*>(args_.x); }
  const V* grad_y() const { return static_cast<const V*>(args_.grad_y); }
  // Where runs read and write the tensors themselves.
  bool in_place() const { return std::is_same_v<V, T> && problem_.strides.dense; }

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
    scale_sums_[at] = sum_chunk(count, scale_terms);
    if constexpr (kZeroPoint) zero_point_sums_[at] = sum_chunk(count, zero_point_terms);
  }

  // Sets of few elements, or of short runs: those of a part together, in logical order.
  void by_parts(const SetParts& parts) {
    const SetMap& map = problem_.map;
    const bool are_runs = SetWalker(map, 0).length() == map.largest_set();
    parallel_for(parts.count(map), 1, [&](std::int64_t begin, std::int64_t end) {
      SetTerms<T, 0> scale_terms;
      SetTerms<T, 1> zero_point_terms;
      for (std::int64_t part = begin; part < end; ++part) {
        const std::int64_t first = part * parts.elements;
        const std::int64_t stop = std::min(map.elements, first + parts.elements);
        if (are_runs) {
          in_order(
              first, stop,
              [&](std::int64_t set, std::int64_t count, const T* scales, const T* zero_points) {
                scale_sums_[set] = sum_chunk(count, scales);
                if constexpr (kZeroPoint) zero_point_sums_[set] = sum_chunk(count, zero_points);
              });
          continue;
        }
        const std::int64_t first_set = part * parts.sets;
        const std::int64_t sets = std::min(parts.sets, map.sets - first_set);
        scale_terms.begin_sets(first_set, sets, map.largest_set());
        zero_point_terms.begin_sets(first_set, kZeroPoint ? sets : 0, map.largest_set());
        in_order(first, stop, add_to(scale_terms, zero_point_terms));
        scale_terms.write_sums(1, scale_sums_);
        zero_point_terms.write_sums(1, zero_point_sums_);
      }
      stream_fence();
    });
  }

  static auto add_to(SetTerms<T, 0>& scale_terms, SetTerms<T, 1>& zero_point_terms) {
    return [&](std::int64_t set, std::int64_t count, const T* scales, const T* zero_points) {
      scale_terms.add(set, count, scales);
      if constexpr (kZeroPoint) zero_point_terms.add(set, count, zero_points);
    };
  }

  // The gradients of elements [begin, end): calls use(set, count, scale's terms, zero point's
  // terms) on runs of one set, of at most kSumChunk elements.
  template <typename Use>
  void in_order(std::int64_t begin, std::int64_t end, const Use& use) const {
    constexpr std::int64_t kPiece = kSumChunk / 2;  // as many of the next are fetched meanwhile
    constexpr std::int64_t kLine = kCacheLine / sizeof(T);
    alignas(kCacheLine) T scale_terms[kSumChunk + kLine];
    alignas(kCacheLine) T zero_point_terms[kSumChunk + kLine];
    SetWalker walker(problem_.map, begin);
    while (begin < end) {
      const std::int64_t whole = walker.whole_runs(std::min(end - begin, kPiece));
      const std::int64_t length = std::min(end - begin, walker.length());
      const std::int64_t count = std::max<std::int64_t>(1, whole) * length;
      const std::int64_t next = begin + 2 * kPiece;
      prefetch(x(), next, next + count, problem_.map.elements);
      prefetch(grad_y(), next, next + count, problem_.map.elements);
      params_.for_each_run(begin, begin + count,
                           [&](std::int64_t first, std::int64_t n, const auto& params) {
                             put_run<Write>(params, first, n, scale_terms + (first - begin),
                                            zero_point_terms + (first - begin));
                           });
      for (std::int64_t at = 0, set = walker.set(); at < count; at += length, ++set) {
        use(set, length, scale_terms + at, zero_point_terms + at);
      }
      begin += count;
      if (whole > 0) {
        walker.advance_runs(whole);
      } else {
        walker.advance(length);
      }
    }
  }

  // Channels of small planes, as convolutions of NCHW have them: a chunk of neighbouring channels
  // together, plane by plane.
  void by_planes(const ChannelLayout& layout) {
    constexpr std::int64_t kTerms = 16384;  // fit the second-level cache
    const std::int64_t most = std::min(kSumChunk, layout.outer * layout.inner);
    const std::int64_t width = std::min(layout.channels, kTerms / most);
    const std::int64_t parts = (layout.channels + width - 1) / width;
    parallel_for(chunks_ * parts, 1, [&](std::int64_t begin, std::int64_t end) {
      SetTerms<T, 0> scale_terms;
      SetTerms<T, 1> zero_point_terms;
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t chunk = i / parts, channel = i % parts * width;
        const std::int64_t channels = std::min(width, layout.channels - channel);
        scale_terms.begin_sets(channel, channels, most);
        zero_point_terms.begin_sets(channel, kZeroPoint ? channels : 0, most);
        planes(layout, chunk, scale_terms, zero_point_terms, channel, channels);
        scale_terms.write_sums(chunks_, scale_sums_ + chunk);
        zero_point_terms.write_sums(chunks_, zero_point_sums_ + chunk);
      }
      stream_fence();
    });
  }

  // Adds elements [chunk * kSumChunk, ...) of each channel to its terms.
  void planes(const ChannelLayout& layout, std::int64_t chunk, SetTerms<T, 0>& scale_terms,
              SetTerms<T, 1>& zero_point_terms, std::int64_t channel, std::int64_t channels) const {
    const std::int64_t size = layout.outer * layout.inner;
    const std::int64_t stop = std::min(size, (chunk + 1) * kSumChunk);
    for (std::int64_t k = chunk * kSumChunk; k < stop;) {
      const std::int64_t into_plane = k % layout.inner;
      const std::int64_t length = std::min(stop - k, layout.inner - into_plane);
      const std::int64_t first =
          (k / layout.inner * layout.channels + channel) * layout.inner + into_plane;
      // Values that are converted or gathered are so in pieces of several planes.
      const bool together = !in_place() && length == layout.inner;
      if (together)
        in_order(first, first + channels * length, add_to(scale_terms, zero_point_terms));
      for (std::int64_t c = 0; !together && c < channels; ++c) {
        const std::int64_t at = first + c * layout.inner;
        const std::int64_t next = at + layout.channels * layout.inner;
        prefetch(x(), next, next + length, problem_.map.elements);
        prefetch(grad_y(), next, next + length, problem_.map.elements);
        T* scales = scale_terms.next(channel + c, length);
        T* zero_points = kZeroPoint ? zero_point_terms.next(channel + c, length) : scales;
        put_run<Write>(params_.of_set(channel + c), at, length, scales, zero_points);
      }
      k += length;
    }
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
      const CodeGrid<T> p = params_.of_set(part.first + i % part.width).value;
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
    if constexpr (std::is_same_v<V, T>) {  // what is shorter than a chunk is not streamed
      if (in_place() && count * static_cast<int>(sizeof(T)) < kMaxChunkBytes) {
        gradients_run<Put, kZeroPoint>(count, params, x() + first, grad_y() + first,
                                       static_cast<T*>(args_.grad_x) + first, scale_terms,
                                       zero_point_terms);
        return;
      }
    }
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

  void write_totals(void* to, const double* sums) const {
    constexpr std::int64_t kGrain = 64;
    parallel_for(problem_.map.sets, kGrain, [&](std::int64_t begin, std::int64_t end) {
      auto* const totals = static_cast<T*>(to);
      const double factor = problem_.gradient_factor;
      if (chunks_ == 1) {
        STEELYARD_VECTORIZE
        for (std::int64_t set = begin; set < end; ++set) {
          totals[set] = static_cast<T>(factor * sum_of_chunks(sums + set, 1));
        }
        return;
      }
      for (std::int64_t set = begin; set < end; ++set) {
        totals[set] = static_cast<T>(factor * sum_of_chunks(sums + set * chunks_, chunks_));
      }
    });
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
