# cuDNN 9: CUDNN_FOUND, CUDNN_VERSION and the target CUDNN::cudnn. Found next to the CUDA toolkit, or
# where CUDNN_ROOT or CMAKE_PREFIX_PATH say; the library's name without a version is not in every
# package.
find_path(CUDNN_INCLUDE_DIR cudnn_version.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
find_library(CUDNN_LIBRARY NAMES cudnn libcudnn.so.9 HINTS ${CUDAToolkit_LIBRARY_DIR})
if(CUDNN_INCLUDE_DIR)
  file(READ ${CUDNN_INCLUDE_DIR}/cudnn_version.h cudnn_version_h)
  foreach(part MAJOR MINOR PATCHLEVEL)
    string(REGEX MATCH "#define CUDNN_${part} ([0-9]+)" matched "${cudnn_version_h}")
    list(APPEND cudnn_version_parts ${CMAKE_MATCH_1})
  endforeach()
  list(JOIN cudnn_version_parts . CUDNN_VERSION)
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(CUDNN REQUIRED_VARS CUDNN_LIBRARY CUDNN_INCLUDE_DIR
                                  VERSION_VAR CUDNN_VERSION)
if(CUDNN_FOUND AND NOT TARGET CUDNN::cudnn)
  add_library(CUDNN::cudnn UNKNOWN IMPORTED)
  set_target_properties(CUDNN::cudnn PROPERTIES
    IMPORTED_LOCATION ${CUDNN_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${CUDNN_INCLUDE_DIR})
endif()
