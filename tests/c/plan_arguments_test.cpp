// What plans of the C face refuse, and in which words.
#include <gmock/gmock.h>

#include <cstring>
#include <functional>

#include "tests/c/plan_support.h"

namespace steelyard::c_face {
namespace {

using ::testing::HasSubstr;

// Fake-quantize of f16 values [2, 8] with a scale for each row.
struct HalfCall {
  HalfCall() {
    x.view.dtype = y.view.dtype = {kDLFloat, 16, 1};
    arrays.x = &x.view;
    arrays.y = &y.view;
    arrays.scale = &scale.view;
    arrays.mask = &mask.view;
    steelyard_plan_descriptor d = of_channels({2, 8});
    d.value_type = STEELYARD_F16;
    plan = plan_of(context, d);
  }
  std::string refusal() {
    const std::vector<std::uint16_t> before = y.values;
    EXPECT_EQ(steelyard_plan_run(context, plan.get(), nullptr, nullptr, 0, &arrays),
              STEELYARD_INVALID_ARGUMENT);
    EXPECT_EQ(y.values, before);
    const std::string message = context.message();
    EXPECT_EQ(steelyard_plan_check(context, plan.get(), &arrays, 0), STEELYARD_INVALID_ARGUMENT);
    const std::string prefix = "steelyard_plan_run: ";
    EXPECT_EQ(message.substr(0, prefix.size()), prefix);
    EXPECT_EQ("steelyard_plan_check: " + message.substr(prefix.size()), context.message());
    return message.substr(prefix.size());
  }

