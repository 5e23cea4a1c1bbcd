// kernels/cuda/gemm.h for the emulated GPU: the CPU's products, dense matrices at a time.
#include "steelyard/kernels/cuda/gemm.h"

#include <type_traits>
#include <vector>

#include "steelyard/kernels/matmul/matmul.h"
#include "steelyard/kernels/value_type.h"
#include "tests/support/cuda_emulation/queued_work.h"

namespace steelyard::kernels::cuda {
namespace {

// A stored matrix without its stride, as the type that is summed in.
template <typename Sum, typename Load>
std::vector<Sum> dense(std::int64_t rows, std::int64_t columns, std::int64_t stride,
                       const Load& load) {
  std::vector<Sum> packed(static_cast<std::size_t>(rows * columns));
  for (std::int64_t i = 0; i < rows * columns; ++i) {
    packed[static_cast<std::size_t>(i)] = load(i / columns * stride + i % columns);
  }
  return packed;
}

template <typename Sum, typename C, typename LoadA, typename LoadB>
void product(const GemmShape& s, const LoadA& load_a, const LoadB& load_b, C* c) {
  const MatmulShape shape{s.m, s.n, s.k, s.transpose_a, s.transpose_b};
  const auto a =
      dense<Sum>(s.transpose_a ? s.k : s.m, s.transpose_a ? s.m : s.k, s.stored_row_a(), load_a);
  const auto b =
      dense<Sum>(s.transpose_b ? s.n : s.k, s.transpose_b ? s.k : s.n, s.stored_row_b(), load_b);
  std::vector<Sum> sums(static_cast<std::size_t>(s.m * s.n));
  run(Matmul<Sum>{shape, a.data(), b.data(), sums.data(), default_backend()});
  for (std::int64_t i = 0; i < s.m * s.n; ++i) {
    C& value = c[i / s.n * s.stored_row_c() + i % s.n];
    const Sum sum = sums[static_cast<std::size_t>(i)];
    if constexpr (std::is_same_v<C, std::uint16_t>) {
      value = narrow<BFloat16>(sum).bits;
    } else {
      value = static_cast<C>(s.accumulate ? static_cast<Sum>(value) + sum : sum);
    }
  }
}

// What a product touches: its operands and its result, from their first to their last element.
template <typename A, typename C>
std::vector<emulation::WorkMemory> memory_of(const GemmShape& s, const A* a, const A* b,
                                             const C* c) {
  const auto reach = [&](const auto* at, std::int64_t rows, std::int64_t columns, std::int64_t row,
                         std::int64_t batch) {
    const std::int64_t last = (s.batches - 1) * batch + (rows - 1) * row + columns;
    return emulation::WorkMemory{at, static_cast<std::size_t>(last) * sizeof(*at)};
  };
  if (s.batches == 0 || s.m == 0 || s.n == 0 || s.k == 0) return {};
  return {reach(a, s.transpose_a ? s.k : s.m, s.transpose_a ? s.m : s.k, s.stored_row_a(),
                s.batch_stride_a),
          reach(b, s.transpose_b ? s.n : s.k, s.transpose_b ? s.k : s.n, s.stored_row_b(),
                s.batch_stride_b),
          reach(c, s.m, s.n, s.stored_row_c(), s.batch_stride_c)};
}

}  // namespace

template <typename T>
void gemm(const CudaQueue& queue, const GemmShape& s, const T* a, const T* b, T* c) {
  emulation::queue_work(
      queue.stream,
      {"product", nullptr,
       [=] {
         for (std::int64_t i = 0; i < s.batches; ++i) {
           product<T>(
               s, [from = a + i * s.batch_stride_a](std::int64_t at) { return from[at]; },
               [from = b + i * s.batch_stride_b](std::int64_t at) { return from[at]; },
               c + i * s.batch_stride_c);
         }
       },
       memory_of(s, a, b, c)});
}
template void gemm(const CudaQueue&, const GemmShape&, const float*, const float*, float*);
template void gemm(const CudaQueue&, const GemmShape&, const double*, const double*, double*);

namespace {

template <typename C>
void queue_bf16(const CudaQueue& queue, const GemmShape& s, const std::uint16_t* a,
                const std::uint16_t* b, C* c) {
  emulation::queue_work(
      queue.stream,
      {"product", nullptr,
       [=] {
         const auto value = [](std::uint16_t bits) { return widen(BFloat16{bits}); };
         for (std::int64_t i = 0; i < s.batches; ++i) {
           product<float>(
               s, [&, from = a + i * s.batch_stride_a](std::int64_t at) { return value(from[at]); },
               [&, from = b + i * s.batch_stride_b](std::int64_t at) { return value(from[at]); },
               c + i * s.batch_stride_c);
         }
       },
       memory_of(s, a, b, c)});
}

}  // namespace

void gemm_bf16(const CudaQueue& queue, const GemmShape& s, const std::uint16_t* a,
               const std::uint16_t* b, float* c) {
  queue_bf16(queue, s, a, b, c);
}
void gemm_bf16(const CudaQueue& queue, const GemmShape& s, const std::uint16_t* a,
               const std::uint16_t* b, std::uint16_t* c) {
  queue_bf16(queue, s, a, b, c);
}

}  // namespace steelyard::kernels::cuda
