// Codes of 8 bits by weights of 8 bits, with VNNI.
#pragma once

#if defined(__AVX2__)
#include "steelyard/kernels/instructions.h"
#include "steelyard/kernels/integer_product/quad_lanes.h"

namespace steelyard::kernels {

// vpdpbusd multiplies 4 unsigned codes a lane by 4 signed weights and adds the products in int32.
// None saturates; a sum may wrap on its way, and then wraps back. The instruction is written out:
// its intrinsic needs a function, and all that it calls, compiled for VNNI. Only where usable().
struct QuadSums : QuadLanes {
#if defined(__AVX512BW__)
  static bool usable() { return has_vnni(); }
  static Lanes add_products(Lanes sums, Lanes codes, Weights weights) {
    asm("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(codes), "v"(weights));
    return sums;
  }
#else
  static bool usable() { return has_avx_vnni(); }
  static Lanes add_products(Lanes sums, Lanes codes, Weights weights) {
    asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sums) : "x"(codes), "x"(weights));
    return sums;
  }
#endif
};

}  // namespace steelyard::kernels
#endif
