// The gradients of learned scales and zero points, added in the order that
// kernels/quant_plan/quant_sums.h describes: bit for bit, whatever way a kernel takes through the
// memory. On the device of the program this is linked into.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "steelyard/kernels/quant_plan/quant_plan.h"
#include "tests/kernels/quant_plan/quant_device.h"
#include "tests/kernels/quant_plan/quant_reference.h"

namespace steelyard::kernels {
namespace {

using test::OnDevice;

// Lane l takes terms l, l + lanes.size(), ...; then the upper half of the lanes is added to the
// lower one until one is left.
template <typename T>
T sum_in_lanes(const std::vector<T>& terms, std::size_t begin, std::size_t end, std::size_t count) {
  std::vector<T> lanes(count, T(0));
  for (std::size_t i = begin; i < end; ++i) lanes[(i - begin) % count] += terms[i];
  for (std::size_t half = count / 2; half > 0; half /= 2) {
    for (std::size_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

float sum_in_order(const std::vector<float>& terms) {
  std::vector<double> chunks;
  for (std::size_t at = 0; at < terms.size(); at += 1024) {
    chunks.push_back(sum_in_lanes(terms, at, std::min(terms.size(), at + 1024), 32));
  }
  return static_cast<float>(sum_in_lanes(chunks, 0, chunks.size(), 256));
}

struct Case {
  const char* name;
  std::vector<std::int64_t> shape;
  Granularity granularity;
  GranularityOptions options;
};

class QuantSums : public ::testing::TestWithParam<Case> {};

TEST_P(QuantSums, AreAddedInTheOrderOfTheirSets) {
  QuantDescriptor d;
  d.spec.direction = QuantDirection::kBackward;
  d.spec.parameter_gradients = true;
  d.shape = GetParam().shape;
  d.granularity = GetParam().granularity;
  d.options = GetParam().options;
  const QuantPlan plan = QuantPlan::select(d, test::device());
  const auto n = static_cast<std::size_t>(plan.elements());
  const auto sets = static_cast<std::size_t>(plan.num_parameter_sets());
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0, 6);
  std::vector<float> x(n), grad(n), scale(sets);
  for (float& value : x) value = normal(random);
  for (float& value : grad) value = normal(random);
  for (std::size_t set = 0; set < sets; ++set) scale[set] = 0.02F + 0.001F * float(set % 23);
  const std::int32_t z = 120;

  std::vector<std::vector<float>> scale_terms(sets), zero_point_terms(sets);
  std::vector<float> expected_grad(n);
  for (std::size_t i = 0; i < n; ++i) {
    const auto set = static_cast<std::size_t>(reference::set_of(d, static_cast<std::int64_t>(i)));
    const reference::Element e =
        reference::element<float>(double(x[i]), double(scale[set]), z, d.spec.range);
    const float term = e.inside ? float(e.rounded) - float(e.quotient) : float(e.code - z);
    scale_terms[set].push_back(grad[i] * term);
    zero_point_terms[set].push_back(e.inside ? 0.0F : -scale[set] * grad[i]);
    expected_grad[i] = e.inside ? grad[i] : 0.0F;
  }

  const OnDevice on_x = OnDevice::of(x), on_grad = OnDevice::of(grad);
  const OnDevice grad_x = OnDevice::of(std::vector<float>(n, 7));
  const OnDevice on_scale = OnDevice::of(scale);
  const OnDevice zero_point = OnDevice::of(std::vector<std::int32_t>(sets, z));
  const OnDevice grad_scale = OnDevice::of(std::vector<float>(sets, 7));
  const OnDevice grad_zero_point = OnDevice::of(std::vector<float>(sets, 7));
  const OnDevice workspace(std::vector<std::uint8_t>(plan.workspace_bytes(), 0xFF));
  QuantArrays arrays;
  arrays.x = on_x.span();
  arrays.grad_y = on_grad.span();
  arrays.grad_x = grad_x.span();
  arrays.scale = on_scale.span();
  arrays.zero_point = zero_point.span<std::int32_t>();
  arrays.grad_scale = grad_scale.span();
  for (const bool with_zero_point : {false, true}) {
    arrays.grad_zero_point = with_zero_point ? QuantArray(grad_zero_point.span<float>()) : nullptr;
    plan.run(nullptr, workspace.span(), arrays);
    EXPECT_EQ(grad_x.host<float>(), expected_grad);
    for (std::size_t set = 0; set < sets; ++set) {
      ASSERT_EQ(grad_scale.host<float>()[set], sum_in_order(scale_terms[set])) << "set " << set;
      if (!with_zero_point) continue;
      ASSERT_EQ(grad_zero_point.host<float>()[set], sum_in_order(zero_point_terms[set]))
          << "set " << set;
    }
  }
}

using G = Granularity;
INSTANTIATE_TEST_SUITE_P(
    Layouts, QuantSums,
    ::testing::Values(
        Case{"Tensor", {3 * 1024 + 5}, G::kTensor, {}},
        Case{"FewColumns", {2077, 3}, G::kChannel, {.axis = 1}},
        Case{"ManyColumns", {1100, 131}, G::kChannel, {.axis = 1}},
        Case{"Planes", {23, 90, 7, 7}, G::kChannel, {.axis = 1}},
        Case{"PlanesOfTwo", {700, 5, 2}, G::kChannel, {.axis = 1}},
        Case{"LargePlanes", {3, 4, 20, 20}, G::kChannel, {.axis = 1}},
        Case{"LongRows", {5, 1500}, G::kToken, {}}, Case{"ShortRows", {301, 13}, G::kToken, {}},
        Case{"Groups", {19, 32 * 9}, G::kGroup, {.axis = 1, .group_size = 32}},
        Case{"RaggedGroups", {40, 77}, G::kGroup, {.axis = 1, .group_size = 16}},
        Case{"GroupsOfRows", {45, 33}, G::kGroup, {.axis = 0, .group_size = 16}},
        Case{"Blocks", {64, 80}, G::kBlock, {.block_rows = 16, .block_columns = 16}},
        Case{"BlocksOfWholeRows", {23, 200}, G::kBlock, {.block_rows = 5, .block_columns = 200}},
        Case{"RotatingBlocks", {64, 216}, G::kBlock, {.block_rows = 32, .block_columns = 24}},
        Case{"RaggedBlocks", {2, 83, 75}, G::kBlock, {.block_rows = 40, .block_columns = 40}}),
    [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace steelyard::kernels
