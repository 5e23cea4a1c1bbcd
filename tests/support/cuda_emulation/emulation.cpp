// The options in force.
#include "tests/support/cuda_emulation/emulation.h"

#include <cstdlib>
#include <stdexcept>

namespace steelyard::emulation {
namespace {

std::int64_t work_done = 0;

Options options_of_environment() {
  Options options;
  if (const char* bytes = std::getenv("STEELYARD_EMULATED_MEMORY")) {
    options.memory_limit = std::stoull(bytes);
  }
  if (const char* work = std::getenv("STEELYARD_EMULATED_LOSS")) {
    options.work_until_lost = std::stoll(work);
  }
  return options;
}

Options& current() {
  static Options options = options_of_environment();
  return options;
}

}  // namespace

const Options& options() { return current(); }

void require_alive() {
  if (work_done < options().work_until_lost) return;
  throw std::runtime_error("[emulation] unspecified launch failure");
}

void count_work() { ++work_done; }

std::string to_string(const Options& options) {
  std::string text = options.order == Order::kForward   ? "forward"
                     : options.order == Order::kReverse ? "reverse"
                                                        : "random";
  if (options.order == Order::kRandom) text += ", seed " + std::to_string(options.seed);
  return text + ", poison " + std::to_string(options.poison);
}

ScopedOptions::ScopedOptions(const Options& options) : previous_(current()) { current() = options; }
ScopedOptions::~ScopedOptions() { current() = previous_; }

}  // namespace steelyard::emulation
