#include "kernels/embedding.h"

#include "kernels/cpu/parallel.h"

namespace steelyard::kernels {
namespace {

constexpr std::int64_t kGrain = 16384;  // elements per thread that pay for waking it

std::int64_t grain_of(std::int64_t elements) {
  return std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(1, elements));
}

}  // namespace

template <typename T>
void embedding_forward(std::int64_t count, std::int64_t /*rows*/, std::int64_t width,
                       const std::int64_t* indices, const T* table, T* y) {
  parallel_for(count, grain_of(width), [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      std::copy_n(table + indices[i] * width, width, y + i * width);
    }
  });
}

template <typename T>
void embedding_backward(std::int64_t count, std::int64_t rows, std::int64_t width,
                        const std::int64_t* indices, const T* grad_y, T* grad_table) {
  std::fill_n(grad_table, rows * width, T(0));
  parallel_for(width, grain_of(count), [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = 0; i < count; ++i) {
      T* row = grad_table + indices[i] * width;
      for (std::int64_t c = begin; c < end; ++c) row[c] += grad_y[i * width + c];
    }
  });
}

template void embedding_forward(std::int64_t, std::int64_t, std::int64_t, const std::int64_t*,
                                const float*, float*);
template void embedding_forward(std::int64_t, std::int64_t, std::int64_t, const std::int64_t*,
                                const double*, double*);
template void embedding_backward(std::int64_t, std::int64_t, std::int64_t, const std::int64_t*,
                                 const float*, float*);
template void embedding_backward(std::int64_t, std::int64_t, std::int64_t, const std::int64_t*,
                                 const double*, double*);

}  // namespace steelyard::kernels
