// Signals that would end a rank before it has said which other rank was lost.
#pragma once

namespace steelyard::comm {

// In this thread, and in those that it starts: a connection or a pipe whose other end is closed
// gives an error and no signal.
void block_sigpipe();

// mpirun sends SIGTERM to all ranks when it has lost one. Where a program does nothing else with
// it, it then ends a second later (exit code 143), and the watchdog has its say.
void delay_sigterm();

}  // namespace steelyard::comm
