// Every bit pattern of a float through forward and backward, against an oracle that divides and
// multiplies in double and rounds once to float.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <vector>

#include "kernels/cpu/parallel.h"
#include "kernels/fake_quantize.h"

namespace steelyard::kernels {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr std::uint64_t kStride = 1021;  // a prime: all exponents and many mantissas
#else
constexpr std::uint64_t kStride = 1;
#endif
constexpr std::int64_t kChunk = 16384;

struct Parameters {
  float scale;
  std::int32_t zero_point;
  CodeRange range;
};

struct Expected {
  float y;
  float gradient;
};

// (float)(double quotient) is the correctly rounded float quotient: 53 >= 2 * 24 + 2 bits.
Expected oracle(float x, const Parameters& p) {
  const float quotient = static_cast<float>(static_cast<double>(x) / static_cast<double>(p.scale));
  const float z = static_cast<float>(p.zero_point);
  const float code = std::rint(quotient) + z;
  const bool below = code < static_cast<float>(p.range.qmin);
  const bool above = code > static_cast<float>(p.range.qmax);
  const float kept =
      below ? static_cast<float>(p.range.qmin) : (above ? static_cast<float>(p.range.qmax) : code);
  const double product = (static_cast<double>(kept) - z) * static_cast<double>(p.scale);
  return {static_cast<float>(product), below || above ? 0.0F : 1.0F};
}

bool same_bits(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) ||
         ((a != a) & (b != b));
}

std::int64_t mismatches_in_chunk(std::uint64_t first, std::int64_t count, const Parameters& p) {
  static thread_local std::vector<float> x(kChunk), y(kChunk), gradient(kChunk);
  static thread_local const std::vector<float> ones(kChunk, 1.0F);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint64_t pattern = (first + static_cast<std::uint64_t>(i)) * kStride;
    x[i] = std::bit_cast<float>(static_cast<std::uint32_t>(pattern));
  }
  const ChannelLayout layout = ChannelLayout::per_tensor(count);
  fake_quantize_forward(layout, p.range, x.data(), &p.scale, &p.zero_point, y.data());
  fake_quantize_backward(layout, p.range, x.data(), &p.scale, &p.zero_point, ones.data(),
                         gradient.data());
  std::int32_t wrong = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const Expected expected = oracle(x[i], p);
    const bool right = same_bits(y[i], expected.y) && gradient[i] == expected.gradient;
    wrong += right ? 0 : 1;
  }
  return wrong;
}

std::int64_t mismatches(const Parameters& p) {
  const std::int64_t patterns =
      static_cast<std::int64_t>(((std::uint64_t{1} << 32) + kStride - 1) / kStride);
  std::atomic<std::int64_t> wrong{0};
  parallel_for((patterns + kChunk - 1) / kChunk, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t chunk = begin; chunk < end; ++chunk) {
      const std::int64_t first = chunk * kChunk;
      wrong += mismatches_in_chunk(static_cast<std::uint64_t>(first),
                                   std::min(kChunk, patterns - first), p);
    }
  });
  return wrong.load();
}

TEST(FakeQuantizeExhaustive, EveryFloatAgreesWithTheOracle) {
  // Multiplying by 1 / 0.3F instead of dividing would give 64 wrong values; 1 / 0.1F is exactly 10
  // and would hide it.
  EXPECT_EQ(mismatches({0.3F, 117, {0, 255}}), 0);
}

TEST(FakeQuantizeExhaustive, EveryFloatAgreesForMoreParameters) {
  if (std::getenv("STEELYARD_LONG_TESTS") == nullptr) {
    GTEST_SKIP() << "set STEELYARD_LONG_TESTS=1 to run";
  }
  const float smallest = std::numeric_limits<float>::min();
  for (const Parameters& p :
       {Parameters{0.05F, -3, {-128, 127}}, Parameters{0.0078125F, 0, {-127, 127}},
        Parameters{smallest, 0, {-8, 7}}, Parameters{2.6e36F, 1, {0, 15}},
        Parameters{0.1F, 7, {0, 15}}, Parameters{1.9999999F, 255, {0, 255}}}) {
    EXPECT_EQ(mismatches(p), 0) << "scale " << p.scale << ", zero point " << p.zero_point;
  }
}

}  // namespace
}  // namespace steelyard::kernels
