// Calls on the CPU and on a GPU compared: 10^8 values for each operation and format, no bit
// different.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <vector>

#include "steelyard/kernels/device_memory.h"
#include "steelyard/kernels/quant_plan/quant_plan.h"

namespace steelyard::kernels {
namespace {

constexpr std::int64_t kRows = 25000;
constexpr std::int64_t kColumns = 4000;

// Values near the range, among them, where `any`, patterns of any kind but NaN: their bits are not
// promised to agree.
std::vector<std::uint8_t> patterns(ValueType type, bool any) {
  const std::int64_t n = kRows * kColumns;
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(n * value_bytes(type)));
  std::mt19937_64 random(3);
  visit_value_type(type, [&](auto* tag) {
    using V = std::remove_pointer_t<decltype(tag)>;
    using T = ComputeType<V>;
    V* values = reinterpret_cast<V*>(bytes.data());
    for (std::int64_t i = 0; i < n; ++i) {
      const std::uint64_t bits = random();
      const T near = static_cast<T>(static_cast<std::int32_t>(bits)) / T(1 << 27);
      V value = narrow<V>(near);
      if (any && bits >> 60 == 0) std::memcpy(&value, &bits, sizeof(V));
      const T wide = widen(value);
      values[i] = wide == wide ? value : narrow<V>(T(1));
    }
  });
  return bytes;
}

struct Outcome {
  std::vector<std::uint8_t> out, mask, parameters, scale, zero_point;
  bool operator==(const Outcome&) const = default;
};

// Fresh memory costs more than the kernels: one array of zeros for all.
void clear(DeviceBuffer& buffer) {
  static std::vector<std::uint8_t> zeros;
  if (zeros.size() < buffer.bytes()) zeros.resize(buffer.bytes());
  buffer.copy_from_host(zeros.data(), buffer.bytes());
}

std::vector<std::uint8_t> on_host(const DeviceBuffer& buffer) {
  std::vector<std::uint8_t> bytes(buffer.bytes());
  buffer.copy_to_host(bytes.data(), bytes.size());
  return bytes;
}

// grad_y: finite and of like size, or sums of it would be NaN on one device and another NaN on the
// other.
Outcome run(const QuantDescriptor& d, DeviceType device, const std::vector<std::uint8_t>& x,
            const std::vector<std::uint8_t>& grad_y) {
  const QuantPlan plan = QuantPlan::select(d, device);
  const auto sets = static_cast<std::size_t>(plan.num_parameter_sets());
  const std::size_t real = d.spec.value_type == ValueType::kF64 ? 8 : 4;
  std::vector<double> wide(sets, 0.031);
  std::vector<float> narrow_scale(sets, 0.031F);
  std::vector<std::int32_t> zero_point(sets, 3);
  const std::size_t n = static_cast<std::size_t>(plan.elements());
  DeviceBuffer in(device, x.size()), grad(device, x.size()), out(device, x.size());
  DeviceBuffer mask(device, (n + 7) / 8), scale(device, sets * real), z(device, sets * 4);
  DeviceBuffer parameters(device, 2 * sets * real);
  DeviceBuffer workspace(device, std::max<std::size_t>(16, plan.workspace_bytes()));
  in.copy_from_host(x.data(), x.size());
  grad.copy_from_host(grad_y.data(), grad_y.size());
  clear(out);
  clear(mask);
  clear(parameters);
  scale.copy_from_host(real == 8 ? static_cast<const void*>(wide.data()) : narrow_scale.data(),
                       scale.bytes());
  z.copy_from_host(zero_point.data(), z.bytes());
  QuantArrays arrays;
  const bool forward = d.spec.direction == QuantDirection::kForward;
  if (d.spec.operation != QuantOperation::kDequantize) arrays.x = in.span();
  if (forward) {
    if (d.spec.operation == QuantOperation::kFakeQuantize) arrays.y = out.span();
    if (d.spec.operation == QuantOperation::kDequantize) arrays.y = out.span();
    if (d.spec.operation != QuantOperation::kFakeQuantize) {
      arrays.codes = d.spec.operation == QuantOperation::kDequantize ? in.span() : out.span();
    }
    if (d.spec.operation != QuantOperation::kDequantize) arrays.mask = mask.span<std::uint8_t>();
  } else {
    arrays.grad_y = grad.span();
    arrays.grad_x = out.span();
  }
  arrays.scale = scale.span();
  arrays.zero_point = z.span<std::int32_t>();
  if (d.spec.parameter_gradients) {
    arrays.grad_scale = parameters.span().first(sets * real);
    arrays.grad_zero_point = parameters.span().subspan(sets * real);
  }
  plan.run(nullptr, workspace.span(), arrays);
  return {on_host(out), on_host(mask), on_host(parameters), on_host(scale), on_host(z)};
}

class CpuAndGpu : public ::testing::TestWithParam<ValueType> {};

TEST_P(CpuAndGpu, GiveTheSameBits) {
  const std::vector<std::uint8_t> x = patterns(GetParam(), true);
  const std::vector<std::uint8_t> tame = patterns(GetParam(), false);
  for (const Granularity granularity :
       {Granularity::kTensor, Granularity::kChannel, Granularity::kGroup}) {
    for (const auto operation :
         {QuantOperation::kQuantize, QuantOperation::kDequantize, QuantOperation::kFakeQuantize}) {
      for (const auto direction : {QuantDirection::kForward, QuantDirection::kBackward}) {
        for (const bool gradients : {false, true}) {
          QuantDescriptor d;
          d.spec.operation = operation;
          d.spec.direction = direction;
          d.granularity = granularity;
          d.options = {.axis = 1, .group_size = 128};
          d.spec.value_type = GetParam();
          d.shape = {kRows, kColumns};
          d.spec.parameter_gradients = gradients;
          if (gradients && (operation != QuantOperation::kFakeQuantize ||
                            direction != QuantDirection::kBackward)) {
            continue;
          }
          SCOPED_TRACE(QuantPlan::select(d, DeviceType::kCuda).identity());
          const std::vector<std::uint8_t>& grad_y = gradients ? tame : x;
          const Outcome cpu = run(d, DeviceType::kCpu, x, grad_y);
          const Outcome gpu = run(d, DeviceType::kCuda, x, grad_y);
          EXPECT_TRUE(cpu == gpu);
        }
      }
    }
    QuantDescriptor d;
    d.granularity = granularity;
    d.options = {.axis = 1, .group_size = 128};
    d.spec.value_type = GetParam();
    d.shape = {kRows, kColumns};
    d.spec.statistics = Statistics::kDynamic;
    SCOPED_TRACE(QuantPlan::select(d, DeviceType::kCuda).identity());
    EXPECT_TRUE(run(d, DeviceType::kCpu, tame, tame) == run(d, DeviceType::kCuda, tame, tame));
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, CpuAndGpu,
                         ::testing::Values(ValueType::kF32, ValueType::kF64, ValueType::kF16,
                                           ValueType::kBF16));

}  // namespace
}  // namespace steelyard::kernels
