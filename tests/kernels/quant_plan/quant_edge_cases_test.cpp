// Calls at the edges of what QuantPlan accepts, on the device of the program this is linked into.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "steelyard/kernels/quant_plan/quant_plan.h"
#include "tests/kernels/quant_plan/quant_device.h"
#include "tests/kernels/quant_plan/quant_values.h"

namespace steelyard::kernels {
namespace {

using test::fake_quantize;
using test::OnDevice;

// Scales with and without quick multiples (multiples.h); values at ties and beside them.
template <typename T>
void check_scale(T scale) {
  constexpr std::int32_t kZeroPoint = 20;
  std::vector<T> x;
  for (int code = -40; code < 280; ++code) {
    const T tie = (static_cast<T>(code) + T(0.5)) * scale;
    x.insert(x.end(), {std::nextafter(tie, -tie), tie, std::nextafter(tie, 2 * tie)});
  }
  QuantDescriptor d = fake_quantize({static_cast<std::int64_t>(x.size())});
  d.spec.value_type = std::is_same_v<T, double> ? ValueType::kF64 : ValueType::kF32;
  const OnDevice values = OnDevice::of(x), y = OnDevice::of(x);
  const OnDevice scales = OnDevice::of(std::vector<T>{scale});
  const OnDevice zero_point = OnDevice::of(std::vector<std::int32_t>{kZeroPoint});
  QuantArrays arrays;
  arrays.x = values.span();
  arrays.y = y.span();
  arrays.scale = scales.span();
  arrays.zero_point = zero_point.span<std::int32_t>();
  QuantPlan::select(d, test::device()).run(nullptr, {}, arrays);
  const CodeGrid<T> p = make_code_grid(d.spec.range, scale, kZeroPoint);
  const std::vector<T> result = y.host<T>();
  for (std::size_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(result[i], fake_quantize_value(x[i], p)) << x[i] << " / " << scale;
  }
}

TEST(QuantEdge, ScalesOfEverySize) {
  for (const float scale : {1e-40F, 1.11F * 0x1p-126F, 1.11F * 0x1p-61F, 1.11F * 0x1p-60F, 0.013F,
                            1.11F * 0x1p59F, 1.11F * 0x1p60F, 1.11F * 0x1p110F}) {
    check_scale(scale);
  }
  for (const double scale : {1e-310, 1.11 * 0x1p-1022, 1.11 * 0x1p-501, 1.11 * 0x1p-500, 0.013,
                             1.11 * 0x1p499, 1.11 * 0x1p500, 1.11 * 0x1p1010}) {
    check_scale(scale);
  }
}

// Values one element and codes one byte behind what allocations begin at.
TEST(QuantEdge, ArraysMayBeginAnywhere) {
  constexpr std::int64_t kSize = 43;
  std::vector<float> values;
  for (int i = 0; i <= kSize; ++i) values.push_back(0.37F * static_cast<float>(i % 11 - 5));
  for (const CodeType type :
       {CodeType::kU8, CodeType::kS8, CodeType::kU4, CodeType::kS4, CodeType::kU2, CodeType::kS2}) {
    QuantDescriptor d = fake_quantize({kSize});
    d.spec.code_type = type;
    d.spec.range = whole_range(type);
    const OnDevice x = OnDevice::of(values), y = OnDevice::of(values);
    const OnDevice codes(std::vector<std::uint8_t>(kSize + 1, 0));
    const OnDevice scale = OnDevice::of(std::vector<float>{0.25F});
    const OnDevice zero_point = OnDevice::of(std::vector<std::int32_t>{1});
    QuantArrays arrays;
    arrays.x = x.span<float>(1);
    arrays.codes = codes.span(1);
    arrays.scale = scale.span();
    arrays.zero_point = zero_point.span<std::int32_t>();
    d.spec.operation = QuantOperation::kQuantize;
    QuantPlan::select(d, test::device()).run(nullptr, {}, arrays);
    arrays.x = nullptr;
    arrays.y = y.span<float>(1);
    d.spec.operation = QuantOperation::kDequantize;
    QuantPlan::select(d, test::device()).run(nullptr, {}, arrays);
    const CodeGrid<float> p = make_code_grid(d.spec.range, 0.25F, 1);
    const std::vector<float> result = y.host<float>();
    for (std::size_t i = 1; i < result.size(); ++i) {
      ASSERT_EQ(result[i], fake_quantize_value(values[i], p)) << "element " << i;
    }
  }
}

// More elements than the threads of a large GPU have at once, eight each.
TEST(QuantEdge, ThreadsGoOnInLargeArrays) {
  constexpr std::int64_t kSize = (std::int64_t{7} << 19) + 3;
  std::vector<float> values(kSize), gradients(kSize);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = 0.001F * static_cast<float>(i * 7919 % 4001) - 1.5F;
    gradients[i] = static_cast<float>(i % 97) - 48.0F;
  }
  values[kSize - 1] = -3.25F;  // the extremes: in the last span and in a thread's later one
  values[kSize / 2] = 4.5F;
  QuantDescriptor d = fake_quantize({kSize});
  d.spec.statistics = Statistics::kCurrent;
  d.spec.averaging_constant = 1;
  const QuantPlan forward = QuantPlan::select(d, test::device());
  const OnDevice x = OnDevice::of(values), y = OnDevice::of(values);
  const OnDevice scale = OnDevice::of(std::vector<float>{1}),
                 lo = OnDevice::of(std::vector<float>{0}), hi = OnDevice::of(std::vector<float>{0});
  const OnDevice zero_point = OnDevice::of(std::vector<std::int32_t>{0});
  const OnDevice initialized(std::vector<std::uint8_t>(1, 1));
  const OnDevice workspace(std::vector<std::uint8_t>(forward.workspace_bytes(), 0));
  QuantArrays arrays;
  arrays.x = x.span();
  arrays.y = y.span();
  arrays.scale = scale.span();
  arrays.zero_point = zero_point.span<std::int32_t>();
  arrays.range_lo = lo.span();
  arrays.range_hi = hi.span();
  arrays.initialized = initialized.span<std::uint8_t>();
  forward.run(nullptr, workspace.span(), arrays);
  EXPECT_EQ(lo.host<float>()[0], -3.25F);
  EXPECT_EQ(hi.host<float>()[0], 4.5F);
  const CodeGrid<float> p =
      make_code_grid(d.spec.range, scale.host<float>()[0], zero_point.host<std::int32_t>()[0]);
  const std::vector<float> result = y.host<float>();
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(result[i], fake_quantize_value(values[i], p)) << "element " << i;
  }

