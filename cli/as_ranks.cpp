#include "cli/as_ranks.h"

#include <cstdio>
#include <cstdlib>

#include "cli/progress.h"
#include "steelyard/framework/comm/launch.h"
#include "steelyard/framework/train/divergence.h"
#include "steelyard/framework/train/shards/replicas.h"

namespace steelyard::cli {
namespace {

// What goes wrong on one rank, or on all.
class Failures {
 public:
  Failures(const comm::RankState& state, comm::Ranks& ranks) : state_(state), ranks_(ranks) {}

  // Printed before another rank's exit makes mpirun end them all.
  ExitCode of_all(const char* kind, const std::string& message, ExitCode code) {
    log(kind, message);
    if (first_rank()) report(kind, message, code);
    ranks_.finish();
    return code;
  }
  void of_this_rank(const std::string& message) {
    log("failed", message);
    ranks_.set_reason(message);
  }

 private:
  bool first_rank() const { return ranks_.communicator().rank() == 0; }
  void log(const char* kind, const std::string& message) {
    if (!state_.log().empty()) show(error_line(kind, message));  // standard output is the log
  }

  const comm::RankState& state_;
  comm::Ranks& ranks_;
};

}  // namespace

ExitCode as_ranks(const std::string& command, const comm::RankState& state,
                  const std::function<ExitCode(comm::Ranks&)>& body) {
  comm::Ranks ranks(state);
  Failures failures(state, ranks);
  if (ranks.communicator().rank() > 0 && std::freopen("/dev/null", "w", stdout) == nullptr) {
    std::clearerr(stdout);
  }
  try {
    require_agreement({{"command", command}}, ranks.communicator());
    const ExitCode code = body(ranks);
    ranks.finish();
    return code;
  } catch (const TrainingDiverged& error) {
    return failures.of_all("failed", error.what(), kFailed);
  } catch (const SharedInputError& error) {
    return failures.of_all("error", error.what(), kUsage);
  } catch (const SharedDeviceError& error) {
    return failures.of_all("error", error.what(), kDeviceNotAvailable);
  } catch (const comm::RankLost& error) {
    return report("lost", error.what(), kRankLost);
  } catch (const std::exception& error) {
    failures.of_this_rank(error.what());
    throw;
  }
}

bool is_one_of_several() { return comm::read_launch(std::getenv).size > 1; }

ExitCode refuse(const std::string& message) {
  comm::let_first_rank_speak(comm::read_launch(std::getenv));
  return report("error", message, kUsage);
}

}  // namespace steelyard::cli
