#include "steelyard/framework/comm/signals.h"

#include <unistd.h>

#include <csignal>

namespace steelyard::comm {
namespace {

void end_later(int) {
  struct sigaction action {};
  action.sa_handler = [](int) { _exit(128 + SIGTERM); };
  sigaction(SIGALRM, &action, nullptr);
  alarm(1);
}

}  // namespace

void block_sigpipe() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

void delay_sigterm() {
  struct sigaction now {};
  sigaction(SIGTERM, nullptr, &now);
  if (now.sa_handler != SIG_DFL) return;
  struct sigaction action {};
  action.sa_handler = end_later;
  sigaction(SIGTERM, &action, nullptr);
}

}  // namespace steelyard::comm
