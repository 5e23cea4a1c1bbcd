#include "steelyard/framework/comm/prompt_thread.h"

#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace steelyard::comm {
namespace {

// The kernel's struct sched_attr, which older C libraries do not declare.
struct SchedulerAttributes {
  std::uint32_t size = sizeof(SchedulerAttributes);
  std::uint32_t policy = SCHED_OTHER;
  std::uint64_t flags = 0;
  std::int32_t nice = 0;
  std::uint32_t priority = 0;
  std::uint64_t runtime_ns = 0, deadline_ns = 0, period_ns = 0;
};

}  // namespace

void run_promptly() {
  prctl(PR_SET_TIMERSLACK, 1000UL);
  SchedulerAttributes attributes;
  if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) != 0) return;
  if (attributes.policy != SCHED_OTHER) return;
  attributes.runtime_ns = 100000;  // the shortest that there is
  syscall(SYS_sched_setattr, 0, &attributes, 0);
}

}  // namespace steelyard::comm
