#include "steelyard/framework/comm/collectives.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <thread>

#include "steelyard/framework/comm/threads.h"
#include "steelyard/framework/error.h"
#include "tests/framework/comm/comm_cases.h"

namespace steelyard {
namespace {

using comm::Communicator;
using comm::run_as_ranks;

class Ranks : public ::testing::TestWithParam<int> {};

TEST_P(Ranks, SumsAreTheTreeOfTheShardsWhateverTheMessages) {
  for (std::size_t piece_bytes : {std::size_t{1000}, std::size_t{65536}}) {
    run_as_ranks(
        GetParam(),
        [](Communicator& ranks) {
          for (std::int64_t shards = ranks.size(); shards <= 16; shards *= 2) {
            testing::check_sums(ranks, shards);
          }
        },
        piece_bytes);
  }
}

TEST_P(Ranks, MaximaCountsAndBytesAreExact) {
  for (std::size_t piece_bytes : {std::size_t{100}, Communicator::kPieceBytes}) {
    run_as_ranks(GetParam(), testing::check_exact_collectives, piece_bytes);
  }
}

INSTANTIATE_TEST_SUITE_P(Comm, Ranks, ::testing::Values(1, 2, 4, 8),
                         ::testing::PrintToStringParamName());

TEST(Communicator, AloneItReturnsWhatItIsGiven) {
  Communicator alone;
  testing::check_sums(alone, 8);
  testing::check_exact_collectives(alone);
  EXPECT_THROW(alone.broadcast("", 1), std::invalid_argument);
  alone.finish();
}

TEST(Communicator, RefusesANumberOfRanksThatIsNoPowerOfTwo) {
  EXPECT_THROW(run_as_ranks(3, [](Communicator&) {}), InputError);
}

TEST(Communicator, WhoWaitsForARankThatFailedIsReleased) {
  std::atomic<int> released = 0;
  const auto body = [&](Communicator& ranks) {
    ranks.barrier();
    if (ranks.rank() == 2) throw std::domain_error("rank 2's own");
    try {
      for (;;) ranks.barrier();
    } catch (const comm::RankLost&) {
      EXPECT_THROW(ranks.barrier(), comm::RankLost);  // and from then on
      ++released;
    }
  };
  EXPECT_THROW(run_as_ranks(4, body), std::domain_error);
  EXPECT_EQ(released, 3);
}

TEST(Communicator, RefusesMessagesOfOtherSizes) {
  const auto body = [](Communicator& ranks) {
    std::vector<std::int64_t> counts(static_cast<std::size_t>(ranks.rank()) + 1);
    ranks.sum(counts);
  };
  EXPECT_THROW(run_as_ranks(2, body), std::logic_error);
}

TEST(Communicator, AStartedSumProceedsBesideItsCaller) {
  run_as_ranks(2, [](Communicator& ranks) {
    const Tensor tensor = Tensor::full({100}, 1);
    comm::Pending pending = ranks.start_sum({tensor});
    while (ranks.stats().bytes_sent == 0) std::this_thread::yield();
    pending.wait();
    EXPECT_FALSE(pending.valid());
    EXPECT_EQ(tensor.span<float>()[99], 2);
    ranks.finish();
    EXPECT_THROW(ranks.barrier(), std::logic_error);
  });
}

// Takes every message and reads none.
class Counting : public comm::Transport {
 public:
  int rank() const override { return 0; }
  int size() const override { return 2; }
  void exchange(int, std::span<const std::byte> send, std::span<std::byte>) override {
    ++messages;
    largest = std::max(largest, send.size());
  }
  void interrupt() override {}
  std::size_t messages = 0, largest = 0;
};

TEST(Collectives, CutWhatIsLargerThanAnIntCounts) {
  const std::size_t bytes = (std::size_t{5} << 30) + 1;  // of addresses, not of memory
  void* memory =
      mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  Counting transport;
  comm::Collectives collectives(transport, std::size_t{1} << 30);
  collectives.broadcast({static_cast<std::byte*>(memory), bytes}, 0);
  munmap(memory, bytes);
  EXPECT_EQ(transport.messages, 6);
  EXPECT_EQ(transport.largest, std::size_t{1} << 30);
  EXPECT_EQ(collectives.bytes_sent(), static_cast<std::int64_t>(bytes));
}

}  // namespace
}  // namespace steelyard
