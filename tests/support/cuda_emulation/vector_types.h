// CUDA's small vectors. A device refuses to load or store one at an address that is no multiple of
// its size, so every copy of one is checked here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace steelyard::emulation {

inline void require_aligned(std::uintptr_t address, std::size_t bytes) {
  asm("" : "+r"(address));  // or compilers take the type's alignment for granted
  if (address % bytes == 0) return;
  throw std::logic_error("misaligned address: a vector of " + std::to_string(bytes) +
                         " bytes lies " + std::to_string(address % bytes) + " bytes off");
}

// A base that checks where its vector is read and written.
template <std::size_t bytes>
struct Aligned {
  Aligned() = default;
  Aligned(const Aligned& other) { other.require(); }
  Aligned& operator=(const Aligned& other) {
    require();
    other.require();
    return *this;
  }

 private:
  void require() const { require_aligned(reinterpret_cast<std::uintptr_t>(this), bytes); }
};

}  // namespace steelyard::emulation

struct alignas(8) float2 : steelyard::emulation::Aligned<8> {
  float x, y;
};
struct alignas(16) float4 : steelyard::emulation::Aligned<16> {
  float x, y, z, w;
};
struct alignas(16) double2 : steelyard::emulation::Aligned<16> {
  double x, y;
};
struct alignas(8) int2 : steelyard::emulation::Aligned<8> {
  int x, y;
};
struct alignas(16) int4 : steelyard::emulation::Aligned<16> {
  int x, y, z, w;
};
struct alignas(8) uint2 : steelyard::emulation::Aligned<8> {
  unsigned x, y;
};
struct uint3 {
  unsigned x, y, z;
};
struct alignas(16) uint4 : steelyard::emulation::Aligned<16> {
  unsigned x, y, z, w;
};
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
};

inline float2 make_float2(float x, float y) { return {{}, x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {{}, x, y, z, w}; }
inline double2 make_double2(double x, double y) { return {{}, x, y}; }
inline int2 make_int2(int x, int y) { return {{}, x, y}; }
inline int4 make_int4(int x, int y, int z, int w) { return {{}, x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {{}, x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {{}, x, y, z, w}; }
