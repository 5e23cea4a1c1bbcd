# Read by CTest: several tests run at once, so idle OpenMP threads must not spin.
set(ENV{OMP_WAIT_POLICY} passive)
