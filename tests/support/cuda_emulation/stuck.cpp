// The message about a block that is stuck.
#include "tests/support/cuda_emulation/stuck.h"

#include <algorithm>
#include <utility>

namespace steelyard::emulation {
namespace {

std::string whereabouts(const Thread& thread) {
  return thread.state == ThreadState::kExited ? "exited" : "waiting in " + describe(thread.request);
}

// "31 threads waiting in __syncthreads at a.cu:3, 1 thread exited"
std::string census(const std::vector<Thread>& threads) {
  std::vector<std::pair<std::string, int>> groups;
  for (const Thread& thread : threads) {
    const std::string where = whereabouts(thread);
    auto group = std::find_if(groups.begin(), groups.end(),
                              [&](const auto& known) { return known.first == where; });
    if (group == groups.end()) group = groups.insert(groups.end(), {where, 0});
    ++group->second;
  }
  std::string text;
  for (const auto& [where, count] : groups) {
    if (!text.empty()) text += ", ";
    text += std::to_string(count) + (count == 1 ? " thread " : " threads ") + where;
  }
  return text;
}

// The first lane that the call of `waiting` lacks.
std::string missing_lane(const std::vector<Thread>& threads, std::size_t waiting) {
  const std::size_t first = waiting / kWarpSize * kWarpSize;
  const Request& call = threads[waiting].request;
  const unsigned members = call.mask & existing_lanes(threads.size(), first);
  for (unsigned lane = 0; lane < kWarpSize; ++lane) {
    if ((members >> lane & 1U) == 0) continue;
    const Thread& thread = threads[first + lane];
    if (thread.state == ThreadState::kAtWarpCollective && same_warp_call(thread.request, call)) {
      continue;
    }
    return "lane " + std::to_string(lane) + " is missing (" + whereabouts(thread) + ")";
  }
  return "nothing is missing";  // unreachable: such a call goes on
}

}  // namespace

unsigned existing_lanes(std::size_t threads, std::size_t first) {
  const std::size_t lanes = std::min<std::size_t>(threads - first, kWarpSize);
  return kFullMask >> (kWarpSize - lanes);
}

std::string why_stuck(const std::vector<Thread>& threads) {
  const auto waiting = std::find_if(threads.begin(), threads.end(), [](const Thread& thread) {
    return thread.state == ThreadState::kAtWarpCollective;
  });
  if (waiting == threads.end()) return "divergent barrier: " + census(threads);
  const auto index = static_cast<std::size_t>(waiting - threads.begin());
  return "incomplete warp collective: warp " + std::to_string(index / kWarpSize) + " waits in " +
         describe(waiting->request) + ", but " + missing_lane(threads, index) +
         "; in all: " + census(threads);
}

}  // namespace steelyard::emulation
