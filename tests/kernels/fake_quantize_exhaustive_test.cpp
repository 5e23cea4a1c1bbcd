// Every bit pattern of a float through what a training step runs on the CPU: codes and mask, the
// values of the codes, the gradient behind the mask. Against an oracle that divides and multiplies
// in double and rounds once to float. (The operation in one piece, as a plan runs it, is compared
// to the same formulas by quant_plan_test and affine_test.)
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <vector>

#include "steelyard/kernels/cpu/parallel.h"
#include "steelyard/kernels/fake_quantize/fake_quantize.h"

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
  std::int32_t code;
  float y;
  float gradient;
};

// (float)(double quotient) is the correctly rounded float quotient: 53 >= 2 * 24 + 2 bits. NaN has
// the code and so the value of zero, and its gradient passes.
Expected oracle(float x, const Parameters& p) {
  const float quotient = static_cast<float>(static_cast<double>(x) / static_cast<double>(p.scale));
  const float z = static_cast<float>(p.zero_point);
  const float code = std::rint(quotient) + z;
  const bool below = code < static_cast<float>(p.range.qmin);
  const bool above = code > static_cast<float>(p.range.qmax);
  const float clamped =
      below ? static_cast<float>(p.range.qmin) : (above ? static_cast<float>(p.range.qmax) : code);
  const float kept = clamped == clamped ? clamped : z;
  const double product = (static_cast<double>(kept) - z) * static_cast<double>(p.scale);
  return {static_cast<std::int32_t>(kept), static_cast<float>(product),
          below || above ? 0.0F : 1.0F};
}

bool same_bits(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

struct Found {
  std::int64_t wrong;
  std::int64_t nan;
};

template <typename Code>
Found look_at_chunk(std::uint64_t first, std::int64_t count, const Parameters& p) {
  static thread_local std::vector<float> x(kChunk), y(kChunk), gradient(kChunk);
  static thread_local const std::vector<float> ones(kChunk, 1.0F);
  static thread_local std::vector<Code> codes(kChunk);
  static thread_local std::vector<std::uint8_t> mask(static_cast<std::size_t>(mask_bytes(kChunk)));
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint64_t pattern = (first + static_cast<std::uint64_t>(i)) * kStride;
    x[i] = std::bit_cast<float>(static_cast<std::uint32_t>(pattern));
  }
  const ChannelLayout layout = ChannelLayout::per_tensor(count);
  std::int64_t nan = 0;
  run(Quantize<float, Code>{layout, p.range, x.data(), &p.scale, &p.zero_point, codes.data(),
                            mask.data(), &nan});
  run(Dequantize<float, Code>{layout, codes.data(), &p.scale, &p.zero_point, y.data()});
  run(ApplyMask<float>{count, mask.data(), ones.data(), gradient.data()});
  std::int32_t wrong = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const Expected expected = oracle(x[i], p);
    // Sums, without branches.
    wrong += (codes[i] == expected.code ? 0 : 1) + (same_bits(y[i], expected.y) ? 0 : 1) +
             (gradient[i] == expected.gradient ? 0 : 1);
  }
  return {wrong, nan};
}

Found look_at_every_float(const Parameters& p) {
  const std::int64_t patterns =
      static_cast<std::int64_t>(((std::uint64_t{1} << 32) + kStride - 1) / kStride);
  std::atomic<std::int64_t> wrong{0}, nan{0};
  parallel_for((patterns + kChunk - 1) / kChunk, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t chunk = begin; chunk < end; ++chunk) {
      const std::int64_t first = chunk * kChunk;
      const std::int64_t count = std::min(kChunk, patterns - first);
      const auto at = static_cast<std::uint64_t>(first);
      const Found found = p.range.qmin < 0 ? look_at_chunk<std::int8_t>(at, count, p)
                                           : look_at_chunk<std::uint8_t>(at, count, p);
      wrong += found.wrong;
      nan += found.nan;
    }
  });
  return {wrong.load(), nan.load()};
}

void expect_no_mismatch(const Parameters& p) {
  const Found found = look_at_every_float(p);
  EXPECT_EQ(found.wrong, 0) << "scale " << p.scale << ", zero point " << p.zero_point;
  if (kStride == 1) {
    EXPECT_EQ(found.nan, 2 * ((1 << 23) - 1));
  }
}

TEST(FakeQuantizeExhaustive, EveryFloatAgreesWithTheOracle) {
  // Multiplying by 1 / 0.3F instead of dividing would give 64 wrong values; 1 / 0.1F is exactly 10
  // and would hide it.
  expect_no_mismatch({0.3F, 117, {0, 255}});
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
    expect_no_mismatch(p);
  }
}

}  // namespace
}  // namespace steelyard::kernels