  Context context;
  Array<std::uint16_t> x{std::vector<std::uint16_t>(16, 0x3C00), {2, 8}};
  Array<std::uint16_t> y{std::vector<std::uint16_t>(16), {2, 8}};
  Array<float> scale{{0.1F, 0.2F}};
  Array<std::uint8_t> mask{std::vector<std::uint8_t>(2)};
  steelyard_plan_arrays arrays = no_arrays();
  Plan plan;
};

const std::string kPlan = "[fake_quantize_forward_channel_f16_s8_cpu] ";

TEST(CPlanArguments, ScalesAreF32WhateverTheValuesAre) {
  HalfCall c;
  ASSERT_EQ(steelyard_plan_run(c.context, c.plan.get(), nullptr, nullptr, 0, &c.arrays),
            STEELYARD_OK)
      << c.context.message();
  Array<std::uint16_t> halves({0x2E66, 0x2E66});
  halves.view.dtype = {kDLFloat, 16, 1};
  c.arrays.scale = &halves.view;
  EXPECT_EQ(c.refusal(), kPlan + "expected scale of type f32, got f16");
}

TEST(CPlanArguments, LengthsAndShapesAreThePlans) {
  HalfCall c;
  Array<float> three({1, 1, 1});
  c.arrays.scale = &three.view;
  EXPECT_EQ(c.refusal(), kPlan + "expected scale of 2 elements, got 3");
  c.arrays.scale = &c.scale.view;
  c.x.shape[0] = 1;
  EXPECT_EQ(c.refusal(), "x: expected the shape [2, 8], got [1, 8]");
  c.x.shape[0] = 2;
  Array<std::uint8_t> short_mask(std::vector<std::uint8_t>(1));
  c.arrays.mask = &short_mask.view;
  EXPECT_EQ(c.refusal(), kPlan + "expected mask of 2 elements, got 1");
}

TEST(CPlanArguments, DtypesAndDevicesAreThePlans) {
  HalfCall c;
  c.x.view.dtype = {kDLBfloat, 16, 1};
  EXPECT_EQ(c.refusal(), kPlan + "expected x of type f16, got bf16");
  c.x.view.dtype = {kDLFloat, 16, 1};
  c.y.view.device = {kDLCUDA, 1};
  EXPECT_EQ(c.refusal(), "y: expected memory of cpu, got cuda:1");
}

TEST(CPlanArguments, OverlappingMemoryIsRefused) {
  HalfCall c;
  const std::string words = " apart or, in place, one array; got memory that overlaps";
  std::vector<std::uint16_t> both(17, 0x3C00);
  c.x.view.data = both.data();
  c.y.view.data = both.data() + 1;
  EXPECT_EQ(c.refusal(), kPlan + "expected x and y" + words);
  c.x.view.data = c.x.values.data();
  c.y.view.data = c.y.values.data();
  c.mask.view.data = c.x.values.data() + 3;
  EXPECT_EQ(c.refusal(), kPlan + "expected x and mask" + words);
  c.mask.view.data = c.mask.values.data();
  c.scale.view.data = c.y.values.data() + 2;
  EXPECT_EQ(c.refusal(), kPlan + "expected y and scale" + words);
}

TEST(CPlanArguments, WhatIsMissingIsNamed) {
  HalfCall c;
  c.arrays.y = nullptr;
  EXPECT_EQ(c.refusal(), kPlan + "needs y, got null");
  EXPECT_EQ(steelyard_plan_run(c.context, c.plan.get(), nullptr, nullptr, 0, nullptr),
            STEELYARD_INVALID_ARGUMENT);
  EXPECT_EQ(c.context.message(), "steelyard_plan_run: expected a pointer for arrays, got NULL");
  EXPECT_EQ(steelyard_plan_run(c.context, nullptr, nullptr, nullptr, 0, &c.arrays),
            STEELYARD_INVALID_ARGUMENT);
  EXPECT_EQ(c.context.message(), "steelyard_plan_run: expected a pointer for plan, got NULL");
}

TEST(CPlanArguments, ParametersAreLookedAtWhereAsked) {
  HalfCall c;
  c.scale.values[1] = 0;
  EXPECT_EQ(steelyard_plan_check(c.context, c.plan.get(), &c.arrays, 0), STEELYARD_OK);
  EXPECT_EQ(steelyard_plan_check(c.context, c.plan.get(), &c.arrays, 1),
            STEELYARD_INVALID_ARGUMENT);
  EXPECT_THAT(c.context.message(), HasSubstr("set 1 is not"));
  EXPECT_EQ(steelyard_plan_check(c.context, c.plan.get(), &c.arrays, 2),
            STEELYARD_INVALID_ARGUMENT);
  EXPECT_THAT(c.context.message(), HasSubstr("expected check_parameters to be 0 or 1, got 2"));
}

TEST(CPlanArguments, AStreamBelongsToAGpu) {
  HalfCall c;
  int stream = 0;
  EXPECT_EQ(steelyard_plan_run(c.context, c.plan.get(), &stream, nullptr, 0, &c.arrays),
            STEELYARD_INVALID_ARGUMENT);
  EXPECT_EQ(c.context.message(), "steelyard_plan_run: expected no stream on the CPU, got one");
}

TEST(CPlanArguments, AWorkspaceIsCheckedToo) {
  const Context context;
  steelyard_plan_descriptor d = of_channels({2, 4});
  d.direction = STEELYARD_BACKWARD;
  d.parameter_gradients = 1;
  const Plan plan = plan_of(context, d);
  Array<float> x(wave(8), {2, 4}), grad(wave(8), {2, 4}), scale({0.1F, 0.1F}), grad_scale({0, 0});
  steelyard_plan_arrays arrays = no_arrays();
  arrays.x = &x.view;
  arrays.grad_y = arrays.grad_x = &grad.view;
  arrays.scale = &scale.view;
  arrays.grad_scale = &grad_scale.view;
  alignas(16) std::byte workspace[64];
  const auto run = [&](void* memory, std::size_t bytes) {
    return steelyard_plan_run(context, plan.get(), nullptr, memory, bytes, &arrays);
  };
  EXPECT_EQ(run(workspace, 32), STEELYARD_OK) << context.message();
  EXPECT_EQ(run(workspace, 31), STEELYARD_INVALID_ARGUMENT);
  EXPECT_THAT(context.message(), HasSubstr("needs 32 bytes of workspace, got 31"));
  EXPECT_EQ(run(workspace + 8, 56), STEELYARD_INVALID_ARGUMENT);
  EXPECT_THAT(context.message(), HasSubstr("expected a workspace aligned to 16 bytes"));
  EXPECT_EQ(run(nullptr, 0), STEELYARD_INVALID_ARGUMENT);
  EXPECT_THAT(context.message(), HasSubstr("needs 32 bytes of workspace, got null"));
  EXPECT_EQ(run(x.values.data(), 32), STEELYARD_INVALID_ARGUMENT);
  EXPECT_THAT(context.message(), HasSubstr("expected the workspace and x apart"));
  d.workspace_limit_bytes = 16;
  steelyard_plan* refused = nullptr;
  EXPECT_EQ(steelyard_plan_create(context, &d, &refused), STEELYARD_FAILED);
  EXPECT_THAT(context.message(), HasSubstr("needs 32 bytes of workspace, the limit is 16"));
}

TEST(CPlanArguments, DescriptorsAreChecked) {
  const Context context;
  const auto refusal = [&](const std::function<void(steelyard_plan_descriptor&)>& change) {
    steelyard_plan_descriptor d = of_channels({2, 4});
    change(d);
    steelyard_plan* plan = reinterpret_cast<steelyard_plan*>(&d);
    EXPECT_EQ(steelyard_plan_create(context, &d, &plan), STEELYARD_INVALID_ARGUMENT);
    EXPECT_EQ(plan, nullptr);
    return context.message();
  };
  const std::string begin = "steelyard_plan_create: ";
  EXPECT_EQ(refusal([](auto& d) { d.operation = 3; }),
            begin + "expected an operation from 0 to 2, got 3");
  EXPECT_EQ(refusal([](auto& d) { d.rank = 9; }), begin + "expected a rank from 0 to 8, got 9");
  EXPECT_EQ(refusal([](auto& d) { d.symmetric = 7; }),
            begin + "expected symmetric to be 0 or 1, got 7");
  EXPECT_THAT(refusal([](auto& d) { d.qmax = 300; }),
              HasSubstr("[quant_plan] expected qmin < qmax"));
  EXPECT_THAT(refusal([](auto& d) { d.granularity = STEELYARD_PER_GROUP; }),
              HasSubstr("expected a group size > 0, got 0"));
  EXPECT_EQ(
      refusal([](auto& d) { d.struct_bytes = 0; }),
      begin +
          "expected a descriptor that steelyard_plan_descriptor_init() made, got one of 0 bytes");
  steelyard_plan_descriptor d = descriptor({1});
  EXPECT_EQ(steelyard_plan_create(context, &d, nullptr), STEELYARD_INVALID_ARGUMENT);
  d.device = {kDLCUDA, 99};
  steelyard_plan* plan = nullptr;
  EXPECT_EQ(steelyard_plan_create(context, &d, &plan), STEELYARD_NO_DEVICE);
}

TEST(CPlanArguments, StructuresMayBeOlderOrNewer) {
  const Context context;
  // An older header, without the limit of the workspace.
  std::vector<unsigned char> memory(sizeof(steelyard_plan_descriptor) + 8, 0xAB);
  auto* d = reinterpret_cast<steelyard_plan_descriptor*>(memory.data());
  const std::size_t older = offsetof(steelyard_plan_descriptor, workspace_limit_bytes);
  steelyard_plan_descriptor_init(d, older);
  EXPECT_EQ(memory[older], 0xAB);
  steelyard_plan* plan = nullptr;
  EXPECT_EQ(steelyard_plan_create(context, d, &plan), STEELYARD_OK) << context.message();
  steelyard_plan_destroy(plan);
  // A newer one, with fields that are not set, and with one that is.
  steelyard_plan_descriptor_init(d, memory.size());
  EXPECT_EQ(steelyard_plan_create(context, d, &plan), STEELYARD_OK) << context.message();
  steelyard_plan_destroy(plan);
  memory.back() = 1;
  EXPECT_EQ(steelyard_plan_create(context, d, &plan), STEELYARD_INVALID_ARGUMENT);
  EXPECT_THAT(context.message(), HasSubstr("the library is older than its header"));
}

TEST(CPlanArguments, InfoTellsTheSizes) {
  const Context context;
  steelyard_plan_descriptor d = of_channels({3, 5});
  d.code_type = STEELYARD_S4;
  d.qmin = -7;
  d.qmax = 7;
  const Plan plan = plan_of(context, d);
  steelyard_plan_info info;
  steelyard_plan_info_init(&info, sizeof info);
  ASSERT_EQ(steelyard_plan_get_info(context, plan.get(), &info), STEELYARD_OK);
  EXPECT_EQ(info.elements, 15);
  EXPECT_EQ(info.sets, 3);
  EXPECT_EQ(info.code_bytes, 8);
  EXPECT_EQ(info.mask_bytes, 2);
  EXPECT_EQ(info.workspace_bytes, 0U);
  EXPECT_STREQ(info.identity, "fake_quantize_forward_channel_f32_s4_cpu");
  EXPECT_EQ(steelyard_plan_get_info(context, plan.get(), nullptr), STEELYARD_INVALID_ARGUMENT);
}

TEST(CPlanArguments, AFactorNeedsElements) {
  const Context context;
  double factor = 0;
  EXPECT_EQ(steelyard_lsq_gradient_factor(context, 0, -7, 7, 1, &factor),
            STEELYARD_INVALID_ARGUMENT);
  EXPECT_EQ(steelyard_lsq_gradient_factor(context, 4, -7, 7, 1, nullptr),
            STEELYARD_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace steelyard::c_face
