# Installs what STEELYARD_RUNTIME_ONLY builds: find_package(Steelyard COMPONENTS runtime) gives steelyard::runtime, static,
# for C++ and C, and steelyard::runtime_shared, libsteelyard_runtime.so, for C and other languages; COMPONENTS images, with
# STEELYARD_IMAGES=ON, steelyard::images.
include(CMakePackageConfigHelpers)

get_property(steelyard_libraries GLOBAL PROPERTY STEELYARD_LIBRARIES)
set(steelyard_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Steelyard)
set(steelyard_exported steelyard_flags ${steelyard_libraries})
if(TARGET steelyard_runtime_shared)
  list(APPEND steelyard_exported steelyard_runtime_shared)
endif()
install(TARGETS ${steelyard_exported} EXPORT SteelyardTargets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT SteelyardTargets NAMESPACE steelyard:: DESTINATION ${steelyard_package_dir})

# The runtime's headers, and those that they include.
set(headers runtime/graph_file.h runtime/interpreter.h runtime/preprocessing.h runtime/steelyard_runtime.h)
if(STEELYARD_HAVE_IMAGES)
  list(APPEND headers framework/data/images/image.h)
  install(FILES ${PROJECT_SOURCE_DIR}/cmake/FindWebP.cmake DESTINATION ${steelyard_package_dir})
endif()
set(installed)
while(headers)
  list(POP_FRONT headers header)
  if(header IN_LIST installed)
    continue()
  endif()
  list(APPEND installed ${header})
  cmake_path(GET header PARENT_PATH folder)
  install(FILES ${PROJECT_SOURCE_DIR}/${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/steelyard/${folder})
  file(STRINGS ${PROJECT_SOURCE_DIR}/${header} includes REGEX "^#include \"steelyard/")
  list(TRANSFORM includes REPLACE "^#include \"steelyard/([^\"]*)\".*" "\\1")
  list(APPEND headers ${includes})
endwhile()

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/SteelyardConfig.cmake.in
                              ${PROJECT_BINARY_DIR}/SteelyardConfig.cmake
                              INSTALL_DESTINATION ${steelyard_package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/SteelyardConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/SteelyardConfig.cmake ${PROJECT_BINARY_DIR}/SteelyardConfigVersion.cmake
        DESTINATION ${steelyard_package_dir})

file(RELATIVE_PATH steelyard_headers_from_libraries ${CMAKE_INSTALL_FULL_LIBDIR} ${CMAKE_INSTALL_FULL_INCLUDEDIR})
configure_file(${PROJECT_SOURCE_DIR}/cmake/steelyard_runtime.pc.in ${PROJECT_BINARY_DIR}/steelyard_runtime.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/steelyard_runtime.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
