# libwebp: WebP_FOUND and the target WebP::webp. Debian's package has no CMake configuration.
find_path(WebP_INCLUDE_DIR webp/decode.h)
find_library(WebP_LIBRARY NAMES webp)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(WebP REQUIRED_VARS WebP_LIBRARY WebP_INCLUDE_DIR)
mark_as_advanced(WebP_LIBRARY WebP_INCLUDE_DIR)
if(WebP_FOUND AND NOT TARGET WebP::webp)
  add_library(WebP::webp UNKNOWN IMPORTED)
  set_target_properties(WebP::webp PROPERTIES
    IMPORTED_LOCATION ${WebP_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${WebP_INCLUDE_DIR})
endif()
