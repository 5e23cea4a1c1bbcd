// The kernels without the engine: quantizes an array of weights to 4 bits, with one scale for each
// row, from plain arrays. It runs on the CPU and, if there is one, on a GPU. Both give the same
// bytes.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "steelyard/kernels/device_memory.h"
#include "steelyard/kernels/quant_plan/quant_plan.h"

using namespace steelyard::kernels;

namespace {

constexpr std::int64_t kRows = 64;
constexpr std::int64_t kColumns = 1000;

struct Quantized {
  std::vector<std::uint8_t> codes;  // two to a byte
  std::vector<float> scale;         // one per row
  std::vector<float> restored;
};

QuantPlan int4_rows(QuantOperation operation, Statistics statistics, DeviceType device) {
  const QuantDescriptor descriptor{.spec = {.operation = operation,
                                            .code_type = CodeType::kS4,
                                            .range = {-7, 7},
                                            .statistics = statistics,
                                            .symmetric = true},
                                   .granularity = Granularity::kToken,
                                   .shape = {kRows, kColumns}};
  return QuantPlan::select(descriptor, device);
}

Quantized quantize_on(DeviceType device, const std::vector<float>& weights) {
  // The scale of each row follows from its extremes.
  const auto quantize = int4_rows(QuantOperation::kQuantize, Statistics::kDynamic, device);
  const auto dequantize = int4_rows(QuantOperation::kDequantize, Statistics::kGiven, device);

  const std::size_t value_bytes = weights.size() * sizeof(float);
  DeviceBuffer x(device, value_bytes), y(device, value_bytes), codes(device, weights.size() / 2);
  DeviceBuffer scale(device, kRows * sizeof(float)), zero_point(device, kRows * sizeof(int));
  DeviceBuffer workspace(device, quantize.workspace_bytes());
  x.copy_from_host(weights.data(), value_bytes);

  quantize.run(/*stream=*/nullptr, workspace.span(),
               {.x = x.span<float>(),
                .codes = codes.span<std::uint8_t>(),
                .scale = scale.span<float>(),
                .zero_point = zero_point.span<std::int32_t>()});
  dequantize.run(/*stream=*/nullptr, /*workspace=*/{},
                 {.y = y.span<float>(),
                  .codes = codes.span<std::uint8_t>(),
                  .scale = scale.span<float>(),
                  .zero_point = zero_point.span<std::int32_t>()});

  Quantized result{std::vector<std::uint8_t>(codes.bytes()), std::vector<float>(kRows),
                   std::vector<float>(weights.size())};
  codes.copy_to_host(result.codes.data(), codes.bytes());
  scale.copy_to_host(result.scale.data(), scale.bytes());
  y.copy_to_host(result.restored.data(), value_bytes);
  fmt::print("{}: {} bytes of values became {} bytes of codes and {} scales\n", quantize.identity(),
             value_bytes, codes.bytes(), kRows);
  return result;
}

}  // namespace

int main() {
  std::vector<float> weights(kRows * kColumns);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    weights[i] = std::sin(static_cast<float>(i)) * static_cast<float>(1 + i / kColumns);
  }
  const Quantized cpu = quantize_on(DeviceType::kCpu, weights);

  // No restored value may differ from the original by more than half a step of its row.
  float worst = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    worst = std::max(worst, std::fabs(weights[i] - cpu.restored[i]) / cpu.scale[i / kColumns]);
  }
  fmt::print("largest error: {:.3f} steps\n", worst);
  if (worst > 0.5001F) return 1;

  if (!device_is_available(DeviceType::kCuda)) {
    fmt::print("no GPU: only the CPU was used\n");
    return 0;
  }
  const Quantized gpu = quantize_on(DeviceType::kCuda, weights);
  const bool same = gpu.codes == cpu.codes && gpu.scale == cpu.scale;
  fmt::print("CPU and GPU agree: {}\n", same ? "yes" : "NO");
  return same ? 0 : 1;
}
