#include "steelyard/framework/comm/watchdog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <future>
#include <mutex>
#include <optional>
#include <thread>

#include "steelyard/framework/comm/threads.h"

namespace steelyard {
namespace {

using comm::Communicator;
using comm::connect_neighbours;
using comm::RankState;
using comm::run_as_ranks;
using comm::Watchdog;
using comm::WatchdogOptions;
using ::testing::HasSubstr;

// A watchdog that says what was lost in place of ending the process.
class Watched {
 public:
  explicit Watched(Communicator& ranks, WatchdogOptions options = {}) {
    options.on_loss = [this](const std::string& message) { loss_.set_value(message); };
    state_.set_step(100 + ranks.rank());
    state_.set_checkpoint("runs/a/last.safetensors (step 80)");
    watchdog_.emplace(ranks.rank(), connect_neighbours(ranks), state_, options);
  }
  void set_step(std::int64_t step) { state_.set_step(step); }
  std::string loss() { return loss_.get_future().get(); }
  Watchdog& watchdog() { return *watchdog_; }

 private:
  RankState state_;
  std::promise<std::string> loss_;
  std::optional<Watchdog> watchdog_;
};

// The loss of rank 3, as every other of four ranks tells it; rank 0 has no connection to it.
std::vector<std::string> losses_of_rank_3(const std::function<void(Watched&)>& ending) {
  std::mutex mutex;
  std::vector<std::string> losses;
  run_as_ranks(4, [&](Communicator& ranks) {
    Watched watched(ranks);
    ranks.barrier();
    if (ranks.rank() == 3) return ending(watched);
    const std::string loss = watched.loss();
    EXPECT_THAT(loss, HasSubstr("lost: rank 3 on " + comm::host_name() + " (process " +
                                std::to_string(getpid())));
    EXPECT_THAT(loss,
                HasSubstr("rank " + std::to_string(ranks.rank()) + " on " + comm::host_name() +
                          " stops at step " + std::to_string(100 + ranks.rank())));
    EXPECT_THAT(loss, HasSubstr("--resume continues from runs/a/last.safetensors (step 80)"));
    const std::lock_guard lock(mutex);
    losses.push_back(loss);
  });
  return losses;
}

TEST(Watchdog, AllRanksHearOfAConnectionThatEnds) {
  EXPECT_THAT(
      losses_of_rank_3([](Watched&) {}),
      ::testing::AllOf(::testing::SizeIs(3), ::testing::Each(HasSubstr("connection ended"))));
}

TEST(Watchdog, ARankThatFailsSaysWhy) {
  EXPECT_THAT(losses_of_rank_3([](Watched& w) { w.watchdog().leave("no space"); }),
              ::testing::AllOf(::testing::SizeIs(3), ::testing::Each(HasSubstr("left: no space"))));
}

TEST(Watchdog, ARankThatIsSilentIsLost) {
  std::promise<void> noticed;
  run_as_ranks(2, [&](Communicator& ranks) {
    if (ranks.rank() == 1) {  // connects, and says nothing
      const auto neighbours = connect_neighbours(ranks);
      noticed.get_future().wait();
      for (const auto& neighbour : neighbours) close(neighbour.socket);
      return;
    }
    Watched watched(ranks, {.heartbeat = std::chrono::milliseconds(100),
                            .deadline = std::chrono::milliseconds(200)});
    EXPECT_THAT(watched.loss(), HasSubstr("nothing was heard from it for 200 ms"));
    noticed.set_value();
  });
}

TEST(Watchdog, AFarewellIsNoLoss) {
  std::atomic<int> losses = 0;
  run_as_ranks(8, [&](Communicator& ranks) {
    RankState state;
    WatchdogOptions options;
    options.on_loss = [&](const std::string&) { ++losses; };
    Watchdog watchdog(ranks.rank(), connect_neighbours(ranks), state, options);
    ranks.finish();
    watchdog.finish();
  });
  EXPECT_EQ(losses, 0);
}

// As ranks that mpirun kills in MPI_Finalize.
TEST(Watchdog, AConnectionThatEndsAfterAFarewellIsNoLoss) {
  std::atomic<int> losses = 0;
  run_as_ranks(2, [&](Communicator& ranks) {
    RankState state;
    WatchdogOptions options;
    options.on_loss = [&](const std::string&) { ++losses; };
    std::optional<Watchdog> watchdog;
    watchdog.emplace(ranks.rank(), connect_neighbours(ranks), state, options);
    ranks.barrier();
    watchdog->bid_farewell();
    if (ranks.rank() == 1) watchdog.reset();
    ranks.barrier();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    if (ranks.rank() == 0) watchdog->finish();
    ranks.finish();
  });
  EXPECT_EQ(losses, 0);
}

// Nor do all wait for ever for an end to which one of them does not come.
TEST(Watchdog, ARankThatIsAloneAfterAFarewellLeavesAfterTheDeadline) {
  run_as_ranks(2, [&](Communicator& ranks) {
    Watched watched(ranks, {.heartbeat = std::chrono::milliseconds(50),
                            .deadline = std::chrono::milliseconds(200)});
    ranks.barrier();
    watched.watchdog().bid_farewell();
    if (ranks.rank() == 0) {
      EXPECT_THAT(watched.loss(), HasSubstr("was heard from it for 200 ms"));
    }
  });
}

// Who has begun step 140 has the sums of step 139, to which every rank gave its part.
TEST(Watchdog, KnowsTheStepOfALostRankWithoutAHeartbeat) {
  run_as_ranks(2, [&](Communicator& ranks) {
    Watched watched(ranks, {.heartbeat = std::chrono::seconds(60)});
    ranks.barrier();
    watched.set_step(140);
    ranks.barrier();
    if (ranks.rank() == 0) {
      EXPECT_THAT(watched.loss(), HasSubstr("last known at step 139)"));
    }
  });
}

// What is sent to a rank that has ended is answered by a reset, and never arrives.
TEST(Watchdog, ARankThatFailsDoesNotWaitForOthersThatHaveEnded) {
  run_as_ranks(2, [](Communicator& ranks) {
    if (ranks.rank() == 1) {
      const int socket = connect_neighbours(ranks)[0].socket;
      const std::string loss(504, '\2');  // a notice of what is no heartbeat
      EXPECT_EQ(send(socket, loss.data(), loss.size(), 0), 504);
      ranks.barrier();
      std::array<char, 4096> unread;
      while (recv(socket, unread.data(), unread.size(), MSG_DONTWAIT) > 0) continue;
      close(socket);
      return ranks.barrier();
    }
    Watched watched(ranks);
    EXPECT_THAT(watched.loss(), HasSubstr("lost: rank"));  // here the process would end
    ranks.barrier();
    ranks.barrier();
    const auto begin = std::chrono::steady_clock::now();
    watched.watchdog().leave("no space");
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(3));
  });
}

// A notice is as long as its sender pleases, and so are the texts in it.
TEST(Watchdog, WhatANoticeSaysIsBoundedAndEscaped) {
  run_as_ranks(2, [](Communicator& ranks) {
    if (ranks.rank() == 1) {
      const auto neighbours = connect_neighbours(ranks);
      const std::string bytes(5000, '\x1b');
      EXPECT_EQ(send(neighbours[0].socket, bytes.data(), bytes.size(), 0),
                static_cast<ssize_t>(bytes.size()));
      ranks.barrier();
      close(neighbours[0].socket);
      return;
    }
    Watched watched(ranks);
    const std::string loss = watched.loss();
    EXPECT_EQ(loss.find('\x1b'), std::string::npos);
    EXPECT_THAT(loss,
                ::testing::MatchesRegex(R"(lost: rank [0-9]+ on (\\x1b)+(\.\.\.)? \(process .*)"));
    EXPECT_LT(loss.size(), 1500) << loss;
    ranks.barrier();
  });
}

TEST(Watchdog, EndsTheProcessWithItsOwnExitCode) {
  RankState state;
  EXPECT_EXIT(comm::leave_after_loss("lost: rank 3", state),
              ::testing::ExitedWithCode(comm::kRankLostExitCode), "^lost: rank 3");
  state.set_draws_lines(true);
  EXPECT_EXIT(comm::leave_after_loss("lost: rank 3", state),
              ::testing::ExitedWithCode(comm::kRankLostExitCode), "^\nlost: rank 3");
}

}  // namespace
}  // namespace steelyard
