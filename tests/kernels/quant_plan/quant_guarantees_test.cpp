// What every plan promises (kernels/quant_plan/quant_plan.h): the same bits each time, with any
// number of threads, on CPU and GPU, and from several threads at once; sums of doubles; no harm
// from scales that are no scales. On the device of the program this is linked into.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <thread>
#include <vector>

#include "steelyard/kernels/quant_plan/quant_plan.h"
#include "tests/kernels/quant_plan/quant_device.h"
#include "tests/kernels/quant_plan/quant_reference.h"

namespace steelyard::kernels {
namespace {

using test::OnDevice;

// All that a call reads and writes, on the device.
class Call {
 public:
  Call(const QuantDescriptor& d, DeviceType device, float offset = 0)
      : plan_(QuantPlan::select(d, device)),
        x_(values(d, 1, offset)),
        grad_y_(values(d, 2, offset)),
        y_(bytes(plan_.elements() * 8)),
        grad_x_(bytes(plan_.elements() * 8)),
        codes_(codes(plan_.elements())),
        mask_(bytes(mask_bytes(plan_.elements()))),
        scale_(reals(d, 0.11)),
        zero_point_(OnDevice::of(
            std::vector<std::int32_t>(static_cast<std::size_t>(sets()), d.spec.symmetric ? 0 : 3))),
        grad_scale_(reals(d, 0)),
        grad_zero_point_(reals(d, 0)),
        count_(OnDevice::of(std::vector<std::int64_t>{1})),
        lo_(reals(d, -1)),
        hi_(reals(d, 1)),
        initialized_(std::vector<std::uint8_t>{1}),
        workspace_(bytes(static_cast<std::int64_t>(plan_.workspace_bytes()))) {}

  void run() { run_with(plan_); }

  // With another thread's plan of the same descriptor.
  void run_with(const QuantPlan& plan) {
    const QuantDescriptor& d = plan.descriptor();
    const bool forward = d.spec.direction == QuantDirection::kForward;
    QuantArrays arrays;
    if (d.spec.operation != QuantOperation::kDequantize) arrays.x = x_.span();
    if (forward && d.spec.operation != QuantOperation::kQuantize) arrays.y = y_.span();
    if (forward && d.spec.operation != QuantOperation::kFakeQuantize) arrays.codes = codes_.span();
    if (forward && d.spec.operation != QuantOperation::kDequantize) {
      arrays.mask = mask_.span<std::uint8_t>();
      arrays.non_finite_count = count_.span<std::int64_t>();
    }
    if (!forward) {
      arrays.grad_y = grad_y_.span();
      arrays.grad_x = grad_x_.span();
    }
    arrays.scale = scale_.span();
    arrays.zero_point = zero_point_.span<std::int32_t>();
    if (d.spec.parameter_gradients) {
      arrays.grad_scale = grad_scale_.span();
      arrays.grad_zero_point = grad_zero_point_.span();
    }
    if (d.spec.statistics == Statistics::kCurrent || d.spec.statistics == Statistics::kDelayed) {
      arrays.range_lo = lo_.span();
      arrays.range_hi = hi_.span();
      arrays.initialized = initialized_.span<std::uint8_t>();
    }
    plan.run(nullptr, workspace_.span(), arrays);
  }

