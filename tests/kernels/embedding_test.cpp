#include "steelyard/kernels/embedding/embedding.h"

#include "tests/kernels/float_support.h"

namespace steelyard::kernels {
namespace {

using test::random_values;

template <typename T>
class EmbeddingKernel : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(EmbeddingKernel, Types);

TYPED_TEST(EmbeddingKernel, GathersRowsAndAddsTheirGradientsInOrder) {
  using T = TypeParam;
  constexpr std::int64_t kExtent = 7;
  for (const std::int64_t outer : {1, 3, 40}) {
    for (const std::int64_t width : {0, 1, 5, 300}) {
      for (const std::int64_t count : {0, 1, 900}) {
        const auto x = random_values<T>(outer * kExtent * width, 1),
                   dy = random_values<T>(outer * count * width, 2);
        std::vector<std::int64_t> indices(count);
        for (std::int64_t i = 0; i < count; ++i)
          indices[i] = i * i % (kExtent - 1);  // the last: unused
        std::vector<T> y(dy.size()), grad(x.size(), T(9)), expected(x.size());
        run(Gather<T>{outer * count, width, count, kExtent, indices.data(), x.data(), y.data()});
        run(GatherBackward<T>{outer, count, width, kExtent, indices.data(), dy.data(),
                              grad.data()});
        for (std::int64_t i = 0; i < std::ssize(y); ++i) {
          const std::int64_t row = i / width, o = row / count;
          const std::int64_t at = (o * kExtent + indices[row % count]) * width + i % width;
          ASSERT_EQ(y[i], x[at]);
          expected[at] += dy[i];
        }
        EXPECT_EQ(grad, expected);
      }
    }
  }
}

TYPED_TEST(EmbeddingKernel, AnIndexOutsideIsNaNAndHasNoGradient) {
  using T = TypeParam;
  const std::vector<T> table{1, 2, 3, 4}, dy{5, 6, 7, 8, 9, 10};
  const std::vector<std::int64_t> indices{-1, 1, 2};
  std::vector<T> y(6), grad(4, T(9));
  run(Gather<T>{3, 2, 3, 2, indices.data(), table.data(), y.data()});
  run(GatherBackward<T>{1, 3, 2, 2, indices.data(), dy.data(), grad.data()});
  EXPECT_EQ((std::vector<T>{y[2], y[3]}), (std::vector<T>{3, 4}));
  for (const int i : {0, 1, 4, 5}) EXPECT_TRUE(std::isnan(y[static_cast<std::size_t>(i)]));
  EXPECT_EQ(grad, (std::vector<T>{0, 0, 7, 8}));
}

TYPED_TEST(EmbeddingKernel, GradientsDoNotDependOnTheThreadCount) {
  using T = TypeParam;
  const auto dy = random_values<T>(6 * 900 * 40, 2);
  std::vector<std::int64_t> indices(900);
  for (std::int64_t i = 0; i < 900; ++i) indices[i] = i * i % 7;
  test::expect_same_for_any_thread_count([&] {
    std::vector<T> grad(6 * 7 * 40);
    run(GatherBackward<T>{6, 900, 40, 7, indices.data(), dy.data(), grad.data()});
    return grad;
  });
}

TYPED_TEST(EmbeddingKernel, RoundsToIndicesHalvesToEven) {
  using T = TypeParam;
  const std::vector<T> x{T(0), T(0.5), T(1.5), T(2.4), T(-0.4), T(-0.6), T(NAN), T(INFINITY)};
  std::vector<std::int64_t> indices(x.size(), 99);
  run(RoundToIndices<T>{std::ssize(x), x.data(), indices.data()});
  EXPECT_EQ(indices, (std::vector<std::int64_t>{0, 0, 2, 2, 0, -1, -1, -1}));
}

}  // namespace
}  // namespace steelyard::kernels
