// Notices that another rank has ended or is stuck, and ends this one.
//
// A thread sends a heartbeat to every neighbour (neighbours.h) and listens. A connection that ends
// without a farewell is a rank that was lost; so is a neighbour that is silent for the deadline,
// also one that has said farewell and ended while this process does not come to its end. The
// rank that notices tells its own neighbours, they tell theirs, and all leave. The time in which
// this process itself did not run does not count as silence of others.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "steelyard/framework/comm/neighbours.h"
#include "steelyard/framework/comm/rank_state.h"

namespace steelyard::comm {

// The exit code of a process that leaves because another rank was lost.
inline constexpr int kRankLostExitCode = 5;

struct WatchdogOptions {
  std::chrono::milliseconds heartbeat{1000};
  std::chrono::milliseconds deadline{5000};
  // Called in the watchdog's thread with what is to be said. It does not return, but in tests.
  std::function<void(const std::string&)> on_loss{};
};

// Prints the message to standard error, after a line break where ranks draw lines, appends it to
// the log and ends the process with kRankLostExitCode, at once and whatever other threads do.
[[noreturn]] void leave_after_loss(const std::string& message, const RankState& state);

class Watchdog {
 public:
  // Takes over the neighbours' sockets; the state outlives the watchdog.
  Watchdog(int rank, std::vector<Neighbour> neighbours, const RankState& state,
           WatchdogOptions options = {});
  // Without finish() or leave(): the others lose this rank.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // Tells the others that this rank has done its work, as all have: that its connections end is no
  // loss from now on, whatever ends them. The watch goes on.
  void bid_farewell();
  // The end of the watch, after a farewell.
  void finish();
  // Tells the others why this rank leaves them.
  void leave(const std::string& reason);

 private:
  class Loop;
  void end(const std::function<void(Loop&)>& last_words);

  std::unique_ptr<Loop> loop_;
  std::thread thread_;
};

}  // namespace steelyard::comm
