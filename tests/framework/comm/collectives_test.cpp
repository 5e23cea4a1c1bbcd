#include "steelyard/framework/comm/collectives.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <functional>
#include <limits>
#include <thread>

#include "steelyard/framework/comm/threads.h"
#include "steelyard/framework/tensor/error.h"
#include "tests/framework/comm/comm_cases.h"
#include "tests/support/temporary_folder.h"

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

// The message of rank 0, where rank 1 exchanges `counts` in place of what rank 0 exchanges.
std::string message_beside(std::vector<std::int64_t> counts,
                           const std::function<void(Communicator&)>& exchange) {
  std::string message;
  run_as_ranks(2, [&](Communicator& ranks) {
    if (ranks.rank() == 0) {
      message = testing::message_of<std::runtime_error>([&] { exchange(ranks); });
    } else {
      ranks.sum(counts);  // on the wire: 8 bytes each
    }
  });
  return message;
}

TEST(Communicator, ALengthThatARankAnnouncesIsBounded) {
  const auto gather = [](Communicator& ranks) { ranks.gather("own"); };
  EXPECT_EQ(message_beside({std::numeric_limits<std::int64_t>::max()}, gather),
            "rank 1 announces 9223372036854775807 bytes, expected at most 1048576");
  EXPECT_EQ(message_beside({-1}, gather),
            "rank 1 announces 18446744073709551615 bytes, expected at most 1048576");
  EXPECT_EQ(message_beside({11}, [](Communicator& ranks) { ranks.gather("own", 10); }),
            "rank 1 announces 11 bytes, expected at most 10");
  EXPECT_EQ(message_beside({4}, [](Communicator& ranks) { ranks.gather_equal("own"); }),
            "rank 1 announces 4 bytes, expected 3");
}

TEST(Communicator, TheLengthOfABroadcastIsBounded) {
  for (const std::size_t most : {std::size_t{10}, Communicator::kMostBroadcastBytes}) {
    std::vector<std::string> messages(4);
    run_as_ranks(4, [&](Communicator& ranks) {
      if (ranks.rank() == 2) {
        std::uint64_t size = most + 1;
        ranks.broadcast(std::as_writable_bytes(std::span(&size, 1)), 2);
        return;
      }
      messages[static_cast<std::size_t>(ranks.rank())] =
          testing::message_of<std::runtime_error>([&] { ranks.broadcast(std::string(), 2, most); });
    });
    const std::string expected = "rank 2 announces " + std::to_string(most + 1) +
                                 " bytes, expected at most " + std::to_string(most);
    EXPECT_THAT(messages, ::testing::ElementsAre(expected, expected, "", expected));
  }
}

TEST(Communicator, EqualSizesAreRequired) {
  std::vector<std::string> messages(2);
  run_as_ranks(2, [&](Communicator& ranks) {
    EXPECT_THAT(ranks.gather_equal(std::to_string(ranks.rank())), ::testing::ElementsAre("0", "1"));
    messages[static_cast<std::size_t>(ranks.rank())] = testing::message_of<std::runtime_error>(
        [&] { ranks.gather_equal(std::string(static_cast<std::size_t>(5 - ranks.rank()), 'x')); });
  });
  EXPECT_THAT(messages, ::testing::ElementsAre("rank 1 announces 4 bytes, expected 5",
                                               "rank 0 announces 5 bytes, expected 4"));
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
