// framework/comm/mpi.h in a build without MPI.
#include "steelyard/framework/comm/mpi.h"
#include "steelyard/framework/tensor/error.h"

namespace steelyard::comm {

std::string mpi_name() { return ""; }
std::unique_ptr<Transport> mpi_transport() {
  throw InputError("this program was built without MPI");
}

}  // namespace steelyard::comm
