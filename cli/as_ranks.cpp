#include "cli/as_ranks.h"

#include "steelyard/framework/divergence.h"
#include "steelyard/framework/replicas.h"

namespace steelyard::cli {

ExitCode as_ranks(const comm::RankState& state, const std::function<ExitCode(comm::Ranks&)>& body) {
  comm::Ranks ranks(state);
  try {
    const ExitCode code = body(ranks);
    ranks.finish();
    return code;
  } catch (const TrainingDiverged& error) {  // thrown by all ranks, like the next one
    report("failed", error.what(), kFailed);
    ranks.finish();
    return kFailed;
  } catch (const SharedInputError& error) {
    // The first rank prints it before another rank's exit makes mpirun end them all.
    if (ranks.communicator().rank() == 0) report("error", error.what(), kUsage);
    ranks.finish();
    return kUsage;
  } catch (const comm::RankLost& error) {
    return report("lost", error.what(), kRankLost);
  } catch (const std::exception& error) {
    ranks.set_reason(error.what());
    throw;
  }
}

}  // namespace steelyard::cli
