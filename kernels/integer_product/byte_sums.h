// Codes of 8 bits by weights of 8 bits, with AVX2.
#pragma once

#if defined(__AVX2__) && !defined(__AVX512BW__)
#include <immintrin.h>

#include <cstdint>

#include "steelyard/kernels/integer_product/quad_lanes.h"

namespace steelyard::kernels {

// vpmaddubsw multiplies 2 unsigned codes by 2 signed weights and adds the products in int16, where
// they would saturate if the weights' sum exceeded kMostOfPair. So the weights of such a pair are
// divided: the tile has what fits, and a second product has the rest (packed_weights.h). A quarter
// fewer instructions than PairSums need, for half of the bytes.
struct ByteSums : QuadLanes {
  static constexpr int kMostOfPair = 128;  // times 255 it fits int16

  static Lanes add_products(Lanes sums, Lanes codes, Weights weights) {
    const Lanes pairs = _mm256_maddubs_epi16(codes, weights);
    return _mm256_add_epi32(sums, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  }
  // Whether no pair of a vector's weights is too much.
  static bool fits(const Weight* weights) {
    const Lanes pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), load_weights(weights));
    const Lanes most = _mm256_set1_epi16(kMostOfPair);
    return _mm256_movemask_epi8(_mm256_cmpgt_epi16(_mm256_abs_epi16(pairs), most)) == 0;
  }

  // What is taken from the first weight of a pair; 0 where the pair fits. Others have one sign,
  // which neither changes.
  static std::int8_t too_much(std::int8_t a, std::int8_t b) {
    const int sum = a + b;
    if (sum > kMostOfPair) return static_cast<std::int8_t>(sum - kMostOfPair);
    return static_cast<std::int8_t>(sum < -kMostOfPair ? sum + kMostOfPair : 0);
  }
};

}  // namespace steelyard::kernels
#endif
