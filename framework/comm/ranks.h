// The ranks of a run as processes: joined, watched, and left together.
#pragma once

#include <memory>
#include <string>

#include "steelyard/framework/comm/communicator.h"
#include "steelyard/framework/comm/rank_state.h"
#include "steelyard/framework/comm/watchdog.h"

namespace steelyard::comm {

// Joins the processes that mpirun or srun started with this one; alone when there are none. From
// then on the loss of a rank ends this process with kRankLostExitCode (watchdog.h).
class Ranks {
 public:
  // The state outlives this. Throws InputError when the process was started as one of several and
  // cannot join the others: the reason and the way to start it.
  explicit Ranks(const RankState& state, WatchdogOptions options = {});
  // Without finish() this rank leaves alone, and the others lose it.
  ~Ranks();

  Communicator& communicator() { return *communicator_; }
  // The number of this rank among those on its machine: which of its GPUs is this rank's.
  int rank_on_machine() const { return rank_on_machine_; }

  // The end of the run, for which all ranks wait; also of a run that all ranks know has failed.
  void finish();
  // The message for the other ranks if this rank leaves without finish(): its own error.
  void set_reason(std::string reason) { reason_ = std::move(reason); }

 private:
  std::unique_ptr<Communicator> communicator_;
  std::unique_ptr<Watchdog> watchdog_;
  int rank_on_machine_ = 0;
  std::string reason_ = "it did not come to the end of the run";
};

}  // namespace steelyard::comm
