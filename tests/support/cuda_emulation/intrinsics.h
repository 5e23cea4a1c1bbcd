// Device functions of one thread: atomics, bits, cached loads and stores. Threads change only where
// they wait, so the atomics are plain; overloads exist for the types that CUDA takes, no others.
#pragma once

#include <algorithm>
#include <bit>
#include <type_traits>

namespace steelyard::emulation {

template <typename T, typename Operation>
T exchange_with(T* address, Operation operation) {
  const T old = *address;
  *address = operation(old);
  return old;
}

}  // namespace steelyard::emulation

#define STEELYARD_EMULATED_ATOMIC(name, type, expression)                            \
  inline type name(type* address, type value) {                                      \
    return steelyard::emulation::exchange_with(                                      \
        address, [value]([[maybe_unused]] type old) -> type { return expression; }); \
  }
#define STEELYARD_EMULATED_ATOMICS(type)                           \
  STEELYARD_EMULATED_ATOMIC(atomicMin, type, std::min(old, value)) \
  STEELYARD_EMULATED_ATOMIC(atomicMax, type, std::max(old, value)) \
  STEELYARD_EMULATED_ATOMIC(atomicOr, type, old | value)           \
  STEELYARD_EMULATED_ATOMIC(atomicAnd, type, old& value)           \
  STEELYARD_EMULATED_ATOMIC(atomicXor, type, old ^ value)
#define STEELYARD_EMULATED_EXCHANGES(type)                                \
  STEELYARD_EMULATED_ATOMIC(atomicExch, type, value)                      \
  inline type atomicCAS(type* address, type compare, type value) {        \
    return steelyard::emulation::exchange_with(                           \
        address, [=](type old) { return old == compare ? value : old; }); \
  }

STEELYARD_EMULATED_ATOMICS(int)
STEELYARD_EMULATED_ATOMICS(unsigned)
STEELYARD_EMULATED_ATOMICS(long long)
STEELYARD_EMULATED_ATOMICS(unsigned long long)
STEELYARD_EMULATED_EXCHANGES(int)
STEELYARD_EMULATED_EXCHANGES(unsigned)
STEELYARD_EMULATED_EXCHANGES(unsigned long long)
STEELYARD_EMULATED_ATOMIC(atomicExch, float, value)
// Integers wrap around.
STEELYARD_EMULATED_ATOMIC(atomicAdd, int,
                          static_cast<int>(static_cast<unsigned>(old) +
                                           static_cast<unsigned>(value)))
STEELYARD_EMULATED_ATOMIC(atomicAdd, unsigned, old + value)
STEELYARD_EMULATED_ATOMIC(atomicAdd, unsigned long long, old + value)
STEELYARD_EMULATED_ATOMIC(atomicAdd, float, old + value)
STEELYARD_EMULATED_ATOMIC(atomicAdd, double, old + value)
STEELYARD_EMULATED_ATOMIC(atomicInc, unsigned, old >= value ? 0 : old + 1)

#undef STEELYARD_EMULATED_EXCHANGES
#undef STEELYARD_EMULATED_ATOMICS
#undef STEELYARD_EMULATED_ATOMIC

inline void __threadfence() {}
inline void __threadfence_block() {}

// Byte i of the result is the one that the i-th four bits of `selector` name: 0 to 3 of x, 4 to 7
// of y.
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  const unsigned long long bytes = x | static_cast<unsigned long long>(y) << 32;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned byte = selector >> (4 * i) & 7U;
    result |= static_cast<unsigned>(bytes >> (8 * byte) & 0xFFU) << (8 * i);
  }
  return result;
}

// The sum of the products of four signed bytes each, and of `sum`.
inline int __dp4a(int a, int b, int sum) {
  for (int shift = 0; shift < 32; shift += 8) {
    sum += static_cast<std::int8_t>(a >> shift) * static_cast<std::int8_t>(b >> shift);
  }
  return sum;
}

inline int __popc(unsigned x) { return std::popcount(x); }
inline int __popcll(unsigned long long x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __clzll(long long x) { return std::countl_zero(static_cast<unsigned long long>(x)); }
inline int __ffs(int x) { return x == 0 ? 0 : std::countr_zero(static_cast<unsigned>(x)) + 1; }
inline int __ffsll(long long x) {
  return x == 0 ? 0 : std::countr_zero(static_cast<unsigned long long>(x)) + 1;
}

inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline long long __double_as_longlong(double x) { return std::bit_cast<long long>(x); }
inline double __longlong_as_double(long long x) { return std::bit_cast<double>(x); }

template <typename T>
T __ldg(const T* address) {
  return *address;
}
template <typename T>
T __ldcs(const T* address) {
  return *address;
}
template <typename T>
void __stcs(T* address, std::type_identity_t<T> value) {
  *address = value;
}
