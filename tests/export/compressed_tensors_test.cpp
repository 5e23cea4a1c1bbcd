#include "steelyard/export/compressed_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

namespace steelyard::deploy {
namespace {

qat::QConfig config_of(int bits, bool with_inputs) {
  qat::QConfig config;
  config.weights.emplace().scheme.bits = bits;
  config.weights->scheme.granularity = kernels::Granularity::kGroup;
  config.weights->scheme.group_size = 4;
  if (!with_inputs) return config;
  config.activations.emplace().scheme.dynamic = true;
  config.activations->scheme.granularity = kernels::Granularity::kToken;
  return config;
}

Tensor codes_of(int bits, std::int64_t rows, std::int64_t columns) {
  std::mt19937 random(static_cast<unsigned>(bits));
  std::uniform_int_distribution<int> any(-(1 << (bits - 1)), (1 << (bits - 1)) - 1);
  Tensor codes = Tensor::zeros({rows, columns}, DType::kI8);
  for (std::int8_t& code : codes.span<std::int8_t>()) code = static_cast<std::int8_t>(any(random));
  return codes;
}

// Bit by bit, as the format is described.
TEST(CompressedTensors, BitsFollowOneAnotherFromTheLowest) {
  for (int bits = 2; bits <= 8; ++bits) {
    for (const std::int64_t columns : {1, 7, 8, 31, 32, 33, 100}) {
      const Tensor codes = codes_of(bits, 3, columns);
      const Tensor packed = pack_bits(codes, bits);
      ASSERT_EQ(packed.shape(), (Shape{3, (columns * bits + 31) / 32}));
      for (std::int64_t i = 0; i < codes.size(); ++i) {
        int number = 0;
        for (int b = 0; b < bits; ++b) {
          const std::int64_t at = i % columns * bits + b;
          const auto word = static_cast<std::uint32_t>(
              packed.data<std::int32_t>()[i / columns * packed.dim(1) + at / 32]);
          number |= static_cast<int>(word >> (at % 32) & 1U) << b;
        }
        ASSERT_EQ(number - (1 << (bits - 1)), codes.data<std::int8_t>()[i]) << bits << " bits";
      }
      const Tensor again = unpack_bits(packed, bits, columns);
      EXPECT_TRUE(std::equal(again.span<std::int8_t>().begin(), again.span<std::int8_t>().end(),
                             codes.span<std::int8_t>().begin()));
    }
  }
}

TEST(CompressedTensors, HaveTheNamesAndGroupsOfTheirFormat) {
  const CompressedLayer packed{"a.b", config_of(4, true), codes_of(4, 2, 8), Tensor::zeros({4})};
  const CompressedLayer bytes{"c", config_of(8, true), codes_of(8, 2, 8), Tensor::zeros({4})};
  const auto names = [](const std::vector<NamedTensor>& tensors) {
    std::vector<std::string> all;
    for (const NamedTensor& t : tensors) all.push_back(t.name);
    return all;
  };
  EXPECT_THAT(
      names(compressed_tensors(packed)),
      ::testing::UnorderedElementsAre("a.b.weight_packed", "a.b.weight_scale", "a.b.weight_shape"));
  EXPECT_THAT(names(compressed_tensors(bytes)),
              ::testing::UnorderedElementsAre("c.weight", "c.weight_scale"));
  EXPECT_EQ(compressed_tensors(bytes)[0].tensor.shape(), (Shape{2, 2}));
  const auto config = compression_config({packed, bytes, packed}, {"lm_head"});
  EXPECT_EQ(config.at("format"), "mixed-precision");
  EXPECT_EQ(config.at("ignore").dump(), R"(["lm_head"])");
  EXPECT_EQ(config.at("config_groups").size(), 2U);
  const auto& first = config.at("config_groups").at("group_0");
  EXPECT_EQ(first.at("targets").dump(), R"(["a.b","a.b"])");
  EXPECT_EQ(first.at("weights").dump(),
            R"({"num_bits":4,"type":"int","symmetric":true,"strategy":"group","dynamic":false,)"
            R"("group_size":4})");
  EXPECT_EQ(first.at("input_activations").at("strategy"), "token");
}

TEST(CompressedTensors, RefuseWhatTheyHaveNoFormFor) {
  EXPECT_EQ(refusal_of_compressed(config_of(4, true)), "");
  EXPECT_EQ(refusal_of_compressed(config_of(8, false)), "");
  EXPECT_THAT(refusal_of_compressed({}), ::testing::HasSubstr("its weights are float"));
  qat::QConfig other = config_of(4, true);
  other.weights->scheme.symmetric = false;
  EXPECT_EQ(refusal_of_compressed(other), "expected symmetric weights");
  other = config_of(4, true);
  other.activations->scheme.dynamic = false;
  EXPECT_THAT(refusal_of_compressed(other), ::testing::HasSubstr("dynamic: true"));
}

}  // namespace
}  // namespace steelyard::deploy
