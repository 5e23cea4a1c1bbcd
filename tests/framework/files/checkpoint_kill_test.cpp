// A process that saves in a loop is killed at random moments: what lies under the checkpoint's name
// must always be complete.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <string>
#include <thread>

#include "steelyard/framework/files/checkpoint.h"
#include "steelyard/framework/tensor/rng.h"
#include "tests/support/temporary_folder.h"

namespace steelyard {
namespace {

constexpr int kKills = 200;

// Runs save_loop until it has saved once, then for `microseconds` more, then kills it. Returns
// whether it was alive until the kill.
bool run_and_kill(const std::filesystem::path& checkpoint, std::uint64_t microseconds) {
  int pipe_ends[2] = {};
  if (::pipe2(pipe_ends, O_CLOEXEC) != 0) return false;
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(pipe_ends[1], STDOUT_FILENO);
    ::execl(STEELYARD_SAVE_LOOP, "save_loop", checkpoint.c_str(), static_cast<char*>(nullptr));
    ::_exit(127);
  }
  ::close(pipe_ends[1]);
  char ready = 0;
  const bool saved = ::read(pipe_ends[0], &ready, 1) == 1;
  ::close(pipe_ends[0]);
  std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
  ::kill(child, SIGKILL);
  int status = 0;
  ::waitpid(child, &status, 0);
  return saved && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

TEST(CheckpointKill, EveryKilledRunLeavesACompleteCheckpoint) {
  const testing::TemporaryFolder folder;
  const auto path = folder / "last.safetensors";
  Rng rng(1);
  int cut_short = 0;
  for (int i = 0; i < kKills; ++i) {
    ASSERT_TRUE(run_and_kill(path, rng.below(6000))) << "kill " << i;
    const auto files = std::distance(std::filesystem::directory_iterator(folder.path()), {});
    EXPECT_LE(files, 2) << "the checkpoint and one temporary: the next run removes the last one's";
    if (files > 1) ++cut_short;
    const Checkpoint checkpoint = load_checkpoint(path);
    ASSERT_EQ(checkpoint.tensors.size(), 2u);
    const auto k = static_cast<double>(std::stoi(checkpoint.metadata.at("k")));
    EXPECT_EQ(checkpoint.tensors[0].name, "step");
    EXPECT_EQ(checkpoint.tensors[0].tensor.item(), k);
    const auto weights = checkpoint.tensors[1].tensor.span<float>();
    EXPECT_TRUE(std::all_of(weights.begin(), weights.end(), [k](float w) { return w == k; }));
  }
  // The moments must have hit half-written files, or this test proves nothing.
  EXPECT_GT(cut_short, kKills / 20);
}

}  // namespace
}  // namespace steelyard
