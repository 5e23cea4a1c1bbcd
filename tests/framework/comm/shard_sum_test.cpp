#include "steelyard/framework/comm/shard_sum.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "steelyard/framework/tensor/error.h"
#include "tests/framework/comm/comm_cases.h"

namespace steelyard {
namespace {

using comm::shards_of_rank;
using comm::ShardSum;

TEST(ShardSum, AddsAsATreeAndBeginsAnew) {
  ShardSum sum;
  for (std::int64_t shards : {1, 2, 4, 16}) {
    for (std::int64_t shard = 0; shard < shards; ++shard) {
      sum.add(Tensor::from(testing::shard_values<float>(shard, 0, 100), {100}));
    }
    const Tensor total = sum.take();
    const auto expected = testing::tree_of_shards<float>(0, shards, 0, 100);
    EXPECT_THAT(total.span<float>(), ::testing::ElementsAreArray(expected)) << shards;
  }
}

TEST(ShardSum, RefusesHalfATreeAndOtherShapes) {
  ShardSum sum;
  EXPECT_THROW(sum.take(), std::logic_error);
  for (int i = 0; i < 3; ++i) sum.add(Tensor::zeros({4}));
  EXPECT_THROW(sum.take(), std::logic_error);
  EXPECT_THROW(sum.add(Tensor::zeros({5})), std::invalid_argument);
}

TEST(ShardsOfRank, AreAlignedAndEqualInNumber) {
  EXPECT_EQ(shards_of_rank(0, 1, 1), (comm::ShardRange{0, 1}));
  EXPECT_EQ(shards_of_rank(3, 4, 16), (comm::ShardRange{12, 16}));
  EXPECT_THROW(shards_of_rank(0, 4, 2), InputError);
  EXPECT_THROW(shards_of_rank(0, 3, 12), InputError);
  EXPECT_THROW(shards_of_rank(0, 1, 0), InputError);
}

}  // namespace
}  // namespace steelyard
