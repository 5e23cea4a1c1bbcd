// Every operation, granularity and format of QuantPlan against the plain definition in
// quant_reference.h, on the device of the program this is linked into.
#include "steelyard/kernels/quant_plan/quant_plan.h"

#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>

#include "tests/kernels/quant_plan/quant_device.h"
#include "tests/kernels/quant_plan/quant_reference.h"

namespace steelyard::kernels {
namespace {

using reference::Element;
using reference::Values;
using test::OnDevice;

struct LayoutCase {
  std::string name;
  std::vector<std::int64_t> shape;
  Granularity granularity = Granularity::kTensor;
  GranularityOptions options = {};
  std::vector<std::int64_t> strides = {};
};

std::vector<LayoutCase> layouts() {
  using G = Granularity;
  return {
      {"scalar", {}},
      {"empty", {0}},
      {"tensor", {7, 11, 13}},
      {"tensor_long", {5003}},
      {"channel_first", {5, 3, 7, 3}, G::kChannel, {.axis = 0}},
      {"channel_middle", {3, 5, 70}, G::kChannel, {.axis = 1}},
      {"channel_short_planes", {9, 16, 7, 7}, G::kChannel, {.axis = 1}},
      {"channel_last", {83, 24}, G::kChannel, {.axis = -1}},
      {"channel_last_of_three", {50, 3}, G::kChannel, {.axis = 1}},
      {"channel_planes_of_two", {20, 2, 2}, G::kChannel, {.axis = 1}},
      {"channel_rank_eight", {2, 3, 1, 2, 4, 1, 3, 2}, G::kChannel, {.axis = 4}},
      {"channel_none", {0, 4, 3}, G::kChannel, {.axis = 1}},
      {"no_channels", {3, 0, 5}, G::kChannel, {.axis = 1}},
      {"token", {4, 9, 65}, G::kToken},
      {"token_short", {301, 5}, G::kToken},
      {"group", {6, 128}, G::kGroup, {.axis = -1, .group_size = 32}},
      {"group_ragged", {6, 77}, G::kGroup, {.axis = -1, .group_size = 32}},
      {"group_of_eights_ragged", {6, 72}, G::kGroup, {.axis = -1, .group_size = 16}},
      {"group_outer_axis", {45, 33}, G::kGroup, {.axis = 0, .group_size = 16}},
      {"group_middle", {3, 10, 6}, G::kGroup, {.axis = 1, .group_size = 4}},
      {"group_of_everything", {4, 20}, G::kGroup, {.axis = 1, .group_size = 64}},
      {"many_groups", {1200, 16}, G::kGroup, {.axis = 1, .group_size = 8}},
      {"block", {64, 48}, G::kBlock, {.block_rows = 16, .block_columns = 16}},
      {"block_ragged", {2, 35, 21}, G::kBlock, {.block_rows = 16, .block_columns = 8}},
      {"strided_transpose", {31, 17}, G::kChannel, {.axis = 0}, {1, 31}},
      {"strided_gaps", {5, 6, 7}, G::kToken, {}, {100, 15, 2}},
      {"strided_rows", {40, 50}, G::kTensor, {}, {64, 1}},
      {"strided_group", {9, 40}, G::kGroup, {.axis = 1, .group_size = 12}, {1, 9}},
  };
}

// What a test keeps of one descriptor: arrays on the host, and the definition's answers.
class Problem {
 public:
  Problem(const LayoutCase& layout, ValueType value_type, CodeType code_type, CodeRange range,
          unsigned seed)
      : seed_(seed) {
    d.granularity = layout.granularity;
    d.options = layout.options;
    d.shape = layout.shape;
    d.strides = layout.strides;
    d.spec.value_type = value_type;
    d.spec.code_type = code_type;
    d.spec.range = range;
    n = 1;
    for (const std::int64_t size : d.shape) n *= size;
    for (std::int64_t i = 0; i < n; ++i) {
      where.push_back(reference::offset_of(d, i));
      storage = std::max(storage, where.back() + 1);
    }
    const std::int64_t sets = plan().num_parameter_sets();
    for (std::int64_t set = 0; set < sets; ++set) {
      scale.push_back(real(0.013 + 0.021 * static_cast<double>(set % 19)));
      zero_point.push_back(
          range.qmin + static_cast<std::int32_t>((1 + 7 * set) % (range.qmax - range.qmin + 1)));
    }
    x.emplace(values(1));
    grad.emplace(values(2));
  }

