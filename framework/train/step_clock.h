// The time of a rank's steps: its own work, sums over the ranks, and waiting for them and for
// batches.
#pragma once

#include <chrono>
#include <vector>

#include "steelyard/framework/comm/communicator.h"
#include "steelyard/framework/data/data_loader.h"

namespace steelyard {

// Seconds of one rank. compute + wait is the time that passed; what of `reduce` is not in `wait`
// proceeded during the rank's own work.
struct StepSeconds {
  double compute = 0;  // data, forward, backward, update; on the first rank checkpoints too
  double reduce = 0;   // the communicator's thread at work, waiting for other ranks included
  double wait = 0;     // for the communicator's thread
  double batches = 0;  // of `compute`: waiting for a batch
  double making = 0;   // processor time of the threads that make batches, not in `compute`
};

class StepClock {
 public:
  // `loader`: null on a GPU, which may still be at work while the host waits for a batch.
  StepClock(comm::Communicator& ranks, const DataLoader* loader) : ranks_(ranks), loader_(loader) {
    start();
  }
  void start();
  // The seconds since start(), of every rank; called by all ranks.
  std::vector<StepSeconds> of_all_ranks() const;

 private:
  comm::Communicator& ranks_;
  const DataLoader* loader_;
  std::chrono::steady_clock::time_point begin_;
  comm::CommStats before_;
  LoaderSeconds loader_before_;
};

}  // namespace steelyard