  QuantDescriptor backward = fake_quantize({kSize});
  backward.spec.direction = QuantDirection::kBackward;
  const OnDevice grad_y = OnDevice::of(gradients), grad_x = OnDevice::of(gradients);
  const OnDevice narrow = OnDevice::of(std::vector<float>{0.005F});
  arrays = {};
  arrays.x = x.span();
  arrays.grad_y = grad_y.span();
  arrays.grad_x = grad_x.span();
  arrays.scale = narrow.span();
  arrays.zero_point = zero_point.span<std::int32_t>();
  QuantPlan::select(backward, test::device()).run(nullptr, {}, arrays);
  const CodeGrid<float> clips =
      make_code_grid(d.spec.range, 0.005F, zero_point.host<std::int32_t>()[0]);
  const std::vector<float> passed = grad_x.host<float>();
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(passed[i], is_inside(values[i], clips) ? gradients[i] : 0.0F) << "element " << i;
  }
}

TEST(QuantEdge, NoParameterSetsNeedNoArrays) {
  for (const Statistics statistics :
       {Statistics::kGiven, Statistics::kDynamic, Statistics::kCurrent, Statistics::kDelayed}) {
    QuantDescriptor d = fake_quantize({3, 0, 5});
    d.granularity = Granularity::kChannel;
    d.options.axis = 1;
    d.spec.statistics = statistics;
    const QuantPlan plan = QuantPlan::select(d, test::device());
    EXPECT_TRUE(plan.can_implement({}));
    EXPECT_TRUE(plan.can_implement({}, true));
    plan.run(nullptr, {}, {});
    if (statistics == Statistics::kGiven) run_batch(nullptr, {{&plan, {}}, {&plan, {}}});
  }
}

