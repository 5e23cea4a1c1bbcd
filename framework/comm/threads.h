// Ranks that are threads of one process: for tests and examples.
#pragma once

#include <functional>

#include "steelyard/framework/comm/communicator.h"

namespace steelyard::comm {

// Calls body(communicator) for `ranks` ranks at once, each in a thread, and returns when all have.
// Rethrows the first error; when a rank has left, by an error or by its return, ranks that wait
// for it get RankLost.
void run_as_ranks(int ranks, const std::function<void(Communicator&)>& body,
                  std::size_t piece_bytes = Communicator::kPieceBytes);

}  // namespace steelyard::comm
