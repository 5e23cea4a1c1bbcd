// Stores that bypass the caches, for arrays too large to stay in them.
#pragma once

#ifdef __SSE2__
#include <immintrin.h>
#endif

#include <cstdint>
#include <cstring>

namespace steelyard::kernels {

inline constexpr std::int64_t kCacheLine = 64;  // bytes

// True where `bytes` read and written exceed the last-level cache, so that a plain store would
// first fetch the line it overwrites. Inside the cache non-temporal stores lose up to 3x.
bool exceeds_cache(std::int64_t bytes);

// How many elements lie between `p` and the next cache line.
template <typename T>
std::int64_t elements_before_line(const T* p) {
  const auto misaligned = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(p) %
                                                    static_cast<std::uintptr_t>(kCacheLine));
  return misaligned == 0 ? 0 : (kCacheLine - misaligned) / static_cast<std::int64_t>(sizeof(T));
}

// Copies whole cache lines with non-temporal stores (where the machine has them); both pointers are
// 64-byte aligned. The calling thread orders them with stream_fence() when it is done.
inline void stream_lines(void* to, const void* from, std::int64_t lines) {
  char* out = static_cast<char*>(to);
  const char* in = static_cast<const char*>(from);
#if defined(__AVX512F__)
  for (std::int64_t i = 0; i < lines * kCacheLine; i += 64) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(out + i), _mm512_load_si512(in + i));
  }
#elif defined(__SSE2__)
  for (std::int64_t i = 0; i < lines * kCacheLine; i += 16) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(out + i),
                     _mm_load_si128(reinterpret_cast<const __m128i*>(in + i)));
  }
#else
  std::memcpy(out, in, static_cast<std::size_t>(lines * kCacheLine));
#endif
}

inline void stream_fence() {
#ifdef __SSE2__
  _mm_sfence();
#endif
}

}  // namespace steelyard::kernels
