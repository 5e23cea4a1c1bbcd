// Gradients of quantized layers on a GPU, whose kernels read codes and masks themselves: the bits
// of the same gradients of the floats that the codes stand for.
#include <gtest/gtest.h>

#include "steelyard/kernels/conv/conv.h"
#include "steelyard/kernels/elementwise/elementwise.h"
#include "steelyard/kernels/fake_quantize/fake_quantize.h"
#include "tests/kernels/twin.h"

namespace steelyard::kernels {
namespace {

using test::for_each_order;
using test::on_gpu;
using test::OnDevice;
using test::random_codes;
using test::random_reals;

OnDevice floats(std::int64_t n) {
  return OnDevice::of(std::vector<float>(static_cast<std::size_t>(n), 99.0F));
}

// Dense ones with and without a wide copy of their channels, groups, depthwise ones, pointwise ones
// with and without a stride, one pixel, no image.
const Conv2dShape kShapes[] = {
    {.batch = 2,
     .in_h = 5,
     .in_w = 6,
     .in_channels = 3,
     .out_channels = 5,
     .kernel_h = 3,
     .kernel_w = 3,
     .pad_h = 1,
     .pad_w = 1},
    {.batch = 3,
     .in_h = 7,
     .in_w = 4,
     .in_channels = 8,
     .out_channels = 6,
     .kernel_h = 3,
     .kernel_w = 2,
     .stride_h = 2,
     .pad_h = 1,
     .dilation_w = 2},
    {.batch = 2,
     .in_h = 6,
     .in_w = 6,
     .in_channels = 12,
     .out_channels = 6,
     .kernel_h = 3,
     .kernel_w = 3,
     .groups = 3},
    {.batch = 2,
     .in_h = 6,
     .in_w = 5,
     .in_channels = 10,
     .out_channels = 10,
     .kernel_h = 3,
     .kernel_w = 3,
     .stride_w = 2,
     .pad_h = 1,
     .pad_w = 1,
     .groups = 10},
    {.batch = 3,
     .in_h = 6,
     .in_w = 9,
     .in_channels = 12,
     .out_channels = 12,
     .kernel_h = 5,
     .kernel_w = 5,
     .stride_h = 2,
     .stride_w = 2,
     .pad_h = 2,
     .pad_w = 2,
     .groups = 12},
    {.batch = 2,
     .in_h = 5,
     .in_w = 7,
     .in_channels = 6,
     .out_channels = 6,
     .kernel_h = 3,
     .kernel_w = 4,
     .pad_h = 1,
     .pad_w = 2,
     .groups = 6},
    {.batch = 3, .in_h = 4, .in_w = 4, .in_channels = 8, .out_channels = 33},
    {.batch = 2,
     .in_h = 5,
     .in_w = 5,
     .in_channels = 4,
     .out_channels = 7,
     .stride_h = 2,
     .stride_w = 2},
    {.batch = 1, .in_h = 1, .in_w = 1, .in_channels = 1, .out_channels = 1},
    {.batch = 0,
     .in_h = 3,
     .in_w = 3,
     .in_channels = 2,
     .out_channels = 3,
     .kernel_h = 2,
     .kernel_w = 2}};

template <typename Code>
void check(const Conv2dShape& s, std::int64_t scales, bool with_mask) {
  const std::vector<Code> x = random_codes<Code>(s.input_size(), 0, 100, 1);
  const OnDevice codes = OnDevice::of(x);
  const OnDevice x_scale = OnDevice::of(std::vector<float>{0.03F});
  const OnDevice zero = OnDevice::of(std::vector<std::int32_t>{17});
  const OnDevice w = OnDevice::of(random_codes<std::int8_t>(s.weight_size(), -127, 127, 2));
  const OnDevice w_scale = OnDevice::of(random_reals<float>(scales, 0.01F, 3, false));
  const OnDevice grad_y = OnDevice::of(random_reals<float>(s.output_size(), 1, 4, false));
  const OnDevice mask =
      OnDevice::of(random_codes<std::uint8_t>(mask_bytes(s.weight_size()), 0, 255, 5));
  const OnDevice real_x = floats(s.input_size()), real_w = floats(s.weight_size());
  const OnDevice grad_w = floats(s.weight_size()), want_w = floats(s.weight_size());
  const OnDevice grad_x = floats(s.input_size()), want_x = floats(s.input_size());
  on_gpu([&](const CudaQueue& queue) {
    run(queue, Dequantize<float, Code>{ChannelLayout::per_tensor(s.input_size()), codes.get<Code>(),
                                       x_scale.get<float>(), zero.get<std::int32_t>(),
                                       real_x.get<float>()});
    run(queue, Dequantize<float, std::int8_t>{{1, scales, s.weight_size() / scales},
                                              w.get<std::int8_t>(),
                                              w_scale.get<float>(),
                                              nullptr,
                                              real_w.get<float>()});
    run(queue, Conv2dBackwardWeight<float>{s, real_x.get<float>(), grad_y.get<float>(),
                                           want_w.get<float>()});
    if (with_mask) {
      run(queue, ApplyMask<float>{s.weight_size(), mask.get<std::uint8_t>(), want_w.get<float>(),
                                  want_w.get<float>()});
    }
    run(queue, Conv2dBackwardInput<float>{s, grad_y.get<float>(), real_w.get<float>(),
                                          want_x.get<float>()});

    run(queue, CodesBackwardWeight<Code>{.shape = s,
                                         .x = codes.get<Code>(),
                                         .scale = x_scale.get<float>(),
                                         .zero_point = zero.get<std::int32_t>(),
                                         .grad_y = grad_y.get<float>(),
                                         .mask = with_mask ? mask.get<std::uint8_t>() : nullptr,
                                         .grad_w = grad_w.get<float>()});
    run(queue, CodesBackwardInput<float>{.shape = s,
                                         .grad_y = grad_y.get<float>(),
                                         .w = w.get<std::int8_t>(),
                                         .scales = scales,
                                         .scale = w_scale.get<float>(),
                                         .grad_x = grad_x.get<float>()});
  });
  EXPECT_EQ(grad_w.host<float>(), want_w.host<float>());
  EXPECT_EQ(grad_x.host<float>(), want_x.host<float>());
}

TEST(GradientsFromCodes, OfConvolutionsAreThoseOfTheFloats) {
  for (std::size_t i = 0; i < std::size(kShapes); ++i) {
    for (const bool with_mask : {false, true}) {
      SCOPED_TRACE(::testing::Message() << "shape " << i << ", mask " << with_mask);
      for_each_order([&] {
        check<std::uint8_t>(kShapes[i], kShapes[i].out_channels, with_mask);
        check<std::int8_t>(kShapes[i], 1, with_mask);
      });
    }
  }
}

// Several chunks of rows, columns past a warp, neither a multiple of a byte of mask; one and none.
TEST(GradientsFromCodes, MasksAndSumsAtOnce) {
  for (const auto& [rows, channels] :
       {std::pair<int, int>{0, 3}, {1, 1}, {3000, 1}, {301, 33}, {5, 2050}, {700, 8}}) {
    SCOPED_TRACE(::testing::Message() << rows << " x " << channels);
    const std::int64_t n = std::int64_t{rows} * channels;
    for_each_order([&, rows = rows, channels = channels] {
      const OnDevice mask = OnDevice::of(random_codes<std::uint8_t>(mask_bytes(n), 0, 255, 1));
      const OnDevice grad = OnDevice::of(random_reals<float>(n, 1, 2, false));
      const OnDevice masked = floats(n), want_masked = floats(n);
      const OnDevice sums = floats(channels), want_sums = floats(channels);
      on_gpu([&](const CudaQueue& queue) {
        run(queue, ApplyMask<float>{n, mask.get<std::uint8_t>(), grad.get<float>(),
                                    want_masked.get<float>()});
        run(queue,
            ColumnSums<float>{rows, channels, want_masked.get<float>(), want_sums.get<float>()});
        run(queue,
            ApplyMaskAndSum<float>{rows, channels, mask.get<std::uint8_t>(), grad.get<float>(),
                                   masked.get<float>(), sums.get<float>()});
      });
      EXPECT_EQ(masked.host<float>(), want_masked.host<float>());
      EXPECT_EQ(sums.host<float>(), want_sums.host<float>());
    });
  }
}

}  // namespace
}  // namespace steelyard::kernels
