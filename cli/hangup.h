// SIGHUP as the program was started with it.
#pragma once

namespace steelyard::cli {

// Ignores SIGHUP again if the program was started so, as nohup does, and says whether it was.
// Libraries set handlers of their own before main(): UCX, which Open MPI 5 loads, does.
bool ignore_hangup_as_at_start();

}  // namespace steelyard::cli
