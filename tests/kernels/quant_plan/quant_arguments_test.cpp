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
    if (i % 3 == 2) d.spec.operation = QuantOperation::kQuantize;
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
    QuantArrays arrays;
    arrays.x = x.back().span();
    if (i % 3 == 2) {
      arrays.codes = codes.back().span();
    } else {
      arrays.y = y.back().span();
    }
    arrays.mask = mask.back().span<std::uint8_t>();
    arrays.scale = scale.back().span();
    arrays.zero_point = zero_point.back().span<std::int32_t>();
    items.push_back({&plan, arrays});
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
  for (const QuantBatchItem& item : items) item.plan->run(nullptr, {}, item.arrays);
  const auto one_by_one = results();
  test::for_each_order([&] {
    for (int i = 0; i < count; ++i) {
      const std::vector<std::uint8_t> blank(y[i].host().size(), 7);
      test::copy_to_device(y[i].get(), blank.data(), i % 3 == 2 ? 0 : blank.size());
    }
    run_batch(nullptr, items);
    EXPECT_EQ(results(), one_by_one);
  });
  items[40].arrays.x = nullptr;
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
  d.spec.direction = QuantDirection::kBackward;
  d.spec.parameter_gradients = true;
  const QuantPlan plan = QuantPlan::select(d, test::device());
  const std::vector<float> grad = wave(100, 4);
  const OnDevice x = OnDevice::of(wave(100, 1000));
  const OnDevice grad_y = OnDevice::of(grad);
  const OnDevice grad_x = OnDevice::of(std::vector<float>(100, 9));
  const OnDevice scale = OnDevice::of(std::vector<float>{0.1F});
  const OnDevice grad_scale = OnDevice::of(std::vector<float>{9});
  const OnDevice off(std::vector<std::uint8_t>{0});
  const OnDevice workspace(std::vector<std::uint8_t>(plan.workspace_bytes()));
  QuantArrays arrays;
  arrays.x = x.span();
  arrays.grad_y = grad_y.span();
  arrays.grad_x = grad_x.span();
  arrays.scale = scale.span();
  arrays.grad_scale = grad_scale.span();
  arrays.quantizing = off.span<std::uint8_t>();
  plan.run(nullptr, workspace.span(), arrays);
  EXPECT_EQ(grad_x.host<float>(), grad);
  EXPECT_EQ(grad_scale.host<float>()[0], 0);
}

// A plan of three channels, and a call that it takes.
struct Channels {
  explicit Channels(QuantOperation operation = QuantOperation::kFakeQuantize) {
    QuantDescriptor d = fake_quantize({3, 5});
    d.spec.operation = operation;
    d.granularity = Granularity::kChannel;
    d.options.axis = 0;
    plan = QuantPlan::select(d, test::device());
    arrays.x = x.span<float>();
    (operation == QuantOperation::kQuantize ? arrays.codes : arrays.y) =
        operation == QuantOperation::kQuantize ? QuantArray(codes.span<std::uint8_t>())
                                               : QuantArray(y.span<float>());
    arrays.scale = scale.span<float>();
  }
  void expect(const char* part, bool values = false) const {
    const std::string problem = plan.can_implement(arrays, values).problem;
    EXPECT_NE(problem.find(part), std::string::npos) << problem;
    if (values) return;
    EXPECT_THROW(plan.run(nullptr, {}, arrays), std::invalid_argument);
  }

  QuantPlan plan;
  OnDevice x = OnDevice::of(wave(15, 1)), y = OnDevice::of(wave(15, 1));
  OnDevice codes = OnDevice(std::vector<std::uint8_t>(15, 0));
  OnDevice scale = OnDevice::of(std::vector<float>{0.1F, 0.2F, -0.3F});
  OnDevice zero_point = OnDevice::of(std::vector<std::int32_t>{0, 300, 0});
  QuantArrays arrays;
};