  // Every array that a call may write.
  std::vector<std::uint8_t> results() const {
    std::vector<std::uint8_t> all;
    for (const OnDevice* array : {&y_, &grad_x_, &codes_, &mask_, &scale_, &zero_point_,
                                  &grad_scale_, &grad_zero_point_, &count_, &lo_, &hi_}) {
      const std::vector<std::uint8_t> part = array->host();
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }

  std::int64_t sets() const { return plan_.num_parameter_sets(); }
  const QuantPlan& plan() const { return plan_; }
  void set_scales(const std::vector<float>& scale, const std::vector<std::int32_t>& zero_point) {
    test::copy_to_device(scale_.get(), scale.data(), scale.size() * sizeof(float));
    test::copy_to_device(zero_point_.get(), zero_point.data(),
                         zero_point.size() * sizeof(std::int32_t));
  }
  std::vector<float> y() const { return y_.host<float>(); }
  std::vector<float> grad_x() const { return grad_x_.host<float>(); }
  std::vector<std::uint8_t> code_bytes() const { return codes_.host(); }
  std::vector<float> grad_scale() const { return grad_scale_.host<float>(); }

 private:
  static std::vector<std::uint8_t> bytes(std::int64_t count) {
    return std::vector<std::uint8_t>(static_cast<std::size_t>(count), 0xEE);
  }
  static OnDevice codes(std::int64_t count) {
    std::vector<std::uint8_t> all(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint8_t>(i * 37);
    return OnDevice(all);
  }
  OnDevice values(const QuantDescriptor& d, int salt, float offset) const {
    reference::Values all(d.spec.value_type, plan_.elements());
    for (std::int64_t i = 0; i < plan_.elements(); ++i) {
      const std::int64_t scattered = (i + salt) * 7919 % 1801;
      all.set(i, static_cast<double>(scattered - 900) / 100 + static_cast<double>(offset));
    }
    return OnDevice(all.bytes);
  }
  OnDevice reals(const QuantDescriptor& d, double value) const {
    const bool wide = d.spec.value_type == ValueType::kF64;
    reference::Values all(wide ? ValueType::kF64 : ValueType::kF32, sets());
    for (std::int64_t i = 0; i < sets(); ++i) {
      all.set(i, value * (1 + 0.1 * static_cast<double>(i % 7)));
    }
    return OnDevice(all.bytes);
  }

  QuantPlan plan_;
  OnDevice x_, grad_y_, y_, grad_x_, codes_, mask_, scale_, zero_point_, grad_scale_,
      grad_zero_point_, count_, lo_, hi_, initialized_, workspace_;
};

// One descriptor for each kernel that a plan may launch.
std::vector<QuantDescriptor> kinds() {
  std::vector<QuantDescriptor> all;
  for (const ValueType type :
       {ValueType::kF32, ValueType::kF64, ValueType::kF16, ValueType::kBF16}) {
    for (const Granularity granularity :
         {Granularity::kTensor, Granularity::kChannel, Granularity::kToken, Granularity::kGroup,
          Granularity::kBlock}) {
      const bool every = type == ValueType::kF32 || type == ValueType::kBF16;
      if (!every && granularity != Granularity::kTensor && granularity != Granularity::kGroup) {
        continue;
      }
      QuantDescriptor d;
      d.spec.value_type = type;
      d.granularity = granularity;
      d.options = {.axis = 1, .group_size = 20, .block_rows = 5, .block_columns = 9};
      d.spec.code_type = granularity == Granularity::kToken ? CodeType::kS4 : CodeType::kU8;
      d.spec.range = whole_range(d.spec.code_type);
      // Ragged, with work for several threads of the CPU and two chunks of sums.
      d.shape = test::is_emulated() ? std::vector<std::int64_t>{41, 37}
                                    : std::vector<std::int64_t>{150, 131};
      for (const auto operation : {QuantOperation::kQuantize, QuantOperation::kDequantize,
                                   QuantOperation::kFakeQuantize}) {
        for (const auto direction : {QuantDirection::kForward, QuantDirection::kBackward}) {
          d.spec.operation = operation;
          d.spec.direction = direction;
          all.push_back(d);
        }
      }
      d.spec.parameter_gradients = true;
      all.push_back(d);
      d.spec.parameter_gradients = false;
      d.spec.direction = QuantDirection::kForward;
      for (const auto statistics :
           {Statistics::kDynamic, Statistics::kCurrent, Statistics::kDelayed}) {
        d.spec.statistics = statistics;
        all.push_back(d);
      }
    }
  }
  return all;
}

TEST(QuantGuarantees, EveryKindOfPlanGivesTheSameBits) {
  for (const QuantDescriptor& d : kinds()) {
    std::optional<std::vector<std::uint8_t>> first;
    const auto expect_same = [&](DeviceType device) {
      Call call(d, device);
      call.run();
      if (!first) first = call.results();
      EXPECT_TRUE(call.results() == *first) << call.plan().identity();
    };
    test::for_each_order([&] { expect_same(test::device()); });
    if (test::is_emulated()) expect_same(DeviceType::kCpu);
  }
}

// 2^24 + 1 - 2^24, a chunk of 1,024 elements each: 0 in floats.
TEST(QuantGuarantees, ParameterGradientsAddTheirChunksInDoubles) {
  QuantDescriptor d;
  d.spec.direction = QuantDirection::kBackward;
  d.spec.parameter_gradients = true;
  d.shape = {3 * 1024};
  const QuantPlan plan = QuantPlan::select(d, test::device());
  EXPECT_EQ(plan.precision().math, ValueType::kF32);
  EXPECT_EQ(plan.precision().accumulator, ValueType::kF64);
  std::vector<float> grad(3 * 1024, 0.0F);
  std::fill_n(grad.begin(), 1024, 0x1p14F);
  grad[2 * 1024] = 1;
  std::fill_n(grad.begin() + 1024, 1024, -0x1p14F);
  const OnDevice x = OnDevice::of(std::vector<float>(grad.size(), 300));  // clipped: q - z = 255
  const OnDevice grad_y = OnDevice::of(grad), grad_x = OnDevice::of(grad);
  const OnDevice scale = OnDevice::of(std::vector<float>{1});
  const OnDevice grad_scale = OnDevice::of(std::vector<float>{7});
  const OnDevice workspace(std::vector<std::uint8_t>(plan.workspace_bytes()));
  QuantArrays arrays;
  arrays.x = x.span();
  arrays.grad_y = grad_y.span();
  arrays.grad_x = grad_x.span();
  arrays.scale = scale.span();
  arrays.grad_scale = grad_scale.span();
  plan.run(nullptr, workspace.span(), arrays);
  EXPECT_EQ(grad_scale.host<float>()[0], 255);
}

TEST(QuantGuarantees, AnswersOfAPlanFollowItsDescriptor) {
  QuantDescriptor d;
  d.shape = {4};
  for (const ValueType type : {ValueType::kF32, ValueType::kF16, ValueType::kBF16}) {
    d.spec.value_type = type;
    EXPECT_EQ(QuantPlan::select(d, test::device()).precision().math, ValueType::kF32);
    EXPECT_EQ(QuantPlan::select(d, test::device()).precision().accumulator, ValueType::kF32);
  }
  d.spec.value_type = ValueType::kF64;
  EXPECT_EQ(QuantPlan::select(d, test::device()).precision().math, ValueType::kF64);
}

// One plan, run by several threads at once on arrays of their own.
TEST(QuantGuarantees, OnePlanServesSeveralThreads) {
  if (test::device() != DeviceType::kCpu)
    GTEST_SKIP() << "threads of the host use a plan: tested on the CPU";
  for (const QuantDescriptor& d : kinds()) {
    if (d.spec.value_type != ValueType::kF32) continue;
    const QuantPlan plan = QuantPlan::select(d, DeviceType::kCpu);
    constexpr int kThreads = 2;
    std::vector<std::vector<std::uint8_t>> expected;
    std::vector<Call> calls;
    for (int i = 0; i < kThreads; ++i) {
      Call alone(d, DeviceType::kCpu, static_cast<float>(i));
      alone.run();
      expected.push_back(alone.results());
      calls.emplace_back(d, DeviceType::kCpu, static_cast<float>(i));
    }
    std::vector<std::thread> threads;
    for (Call& call : calls) threads.emplace_back([&call, &plan] { call.run_with(plan); });
    for (std::thread& thread : threads) thread.join();
    for (int i = 0; i < kThreads; ++i) {
      const auto at = static_cast<std::size_t>(i);
      EXPECT_TRUE(calls[at].results() == expected[at]) << plan.identity() << ", thread " << i;
    }
  }
}

// Sets whose scale is 0, negative or not finite, or whose zero point is no code, leave their
// neighbours right and write nowhere else (the arrays have exactly their size).
TEST(QuantGuarantees, InvalidScalesHarmOnlyTheirSet) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> good(7, 0.5F);
  const std::vector<float> bad{0.5F, 0, -1, INFINITY, nan, 0.5F, 0.5F};
  const std::vector<std::int32_t> bad_zero{1, 1, 1, 1, 1, 10'000, -10'000};
  for (QuantDescriptor d : kinds()) {
    if (d.spec.value_type != ValueType::kF32 || d.spec.statistics != Statistics::kGiven) continue;
    d.granularity = Granularity::kToken;
    d.options = {};
    d.shape = {7, 35};
    Call right(d, test::device()), wrong(d, test::device());
    right.set_scales(good, std::vector<std::int32_t>(7, 1));
    wrong.set_scales(bad, bad_zero);
    right.run();
    wrong.run();
    for (std::size_t i = 0; i < 35; ++i) {  // the first row, whose scale is the same
      EXPECT_EQ(wrong.y()[i], right.y()[i]) << right.plan().identity();
      EXPECT_EQ(wrong.grad_x()[i], right.grad_x()[i]) << right.plan().identity();
    }
    EXPECT_EQ(wrong.grad_scale()[0], right.grad_scale()[0]);
    const auto whole = static_cast<std::size_t>(35 * code_bits(d.spec.code_type) / 8);
    for (std::size_t i = 0; i < whole; ++i) EXPECT_EQ(wrong.code_bytes()[i], right.code_bytes()[i]);
  }
}

TEST(QuantGuarantees, InvalidScalesAreNamedWhereAsked) {
  QuantDescriptor d;
  d.shape = {2, 3};
  d.granularity = Granularity::kToken;
  const QuantPlan plan = QuantPlan::select(d, test::device());
  const OnDevice x = OnDevice::of(std::vector<float>(6, 1));
  for (const float scale : {0.0F, -0.5F, INFINITY, std::nanf("")}) {
    const OnDevice scales = OnDevice::of(std::vector<float>{1, scale});
    QuantArrays arrays;
    arrays.x = x.span();
    arrays.y = x.span();
    arrays.scale = scales.span();
    EXPECT_TRUE(plan.can_implement(arrays));
    EXPECT_NE(plan.can_implement(arrays, true).problem.find("set 1 is not"), std::string::npos)
        << scale;
  }
}

}  // namespace
}  // namespace steelyard::kernels
