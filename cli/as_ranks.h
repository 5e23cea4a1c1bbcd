// A verb that several processes may run together.
#pragma once

#include <functional>
#include <string>

#include "cli/usage.h"
#include "steelyard/framework/comm/ranks.h"

namespace steelyard::cli {

// Runs `body` as one of the processes that mpirun or srun started, all with the same `command`, or
// alone. Of several ranks the first one alone has a standard output. Errors that all ranks throw
// become an exit code of all: the first rank prints them, and each one with a log
// (RankState::log()) writes them there. Of another error of one rank the others are told. The state
// outlives the call.
ExitCode as_ranks(const std::string& command, const comm::RankState& state,
                  const std::function<ExitCode(comm::Ranks&)>& body);

// Whether a launcher started this process as one of several. Throws InputError as
// comm::read_launch().
bool is_one_of_several();

// Prints an error that processes find before they join, under mpirun once; gives the code for wrong
// arguments.
ExitCode refuse(const std::string& message);

}  // namespace steelyard::cli