TEST(QuantCheck, NamesTheArrayThatIsMissingOrNotTaken) {
  Channels call;
  EXPECT_TRUE(call.plan.can_implement(call.arrays));
  call.expect("set 2 is not", true);
  call.arrays.zero_point = call.zero_point.span<std::int32_t>();
  call.expect("set 1 is not", true);
  call.arrays.codes = call.codes.span<std::uint8_t>();
  call.expect("takes no codes");
  call.arrays.codes = nullptr;
  call.arrays.scale = nullptr;
  call.expect("needs scale");
  call.arrays.x = nullptr;
  call.expect("needs x, got null");
}

TEST(QuantCheck, NamesTypesLengthsAndAddresses) {
  const OnDevice longer(std::vector<std::uint8_t>(4096, 0));
  const std::vector<float> constant(15, 1);
  Channels call;
  const QuantArrays right = call.arrays;
  const auto with = [&](QuantArray QuantArrays::*member, QuantArray array) {
    call.arrays = right;
    call.arrays.*member = array;
  };
  with(&QuantArrays::x, {longer.get<Half>(), 15});
  call.expect("expected x of type f32, got f16");
  with(&QuantArrays::scale, {longer.get<double>(), 3});
  call.expect("expected scale of type f32, got f64");
  with(&QuantArrays::zero_point, {longer.get<std::int64_t>(), 3});
  call.expect("expected zero_point of type i32, got i64");
  with(&QuantArrays::x, {longer.get<float>(), 14});
  call.expect("expected x of 15 elements, got 14");
  with(&QuantArrays::scale, {longer.get<float>(), 1});
  call.expect("expected scale of 3 elements, got 1");
  with(&QuantArrays::x, longer.span(0, 59));
  call.expect("expected x of at least 60 bytes, got 59");
  with(&QuantArrays::x, longer.span(2, 60));
  call.expect("expected x aligned to 4 bytes, got an address 2 past one");
  with(&QuantArrays::y, constant);
  call.expect("expected y that may be written, got const elements");
  with(&QuantArrays::quantizing, {longer.get<bool>(), 1});
  EXPECT_TRUE(call.plan.can_implement(call.arrays));
  with(&QuantArrays::x, longer.span());  // bytes: room enough
  EXPECT_TRUE(call.plan.can_implement(call.arrays));
}

// In place is one array; one element further would overwrite what is still to be read.
TEST(QuantCheck, RefusesMemoryThatOverlaps) {
  const OnDevice memory = OnDevice::of(wave(64, 1));
  Channels call;
  call.arrays.x = call.arrays.y = memory.span<float>(0, 15);
  EXPECT_TRUE(call.plan.can_implement(call.arrays));
  call.arrays.y = memory.span<float>(1, 15);
  call.expect("expected x and y apart or, in place, one array");
  call.arrays.y = memory.span<float>(15, 15);
  EXPECT_TRUE(call.plan.can_implement(call.arrays));
  call.arrays.scale = memory.span<float>(29, 3);
  call.expect("expected y and scale apart");
  call.arrays.scale = memory.span<float>(12, 3);  // both are read
  EXPECT_TRUE(call.plan.can_implement(call.arrays));

  Channels quantize(QuantOperation::kQuantize);
  EXPECT_TRUE(quantize.plan.can_implement(quantize.arrays));
  quantize.arrays.codes = quantize.x.span<std::uint8_t>(0, 15);
  quantize.expect("expected x and codes apart");

  Channels other;
  other.arrays.y = call.arrays.y;
  EXPECT_THROW(run_batch(nullptr, {{&call.plan, call.arrays}, {&other.plan, other.arrays}}),
               std::invalid_argument);
}

// Values whose rows lie backward: 5 elements before the first one are theirs, too.
TEST(QuantCheck, StridedValuesReachFromTheirFirstToTheirLastOffset) {
  const OnDevice memory = OnDevice::of(wave(64, 1));
  const OnDevice scale = OnDevice::of(std::vector<float>{0.1F});
  QuantDescriptor d = fake_quantize({2, 5});
  d.strides = {-5, 1};
  const QuantPlan plan = QuantPlan::select(d, test::device());
  QuantArrays arrays{
      .x = memory.span<float>(5, 5), .y = memory.span<float>(20, 5), .scale = scale.span<float>()};
  EXPECT_TRUE(plan.can_implement(arrays));
  arrays.y = memory.span<float>(14, 5);  // elements 9 to 18
  EXPECT_FALSE(plan.can_implement(arrays));
  arrays.y = memory.span<float>(15, 4);
  EXPECT_NE(plan.can_implement(arrays).problem.find("expected y of at least 5 elements, got 4"),
            std::string::npos);
}

