# NCCL 2: NCCL_FOUND, NCCL_VERSION and the target NCCL::nccl. Found next to the CUDA toolkit, or where NCCL_ROOT or
# CMAKE_PREFIX_PATH say.
find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
find_library(NCCL_LIBRARY NAMES nccl libnccl.so.2 HINTS ${CUDAToolkit_LIBRARY_DIR} ${CUDAToolkit_LIBRARY_ROOT}/lib)
if(NCCL_INCLUDE_DIR)
  file(READ ${NCCL_INCLUDE_DIR}/nccl.h nccl_h)
  foreach(part MAJOR MINOR PATCH)
    string(REGEX MATCH "#define NCCL_${part} ([0-9]+)" matched "${nccl_h}")
    list(APPEND nccl_version_parts ${CMAKE_MATCH_1})
  endforeach()
  list(JOIN nccl_version_parts . NCCL_VERSION)
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(NCCL REQUIRED_VARS NCCL_LIBRARY NCCL_INCLUDE_DIR VERSION_VAR NCCL_VERSION)
if(NCCL_FOUND AND NOT TARGET NCCL::nccl)
  add_library(NCCL::nccl UNKNOWN IMPORTED)
  set_target_properties(NCCL::nccl PROPERTIES
    IMPORTED_LOCATION ${NCCL_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${NCCL_INCLUDE_DIR})
  if(TARGET CUDA::cudart)  # whose headers NCCL's includes
    set_property(TARGET NCCL::nccl APPEND PROPERTY INTERFACE_LINK_LIBRARIES CUDA::cudart)
  endif()
endif()