TEST(QuantEdge, MaskAloneGivesTheGradientOfFakeQuantize) {
  for (const auto granularity :
       {Granularity::kTensor, Granularity::kChannel, Granularity::kGroup}) {
    QuantDescriptor d = fake_quantize({90, 12});
    d.spec.direction = QuantDirection::kBackward;
    d.granularity = granularity;
    d.options = {.axis = 1, .group_size = 5};
    const QuantPlan plan = QuantPlan::select(d, test::device());
    const OnDevice grad_y = OnDevice::of(std::vector<float>(1080, 3));
    const OnDevice grad_x = OnDevice::of(std::vector<float>(1080, 9));
    const OnDevice mask(std::vector<std::uint8_t>(135, 0x0F));
    QuantArrays arrays;
    arrays.grad_y = grad_y.span();
    arrays.grad_x = grad_x.span();
    arrays.mask = mask.span<std::uint8_t>();
    ASSERT_TRUE(plan.can_implement(arrays));
    plan.run(nullptr, {}, arrays);
    const std::vector<float> result = grad_x.host<float>();
    for (std::size_t i = 0; i < result.size(); ++i) {
      ASSERT_EQ(result[i], i % 8 < 4 ? 3 : 0) << "element " << i;
    }
  }
}

TEST(QuantEdge, CheckOfParametersLeavesOutWhatTheCallWrites) {
  const OnDevice x = OnDevice::of(std::vector<float>(4, 1));
  const OnDevice scale = OnDevice::of(std::vector<float>{std::nanf("")});
  const OnDevice zero_point = OnDevice::of(std::vector<std::int32_t>{-7});
  const OnDevice range = OnDevice::of(std::vector<float>{1, -1});
  const OnDevice initialized(std::vector<std::uint8_t>{0});
  QuantArrays arrays;
  arrays.x = x.span();
  arrays.y = x.span();
  arrays.scale = scale.span();
  arrays.zero_point = zero_point.span<std::int32_t>();
  arrays.range_lo = range.span<float>(0, 1);
  arrays.range_hi = range.span<float>(1, 1);
  arrays.initialized = initialized.span<std::uint8_t>();
  QuantDescriptor d = fake_quantize({4});
  const auto checked = [&](Statistics statistics) {
    d.spec.statistics = statistics;
    return QuantPlan::select(d, test::device()).can_implement(arrays, true);
  };
  EXPECT_FALSE(checked(Statistics::kGiven));
  EXPECT_TRUE(checked(Statistics::kDynamic));
  EXPECT_TRUE(checked(Statistics::kCurrent));
  const std::uint8_t begun = 1;
  test::copy_to_device(initialized.get(), &begun, 1);
  EXPECT_FALSE(checked(Statistics::kDelayed));
}

TEST(QuantEdge, AnAveragingConstantOfOneIsTheLastCall) {
  QuantDescriptor d = fake_quantize({2});
  d.spec.statistics = Statistics::kCurrent;
  d.spec.averaging_constant = 1;
  const QuantPlan plan = QuantPlan::select(d, test::device());
  const OnDevice scale = OnDevice::of(std::vector<float>{9});
  const OnDevice zero_point = OnDevice::of(std::vector<std::int32_t>{9});
  const OnDevice range = OnDevice::of(std::vector<float>{1, -1});
  const OnDevice initialized(std::vector<std::uint8_t>{0});
  const OnDevice workspace(std::vector<std::uint8_t>(plan.workspace_bytes()));
  for (const std::vector<float>& values : {std::vector<float>{-1e30F, 1e30F}, {-0.3F, 0.4F}}) {
    const OnDevice x = OnDevice::of(values);
    QuantArrays arrays;
    arrays.x = x.span();
    arrays.y = x.span();
    arrays.scale = scale.span();
    arrays.zero_point = zero_point.span<std::int32_t>();
    arrays.range_lo = range.span<float>(0, 1);
    arrays.range_hi = range.span<float>(1, 1);
    arrays.initialized = initialized.span<std::uint8_t>();
    plan.run(nullptr, workspace.span(), arrays);
  }
  EXPECT_EQ(range.host<float>(), (std::vector<float>{-0.3F, 0.4F}));
}

}  // namespace
}  // namespace steelyard::kernels