// 0 may be no code: who does not quantize again does not mind.
TEST(QuantCheck, BackwardFromTheMaskNeedsNoZeroPoint) {
  const OnDevice gradients = OnDevice::of(wave(15, 1)), x = OnDevice::of(wave(15, 1));
  const OnDevice mask(std::vector<std::uint8_t>(2, 0)), scale = OnDevice::of(wave(1, 1));
  QuantDescriptor d = fake_quantize({3, 5});
  d.spec.range = {1, 255};
  d.spec.direction = QuantDirection::kBackward;
  QuantArrays arrays;
  arrays.grad_y = arrays.grad_x = gradients.span<float>();
  arrays.mask = mask.span<std::uint8_t>();
  EXPECT_TRUE(QuantPlan::select(d, test::device()).can_implement(arrays));
  arrays.scale = scale.span<float>();
  d.spec.operation = QuantOperation::kQuantize;
  EXPECT_TRUE(QuantPlan::select(d, test::device()).can_implement(arrays));
  arrays.x = x.span<float>();
  arrays.mask = nullptr;
  EXPECT_NE(
      QuantPlan::select(d, test::device()).can_implement(arrays).problem.find("needs zero_point"),
      std::string::npos);
}

TEST(QuantCheck, WorkspaceMustBeThereAlignedAndApart) {
  const OnDevice memory(std::vector<std::uint8_t>(512, 0));
  QuantDescriptor d = fake_quantize({3, 5});
  d.spec.direction = QuantDirection::kBackward;
  d.spec.parameter_gradients = true;
  const QuantPlan plan = QuantPlan::select(d, test::device());
  const QuantArrays arrays{.x = memory.span<float>(0, 15),
                           .grad_y = memory.span<float>(16, 15),
                           .grad_x = memory.span<float>(16, 15),
                           .scale = memory.span<float>(32, 1),
                           .grad_scale = memory.span<float>(33, 1)};
  ASSERT_TRUE(plan.can_implement(arrays));
  const std::size_t bytes = plan.workspace_bytes();
  for (const std::span<std::byte> wrong : {std::span<std::byte>(), memory.span(256, bytes - 1),
                                           memory.span(264, bytes), memory.span(64, bytes)}) {
    EXPECT_THROW(plan.run(nullptr, wrong, arrays), std::invalid_argument);
  }
  plan.run(nullptr, memory.span(256, bytes), arrays);
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
  d.spec.range = {0, 256};
  expect_refused(d, "within [0, 255] for u8 codes, got [0, 256]");
  d.spec.range = {5, 5};
  expect_refused(d, "got [5, 5]: one code tells no two values apart");
  d = fake_quantize({4, 6});
  d.spec.symmetric = true;
  d.spec.range = {3, 200};
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
  d.spec.direction = QuantDirection::kBackward;
  d.spec.statistics = Statistics::kDynamic;
  expect_refused(d, "statistics belong to forward");
  d = fake_quantize({4, 6});
  d.spec.parameter_gradients = true;
  expect_refused(d, "belong to the backward of fake-quantize");
  d = fake_quantize({4, 6});
  d.spec.statistics = Statistics::kCurrent;
  d.spec.averaging_constant = 0;
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
  d.spec.direction = QuantDirection::kBackward;
  d.spec.parameter_gradients = true;
  const QuantPlan plan = QuantPlan::select(d, test::device());
  EXPECT_EQ(plan.workspace_bytes(), 5U * 2 * 8);
  EXPECT_EQ(plan.identity().rfind("fake_quantize_backward_lsq_tensor_f32_u8_", 0), 0U);
  EXPECT_THROW(QuantPlan::select(d, test::device(), {.workspace_limit_bytes = 79}),
               std::runtime_error);
}

}  // namespace
}  // namespace steelyard::kernels
