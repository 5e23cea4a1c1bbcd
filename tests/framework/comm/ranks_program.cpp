// A program for mpirun: tests of processes start it, and end some of them.
//   ranks_program collectives    checks every collective and prints "rank 1 of 4: equal"
//   ranks_program steps          takes steps until it is ended; prints "rank 1 process 77: started"
//                                and every 20 steps "rank 0 step 40"
//   ranks_program fail           as steps, but rank 0 leaves with an error after some
//   ranks_program end            comes to the end, where the last rank is killed in MPI_Finalize
//   ranks_program lengths        rank 1 of two announces other lengths than it may and sends more
//   than
//                                is asked for; rank 0 prints what it throws
//   ranks_program announce       the last of two ranks announces more bytes than it may send
//   ranks_program longer         the last of two ranks sends a longer message than the other
//   expects ranks_program measure        prints microseconds of small and large collectives
// A second argument is the folder for rank-N.log.
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "steelyard/framework/comm/ranks.h"
#include "steelyard/framework/tensor/error.h"
#include "tests/framework/comm/comm_cases.h"

namespace steelyard {
namespace {

using comm::Communicator;

// In one write: ranks share standard output.
void say(const Communicator& ranks, const std::string& what) {
  const std::string line = "rank " + std::to_string(ranks.rank()) + " " + what + "\n";
  std::fwrite(line.data(), 1, line.size(), stdout);
  std::fflush(stdout);
}

void collectives(Communicator& ranks) {
  for (std::int64_t shards = ranks.size(); shards <= 16; shards *= 4) {
    testing::check_sums(ranks, shards);
  }
  testing::check_exact_collectives(ranks);
  const Tensor large = Tensor::full({(3 << 20) + 5}, ranks.rank() + 1);  // several messages
  ranks.sum({large});
  const int n = ranks.size();
  if (large.span<float>().back() != static_cast<float>(n * (n + 1) / 2)) {
    throw std::runtime_error("another sum of a large tensor");
  }
  say(ranks, "of " + std::to_string(n) + ": equal");
}

void steps(Communicator& ranks, comm::RankState& state, std::int64_t failing_step) {
  ranks.barrier();
  say(ranks, "process " + std::to_string(getpid()) + ": started");
  const Tensor gradient = Tensor::full({100000}, 1);
  for (std::int64_t step = 1;; ++step) {
    state.set_step(step);
    state.set_checkpoint("runs/a/last.safetensors (step " + std::to_string(step / 10 * 10) + ")");
    comm::Pending sum = ranks.start_sum({gradient});
    if (step == failing_step && ranks.rank() == 0) throw std::runtime_error("no space on device");
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    sum.wait();
    ranks.max({});
    if (step % 20 == 0 && ranks.rank() == 0) say(ranks, "step " + std::to_string(step));
  }
}

// The first rank gathers while the last one takes a sum, of 8 bytes for each number.
void wrong_lengths(Communicator& ranks, std::vector<std::int64_t> numbers) {
  if (ranks.rank() == 0) {
    ranks.gather("own");
    return;
  }
  try {
    ranks.sum(numbers);
  } catch (const std::exception&) {  // mpirun would end the first rank before it has spoken
    std::this_thread::sleep_for(std::chrono::seconds(3));
    throw;
  }
}

double microseconds_each(int times, const std::function<void()>& call) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < times; ++i) call();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin)
             .count() /
         times;
}

void measure(Communicator& ranks) {
  std::vector<float> extremes(40);
  const Tensor bucket = Tensor::zeros({1 << 20});
  ranks.barrier();
  const double barrier = microseconds_each(300, [&] { ranks.barrier(); });
  const double maximum = microseconds_each(300, [&] { ranks.max(extremes); });
  const double sum = microseconds_each(10, [&] { ranks.sum({bucket}); });
  if (ranks.rank() != 0) return;
  say(ranks, "barrier " + std::to_string(barrier) + " us, maximum of 40 " +
                 std::to_string(maximum) + " us, sum of 4 MiB " + std::to_string(sum) + " us");
}

// What mpirun does to ranks when it was told to stop; the others are there for a while.
bool killed_in_finalize = false, waits_in_finalize = false;

int run(const std::string& what, const std::string& folder) {
  comm::RankState state;
  comm::WatchdogOptions options;
  options.heartbeat = std::chrono::milliseconds(500);
  options.deadline = std::chrono::milliseconds(2500);
  comm::Ranks ranks(state, options);
  Communicator& communicator = ranks.communicator();
  if (!folder.empty()) {
    state.set_log(folder + "/rank-" + std::to_string(communicator.rank()) + ".log");
  }
  try {
    if (what == "collectives") collectives(communicator);
    if (what == "measure") measure(communicator);
    if (what == "steps") steps(communicator, state, -1);
    if (what == "fail") steps(communicator, state, 20);
    if (what == "announce") wrong_lengths(communicator, {std::int64_t{1} << 62});
    if (what == "longer") wrong_lengths(communicator, {1, 2, 3});
    if (what == "end") {
      killed_in_finalize = communicator.rank() == communicator.size() - 1;
      waits_in_finalize = !killed_in_finalize;
    }
  } catch (const std::exception& error) {
    ranks.set_reason(error.what());
    throw;
  }
  ranks.finish();
  return 0;
}

}  // namespace
}  // namespace steelyard

// MPI lets programs take the place of its functions, which have a second name for that.
extern "C" __attribute__((weak)) int PMPI_Finalize();
extern "C" int MPI_Finalize() {
  if (steelyard::killed_in_finalize) std::raise(SIGKILL);
  if (steelyard::waits_in_finalize) std::this_thread::sleep_for(std::chrono::milliseconds(500));
  return PMPI_Finalize();
}

int main(int argc, char** argv) {
  try {
    return steelyard::run(argc > 1 ? argv[1] : "collectives", argc > 2 ? argv[2] : "");
  } catch (const steelyard::InputError& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "failed: %s\n", error.what());
    return 1;
  }
}
