// Batches of plans, switches, and what plans refuse, on the device of the program this is linked
// into.
#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>
#include <string>
#include <utility>

#include "steelyard/kernels/quant_plan/quant_plan.h"
#include "tests/kernels/quant_plan/quant_device.h"
#include "tests/kernels/quant_plan/quant_values.h"

namespace steelyard::kernels {
namespace {

using test::fake_quantize;
using test::OnDevice;
using test::wave;

TEST(QuantBatch, GivesWhatEachPlanGives) {
  std::vector<QuantPlan> plans;
  std::vector<OnDevice> x, y, mask, codes, scale, zero_point;
  std::vector<QuantBatchItem> items;
  const int count = 150;  // more than one launch carries
  plans.reserve(count);
  for (int i = 0; i < count; ++i) {
    QuantDescriptor d = fake_quantize({1 + i % 7, 3 + i * 5 % 90});
    if (i % 3 == 1) d.granularity = Granularity::kChannel, d.options.axis = i % 2;
    if (i % 3 == 2) d.operation = QuantOperation::kQuantize;
    plans.push_back(QuantPlan::select(d, test::device()));
    const QuantPlan& plan = plans.back();
    const auto n = static_cast<std::size_t>(plan.elements());
    const auto sets = static_cast<std::size_t>(plan.num_parameter_sets());
    x.push_back(OnDevice::of(wave(plan.elements(), 1.0F + static_cast<float>(i))));
    y.push_back(OnDevice::of(std::vector<float>(n, 9)));
    codes.push_back(OnDevice(std::vector<std::uint8_t>(n, 9)));
    mask.push_back(OnDevice(std::vector<std::uint8_t>((n + 7) / 8, 9)));
    std::vector<float> scales;
    std::vector<std::int32_t> zero_points;
    for (std::size_t set = 0; set < sets; ++set) {
      scales.push_back(0.01F * static_cast<float>(1 + i) + 0.003F * static_cast<float>(set % 50));
      zero_points.push_back(100 + static_cast<std::int32_t>(set % 13));
    }
    scale.push_back(OnDevice::of(scales));
    zero_point.push_back(OnDevice::of(zero_points));
    QuantArgs args;
    args.x = x.back().get();
    if (i % 3 == 2) {
      args.codes = codes.back().get();
    } else {
      args.y = y.back().get();
    }
    args.mask = mask.back().get<std::uint8_t>();
    args.scale = scale.back().get();
    args.zero_point = zero_point.back().get<std::int32_t>();
    items.push_back({&plan, args});
  }
  const auto results = [&] {
    std::vector<std::vector<std::uint8_t>> all;
    for (int i = 0; i < count; ++i) {
      all.push_back(y[i].host());
      all.push_back(codes[i].host());
      all.push_back(mask[i].host());
    }
    return all;
  };
  for (const QuantBatchItem& item : items) item.plan->run(nullptr, nullptr, item.args);
  const auto one_by_one = results();
  test::for_each_order([&] {
    for (int i = 0; i < count; ++i) {
      const std::vector<std::uint8_t> blank(y[i].host().size(), 7);
      test::copy_to_device(y[i].get(), blank.data(), i % 3 == 2 ? 0 : blank.size());
    }
    run_batch(nullptr, items);
    EXPECT_EQ(results(), one_by_one);
  });
  items[40].args.x = nullptr;
  try {
    run_batch(nullptr, items);
    FAIL() << "a null x was accepted";
  } catch (const std::invalid_argument& error) {
    EXPECT_NE(std::string(error.what()).find("item 40"), std::string::npos) << error.what();
  }
  items[3].plan = nullptr;
  EXPECT_THROW(run_batch(nullptr, items), std::invalid_argument);
}

TEST(QuantSwitch, OffPassesGradientsAndLeavesParametersWithout) {
  QuantDescriptor d = fake_quantize({100});
  d.direction = QuantDirection::kBackward;
  d.parameter_gradients = true;
  const QuantPlan plan = QuantPlan::select(d, test::device());
  const std::vector<float> grad = wave(100, 4);
  const OnDevice x = OnDevice::of(wave(100, 1000));
  const OnDevice grad_y = OnDevice::of(grad);
  const OnDevice grad_x = OnDevice::of(std::vector<float>(100, 9));
  const OnDevice scale = OnDevice::of(std::vector<float>{0.1F});
  const OnDevice grad_scale = OnDevice::of(std::vector<float>{9});
  const OnDevice off(std::vector<std::uint8_t>{0});
  const OnDevice workspace(std::vector<std::uint8_t>(plan.workspace_bytes()));
  QuantArgs args;
  args.x = x.get();
  args.grad_y = grad_y.get();
  args.grad_x = grad_x.get();
  args.scale = scale.get();
  args.grad_scale = grad_scale.get();
  args.quantizing = off.get<std::uint8_t>();
  plan.run(nullptr, workspace.get(), args);
  EXPECT_EQ(grad_x.host<float>(), grad);
  EXPECT_EQ(grad_scale.host<float>()[0], 0);
}

TEST(QuantCheck, NamesWhatIsWrongWithTheArguments) {
  const OnDevice memory(std::vector<std::uint8_t>(4096, 0));
  const OnDevice scale = OnDevice::of(std::vector<float>{0.1F, 0.2F, -0.3F});
  const OnDevice zero_point = OnDevice::of(std::vector<std::int32_t>{0, 300, 0});
  QuantDescriptor d = fake_quantize({3, 5});
  d.granularity = Granularity::kChannel;
  d.options.axis = 0;
  const QuantPlan plan = QuantPlan::select(d, test::device());
  QuantArgs args;
  const auto expect = [&](const char* part, bool values = false) {
    EXPECT_NE(plan.can_implement(args, values).find(part), std::string::npos)
        << plan.can_implement(args, values);
  };
  expect("needs x, got null");
  args.x = memory.get<std::uint8_t>() + 2;
  expect("expected x aligned to 4 bytes");
  args.x = memory.get();
  args.y = memory.get<std::uint8_t>() + 1024;
  expect("needs scale");
  args.scale = scale.get();
  EXPECT_EQ(plan.can_implement(args), "");
  expect("set 2 is not", true);
  args.zero_point = zero_point.get<std::int32_t>();
  expect("set 1 is not", true);
  args.codes = memory.get();
  expect("takes no codes");
  EXPECT_THROW(plan.run(nullptr, nullptr, args), std::invalid_argument);
}

// 0 may be no code: who does not quantize again does not mind.
TEST(QuantCheck, BackwardFromTheMaskNeedsNoZeroPoint) {
  const OnDevice memory(std::vector<std::uint8_t>(64, 0));
  QuantDescriptor d = fake_quantize({3, 5});
  d.range = {1, 255};
  d.direction = QuantDirection::kBackward;
  QuantArgs args;
  args.grad_y = memory.get();
  args.grad_x = memory.get();
  args.mask = memory.get<std::uint8_t>();
  EXPECT_EQ(QuantPlan::select(d, test::device()).can_implement(args), "");
  args.scale = memory.get();
  d.operation = QuantOperation::kQuantize;
  EXPECT_EQ(QuantPlan::select(d, test::device()).can_implement(args), "");
  std::swap(args.x, args.grad_y);
  args.grad_y = memory.get();
  args.mask = nullptr;
  EXPECT_NE(QuantPlan::select(d, test::device()).can_implement(args).find("needs zero_point"),
            std::string::npos);
}

TEST(QuantCheck, WorkspaceMustBeThereAndAligned) {
  const OnDevice memory(std::vector<std::uint8_t>(256, 0));
  QuantDescriptor d = fake_quantize({3, 5});
  d.direction = QuantDirection::kBackward;
  d.parameter_gradients = true;
  const QuantPlan plan = QuantPlan::select(d, test::device());
  QuantArgs args;
  args.x = memory.get();
  args.grad_y = memory.get();
  args.grad_x = memory.get();
  args.scale = memory.get();
  args.grad_scale = memory.get();
  EXPECT_THROW(plan.run(nullptr, nullptr, args), std::invalid_argument);
  EXPECT_THROW(plan.run(nullptr, memory.get<std::uint8_t>() + 136, args), std::invalid_argument);
}

TEST(QuantCheck, GradientFactorOfLsq) {
  EXPECT_DOUBLE_EQ(lsq_gradient_factor(10, {0, 255}, false), 1 / std::sqrt(2550.0));
  EXPECT_DOUBLE_EQ(lsq_gradient_factor(10, {-128, 127}, false), 1 / std::sqrt(2550.0));
  EXPECT_DOUBLE_EQ(lsq_gradient_factor(10, {-127, 127}, true), 1 / std::sqrt(1270.0));
  EXPECT_THROW(lsq_gradient_factor(0, {0, 255}, false), std::invalid_argument);
}

void expect_refused(const QuantDescriptor& d, const char* part) {
  try {
    QuantPlan::select(d, test::device());
    FAIL() << "accepted, expected: " << part;
  } catch (const std::invalid_argument& error) {
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(QuantCheck, RefusesDescriptorsThatMakeNoSense) {
  QuantDescriptor d = fake_quantize({4, 6});
  d.range = {0, 256};
  expect_refused(d, "within [0, 255] for u8 codes, got [0, 256]");
  d.range = {5, 5};
  expect_refused(d, "got [5, 5]: one code tells no two values apart");
  d = fake_quantize({4, 6});
  d.symmetric = true;
  d.range = {3, 200};
  expect_refused(d, "symmetric range");
  d = fake_quantize({4, 6});
  d.granularity = Granularity::kChannel;
  d.options.axis = 2;
  expect_refused(d, "rank 2, got 2");
  d.granularity = Granularity::kGroup;
  d.options = {};
  expect_refused(d, "a group size > 0, got 0");
  d = fake_quantize({4});
  d.granularity = Granularity::kBlock;
  expect_refused(d, "at least 2 axes, got [4]");
  d = fake_quantize({4, -1});
  expect_refused(d, "sizes >= 0");
  d = fake_quantize({1, 1, 1, 1, 1, 1, 1, 1, 1});
  expect_refused(d, "at most 8 axes");
  d = fake_quantize({4, 6});
  d.strides = {6};
  expect_refused(d, "one stride per axis");
  for (const auto& strides : std::vector<std::vector<std::int64_t>>{
           {0, 1}, {1, 1}, {5, 1}, {-5, 1}, {1, 3}, {INT64_MAX, 1}, {INT64_MIN, 1}}) {
    d.strides = strides;
    expect_refused(d, "share no memory");
  }
  d = fake_quantize({4, 6});
  d.direction = QuantDirection::kBackward;
  d.statistics = Statistics::kDynamic;
  expect_refused(d, "statistics belong to forward");
  d = fake_quantize({4, 6});
  d.parameter_gradients = true;
  expect_refused(d, "belong to the backward of fake-quantize");
  d = fake_quantize({4, 6});
  d.statistics = Statistics::kCurrent;
  d.averaging_constant = 0;
  expect_refused(d, "averaging constant in (0, 1]");
}

TEST(QuantCheck, AcceptsUnusualDescriptors) {
  QuantDescriptor d = fake_quantize({4, 6});
  for (const auto& strides : std::vector<std::vector<std::int64_t>>{
           {6, 1}, {-6, 1}, {6, -1}, {1, 4}, {-1, -4}, {11, 2}, {1000, 7}}) {
    d.strides = strides;
    EXPECT_EQ(QuantPlan::select(d, test::device()).elements(), 24);
  }
  d = fake_quantize({3, 0});
  d.strides = {0, 1};  // as row-major strides of this shape come out
  EXPECT_EQ(QuantPlan::select(d, test::device()).elements(), 0);
  d = fake_quantize({3, 1, 5});
  d.strides = {5, 0, 1};
  EXPECT_EQ(QuantPlan::select(d, test::device()).elements(), 15);
  d = fake_quantize({4, 20});
  d.granularity = Granularity::kGroup;
  d.options.group_size = INT64_MAX;
  EXPECT_EQ(QuantPlan::select(d, test::device()).num_parameter_sets(), 4);
}

TEST(QuantCheck, WorkspaceLimitAndIdentity) {
  QuantDescriptor d = fake_quantize({5000});
  d.direction = QuantDirection::kBackward;
  d.parameter_gradients = true;
  const QuantPlan plan = QuantPlan::select(d, test::device());
  EXPECT_EQ(plan.workspace_bytes(), 5U * 2 * 8);
  EXPECT_EQ(plan.identity().rfind("fake_quantize_backward_lsq_tensor_f32_u8_", 0), 0U);
  EXPECT_THROW(QuantPlan::select(d, test::device(), {.workspace_limit_bytes = 79}),
               std::runtime_error);
}

}  // namespace
}  // namespace steelyard::kernels
