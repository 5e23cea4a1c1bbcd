#include "cli/hangup.h"

#include <csignal>

namespace {

bool was_ignored = false;

// Runs before sanitizers are ready.
__attribute__((no_sanitize("address", "undefined", "thread"))) void look_at_hangup(int, char**,
                                                                                   char**) {
  struct sigaction hangup {};
  sigaction(SIGHUP, nullptr, &hangup);
  was_ignored = hangup.sa_handler == SIG_IGN;
}

// The loader calls what is listed here before any library's constructors.
__attribute__((section(".preinit_array"),
               used)) void (*const kLookAtHangup)(int, char**, char**) = look_at_hangup;

}  // namespace

namespace steelyard::cli {

bool ignore_hangup_as_at_start() {
  if (was_ignored) std::signal(SIGHUP, SIG_IGN);
  return was_ignored;
}

}  // namespace steelyard::cli
