// Threads that work for some microseconds between their sleeps, while other threads compute.
#pragma once

namespace steelyard::comm {

// This thread's sleeps end when they should, and not 50 us later. Where processors are shared, it
// asks for short slices: Linux from 6.12 on lets it run before the slice of a thread that computes,
// some milliseconds, is over; older ones ignore it.
void run_promptly();

}  // namespace steelyard::comm