  Values values(unsigned salt) const {
    Values out(d.spec.value_type, storage);
    reference::fill_awkward(out, n, where, scale.empty() ? std::vector<double>{1.0} : scale,
                            seed_ * 16 + salt);
    return out;
  }
  double real(double value) const {
    return d.spec.value_type == ValueType::kF64 ? value
                                                : static_cast<double>(static_cast<float>(value));
  }
  QuantPlan plan() const { return QuantPlan::select(d, test::device()); }
  QuantPlan plan(QuantOperation operation, QuantDirection direction) {
    d.spec.operation = operation;
    d.spec.direction = direction;
    return plan();
  }
  Element expected(std::int64_t i) const {
    const auto set = static_cast<std::size_t>(reference::set_of(d, i));
    const double value = x->get(where[static_cast<std::size_t>(i)]);
    return d.spec.value_type == ValueType::kF64
               ? reference::element<double>(value, scale[set], zero_point[set], d.spec.range)
               : reference::element<float>(value, scale[set], zero_point[set], d.spec.range);
  }
  // Product and quotient in the arithmetic's type.
  double times(double a, double b) const {
    return d.spec.value_type == ValueType::kF64
               ? a * b
               : static_cast<double>(static_cast<float>(a) * static_cast<float>(b));
  }
  double over(double a, double b) const {
    return d.spec.value_type == ValueType::kF64
               ? a / b
               : static_cast<double>(static_cast<float>(a) / static_cast<float>(b));
  }
  double scale_at(std::int64_t i) const {
    return scale[static_cast<std::size_t>(reference::set_of(d, i))];
  }

  // The scales as the plan reads them.
  std::vector<std::uint8_t> scale_bytes() const {
    Values out(d.spec.value_type == ValueType::kF64 ? ValueType::kF64 : ValueType::kF32,
               static_cast<std::int64_t>(scale.size()));
    for (std::size_t i = 0; i < scale.size(); ++i) out.set(static_cast<std::int64_t>(i), scale[i]);
    return out.bytes;
  }

  QuantDescriptor d;
  std::int64_t n = 0;
  std::int64_t storage = 0;
  std::vector<std::int64_t> where;  // offset of each logical index
  std::vector<double> scale;
  std::vector<std::int32_t> zero_point;
  std::optional<Values> x, grad;

