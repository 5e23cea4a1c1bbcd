// Signals that end what takes long after it has saved.
#pragma once

#include <atomic>

namespace steelyard::cli {

// True once an interrupt, SIGTERM or a lost terminal (not under nohup) came; a third one kills. A
// closed pipe at standard output ends nothing from then on.
const std::atomic<bool>& stop_on_signals();

}  // namespace steelyard::cli
