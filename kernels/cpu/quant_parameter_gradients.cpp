#include <algorithm>
#include <cstring>

#include "steelyard/kernels/cpu/parallel.h"
#include "steelyard/kernels/cpu/quant_cpu.h"
#include "steelyard/kernels/cpu/value_io.h"
#include "steelyard/kernels/quant_sums.h"

namespace steelyard::kernels {
namespace {

// Calls run(first, count, at) on the parts of elements [k, k + count) of a set that are consecutive
// logical indices; `at` counts from 0.
template <typename Run>
void for_each_run_of_set(const SetMap& map, std::int64_t set, std::int64_t k, std::int64_t count,
                         Run&& run) {
  std::int64_t done = 0;
  while (done < count) {
    const std::int64_t first = map.element_of(set, k + done);
    std::int64_t length = count - done;
    if (map.sets > 1) {
      const std::int64_t row = map.size[map.rank - 1];
      const std::int64_t block = map.block[map.rank - 1];
      const std::int64_t at = first % row;
      length = std::min(length, std::min(row, (at / block + 1) * block) - at);
    }
    run(first, length, done);
    done += length;
  }
}

template <typename V>
class ParameterGradients {
 public:
  using T = ComputeType<V>;

  ParameterGradients(const QuantProblem& problem, void* workspace, const QuantArgs& args)
      : problem_(problem),
        args_(args),
        chunks_(sum_chunks_per_set(problem.map)),
        on_(is_on(args.quantizing)),
        scale_sums_(static_cast<double*>(workspace)),
        zero_point_sums_(scale_sums_ + problem.map.sets * chunks_) {}

  void run() {
    constexpr std::int64_t kGrain = 8;
    parallel_for(problem_.map.sets * chunks_, kGrain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) chunk(i / chunks_, i % chunks_);
    });
    for (std::int64_t set = 0; set < problem_.map.sets; ++set) {
      write_total(args_.grad_scale, scale_sums_, set);
      if (args_.grad_zero_point != nullptr)
        write_total(args_.grad_zero_point, zero_point_sums_, set);
    }
  }

 private:
  // The gradients of one chunk of a set, and its two sums.
  void chunk(std::int64_t set, std::int64_t index) {
    const std::int64_t k = index * kSumChunk;
    const std::int64_t count =
        std::clamp<std::int64_t>(problem_.map.size_of(set) - k, 0, kSumChunk);
    alignas(kCacheLine) T scale_terms[kSumChunk];
    alignas(kCacheLine) T zero_point_terms[kSumChunk];
    const std::int32_t z = args_.zero_point == nullptr ? 0 : args_.zero_point[set];
    const Affine<T> p = make_affine(problem_.range, static_cast<const T*>(args_.scale)[set], z);
    for_each_run_of_set(problem_.map, set, k, count,
                        [&](std::int64_t first, std::int64_t length, std::int64_t at) {
                          run_terms(p, first, length, scale_terms + at, zero_point_terms + at);
                        });
    scale_sums_[set * chunks_ + index] =
        sum_chunk<T>(count, [&](std::int64_t i) { return scale_terms[i]; });
    zero_point_sums_[set * chunks_ + index] =
        sum_chunk<T>(count, [&](std::int64_t i) { return zero_point_terms[i]; });
  }

  void run_terms(const Affine<T>& p, std::int64_t first, std::int64_t count, T* scale_terms,
                 T* zero_point_terms) {
    T x_buffer[kSumChunk];
    T grad_buffer[kSumChunk];
    alignas(kCacheLine) T grad_x[kSumChunk];
    const T* x =
        load_values(problem_.strides, static_cast<const V*>(args_.x), first, count, x_buffer);
    const T* grad = load_values(problem_.strides, static_cast<const V*>(args_.grad_y), first, count,
                                grad_buffer);
    STEELYARD_VECTORIZE
    for (std::int64_t i = 0; i < count; ++i) {
      scale_terms[i] = scale_gradient_term(x[i], grad[i], p);
      zero_point_terms[i] = zero_point_gradient_term(x[i], grad[i], p);
      grad_x[i] = pass_inside(is_inside(x[i], p), grad[i]);
    }
    if (!on_) {
      std::fill_n(scale_terms, count, T(0));
      std::fill_n(zero_point_terms, count, T(0));
      std::copy(grad, grad + count, grad_x);
    }
    store_values(problem_.strides, grad_x, first, count, static_cast<V*>(args_.grad_x));
  }

  void write_total(void* to, const double* sums, std::int64_t set) const {
    static_cast<T*>(to)[set] =
        static_cast<T>(problem_.gradient_factor * sum_of_chunks(sums + set * chunks_, chunks_));
  }

  const QuantProblem& problem_;
  const QuantArgs& args_;
  std::int64_t chunks_;
  bool on_;
  double* scale_sums_;
  double* zero_point_sums_;
};

}  // namespace

void quant_parameter_gradients_cpu(const QuantProblem& problem, void* workspace,
                                   const QuantArgs& args) {
  visit_value_type(problem.value_type, [&](auto* tag) {
    using V = std::remove_pointer_t<decltype(tag)>;
    ParameterGradients<V>(problem, workspace, args).run();
  });
}

}  // namespace steelyard::kernels
