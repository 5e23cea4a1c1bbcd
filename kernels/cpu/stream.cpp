#include "kernels/cpu/stream.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#ifdef __SSE2__
#include <immintrin.h>
#endif

namespace steelyard::kernels {
namespace {

constexpr std::int64_t kLine = 64;

std::int64_t last_level_cache_bytes() {
#ifdef _SC_LEVEL3_CACHE_SIZE
  const std::int64_t bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
  if (bytes > 0) return bytes;
#endif
  return std::int64_t{32} << 20;
}

// Writes whole cache lines; `to` is 64-byte aligned.
void stream_lines(char* to, const char* from, std::int64_t lines) {
#if defined(__AVX512F__)
  for (std::int64_t i = 0; i < lines * kLine; i += kLine) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to + i), _mm512_loadu_si512(from + i));
  }
#elif defined(__SSE2__)
  for (std::int64_t i = 0; i < lines * kLine; i += 16) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + i),
                     _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i)));
  }
#else
  std::memcpy(to, from, static_cast<std::size_t>(lines * kLine));
#endif
}

}  // namespace

bool exceeds_cache(std::int64_t bytes) {
  static const std::int64_t limit = last_level_cache_bytes();
  return bytes > limit;
}

void stream_copy(void* to, const void* from, std::int64_t count) {
  char* out = static_cast<char*>(to);
  const char* in = static_cast<const char*>(from);
  const std::int64_t misaligned = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(out) %
                                                            static_cast<std::uintptr_t>(kLine));
  const std::int64_t head = std::min(count, (kLine - misaligned) % kLine);
  const std::int64_t lines = (count - head) / kLine;
  const std::int64_t body = head + lines * kLine;
  std::memcpy(out, in, static_cast<std::size_t>(head));
  stream_lines(out + head, in + head, lines);
  std::memcpy(out + body, in + body, static_cast<std::size_t>(count - body));
}

void stream_fence() {
#ifdef __SSE2__
  _mm_sfence();
#endif
}

}  // namespace steelyard::kernels
