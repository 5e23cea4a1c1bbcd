# That CMake's own FindCUDAToolkit is told a minimum version below 3.25, and the project's stays what it is:
# cmake -DSOURCE_DIR=... -DWORK_DIR=... -P cuda_toolkit_test.cmake
cmake_minimum_required(VERSION 3.25)
file(WRITE ${WORK_DIR}/Modules/FindCUDAToolkit.cmake [[
set(CUDAToolkit_FOUND TRUE)
set(told ${CMAKE_MINIMUM_REQUIRED_VERSION})
]])
set(CMAKE_ROOT ${WORK_DIR})
set(CMAKE_MODULE_PATH ${SOURCE_DIR}/cmake)
find_package(CUDAToolkit REQUIRED)
if(NOT "${told}, ${CMAKE_MINIMUM_REQUIRED_VERSION}" STREQUAL "3.24, 3.25")
  message(FATAL_ERROR "expected 3.24 for CMake's module and 3.25 after it, got ${told}, ${CMAKE_MINIMUM_REQUIRED_VERSION}")
endif()
