// Calls at the edges of what QuantPlan accepts, on the device of the program this is linked into.
#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <limits>
#include <string>

#include "kernels/quant_plan.h"
#include "tests/kernels/quant_device.h"

namespace steelyard::kernels {
namespace {

using test::OnDevice;

QuantDescriptor fake_quantize(std::vector<std::int64_t> shape) {
  QuantDescriptor d;
  d.shape = std::move(shape);
  return d;
}

std::string refusal(const QuantDescriptor& d) {
  try {
    QuantPlan::select(d, test::device());
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

TEST(QuantEdge, NoParameterSetsNeedNoArrays) {
  for (const Statistics statistics :
       {Statistics::kGiven, Statistics::kDynamic, Statistics::kCurrent, Statistics::kDelayed}) {
    QuantDescriptor d = fake_quantize({3, 0, 5});
    d.granularity = Granularity::kChannel;
    d.options.axis = 1;
    d.statistics = statistics;
    const QuantPlan plan = QuantPlan::select(d, test::device());
    EXPECT_EQ(plan.can_implement({}), "");
    EXPECT_EQ(plan.can_implement({}, true), "");
    plan.run(nullptr, nullptr, {});
    if (statistics == Statistics::kGiven) run_batch(nullptr, {{&plan, {}}, {&plan, {}}});
  }
}

TEST(QuantEdge, MaskAloneGivesTheGradientOfFakeQuantize) {
  for (const auto granularity :
       {Granularity::kTensor, Granularity::kChannel, Granularity::kGroup}) {
    QuantDescriptor d = fake_quantize({90, 12});
    d.direction = QuantDirection::kBackward;
    d.granularity = granularity;
    d.options = {.axis = 1, .group_size = 5};
    const QuantPlan plan = QuantPlan::select(d, test::device());
    const OnDevice grad_y = OnDevice::of(std::vector<float>(1080, 3));
    const OnDevice grad_x = OnDevice::of(std::vector<float>(1080, 9));
    const OnDevice mask(std::vector<std::uint8_t>(135, 0x0F));
    QuantArgs args;
    args.grad_y = grad_y.get();
    args.grad_x = grad_x.get();
    args.mask = mask.get<std::uint8_t>();
    ASSERT_EQ(plan.can_implement(args), "");
    plan.run(nullptr, nullptr, args);
    const std::vector<float> result = grad_x.host<float>();
    for (std::size_t i = 0; i < result.size(); ++i) {
      ASSERT_EQ(result[i], i % 8 < 4 ? 3 : 0) << "element " << i;
    }
  }
}

TEST(QuantEdge, GroupsMayBeLargerThanAnyAxis) {
  QuantDescriptor d = fake_quantize({4, 10});
  d.granularity = Granularity::kGroup;
  d.options = {.axis = 1, .group_size = std::numeric_limits<std::int64_t>::max()};
  EXPECT_EQ(QuantPlan::select(d, test::device()).num_parameter_sets(), 4);
}

TEST(QuantEdge, StridesMayBeNegativeAndMustNotOverlap) {
  QuantDescriptor d = fake_quantize({4, 4});
  for (const std::vector<std::int64_t>& strides :
       std::vector<std::vector<std::int64_t>>{{4, 1}, {-4, 1}, {1, -4}, {9, 2}}) {
    d.strides = strides;
    EXPECT_EQ(refusal(d), "");
  }
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  for (const std::vector<std::int64_t>& strides : std::vector<std::vector<std::int64_t>>{
           {1, 1}, {3, 1}, {-1, 1}, {0, 1}, {kMost, 1}, {kMost / 3, 1}, {-kMost - 1, 1}}) {
    d.strides = strides;
    EXPECT_NE(refusal(d).find("passes over what the smaller ones reach"), std::string::npos)
        << shape_text(strides) << ": " << refusal(d);
  }
  d.shape = {3, 0};  // no element lies anywhere
  d.strides = {0, 1};
  EXPECT_EQ(refusal(d), "");
  d.shape = {1, 4};
  EXPECT_EQ(refusal(d), "");
}

TEST(QuantEdge, CheckOfParametersLeavesOutWhatTheCallWrites) {
  const OnDevice x = OnDevice::of(std::vector<float>(4, 1));
  const OnDevice scale = OnDevice::of(std::vector<float>{std::nanf("")});
  const OnDevice zero_point = OnDevice::of(std::vector<std::int32_t>{-7});
  const OnDevice range = OnDevice::of(std::vector<float>{1, -1});
  const OnDevice initialised(std::vector<std::uint8_t>{0});
  QuantArgs args;
  args.x = x.get();
  args.y = x.get();
  args.scale = scale.get();
  args.zero_point = zero_point.get<std::int32_t>();
  args.range_lo = range.get<float>();
  args.range_hi = range.get<float>() + 1;
  args.initialised = initialised.get<std::uint8_t>();
  QuantDescriptor d = fake_quantize({4});
  const auto checked = [&](Statistics statistics) {
    d.statistics = statistics;
    return QuantPlan::select(d, test::device()).can_implement(args, true);
  };
  EXPECT_NE(checked(Statistics::kGiven), "");
  EXPECT_EQ(checked(Statistics::kDynamic), "");
  EXPECT_EQ(checked(Statistics::kCurrent), "");
  const std::uint8_t begun = 1;
  test::copy_to_device(initialised.get(), &begun, 1);
  EXPECT_NE(checked(Statistics::kDelayed), "");
}

TEST(QuantEdge, NamesMisusedMemory) {
  QuantDescriptor d = fake_quantize({4});
  d.operation = QuantOperation::kQuantize;
  const OnDevice memory(std::vector<std::uint8_t>(256, 0));
  const OnDevice scale = OnDevice::of(std::vector<float>{1});
  QuantArgs args;
  args.x = memory.get();
  args.codes = memory.get();
  args.scale = scale.get();
  EXPECT_NE(QuantPlan::select(d, test::device()).can_implement(args).find("codes apart from x"),
            std::string::npos);

  d = fake_quantize({4});
  d.direction = QuantDirection::kBackward;
  d.parameter_gradients = true;
  const QuantPlan plan = QuantPlan::select(d, test::device());
  args.codes = nullptr;
  args.grad_y = memory.get<std::uint8_t>() + 64;
  args.grad_x = memory.get<std::uint8_t>() + 128;
  args.grad_scale = memory.get<std::uint8_t>() + 192;
  const OnDevice workspace(std::vector<std::uint8_t>(plan.workspace_bytes() + 16));
  const auto message = [&](void* given) -> std::string {
    try {
      plan.run(nullptr, given, args);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(message(nullptr).find("needs 16 bytes of workspace, got null"), std::string::npos)
      << message(nullptr);
  EXPECT_NE(message(workspace.get<std::uint8_t>() + 8).find("aligned to 16 bytes"),
            std::string::npos);
  EXPECT_EQ(message(workspace.get()), "");
}

TEST(QuantEdge, BatchNamesTheItemWithoutAPlan) {
  try {
    run_batch(nullptr, {{nullptr, {}}});
    FAIL() << "a null plan was accepted";
  } catch (const std::invalid_argument& error) {
    EXPECT_NE(std::string(error.what()).find("item 0: needs a plan"), std::string::npos);
  }
}

TEST(QuantEdge, DenormalDoublesHaveAScaleAndAZeroPoint) {
  QuantDescriptor d = fake_quantize({4, 3});
  d.value_type = ValueType::kF64;
  d.granularity = Granularity::kToken;
  d.statistics = Statistics::kDynamic;
  const std::vector<double> values{0, 5e-324, 0, -5e-324, 0, 0, -1e-320, 1, 0, 0, 1e-310, 3e-310};
  const QuantPlan plan = QuantPlan::select(d, test::device());
  const OnDevice x = OnDevice::of(values);
  const OnDevice y = OnDevice::of(std::vector<double>(12, 9));
  const OnDevice scale = OnDevice::of(std::vector<double>(4, 9));
  const OnDevice zero_point = OnDevice::of(std::vector<std::int32_t>(4, -9));
  const OnDevice workspace(std::vector<std::uint8_t>(plan.workspace_bytes()));
  QuantArgs args;
  args.x = x.get();
  args.y = y.get();
  args.scale = scale.get();
  args.zero_point = zero_point.get<std::int32_t>();
  plan.run(nullptr, workspace.get(), args);
  EXPECT_EQ(zero_point.host<std::int32_t>(), (std::vector<std::int32_t>{0, 0, 0, 0}));
  EXPECT_EQ(scale.host<double>(), (std::vector<double>{DBL_MIN, DBL_MIN, 1.0 / 255, DBL_MIN}));
  EXPECT_EQ(plan.can_implement(args, true), "");
}

TEST(QuantEdge, AveragesOfFarDoublesStayFinite) {
  QuantDescriptor d = fake_quantize({1});
  d.value_type = ValueType::kF64;
  d.statistics = Statistics::kCurrent;
  d.averaging_constant = 0.25;
  const QuantPlan plan = QuantPlan::select(d, test::device());
  const OnDevice scale = OnDevice::of(std::vector<double>{9});
  const OnDevice zero_point = OnDevice::of(std::vector<std::int32_t>{9});
  const OnDevice range = OnDevice::of(std::vector<double>{1, -1});
  const OnDevice initialised(std::vector<std::uint8_t>{0});
  const OnDevice workspace(std::vector<std::uint8_t>(plan.workspace_bytes()));
  for (const double value : {-DBL_MAX, DBL_MAX}) {
    const OnDevice x = OnDevice::of(std::vector<double>{value});
    QuantArgs args;
    args.x = x.get();
    args.y = x.get();
    args.scale = scale.get();
    args.zero_point = zero_point.get<std::int32_t>();
    args.range_lo = range.get<double>();
    args.range_hi = range.get<double>() + 1;
    args.initialised = initialised.get<std::uint8_t>();
    plan.run(nullptr, workspace.get(), args);
  }
  EXPECT_DOUBLE_EQ(range.host<double>()[0], -DBL_MAX / 2);
  EXPECT_DOUBLE_EQ(range.host<double>()[1], -DBL_MAX / 2);
  EXPECT_EQ(zero_point.host<std::int32_t>()[0], 255);
}

TEST(QuantEdge, AnAveragingConstantOfOneIsTheLastCall) {
  QuantDescriptor d = fake_quantize({2});
  d.statistics = Statistics::kCurrent;
  d.averaging_constant = 1;
  const QuantPlan plan = QuantPlan::select(d, test::device());
  const OnDevice scale = OnDevice::of(std::vector<float>{9});
  const OnDevice zero_point = OnDevice::of(std::vector<std::int32_t>{9});
  const OnDevice range = OnDevice::of(std::vector<float>{1, -1});
  const OnDevice initialised(std::vector<std::uint8_t>{0});
  const OnDevice workspace(std::vector<std::uint8_t>(plan.workspace_bytes()));
  for (const std::vector<float>& values : {std::vector<float>{5, 1e30F}, {0.3F, 0.3F}}) {
    const OnDevice x = OnDevice::of(values);
    QuantArgs args;
    args.x = x.get();
    args.y = x.get();
    args.scale = scale.get();
    args.zero_point = zero_point.get<std::int32_t>();
    args.range_lo = range.get<float>();
    args.range_hi = range.get<float>() + 1;
    args.initialised = initialised.get<std::uint8_t>();
    plan.run(nullptr, workspace.get(), args);
  }
  EXPECT_EQ(range.host<float>(), (std::vector<float>{0.3F, 0.3F}));
}

TEST(QuantEdge, GradientFactorOfNoElementsIsZero) {
  EXPECT_EQ(lsq_gradient_factor(0, {0, 255}, false), 0);
  EXPECT_EQ(lsq_gradient_factor(4, {-127, 127}, true), 1 / std::sqrt(4.0 * 127));
  EXPECT_EQ(lsq_gradient_factor(4, {0, 255}, false), 1 / std::sqrt(4.0 * 255));
}

}  // namespace
}  // namespace steelyard::kernels
