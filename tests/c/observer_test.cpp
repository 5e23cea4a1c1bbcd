#include <gmock/gmock.h>

#include <cmath>
#include <functional>
#include <limits>

#include "steelyard/observers/registry.h"
#include "tests/c/plan_support.h"

namespace steelyard::c_face {
namespace {

using Observer = std::unique_ptr<steelyard_observer, Destroy>;

steelyard_observer_descriptor of_type(const char* type) {
  steelyard_observer_descriptor d;
  steelyard_observer_descriptor_init(&d, sizeof d);
  d.type = type;
  return d;
}

Observer observer_of(const Context& context, const steelyard_observer_descriptor& d) {
  steelyard_observer* observer = nullptr;
  EXPECT_EQ(steelyard_observer_create(context, &d, &observer), STEELYARD_OK) << context.message();
  return Observer(observer);
}

TEST(CObserver, EveryTypeHasTheParametersOfCpp) {
  const Context context;
  for (const std::string& name : observers::observer_names()) {
    steelyard_observer_descriptor d = of_type(name.c_str());
    d.channels = 3;
    const Observer observer = observer_of(context, d);
    observers::ObserverOptions options;
    options.type = name;
    observers::QScheme scheme;
    scheme.granularity = kernels::Granularity::kChannel;
    const auto own = observers::make_observer(options, scheme, 3);
    const Tensor skipped = Tensor::zeros({1}, DType::kI64);
    for (int step = 0; step < 3; ++step) {
      std::vector<float> numbers = wave(60);
      for (float& x : numbers) x *= static_cast<float>(step + 1);
      Array<float> values(numbers, {5, 3, 4});
      ASSERT_EQ(steelyard_observer_observe(context, observer.get(), nullptr, &values.view, 1),
                STEELYARD_OK)
          << context.message();
      own->observe({5, 3, 4}, Tensor::from(numbers, {5, 3, 4}), skipped);
    }
    Array<float> scale({0, 0, 0});
    Array<std::int32_t> zero({9, 9, 9});
    ASSERT_EQ(steelyard_observer_qparams(context, observer.get(), nullptr, &scale.view, &zero.view),
              STEELYARD_OK)
        << context.message();
    double lo[3], hi[3];
    ASSERT_EQ(steelyard_observer_range(context, observer.get(), lo, hi, 3), STEELYARD_OK);
    const std::vector<observers::Range> ranges = own->ranges();
    for (std::size_t i = 0; i < 3; ++i) {
      const auto expected = observers::choose_qparams(ranges[i], scheme);
      EXPECT_EQ(scale.values[i], expected.scale) << name;
      EXPECT_EQ(zero.values[i], expected.zero_point) << name;
      EXPECT_EQ(lo[i], ranges[i].lo) << name;
      EXPECT_EQ(hi[i], ranges[i].hi) << name;
    }
  }
}

TEST(CObserver, SkipsAndCountsWhatIsNotFinite) {
  const Context context;
  const Observer observer = observer_of(context, of_type("min_max"));
  Array<float> values({1, NAN, -2, std::numeric_limits<float>::infinity()});
  ASSERT_EQ(steelyard_observer_observe(context, observer.get(), nullptr, &values.view, -1),
            STEELYARD_OK);
  double lo = 0, hi = 0;
  std::int64_t skipped = 0;
  ASSERT_EQ(steelyard_observer_range(context, observer.get(), &lo, &hi, 1), STEELYARD_OK);
  ASSERT_EQ(steelyard_observer_non_finite(context, observer.get(), &skipped), STEELYARD_OK);
  EXPECT_EQ(lo, -2);
  EXPECT_EQ(hi, 1);
  EXPECT_EQ(skipped, 2);
  ASSERT_EQ(steelyard_observer_reset(context, observer.get()), STEELYARD_OK);
  ASSERT_EQ(steelyard_observer_range(context, observer.get(), &lo, &hi, 1), STEELYARD_OK);
  EXPECT_GT(lo, hi);
  ASSERT_EQ(steelyard_observer_non_finite(context, observer.get(), &skipped), STEELYARD_OK);
  EXPECT_EQ(skipped, 0);
}

TEST(CObserver, TakesStridedValues) {
  const Context context;
  const Observer observer = observer_of(context, of_type("min_max"));
  Array<float> values({1, 90, 2, 91, 3, -92}, {3});
  std::int64_t every_second[] = {2};
  values.view.strides = every_second;
  ASSERT_EQ(steelyard_observer_observe(context, observer.get(), nullptr, &values.view, 0),
            STEELYARD_OK);
  double lo = 0, hi = 0;
  ASSERT_EQ(steelyard_observer_range(context, observer.get(), &lo, &hi, 1), STEELYARD_OK);
  EXPECT_EQ(lo, 1);
  EXPECT_EQ(hi, 3);
}

TEST(CObserver, DescriptorsAreChecked) {
  const Context context;
  const auto refusal = [&](const std::function<void(steelyard_observer_descriptor&)>& change) {
    steelyard_observer_descriptor d = of_type("min_max");
    change(d);
    steelyard_observer* observer = nullptr;
    EXPECT_EQ(steelyard_observer_create(context, &d, &observer), STEELYARD_INVALID_ARGUMENT);
    EXPECT_EQ(observer, nullptr);
    return context.message();
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(refusal([](auto& d) { d.type = "mid_max"; }), HasSubstr("moving_average"));
  EXPECT_THAT(refusal([](auto& d) { d.type = nullptr; }),
              HasSubstr("expected a pointer for type, got NULL"));
  EXPECT_THAT(refusal([](auto& d) { d.channels = 0; }), HasSubstr("channels >= 1, got 0"));
  EXPECT_THAT(refusal([](auto& d) { d.num_bits = 99; }), HasSubstr("99"));
  EXPECT_THAT(refusal([](auto& d) { d.is_signed = 2; }), HasSubstr("is_signed to be 0 or 1"));
  EXPECT_THAT(refusal([](auto& d) {
                d.type = "moving_average";
                d.averaging_constant = 2;
              }),
              HasSubstr("averaging_constant"));
}

TEST(CObserver, ValuesAndResultsAreChecked) {
  const Context context;
  steelyard_observer_descriptor d = of_type("min_max");
  d.channels = 2;
  const Observer observer = observer_of(context, d);
  Array<float> values(wave(6), {3, 2});
  Array<double> wide(std::vector<double>(6), {3, 2});
  const auto observe = [&](const DLTensor& view, int axis) {
    EXPECT_EQ(steelyard_observer_observe(context, observer.get(), nullptr, &view, axis),
              STEELYARD_INVALID_ARGUMENT);
    return context.message();
  };
  const std::string begin = "steelyard_observer_observe: ";
  EXPECT_EQ(observe(values.view, 0),
            begin + "values: expected 2 channels along axis 0, got the shape [3, 2]");
  EXPECT_EQ(observe(values.view, 5),
            begin + "values: expected 2 channels along axis 5, got the shape [3, 2]");
  EXPECT_EQ(observe(wide.view, 1), begin + "values: expected f32, got f64");
  Array<float> scale({0, 0}), one({0});
  Array<std::int32_t> zero({0, 0});
  const auto qparams = [&](const DLTensor* scales, const DLTensor* zeros) {
    EXPECT_EQ(steelyard_observer_qparams(context, observer.get(), nullptr, scales, zeros),
              STEELYARD_INVALID_ARGUMENT);
    return context.message();
  };
  const std::string of_qparams = "steelyard_observer_qparams: ";
  EXPECT_EQ(qparams(&one.view, &zero.view), of_qparams + "scale: expected the shape [2], got [1]");
  EXPECT_EQ(qparams(&scale.view, &scale.view), of_qparams + "zero_point: expected i32, got f32");
  zero.view.data = scale.values.data();
  EXPECT_EQ(qparams(&scale.view, &zero.view),
            of_qparams + "expected scale and zero_point apart, got memory that overlaps");
  double lo[2], hi[2];
  EXPECT_EQ(steelyard_observer_range(context, observer.get(), lo, hi, 1),
            STEELYARD_INVALID_ARGUMENT);
  EXPECT_EQ(context.message(), "steelyard_observer_range: expected room for 2 channels, got 1");
  EXPECT_EQ(steelyard_observer_range(context, observer.get(), nullptr, hi, 2),
            STEELYARD_INVALID_ARGUMENT);
  EXPECT_EQ(steelyard_observer_non_finite(context, observer.get(), nullptr),
            STEELYARD_INVALID_ARGUMENT);
  EXPECT_EQ(steelyard_observer_reset(context, nullptr), STEELYARD_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace steelyard::c_face
