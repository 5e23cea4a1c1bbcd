// What plans compute through the C face: the bits of the C++ one.
#include <gmock/gmock.h>

#include "tests/c/plan_support.h"

namespace steelyard::c_face {
namespace {

using kernels::QuantArrays;
using kernels::QuantDescriptor;
using kernels::QuantPlan;

constexpr std::int64_t kRows = 3, kColumns = 41;
constexpr std::size_t kSize = kRows * kColumns;

// The same plan in C++.
QuantDescriptor cpp_channels() {
  QuantDescriptor d;
  d.spec.code_type = kernels::CodeType::kS8;
  d.spec.range = {-127, 127};
  d.spec.symmetric = true;
  d.granularity = kernels::Granularity::kChannel;
  d.options.axis = 0;
  d.shape = {kRows, kColumns};
  return d;
}

void run_cpp(const QuantDescriptor& d, const QuantArrays& arrays) {
  const QuantPlan plan = QuantPlan::select(d, kernels::DeviceType::kCpu);
  std::vector<double> workspace(plan.workspace_bytes() / sizeof(double) + 2);
  const auto past = reinterpret_cast<std::uintptr_t>(workspace.data()) % 16;
  plan.run(nullptr,
           {reinterpret_cast<std::byte*>(workspace.data()) + (past == 0 ? 0 : 16 - past),
            plan.workspace_bytes()},
           arrays);
}

steelyard_status run_c(const Context& context, const steelyard_plan_descriptor& d,
                       const steelyard_plan_arrays& arrays) {
  const Plan plan = plan_of(context, d);
  steelyard_plan_info info;
  steelyard_plan_info_init(&info, sizeof info);
  EXPECT_EQ(steelyard_plan_get_info(context, plan.get(), &info), STEELYARD_OK);
  std::vector<double> memory(info.workspace_bytes / sizeof(double) + 2);
  const auto past = reinterpret_cast<std::uintptr_t>(memory.data()) % 16;
  auto* workspace = reinterpret_cast<std::byte*>(memory.data()) + (past == 0 ? 0 : 16 - past);
  return steelyard_plan_run(context, plan.get(), nullptr,
                            info.workspace_bytes == 0 ? nullptr : workspace, info.workspace_bytes,
                            &arrays);
}

struct Given {
  Array<float> x{wave(kSize), {kRows, kColumns}};
  Array<float> scale{{0.01F, 0.02F, 0.0123F}};
  Array<float> y{std::vector<float>(kSize), {kRows, kColumns}};
  Array<std::uint8_t> mask{std::vector<std::uint8_t>(kernels::mask_bytes(kSize))};
};

TEST(CPlan, FakeQuantizesAsCpp) {
  const Context context;
  Given c, cpp;
  steelyard_plan_arrays arrays = no_arrays();
  arrays.x = &c.x.view;
  arrays.y = &c.y.view;
  arrays.scale = &c.scale.view;
  arrays.mask = &c.mask.view;
  ASSERT_EQ(run_c(context, of_channels({kRows, kColumns}), arrays), STEELYARD_OK)
      << context.message();
  QuantArrays cpp_arrays;
  cpp_arrays.x = cpp.x.values;
  cpp_arrays.y = cpp.y.values;
  cpp_arrays.scale = cpp.scale.values;
  cpp_arrays.mask = cpp.mask.values;
  run_cpp(cpp_channels(), cpp_arrays);
  EXPECT_EQ(c.y.values, cpp.y.values);
  EXPECT_EQ(c.mask.values, cpp.mask.values);
  EXPECT_NE(c.y.values, c.x.values);
}

TEST(CPlan, ComputesInPlace) {
  const Context context;
  Given apart, same;
  steelyard_plan_arrays arrays = no_arrays();
  arrays.x = &apart.x.view;
  arrays.y = &apart.y.view;
  arrays.scale = &apart.scale.view;
  ASSERT_EQ(run_c(context, of_channels({kRows, kColumns}), arrays), STEELYARD_OK);
  arrays.x = arrays.y = &same.x.view;
  ASSERT_EQ(run_c(context, of_channels({kRows, kColumns}), arrays), STEELYARD_OK);
  EXPECT_EQ(same.x.values, apart.y.values);
}

TEST(CPlan, QuantizesAndRestoresAsCpp) {
  const Context context;
  Given c, cpp;
  steelyard_plan_descriptor d = of_channels({kRows, kColumns});
  d.operation = STEELYARD_QUANTIZE;
  Array<std::int8_t> codes(std::vector<std::int8_t>(kSize), {kRows, kColumns});
  steelyard_plan_arrays arrays = no_arrays();
  arrays.x = &c.x.view;
  arrays.codes = &codes.view;
  arrays.scale = &c.scale.view;
  ASSERT_EQ(run_c(context, d, arrays), STEELYARD_OK) << context.message();

  std::vector<std::int8_t> expected(kSize);
  QuantDescriptor own = cpp_channels();
  own.spec.operation = kernels::QuantOperation::kQuantize;
  QuantArrays cpp_arrays;
  cpp_arrays.x = cpp.x.values;
  cpp_arrays.codes = expected;
  cpp_arrays.scale = cpp.scale.values;
  run_cpp(own, cpp_arrays);
  EXPECT_EQ(codes.values, expected);

  d.operation = STEELYARD_DEQUANTIZE;
  arrays.x = nullptr;
  arrays.y = &c.y.view;
  ASSERT_EQ(run_c(context, d, arrays), STEELYARD_OK) << context.message();
  for (std::size_t i = 0; i < kSize; ++i) {
    EXPECT_EQ(c.y.values[i], static_cast<float>(codes.values[i]) * c.scale.values[i / kColumns]);
  }
}

TEST(CPlan, PacksCodesOfFourBits) {
  const Context context;
  Array<float> x({-0.7F, 0.1F, 0.2F, 0.3F, 0.4F}), scale({0.1F});
  steelyard_plan_descriptor d = descriptor({5});
  d.operation = STEELYARD_QUANTIZE;
  d.code_type = STEELYARD_S4;
  d.qmin = -7;
  d.qmax = 7;
  Array<std::uint8_t> codes(std::vector<std::uint8_t>(3));
  steelyard_plan_arrays arrays = no_arrays();
  arrays.x = &x.view;
  arrays.codes = &codes.view;
  arrays.scale = &scale.view;
  ASSERT_EQ(run_c(context, d, arrays), STEELYARD_OK) << context.message();
  EXPECT_THAT(codes.values, ::testing::ElementsAre(0x19, 0x32, 0x04));
}

TEST(CPlan, MovingAveragesGoAsInCpp) {
  const Context context;
  struct State {
    Array<float> scale{std::vector<float>(kRows)};
    Array<std::int32_t> zero{std::vector<std::int32_t>(kRows)};
    Array<float> lo{std::vector<float>(kRows, 1)}, hi{std::vector<float>(kRows, -1)};
    Array<std::uint8_t> initialized{std::vector<std::uint8_t>(1)};
    Array<std::int64_t> skipped{std::vector<std::int64_t>(1)};
  } c, cpp;
  Given in_c, in_cpp;
  in_c.x.values[5] = in_cpp.x.values[5] = std::numeric_limits<float>::infinity();
  steelyard_plan_descriptor d = of_channels({kRows, kColumns});
  d.statistics = STEELYARD_CURRENT;
  steelyard_plan_arrays arrays = no_arrays();
  arrays.x = &in_c.x.view;
  arrays.y = &in_c.y.view;
  arrays.scale = &c.scale.view;
  arrays.zero_point = &c.zero.view;
  arrays.range_lo = &c.lo.view;
  arrays.range_hi = &c.hi.view;
  arrays.initialized = &c.initialized.view;
  arrays.non_finite_count = &c.skipped.view;
  QuantDescriptor own = cpp_channels();
  own.spec.statistics = kernels::Statistics::kCurrent;
  QuantArrays cpp_arrays;
  cpp_arrays.x = in_cpp.x.values;
  cpp_arrays.y = in_cpp.y.values;
  cpp_arrays.scale = cpp.scale.values;
  cpp_arrays.zero_point = cpp.zero.values;
  cpp_arrays.range_lo = cpp.lo.values;
  cpp_arrays.range_hi = cpp.hi.values;
  cpp_arrays.initialized = cpp.initialized.values;
  cpp_arrays.non_finite_count = cpp.skipped.values;
  for (int step = 0; step < 3; ++step) {
    ASSERT_EQ(run_c(context, d, arrays), STEELYARD_OK) << context.message();
    run_cpp(own, cpp_arrays);
    in_c.x.values[7] = in_cpp.x.values[7] = 3.5F + static_cast<float>(step);
  }
  EXPECT_EQ(c.scale.values, cpp.scale.values);
  EXPECT_EQ(c.lo.values, cpp.lo.values);
  EXPECT_EQ(c.hi.values, cpp.hi.values);
  EXPECT_EQ(in_c.y.values, in_cpp.y.values);
  EXPECT_EQ(c.initialized.values[0], 1);
  EXPECT_EQ(c.skipped.values[0], 3);
}

TEST(CPlan, LearnedScalesHaveTheGradientsOfCpp) {
  const Context context;
  Given c, cpp;
  Array<float> grad_y(wave(kSize), {kRows, kColumns}), grad_x(wave(kSize), {kRows, kColumns});
  Array<float> grad_scale(std::vector<float>(kRows, 0));
  steelyard_plan_descriptor d = of_channels({kRows, kColumns});
  d.direction = STEELYARD_BACKWARD;
  d.parameter_gradients = 1;
  ASSERT_EQ(steelyard_lsq_gradient_factor(context, kColumns, -127, 127, 1, &d.gradient_factor),
            STEELYARD_OK);
  EXPECT_EQ(d.gradient_factor, kernels::lsq_gradient_factor(kColumns, {-127, 127}, true));
  steelyard_plan_arrays arrays = no_arrays();
  arrays.x = &c.x.view;
  arrays.grad_y = &grad_y.view;
  arrays.grad_x = &grad_x.view;
  arrays.scale = &c.scale.view;
  arrays.grad_scale = &grad_scale.view;
  ASSERT_EQ(run_c(context, d, arrays), STEELYARD_OK) << context.message();

  std::vector<float> expected_x(kSize), expected_scale(kRows);
  QuantDescriptor own = cpp_channels();
  own.spec.direction = kernels::QuantDirection::kBackward;
  own.spec.parameter_gradients = true;
  own.spec.gradient_factor = d.gradient_factor;
  QuantArrays cpp_arrays;
  cpp_arrays.x = cpp.x.values;
  cpp_arrays.grad_y = grad_y.values;
  cpp_arrays.grad_x = expected_x;
  cpp_arrays.scale = cpp.scale.values;
  cpp_arrays.grad_scale = expected_scale;
  run_cpp(own, cpp_arrays);
  EXPECT_EQ(grad_x.values, expected_x);
  EXPECT_EQ(grad_scale.values, expected_scale);
}

TEST(CPlan, TakesStridesOfTheCallers) {
  const Context context;
  Array<float> x(wave(12), {3, 2}), y(std::vector<float>(6, 0), {3, 2}), scale({0.1F});
  steelyard_plan_descriptor d = descriptor({3, 2});
  d.code_type = STEELYARD_S8;
  d.qmin = -127;
  d.qmax = 127;
  d.strided = 1;
  d.strides[0] = 4;
  d.strides[1] = 2;
  Array<float> wide(std::vector<float>(12, -9), {3, 2});
  x.view.strides = wide.view.strides = d.strides;
  steelyard_plan_arrays arrays = no_arrays();
  arrays.x = &x.view;
  arrays.y = &wide.view;
  arrays.scale = &scale.view;
  ASSERT_EQ(run_c(context, d, arrays), STEELYARD_OK) << context.message();
  EXPECT_EQ(wide.values[1], -9);
  EXPECT_NEAR(wide.values[2], x.values[2], 0.051);
  arrays.y = &y.view;  // dense
  EXPECT_EQ(run_c(context, d, arrays), STEELYARD_INVALID_ARGUMENT);
  EXPECT_EQ(context.message(),
            "steelyard_plan_run: y: expected the plan's strides [4, 2], got [2, 1]");
}

TEST(CPlan, RunsManyAtOnce) {
  const Context context;
  const Plan plan = plan_of(context, of_channels({kRows, kColumns}));
  Given alone, a, b;
  steelyard_plan_arrays arrays[3];
  Given* of[] = {&alone, &a, &b};
  for (int i = 0; i < 3; ++i) {
    arrays[i] = no_arrays();
    arrays[i].x = &of[i]->x.view;
    arrays[i].y = &of[i]->y.view;
    arrays[i].scale = &alone.scale.view;  // which all read
  }
  ASSERT_EQ(steelyard_plan_run(context, plan.get(), nullptr, nullptr, 0, &arrays[0]), STEELYARD_OK);
  const steelyard_plan* plans[] = {plan.get(), plan.get()};
  const steelyard_plan_arrays* both[] = {&arrays[1], &arrays[2]};
  ASSERT_EQ(steelyard_plan_run_batch(context, nullptr, 2, plans, both), STEELYARD_OK)
      << context.message();
  EXPECT_EQ(a.y.values, alone.y.values);
  EXPECT_EQ(b.y.values, alone.y.values);
  EXPECT_EQ(steelyard_plan_run_batch(context, nullptr, 0, nullptr, nullptr), STEELYARD_OK);

  arrays[2].y = &a.y.view;
  EXPECT_EQ(steelyard_plan_run_batch(context, nullptr, 2, plans, both), STEELYARD_INVALID_ARGUMENT);
  EXPECT_EQ(context.message(),
            "steelyard_plan_run_batch: [quant_batch] item 1: expected y and item 0's y apart; got "
            "memory that overlaps");
  plans[1] = nullptr;
  EXPECT_EQ(steelyard_plan_run_batch(context, nullptr, 2, plans, both), STEELYARD_INVALID_ARGUMENT);
  EXPECT_EQ(context.message(),
            "steelyard_plan_run_batch: expected a pointer for item 1's plan, got NULL");
}

}  // namespace
}  // namespace steelyard::c_face
