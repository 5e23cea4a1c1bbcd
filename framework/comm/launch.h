// Detects how this process was started: alone, or as one of several ranks.
#pragma once

#include <functional>
#include <string>

namespace steelyard::comm {

// What the environment says. Asked in this order, the first that is there: Open MPI's mpirun
// (OMPI_COMM_WORLD_RANK), MPICH's and Intel's, and Slurm's for them (PMI_RANK), a step of srun
// (SLURM_PROCID with SLURM_STEP_NUM_TASKS; a batch script alone is no step), and RANK with
// WORLD_SIZE, which other launchers set.
struct Launch {
  int rank = 0;
  int size = 1;
  bool by_mpi = true;     // whether the launcher is one that MPI knows
  std::string variables;  // "OMPI_COMM_WORLD_RANK=1 and OMPI_COMM_WORLD_SIZE=4"; empty: none
};

// `variable` is std::getenv, or a test's. Throws InputError where a value is no number, a rank is
// not below the size, or RANK or WORLD_SIZE is there alone.
Launch read_launch(const std::function<const char*(const char*)>& variable);

// Before an error of processes that have not joined, and so cannot agree on which one prints it:
// the first one does not wait, and its end makes mpirun end the others, which wait for seconds.
void let_first_rank_speak(const Launch& launch);

}  // namespace steelyard::comm
