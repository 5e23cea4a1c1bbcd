// Products of groups in tiles against their definition, an output at a time: the same bits.
#include "steelyard/kernels/integer_groups/integer_groups.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>
#include <stdexcept>
#include <type_traits>
#include <vector>

namespace steelyard::kernels {
namespace {

struct GroupsCase {
  std::int64_t rows, columns, terms, group_size, shared_rows;
  bool groups_of_x, zero_points;
};
void PrintTo(const GroupsCase& c, std::ostream* out) {
  *out << c.rows << "x" << c.columns << "x" << c.terms << ", groups of " << c.group_size;
}

// Fewer and more than tiles, vectors and what float adds exactly; one group, ragged last rows.
const GroupsCase kCases[] = {
    {1, 1, 1, 1, 1, false, false},       {5, 17, 12, 3, 1, true, true},
    {64, 64, 64, 32, 1, false, false},   {67, 70, 600, 300, 1, true, false},
    {130, 33, 257, 257, 3, false, true}, {9, 130, 96, 8, 4, true, true},
    {3, 16, 1024, 1024, 1, false, true}};

class IntegerGroups : public ::testing::TestWithParam<GroupsCase> {
 protected:
  // `extreme`: the largest products that there are.
  template <typename Code>
  void check(bool extreme) {
    const GroupsCase& c = GetParam();
    constexpr bool kWide = sizeof(Code) > 1;
    const std::int32_t lo = kWide ? 0 : std::numeric_limits<Code>::min();
    const std::int32_t hi =
        kWide ? 4095 : std::numeric_limits<Code>::max();  // int32 holds the sums
    std::mt19937 random(static_cast<unsigned>(c.rows + c.terms));
    const auto between = [&](std::int32_t a, std::int32_t b) {
      return std::uniform_int_distribution<std::int32_t>(a, b)(random);
    };
    const auto filled = [](std::int64_t n, auto make) {
      std::vector<decltype(make())> values(static_cast<std::size_t>(n));
      for (auto& value : values) value = make();
      return values;
    };
    const std::int64_t groups = c.terms / c.group_size;
    const std::int64_t of_rows = (c.rows + c.shared_rows - 1) / c.shared_rows;
    const std::int64_t x_sets = c.groups_of_x ? of_rows * groups : of_rows;
    const auto x =
        filled(c.rows * c.terms, [&] { return static_cast<Code>(extreme ? hi : between(lo, hi)); });
    const auto w = filled(c.columns * c.terms, [&] {
      return static_cast<std::int8_t>(extreme ? 127 : between(-128, 127));
    });
    const auto scale = [&] { return static_cast<float>(between(1, 1000)) * 1e-4F; };
    const auto x_scales = filled(x_sets, scale), w_scales = filled(c.columns * groups, scale);
    const auto x_zeros = filled(x_sets, [&] { return extreme ? lo : between(lo, hi); });
    const auto w_zeros =
        filled(c.columns * groups, [&] { return extreme ? -128 : between(-128, 127); });
    const auto bias = filled(c.columns, scale);
    const std::int64_t stride = c.columns + 2;
    std::vector<float> expected(static_cast<std::size_t>(c.rows * stride), 7.0F);
    std::vector<float> got = expected;
    const std::int64_t step = c.groups_of_x ? groups : 1;
    GroupedProduct<Code> product{
        .rows = c.rows,
        .columns = c.columns,
        .terms = c.terms,
        .group_size = c.group_size,
        .stride = stride,
        .x = x.data(),
        .of_x = {x_scales.data(), x_zeros.data(), step, step > 1 ? 1 : 0, c.shared_rows},
        .w = w.data(),
        .of_w = {w_scales.data(), c.zero_points ? w_zeros.data() : nullptr, groups,
                 groups > 1 ? 1 : 0, 1},
        .bias = c.rows % 2 == 0 ? bias.data() : nullptr,
        .y = expected.data(),
        .largest = std::int64_t{hi - lo} * (c.zero_points ? 255 : 128)};
    for (std::int64_t r = 0; r < c.rows; ++r) {
      for (std::int64_t o = 0; o < c.columns; ++o) product.one(r, o);
    }
    product.y = got.data();
    run(product);
    EXPECT_EQ(std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)), 0);
  }
};

TEST_P(IntegerGroups, AreAddedAsDefined) {
  for (const bool extreme : {false, true}) {
    check<std::int8_t>(extreme);
    check<std::uint8_t>(extreme);
    check<std::int32_t>(extreme);
  }
}

// 255 * 127 products of 8 bits fit int32 66,311 times.
TEST(IntegerGroupsErrors, SumsThatInt32CannotHold) {
  constexpr std::int64_t kMost = 66311;
  const std::vector<std::uint8_t> x(kMost + 1, 255);
  const std::vector<std::int8_t> w(kMost + 1, 127);
  const float one = 1;
  const std::int32_t zero = 0;
  float y = 0;
  GroupedProduct<std::uint8_t> product{.rows = 1,
                                       .columns = 1,
                                       .terms = kMost,
                                       .group_size = kMost,
                                       .stride = 1,
                                       .x = x.data(),
                                       .of_x = {&one, &zero, 1, 0, 1},
                                       .w = w.data(),
                                       .of_w = {&one, nullptr, 1, 0, 1},
                                       .bias = nullptr,
                                       .y = &y,
                                       .largest = 255 * 127};
  run(product);
  EXPECT_EQ(y, static_cast<float>(kMost * 255 * 127));
  ++product.terms, ++product.group_size;
  EXPECT_THROW(run(product), std::invalid_argument);
}

INSTANTIATE_TEST_SUITE_P(Shapes, IntegerGroups, ::testing::ValuesIn(kCases));

}  // namespace
}  // namespace steelyard::kernels
