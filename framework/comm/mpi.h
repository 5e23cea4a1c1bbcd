// Messages of MPI, between processes that mpirun or srun started.
#pragma once

#include <memory>
#include <string>

#include "steelyard/framework/comm/transport.h"

namespace steelyard::comm {

// "Open MPI 4.1.4"; empty in a build without MPI.
std::string mpi_name();

// Joins the other processes: once in a process. MPI is used by the thread that calls this and by
// no other (MPI_THREAD_FUNNELED). Waiting ranks sleep, so that they leave the processor to others.
// Throws InputError in a build without MPI.
std::unique_ptr<Transport> mpi_transport();

}  // namespace steelyard::comm
