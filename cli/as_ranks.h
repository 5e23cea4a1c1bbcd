// A verb that several processes may run together.
#pragma once

#include <functional>

#include "cli/usage.h"
#include "steelyard/framework/comm/ranks.h"

namespace steelyard::cli {

// Runs `body` as one of the processes that mpirun or srun started, or alone. Errors that all ranks
// throw become an exit code of all, printed before any of them ends; of another error of one rank
// the others are told. The state outlives the call.
ExitCode as_ranks(const comm::RankState& state, const std::function<ExitCode(comm::Ranks&)>& body);

}  // namespace steelyard::cli
