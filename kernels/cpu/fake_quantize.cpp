#include "kernels/fake_quantize.h"

#include <atomic>

#include "kernels/cpu/blocks.h"
#include "kernels/cpu/channel_runs.h"
#include "kernels/cpu/mask.h"
#include "kernels/cpu/vectorize.h"

namespace steelyard::kernels {
namespace {

template <typename T, typename Params>
void forward_run(std::int64_t n, const Params& params, const T* x, T* y) {
  STEELYARD_VECTORIZE
  for (std::int64_t i = 0; i < n; ++i) y[i] = fake_quantize_value(x[i], params[i]);
}

template <typename T, typename Params>
void backward_run(std::int64_t n, const Params& params, const T* x, const T* grad_y, T* grad_x) {
  STEELYARD_VECTORIZE
  for (std::int64_t i = 0; i < n; ++i) {
    const T grad = grad_y[i];
    grad_x[i] = is_inside(x[i], params[i]) ? grad : T(0);
  }
}

// Writes codes and, as bytes, whether each is inside. Returns the number of NaN.
template <typename T, typename Code, typename Params>
std::int32_t quantize_run(std::int64_t n, const Params& params, const T* x, Code* codes,
                          std::uint8_t* inside) {
  std::int32_t nan = 0;
  STEELYARD_VECTORIZE
  for (std::int64_t i = 0; i < n; ++i) {
    const Affine<T> p = params[i];
    const T code = unclamped_code(x[i], p);
    codes[i] = static_cast<Code>(to_integer_code(code, p));
    inside[i] = code_is_inside(code, p) ? 1 : 0;
    nan += x[i] != x[i] ? 1 : 0;
  }
  return nan;
}

template <typename T, typename Code, typename Params>
void dequantize_run(std::int64_t n, const Params& params, const Code* codes, T* y) {
  STEELYARD_VECTORIZE
  for (std::int64_t i = 0; i < n; ++i) {
    const Affine<T> p = params[i];
    y[i] = dequantize_code(static_cast<T>(codes[i]), p.zero_point, p.scale);
  }
}

// inside[i] != 0 where the gradient passes.
template <typename T>
void mask_run(std::int64_t n, const std::uint8_t* inside, const T* grad_y, T* grad_x) {
  STEELYARD_VECTORIZE
  for (std::int64_t i = 0; i < n; ++i) {
    const T grad = grad_y[i];
    grad_x[i] = inside[i] != 0 ? grad : T(0);
  }
}

}  // namespace

template <typename T>
void fake_quantize_forward(const ChannelLayout& layout, CodeRange range, const T* x, const T* scale,
                           const std::int32_t* zero_point, T* y) {
  const ChannelParams<T> params(layout, range, scale, zero_point);
  const std::int64_t n = layout.size();
  const bool stream = x != y && exceeds_cache(n * 2 * static_cast<std::int64_t>(sizeof(T)));
  parallel_blocks(n, [&](std::int64_t begin, std::int64_t end) {
    write_block(y + begin, end - begin, stream, params.chunk_bytes(),
                [&](std::int64_t at, std::int64_t size, T* out) {
                  params.for_each_run(begin + at, begin + at + size,
                                      [&](std::int64_t first, std::int64_t count, auto run) {
                                        forward_run(count, run, x + first,
                                                    out + (first - begin - at));
                                      });
                });
  });
}

template <typename T>
void fake_quantize_backward(const ChannelLayout& layout, CodeRange range, const T* x,
                            const T* scale, const std::int32_t* zero_point, const T* grad_y,
                            T* grad_x) {
  const ChannelParams<T> params(layout, range, scale, zero_point);
  const std::int64_t n = layout.size();
  const bool stream =
      grad_y != grad_x && exceeds_cache(n * 3 * static_cast<std::int64_t>(sizeof(T)));
  parallel_blocks(n, [&](std::int64_t begin, std::int64_t end) {
    write_block(grad_x + begin, end - begin, stream, params.chunk_bytes(),
                [&](std::int64_t at, std::int64_t size, T* out) {
                  params.for_each_run(begin + at, begin + at + size,
                                      [&](std::int64_t first, std::int64_t count, auto run) {
                                        backward_run(count, run, x + first, grad_y + first,
                                                     out + (first - begin - at));
                                      });
                });
  });
}

template <typename T, typename Code>
std::int64_t quantize(const ChannelLayout& layout, CodeRange range, const T* x, const T* scale,
                      const std::int32_t* zero_point, Code* codes, std::uint8_t* mask) {
  const ChannelParams<T> params(layout, range, scale, zero_point);
  const std::int64_t n = layout.size();
  const bool stream = exceeds_cache(n * static_cast<std::int64_t>(sizeof(T) + sizeof(Code)));
  std::atomic<std::int64_t> nan{0};
  parallel_blocks(n, [&](std::int64_t begin, std::int64_t end) {
    alignas(64) std::uint8_t inside[kBlock];
    std::int64_t block_nan = 0;
    write_block(codes + begin, end - begin, stream, params.chunk_bytes(),
                [&](std::int64_t at, std::int64_t size, Code* out) {
                  params.for_each_run(begin + at, begin + at + size,
                                      [&](std::int64_t first, std::int64_t count, auto run) {
                                        block_nan += quantize_run(count, run, x + first,
                                                                  out + (first - begin - at),
                                                                  inside + (first - begin));
                                      });
                });
    if (mask != nullptr) pack_flags(inside, end - begin, mask + begin / 8);
    if (block_nan != 0) nan.fetch_add(block_nan, std::memory_order_relaxed);
  });
  return nan.load();
}

template <typename T, typename Code>
void dequantize(const ChannelLayout& layout, const Code* codes, const T* scale,
                const std::int32_t* zero_point, T* y) {
  const ChannelParams<T> params(layout, CodeRange{}, scale, zero_point);
  const std::int64_t n = layout.size();
  const bool stream = exceeds_cache(n * static_cast<std::int64_t>(sizeof(T) + sizeof(Code)));
  parallel_blocks(n, [&](std::int64_t begin, std::int64_t end) {
    write_block(y + begin, end - begin, stream, params.chunk_bytes(),
                [&](std::int64_t at, std::int64_t size, T* out) {
                  params.for_each_run(begin + at, begin + at + size,
                                      [&](std::int64_t first, std::int64_t count, auto run) {
                                        dequantize_run(count, run, codes + first,
                                                       out + (first - begin - at));
                                      });
                });
  });
}

template <typename T>
void apply_mask(std::int64_t n, const std::uint8_t* mask, const T* grad_y, T* grad_x) {
  const bool stream =
      grad_y != grad_x && exceeds_cache(n * 2 * static_cast<std::int64_t>(sizeof(T)));
  parallel_blocks(n, [&](std::int64_t begin, std::int64_t end) {
    alignas(64) std::uint8_t inside[kBlock];
    unpack_flags(mask + begin / 8, end - begin, inside);
    write_block(grad_x + begin, end - begin, stream, kSmallChunkBytes,
                [&](std::int64_t at, std::int64_t size, T* out) {
                  mask_run(size, inside + at, grad_y + begin + at, out);
                });
  });
}

template void fake_quantize_forward(const ChannelLayout&, CodeRange, const float*, const float*,
                                    const std::int32_t*, float*);
template void fake_quantize_forward(const ChannelLayout&, CodeRange, const double*, const double*,
                                    const std::int32_t*, double*);
template void fake_quantize_backward(const ChannelLayout&, CodeRange, const float*, const float*,
                                     const std::int32_t*, const float*, float*);
template void fake_quantize_backward(const ChannelLayout&, CodeRange, const double*, const double*,
                                     const std::int32_t*, const double*, double*);
template std::int64_t quantize(const ChannelLayout&, CodeRange, const float*, const float*,
                               const std::int32_t*, std::int8_t*, std::uint8_t*);
template std::int64_t quantize(const ChannelLayout&, CodeRange, const float*, const float*,
                               const std::int32_t*, std::uint8_t*, std::uint8_t*);
template std::int64_t quantize(const ChannelLayout&, CodeRange, const double*, const double*,
                               const std::int32_t*, std::int8_t*, std::uint8_t*);
template std::int64_t quantize(const ChannelLayout&, CodeRange, const double*, const double*,
                               const std::int32_t*, std::uint8_t*, std::uint8_t*);
template void dequantize(const ChannelLayout&, const std::int8_t*, const float*,
                         const std::int32_t*, float*);
template void dequantize(const ChannelLayout&, const std::uint8_t*, const float*,
                         const std::int32_t*, float*);
template void dequantize(const ChannelLayout&, const std::int8_t*, const double*,
                         const std::int32_t*, double*);
template void dequantize(const ChannelLayout&, const std::uint8_t*, const double*,
                         const std::int32_t*, double*);
template void apply_mask(std::int64_t, const std::uint8_t*, const float*, float*);
template void apply_mask(std::int64_t, const std::uint8_t*, const double*, double*);

}  // namespace steelyard::kernels