 private:
  unsigned seed_;
};

// Bits of `actual` against a double that holds a value of the type; any NaN equals any NaN.
// Elements outside `where` must not have been written.
void expect_values(const Values& actual, const Problem& p,
                   const std::function<double(std::int64_t)>& expected, const char* what) {
  Values want(actual.type, p.storage);
  for (std::int64_t i = 0; i < p.n; ++i)
    want.set(p.where[static_cast<std::size_t>(i)], expected(i));
  const std::int64_t bytes = value_bytes(actual.type);
  int shown = 0;
  for (std::int64_t at = 0; at < p.storage && shown < 5; ++at) {
    if (std::isnan(want.get(at)) && std::isnan(actual.get(at))) continue;
    if (std::memcmp(actual.bytes.data() + at * bytes, want.bytes.data() + at * bytes,
                    static_cast<std::size_t>(bytes)) == 0) {
      continue;
    }
    ADD_FAILURE() << what << " at offset " << at << ": " << actual.get(at) << ", expected "
                  << want.get(at) << " from x = " << p.x->get(at);
    ++shown;
  }
}

class QuantPlanFormats : public ::testing::TestWithParam<std::tuple<std::size_t, ValueType>> {
 protected:
  // Calls body(problem) for every code type; where a run costs much, for a third of them, another
  // third for each format and layout.
  void each(const std::function<void(Problem&)>& body) const {
    const auto [layout, value_type] = GetParam();
    for (int index = 0; index < 6; ++index) {
      const auto type = static_cast<CodeType>(index);
      const int turn = static_cast<int>(layout) + static_cast<int>(value_type);
      if (test::is_emulated() && index % 3 != turn % 3) continue;
      SCOPED_TRACE("code type " + std::to_string(index));
      CodeRange range = whole_range(type);
      if (layout % 2 == 1 && range.qmin < 0 && range.qmax > 1) ++range.qmin;  // narrow
      Problem problem(layouts()[layout], value_type, type, range,
                      static_cast<unsigned>(layout) + 1);
      body(problem);
    }
  }
};

struct ForwardResult {
  Values y;
  std::vector<std::uint8_t> codes, mask;
  std::int64_t nan;
};

ForwardResult run_forward(Problem& p, QuantOperation operation, bool with_mask, bool in_place) {
  const QuantPlan plan = p.plan(operation, QuantDirection::kForward);
  const OnDevice x(p.x->bytes);
  const OnDevice y(Values(p.d.spec.value_type, p.storage).bytes);
  const OnDevice scale(p.scale_bytes());
  const OnDevice zero_point = OnDevice::of(p.zero_point);
  const OnDevice codes(std::vector<std::uint8_t>(
      static_cast<std::size_t>(packed_bytes(p.d.spec.code_type, p.n)), 0xEE));
  const OnDevice mask(std::vector<std::uint8_t>(static_cast<std::size_t>(mask_bytes(p.n)), 0xEE));
  const OnDevice nan = OnDevice::of(std::vector<std::int64_t>{5});
  QuantArrays arrays;
  arrays.x = x.span();
  arrays.scale = scale.span();
  arrays.zero_point = zero_point.span<std::int32_t>();
  if (operation == QuantOperation::kFakeQuantize) arrays.y = in_place ? x.span() : y.span();
  if (operation == QuantOperation::kQuantize) {
    arrays.codes = codes.span();
    arrays.non_finite_count = nan.span<std::int64_t>();
  }
  if (with_mask) arrays.mask = mask.span<std::uint8_t>();
  plan.run(nullptr, {}, arrays);
  ForwardResult result{Values(p.d.spec.value_type, 0), codes.host(), mask.host(),
                       nan.host<std::int64_t>()[0] - 5};
  result.y.bytes = (in_place ? x : y).host();
  return result;
}

void check_mask(const Problem& p, const std::vector<std::uint8_t>& mask) {
  for (std::int64_t i = 0; i < p.n; ++i) {
    ASSERT_EQ((mask[static_cast<std::size_t>(i / 8)] >> (i % 8) & 1) != 0, p.expected(i).inside)
        << "mask of element " << i;
  }
  const int after = p.n % 8 == 0 ? 0 : mask.back() >> (p.n % 8);
  EXPECT_EQ(after, 0) << "bits after the last element";
}

void check_fake_quantize_forward(Problem& p) {
  const auto fake = [&](std::int64_t i) { return p.expected(i).y; };
  test::for_each_order([&] {
    const auto plain = run_forward(p, QuantOperation::kFakeQuantize, false, false);
    expect_values(plain.y, p, fake, "y");
    const auto masked = run_forward(p, QuantOperation::kFakeQuantize, true, false);
    expect_values(masked.y, p, fake, "y with mask");
    check_mask(p, masked.mask);
  });
  // In place the gaps of a strided tensor keep what was there: compare elements only.
  const auto in_place = run_forward(p, QuantOperation::kFakeQuantize, false, true);
  Values elements(p.d.spec.value_type, p.storage);
  for (const std::int64_t at : p.where) elements.set(at, in_place.y.get(at));
  expect_values(elements, p, fake, "y in place");
}

void check_quantize_and_dequantize(Problem& p) {
  test::for_each_order([&] {
    const ForwardResult result = run_forward(p, QuantOperation::kQuantize, true, false);
    const ForwardResult alone = run_forward(p, QuantOperation::kQuantize, false, false);
    EXPECT_EQ(result.codes, alone.codes);
    std::int64_t nan = 0;
    for (std::int64_t i = 0; i < p.n; ++i) {
      const Element e = p.expected(i);
      nan += std::isnan(e.code) ? 1 : 0;
      const auto set = static_cast<std::size_t>(reference::set_of(p.d, i));
      const auto want = std::isnan(e.code) ? p.zero_point[set] : static_cast<std::int32_t>(e.code);
      ASSERT_EQ(reference::code_at(p.d.spec.code_type, result.codes, i), want) << "code " << i;
    }
    EXPECT_EQ(result.nan, nan);
    check_mask(p, result.mask);
    const std::int64_t used = p.n * code_bits(p.d.spec.code_type) % 8;
    EXPECT_EQ(used == 0 ? 0 : result.codes.back() >> used, 0) << "bits after the last code";

    const QuantPlan plan = p.plan(QuantOperation::kDequantize, QuantDirection::kForward);
    const OnDevice codes(result.codes);
    const OnDevice y(Values(p.d.spec.value_type, p.storage).bytes);
    const OnDevice scale(p.scale_bytes());
    const OnDevice zero_point = OnDevice::of(p.zero_point);
    QuantArrays arrays;
    arrays.codes = codes.span();
    arrays.y = y.span();
    arrays.scale = scale.span();
    arrays.zero_point = zero_point.span<std::int32_t>();
    plan.run(nullptr, {}, arrays);
    Values out(p.d.spec.value_type, 0);
    out.bytes = y.host();
    expect_values(
        out, p,
        [&](std::int64_t i) { return std::isnan(p.expected(i).code) ? 0.0 : p.expected(i).y; },
        "dequantized");
  });
}

// grad_x of a backward plan, from x or from the mask.
Values run_backward(Problem& p, QuantOperation operation, bool from_mask) {
  const std::vector<std::uint8_t> bits =
      run_forward(p, QuantOperation::kFakeQuantize, true, false).mask;
  const QuantPlan plan = p.plan(operation, QuantDirection::kBackward);
  const OnDevice x(p.x->bytes);
  const OnDevice grad_y(p.grad->bytes);
  const OnDevice grad_x(Values(p.d.spec.value_type, p.storage).bytes);
  const OnDevice scale(p.scale_bytes());
  const OnDevice zero_point = OnDevice::of(p.zero_point);
  const OnDevice mask(bits);
  QuantArrays arrays;
  if (operation != QuantOperation::kDequantize) {
    if (from_mask) {
      arrays.mask = mask.span<std::uint8_t>();
    } else {
      arrays.x = x.span();
    }
  }
  arrays.grad_y = grad_y.span();
  arrays.grad_x = grad_x.span();
  arrays.scale = scale.span();
  arrays.zero_point = zero_point.span<std::int32_t>();
  plan.run(nullptr, {}, arrays);
  Values out(p.d.spec.value_type, 0);
  out.bytes = grad_x.host();
  return out;
}

void check_backward(Problem& p) {
  const auto grad = [&](std::int64_t i) {
    return p.grad->get(p.where[static_cast<std::size_t>(i)]);
  };
  test::for_each_order([&] {
    for (const bool from_mask : {false, true}) {
      expect_values(
          run_backward(p, QuantOperation::kFakeQuantize, from_mask), p,
          [&](std::int64_t i) { return p.expected(i).inside ? grad(i) : 0.0; }, "fake-quantize");
      expect_values(
          run_backward(p, QuantOperation::kQuantize, from_mask), p,
          [&](std::int64_t i) {
            return p.expected(i).inside ? p.over(grad(i), p.scale_at(i)) : 0.0;
          },
          "quantize");
    }
    expect_values(
        run_backward(p, QuantOperation::kDequantize, false), p,
        [&](std::int64_t i) { return p.times(grad(i), p.scale_at(i)); }, "dequantize");
  });
}

// Finite values only: a sum with a NaN in it shows nothing.
Values tame(const Values& from, std::int64_t storage) {
  Values out(from.type, storage);
  for (std::int64_t at = 0; at < storage; ++at) {
    const double value = from.get(at);
    out.set(at, std::fabs(value) < 1000 ? value : 3.5);
  }
  return out;
}

struct GradientResult {
  Values grad_x;
  std::vector<std::uint8_t> scale, zero_point;
};

GradientResult run_parameter_gradients(Problem& p, DeviceType device) {
  p.d.spec.parameter_gradients = true;
  p.d.spec.gradient_factor = 0.37;
  p.plan(QuantOperation::kFakeQuantize, QuantDirection::kBackward);
  const QuantPlan plan = QuantPlan::select(p.d, device);
  p.d.spec.parameter_gradients = false;
  const OnDevice x(p.x->bytes);
  const OnDevice grad_y(p.grad->bytes);
  const OnDevice grad_x(Values(p.d.spec.value_type, p.storage).bytes);
  const OnDevice scale(p.scale_bytes());
  const OnDevice zero_point = OnDevice::of(p.zero_point);
  const std::vector<std::uint8_t> empty(p.scale_bytes().size(), 0xAB);
  const OnDevice grad_scale(empty);
  const OnDevice grad_zero_point(empty);
  const OnDevice workspace(std::vector<std::uint8_t>(plan.workspace_bytes(), 0xFF));
  QuantArrays arrays;
  arrays.x = x.span();
  arrays.grad_y = grad_y.span();
  arrays.grad_x = grad_x.span();
  arrays.scale = scale.span();
  arrays.zero_point = zero_point.span<std::int32_t>();
  arrays.grad_scale = grad_scale.span();
  arrays.grad_zero_point = grad_zero_point.span();
  plan.run(nullptr, workspace.span(), arrays);
  GradientResult result{Values(p.d.spec.value_type, 0), grad_scale.host(), grad_zero_point.host()};
  result.grad_x.bytes = grad_x.host();
  return result;
}

void check_parameter_gradients_follow_the_closed_form(Problem& p) {
  *p.x = tame(*p.x, p.storage);
  *p.grad = tame(*p.grad, p.storage);
  const std::size_t sets = p.scale.size();
  std::vector<double> scale_sum(sets, 0), zero_point_sum(sets, 0), magnitude(sets, 0);
  for (std::int64_t i = 0; i < p.n; ++i) {
    const auto set = static_cast<std::size_t>(reference::set_of(p.d, i));
    const Element e = p.expected(i);
    const double grad = p.grad->get(p.where[static_cast<std::size_t>(i)]);
    const double term = e.inside ? e.rounded - e.quotient : e.code - p.zero_point[set];
    scale_sum[set] += grad * term;
    zero_point_sum[set] += e.inside ? 0 : -p.scale[set] * grad;
    magnitude[set] += std::fabs(grad) * (std::fabs(e.quotient) + std::fabs(term) + 1);
  }
  std::optional<GradientResult> first;
  test::for_each_order([&] {
    const GradientResult result = run_parameter_gradients(p, test::device());
    expect_values(
        result.grad_x, p,
        [&](std::int64_t i) {
          return p.expected(i).inside ? p.grad->get(p.where[static_cast<std::size_t>(i)]) : 0.0;
        },
        "grad_x");
    const ValueType real =
        p.d.spec.value_type == ValueType::kF64 ? ValueType::kF64 : ValueType::kF32;
    Values scale(real, 0), zero_point(real, 0);
    scale.bytes = result.scale;
    zero_point.bytes = result.zero_point;
    const double unit = real == ValueType::kF64 ? 0x1p-52 : 0x1p-23;
    for (std::size_t set = 0; set < sets; ++set) {
      const double bound = 0.37 * magnitude[set] * unit * 40;
      ASSERT_NEAR(scale.get(static_cast<std::int64_t>(set)), 0.37 * scale_sum[set], bound);
      ASSERT_NEAR(zero_point.get(static_cast<std::int64_t>(set)), 0.37 * zero_point_sum[set],
                  bound);
    }
    if (!first) first = result;
    EXPECT_EQ(result.scale, first->scale);  // any number of threads, any order of fibers
    EXPECT_EQ(result.zero_point, first->zero_point);
  });
  if (!test::is_emulated()) return;
  const GradientResult cpu = run_parameter_gradients(p, DeviceType::kCpu);
  EXPECT_EQ(cpu.scale, first->scale);
  EXPECT_EQ(cpu.zero_point, first->zero_point);
}

TEST_P(QuantPlanFormats, FakeQuantizeForward) { each(check_fake_quantize_forward); }
TEST_P(QuantPlanFormats, QuantizeAndDequantize) { each(check_quantize_and_dequantize); }
TEST_P(QuantPlanFormats, Backward) { each(check_backward); }
TEST_P(QuantPlanFormats, ParameterGradientsFollowTheClosedForm) {
  each(check_parameter_gradients_follow_the_closed_form);
}

// The last element first: a view with negative strides gives the dense results in reverse.
TEST(QuantStrides, NegativeOnesReverseTheOrder) {
  constexpr std::int64_t kRows = 31, kColumns = 70;
  const std::int64_t n = kRows * kColumns;
  QuantDescriptor d;
  d.shape = {kRows, kColumns};
  const QuantPlan dense = QuantPlan::select(d, test::device());
  d.strides = {-kColumns, -1};
  const QuantPlan reversed = QuantPlan::select(d, test::device());
  d.spec.direction = QuantDirection::kBackward;
  d.spec.parameter_gradients = true;
  const QuantPlan backward = QuantPlan::select(d, test::device());
  std::vector<float> values(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = 0.01F * static_cast<float>(i) - 7;
  const OnDevice x = OnDevice::of(values), scale = OnDevice::of(std::vector<float>{0.1F});
  const OnDevice y = OnDevice::of(std::vector<float>(values.size(), 9)), z = OnDevice(y.host());
  const std::vector<std::uint8_t> bits(static_cast<std::size_t>(mask_bytes(n)), 0xEE);
  const OnDevice mask(bits), mask_of_reversed(bits), grad_scale = OnDevice::of(values);
  const OnDevice workspace(std::vector<std::uint8_t>(backward.workspace_bytes()));
  QuantArrays arrays;
  arrays.x = x.span();
  arrays.y = y.span();
  arrays.mask = mask.span<std::uint8_t>();
  arrays.scale = scale.span();
  dense.run(nullptr, {}, arrays);
  arrays.x = x.span<float>(static_cast<std::size_t>(n - 1));
  arrays.y = z.span<float>(static_cast<std::size_t>(n - 1));
  arrays.mask = mask_of_reversed.span<std::uint8_t>();
  reversed.run(nullptr, {}, arrays);
  EXPECT_EQ(z.host<float>(), y.host<float>());
  const std::vector<std::uint8_t> plain = mask.host(), turned = mask_of_reversed.host();
  const auto bit = [](const std::vector<std::uint8_t>& of, std::int64_t i) {
    return of[static_cast<std::size_t>(i / 8)] >> (i % 8) & 1;
  };
  for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(bit(turned, n - 1 - i), bit(plain, i)) << i;
  arrays.mask = nullptr;
  arrays.grad_y = arrays.x;
  arrays.grad_x = std::exchange(arrays.y, {});
  arrays.grad_scale = grad_scale.span();
  backward.run(nullptr, workspace.span(), arrays);
  const std::vector<float> grad_x = z.host<float>();
  for (std::int64_t i = 0; i < n; ++i) {
    const auto at = static_cast<std::size_t>(i);
    ASSERT_EQ(grad_x[at], bit(plain, i) != 0 ? values[at] : 0) << i;
  }
}

std::string format_label(const ::testing::TestParamInfo<std::tuple<std::size_t, ValueType>>& test) {
  const auto [layout, value_type] = test.param;
  constexpr const char* kValues[] = {"f32", "f64", "f16", "bf16"};
  return layouts()[layout].name + "_" + kValues[static_cast<int>(value_type)];
}

INSTANTIATE_TEST_SUITE_P(All, QuantPlanFormats,
                         ::testing::Combine(::testing::Range(std::size_t{0}, layouts().size()),
                                            ::testing::Values(ValueType::kF32, ValueType::kF64,
                                                              ValueType::kF16, ValueType::kBF16)),
                         format_label);

}  // namespace
}  // namespace steelyard::kernels
