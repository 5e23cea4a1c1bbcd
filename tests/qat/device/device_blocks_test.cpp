// Blocks of ggml's types on a GPU, and on the emulated one: the bits of the CPU.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "steelyard/framework/tensor/on_device.h"
#include "steelyard/framework/tensor/visit_blocks.h"
#include "steelyard/kernels/ggml_blocks/ggml_blocks.h"
#include "tests/support/devices.h"
#include "tests/support/tensors.h"

namespace steelyard::qat {
namespace {

using kernels::BlockType;

class BlocksOnDevice : public testing::WithCudaDevice {};

bool same_bytes(const Tensor& a, const Tensor& b) {
  const Tensor here = b.to(Device{});
  return a.bytes() == here.bytes() &&
         std::memcmp(a.raw(), here.raw(), static_cast<std::size_t>(a.bytes())) == 0;
}

template <class Format>
Tensor encoded_on(const Tensor& x, Device device) {
  const Tensor there = x.to(device);
  const std::int64_t n = x.size() / Format::kElements;
  Tensor blocks = Tensor::empty({n, Format::kBytes}, DType::kU8, device);
  run(device, kernels::EncodeBlocks<Format>{.n = n,
                                            .x = there.data<float>(),
                                            .scales = nullptr,
                                            .blocks = blocks.data<std::uint8_t>()});
  return blocks;
}

// Values of many sizes, and on a grid.
Tensor many_values() {
  Tensor x = testing::random_tensor({64, 256}, 1, DType::kF32);
  const auto values = x.span<float>();
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i / 256 % 3 == 0) values[i] = std::rint(values[i] * 8) / 8;
    if (i / 256 % 3 == 1) values[i] = std::ldexp(values[i], static_cast<int>(i / 256) - 40);
  }
  return x;
}

TEST_F(BlocksOnDevice, AreThoseOfTheCpu) {
  const Tensor x = many_values();
  for (const BlockType type : {BlockType::kQ4_0, BlockType::kIq4Nl, BlockType::kMxfp4}) {
    for (const bool searched : {false, true}) {
      visit_block_makers(type, searched, [&](auto maker) {
        using Maker = decltype(maker);
        EXPECT_TRUE(
            same_bytes(encoded_on<Maker>(x, Device{}), encoded_on<Maker>(x, testing::kCudaDevice)))
            << kernels::ggml_type(type).name << searched;
      });
    }
  }
}

template <class Format>
Tensor decoded_on(const Tensor& bytes, Device device) {
  const Tensor there = bytes.to(device);
  const std::int64_t n = bytes.size() / Format::kBytes;
  Tensor values = Tensor::empty({n, Format::kElements}, DType::kF32, device);
  run(device, kernels::DecodeBlocks<Format>{
                  .n = n, .blocks = there.data<std::uint8_t>(), .x = values.data<float>()});
  return values;
}

TEST_F(BlocksOnDevice, OfFilesAreDecodedAsOnTheCpu) {
  for (const BlockType type :
       {BlockType::kQ5_0, BlockType::kQ5_1, BlockType::kQ2_K, BlockType::kQ3_K, BlockType::kQ4_K,
        BlockType::kQ5_K, BlockType::kQ6_K}) {
    visit_stored_blocks(type, [&](auto format) {
      using Format = decltype(format);
      Tensor bytes = Tensor::empty({64, Format::kBytes}, DType::kU8);
      unsigned state = 1;
      // Bytes below 120 make no infinite float16 of their own.
      for (std::uint8_t& byte : bytes.span<std::uint8_t>()) {
        byte = static_cast<std::uint8_t>((state = state * 1664525U + 1013904223U) >> 24) % 120;
      }
      EXPECT_TRUE(same_bytes(decoded_on<Format>(bytes, Device{}),
                             decoded_on<Format>(bytes, testing::kCudaDevice)))
          << kernels::ggml_type(type).name;
    });
  }
}

}  // namespace
}  // namespace steelyard::qat
