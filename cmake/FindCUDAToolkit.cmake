# CMake's own module, for CMake 3.25, which Debian 12 has: in projects that need 3.25 it sets a property of the target
# CUDA::nvToolsExt without asking whether it exists, and CUDA 12.9 and later have none.
set(_steelyard_minimum ${CMAKE_MINIMUM_REQUIRED_VERSION})
set(CMAKE_MINIMUM_REQUIRED_VERSION 3.24)
include(${CMAKE_ROOT}/Modules/FindCUDAToolkit.cmake)
set(CMAKE_MINIMUM_REQUIRED_VERSION ${_steelyard_minimum})
unset(_steelyard_minimum)
