#include "cli/interrupt.h"

#include <csignal>

#include "cli/hangup.h"

namespace steelyard::cli {
namespace {

// Set by the signal handlers; safe there because it is lock-free.
std::atomic<bool> stop_requested = false;
static_assert(std::atomic<bool>::is_always_lock_free);

extern "C" void request_stop(int signal) {
  if (stop_requested.exchange(true)) std::signal(signal, SIG_DFL);
}

}  // namespace

const std::atomic<bool>& stop_on_signals() {
  std::signal(SIGINT, request_stop);
  std::signal(SIGTERM, request_stop);
  if (!ignore_hangup_as_at_start()) std::signal(SIGHUP, request_stop);
  std::signal(SIGPIPE, SIG_IGN);
  return stop_requested;
}

}  // namespace steelyard::cli
