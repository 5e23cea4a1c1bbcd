// Ranks that run the same training: what they exchange at the start, and how they detect that the
// replicas are no longer equal.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "steelyard/framework/comm/communicator.h"
#include "steelyard/framework/files/checkpoint.h"
#include "steelyard/framework/tensor/error.h"

namespace steelyard {

// Errors that every rank throws, so that no rank waits for another.
class SharedInputError : public InputError {
 public:
  using InputError::InputError;
};
class SharedDeviceError : public DeviceError {
 public:
  using DeviceError::DeviceError;
};

// Runs `work` on every rank. Where it throws InputError or DeviceError, all ranks throw the first
// rank's that it threw on, after "rank 2: " unless all have the same. Its other errors are one
// rank's.
void on_all_ranks(comm::Communicator& ranks, const std::function<void()>& work);

// Runs `work` on the first rank alone. Throws SharedInputError on all ranks where it throws
// InputError; its other errors are the first rank's.
void on_first_rank(comm::Communicator& ranks, const std::function<void()>& work);

// Sends the checkpoint that the first rank has read to all ranks.
void broadcast(std::optional<Checkpoint>& checkpoint, comm::Communicator& ranks);

// Something that must be equal on all ranks: its name, and its value as text or as a checksum.
using Agreement = std::pair<std::string, std::string>;

// Throws SharedInputError on all ranks, naming what differs, where and how. Every rank gives the
// same names in the same order.
void require_agreement(const std::vector<Agreement>& own, comm::Communicator& ranks);

// Throws TrainingDiverged on all ranks, naming the first tensor whose bytes are not those of the
// first rank. Every rank gives the same tensors; `when` begins the message: "step 50".
void require_equal_replicas(const std::vector<NamedTensor>& tensors, const std::string& when,
                            comm::Communicator& ranks);

}  // namespace steelyard
