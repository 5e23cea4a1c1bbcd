#include "steelyard/framework/comm/ranks.h"

#include <cstdlib>
#include <utility>

#include "steelyard/framework/comm/launch.h"
#include "steelyard/framework/comm/mpi.h"
#include "steelyard/framework/comm/neighbours.h"
#include "steelyard/framework/comm/signals.h"
#include "steelyard/framework/tensor/error.h"

namespace steelyard::comm {
namespace {

std::unique_ptr<Communicator> join(const Launch& launch) {
  if (launch.size == 1) return std::make_unique<Communicator>();
  const std::string place = launch.variables + " make this process rank " +
                            std::to_string(launch.rank) + " of " + std::to_string(launch.size);
  if (mpi_name().empty()) {
    throw InputError(place +
                     ", but this program was built without MPI: install libopenmpi-dev, "
                     "configure again and build");
  }
  if (!launch.by_mpi) {
    throw InputError(place +
                     ", but MPI joins only processes that its own launcher started: use "
                     "mpirun -n " +
                     std::to_string(launch.size) + " or srun --mpi=pmix");
  }
  auto ranks = std::make_unique<Communicator>(mpi_transport);
  if (ranks->size() != launch.size || ranks->rank() != launch.rank) {
    throw InputError(place + ", but " + mpi_name() + " says rank " + std::to_string(ranks->rank()) +
                     " of " + std::to_string(ranks->size()) +
                     ": start it with that library's mpirun, or with srun and an --mpi that it "
                     "supports (srun --mpi=list; Open MPI: pmix)");
  }
  return ranks;
}

std::unique_ptr<Communicator> join_or_say_why(const Launch& launch) {
  try {
    return join(launch);
  } catch (const InputError&) {
    let_first_rank_speak(launch);
    throw;
  }
}

}  // namespace

Ranks::Ranks(const RankState& state, WatchdogOptions options)
    : communicator_(join_or_say_why(read_launch(std::getenv))) {
  if (communicator_->size() == 1) return;
  delay_sigterm();
  rank_on_machine_ = comm::rank_on_machine(*communicator_);
  watchdog_ = std::make_unique<Watchdog>(communicator_->rank(), connect_neighbours(*communicator_),
                                         state, std::move(options));
}

Ranks::~Ranks() {
  if (watchdog_) watchdog_->leave(reason_);
}

void Ranks::finish() {
  communicator_->barrier();
  // mpirun kills ranks in MPI_Finalize when it was told to stop itself: nothing is lost by then.
  if (watchdog_) watchdog_->bid_farewell();
  communicator_->finish();
  if (watchdog_) watchdog_->finish();
}

}  // namespace steelyard::comm
