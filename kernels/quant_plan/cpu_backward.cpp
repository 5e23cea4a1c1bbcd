#include "steelyard/kernels/cpu/mask.h"
#include "steelyard/kernels/cpu/run.h"
#include "steelyard/kernels/cpu/set_runs.h"
#include "steelyard/kernels/cpu/value_io.h"
#include "steelyard/kernels/quant_plan/quant_kernels.h"

namespace steelyard::kernels {
namespace {

template <QuantOperation kOperation, typename T, typename Params>
void gradient_run(std::int64_t n, const Params& given, const T* x, const T* grad_y, T* grad_x) {
  const Params params = given.from(0);
  if constexpr (kOperation == QuantOperation::kFakeQuantize) {
    // pass_inside() says why not in one loop.
    BitsOf<T> kept[kBlockElements];
    STEELYARD_VECTORIZE
    for (std::int64_t i = 0; i < n; ++i) kept[i] = kept_bits<T>(is_inside(x[i], params[i]));
    STEELYARD_VECTORIZE
    for (std::int64_t i = 0; i < n; ++i) grad_x[i] = keep(grad_y[i], kept[i]);
  } else {
    STEELYARD_VECTORIZE
    for (std::int64_t i = 0; i < n; ++i) {
      const T grad = grad_y[i];
      grad_x[i] = gradient(kOperation, is_inside(x[i], params[i]), grad, params[i].scale);
    }
  }
}

// The gradient of elements whose straight-through gradient passes.
template <QuantOperation kOperation, typename T, typename Params>
void passed_run(std::int64_t n, const Params& given, const T* grad_y, T* grad_x) {
  const Params params = given.from(0);
  STEELYARD_VECTORIZE
  for (std::int64_t i = 0; i < n; ++i) {
    const T grad = grad_y[i];
    grad_x[i] = gradient(kOperation, true, grad, params[i].scale);
  }
}

template <typename V, QuantOperation kOperation>
class Backward {
 public:
  using T = ComputeType<V>;

  Backward(const QuantProblem& problem, const QuantArgs& args)
      : problem_(problem),
        args_(args),
        params_(params_of(problem, args)),
        stream_(args.grad_y != args.grad_x &&
                exceeds_cache(problem.map.elements * 3 * static_cast<int>(sizeof(V)))) {}

  void run() const {
    parallel_blocks(problem_.map.elements, [&](std::int64_t begin, std::int64_t end) {
      if (args_.x != nullptr) {
        from_values(begin, end);
      } else {
        from_mask(begin, end);
      }
    });
  }

 private:
  // With a mask, x is not needed. The gradient of fake-quantize does not contain the scale, so the
  // caller need not have one.
  static SetParams<T> params_of(const QuantProblem& problem, const QuantArgs& args) {
    static constexpr T kAny = 1;
    if (args.x == nullptr && problem.operation == QuantOperation::kFakeQuantize) {
      const auto one_set = make_set_map(ChannelLayout::per_tensor(problem.map.elements));
      return {one_set, problem.range, &kAny, nullptr};
    }
    return {problem.map, problem.range, static_cast<const T*>(args.scale), args.zero_point};
  }

  const V* x() const { return static_cast<const V*>(args_.x); }
  const V* grad_y() const { return static_cast<const V*>(args_.grad_y); }
  V* grad_x() const { return static_cast<V*>(args_.grad_x); }

  void from_values(std::int64_t begin, std::int64_t end) const {
    write_values(problem_.strides, grad_x(), begin, end, stream_, params_.chunk_bytes(),
                 [&](std::int64_t first, std::int64_t count, T* out) {
                   T x_buffer[kBlockElements];
                   T grad_buffer[kBlockElements];
                   const T* in = load_values(problem_.strides, x(), first, count, x_buffer);
                   const T* grad =
                       load_values(problem_.strides, grad_y(), first, count, grad_buffer);
                   params_.for_each_run(
                       first, first + count,
                       [&](std::int64_t start, std::int64_t length, const auto& params) {
                         const std::int64_t at = start - first;
                         gradient_run<kOperation>(length, params, in + at, grad + at, out + at);
                       });
                 });
  }

  // Every element is inside where there is no mask (dequantize).
  void from_mask(std::int64_t begin, std::int64_t end) const {
    alignas(kCacheLine) std::uint8_t inside[kBlockElements];
    if (args_.mask != nullptr) unpack_flags(args_.mask + begin / 8, end - begin, inside);
    write_values(
        problem_.strides, grad_x(), begin, end, stream_, params_.chunk_bytes(),
        [&](std::int64_t first, std::int64_t count, T* out) {
          T grad_buffer[kBlockElements];
          const T* grad = load_values(problem_.strides, grad_y(), first, count, grad_buffer);
          if (args_.mask != nullptr) {  // no operation makes another gradient of 0
            pass_flagged(count, inside + (first - begin), grad, out);
            grad = out;
          }
          if constexpr (kOperation == QuantOperation::kFakeQuantize) return;
          params_.for_each_run(first, first + count,
                               [&](std::int64_t start, std::int64_t length, const auto& params) {
                                 const std::int64_t at = start - first;
                                 passed_run<kOperation>(length, params, grad + at, out + at);
                               });
        });
  }

  const QuantProblem& problem_;
  const QuantArgs& args_;
  SetParams<T> params_;
  bool stream_;
};

// The gradient itself: what a quantizer that is off gives.
template <typename V>
void pass_gradient(const QuantProblem& problem, const QuantArgs& args) {
  using T = ComputeType<V>;
  if (args.grad_x == args.grad_y) return;
  parallel_blocks(problem.map.elements, [&](std::int64_t begin, std::int64_t end) {
    T buffer[kBlockElements];
    const T* grad = load_values(problem.strides, static_cast<const V*>(args.grad_y), begin,
                                end - begin, buffer);
    store_values(problem.strides, grad, begin, end - begin, static_cast<V*>(args.grad_x));
  });
}

template <typename V>
void run_backward(const QuantProblem& problem, const QuantArgs& args) {
  if (!is_on(args.quantizing)) {
    pass_gradient<V>(problem, args);
    return;
  }
  using O = QuantOperation;
  switch (problem.operation) {
    case O::kQuantize:
      return Backward<V, O::kQuantize>(problem, args).run();
    case O::kDequantize:
      return Backward<V, O::kDequantize>(problem, args).run();
    case O::kFakeQuantize:
      return Backward<V, O::kFakeQuantize>(problem, args).run();
  }
}

}  // namespace

static void compute(const QuantBackward& k) {
  visit_value_type(k.problem.value_type,
                   [&]<typename V>(V*) { run_backward<V>(k.problem, k.args); });
}

template struct CpuKernels<KernelList<QuantBackward>>;

}  // namespace steelyard::kernels
