#include "steelyard/kernels/cpu/line_buffer.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <set>

namespace steelyard::kernels {
namespace {

// Memory that goes back to the system costs a page fault the next time.
TEST(KeptVectors, UseAgainWhatTheirThreadHad) {
  constexpr std::size_t kSize = 100000;
  const float* first = nullptr;
  const float* second = nullptr;
  {
    KeptVector<float> a, b;
    a.assign(kSize, 1);
    b.assign(kSize, 2);
    first = a.data();
    second = b.data();
    EXPECT_NE(first, second);
  }
  KeptVector<float> a, b;
  a.assign(kSize, 3);
  b.assign(kSize, 4);
  using Addresses = std::set<const float*>;
  EXPECT_EQ((Addresses{a.data(), b.data()}), (Addresses{first, second}));
  EXPECT_EQ(a[0], 3.0F);
  EXPECT_EQ(b[kSize - 1], 4.0F);
}

}  // namespace
}  // namespace steelyard::kernels
