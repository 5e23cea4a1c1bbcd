// The options in force.
#include "tests/support/cuda_emulation/emulation.h"

namespace steelyard::emulation {
namespace {

Options& current() {
  static Options options;
  return options;
}

}  // namespace

const Options& options() { return current(); }

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
