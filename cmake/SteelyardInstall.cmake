# Installs the libraries, headers and the CMake package: find_package(Steelyard) then gives
# steelyard::recipes and what it needs.
include(CMakePackageConfigHelpers)

get_property(steelyard_libraries GLOBAL PROPERTY STEELYARD_LIBRARIES)
set(steelyard_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Steelyard)

install(TARGETS steelyard_flags ${steelyard_libraries} EXPORT SteelyardTargets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT SteelyardTargets NAMESPACE steelyard:: DESTINATION ${steelyard_package_dir})

foreach(folder ${STEELYARD_FOLDERS})
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/${folder}
          DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/steelyard FILES_MATCHING PATTERN "*.h")
endforeach()

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/SteelyardConfig.cmake.in
                              ${PROJECT_BINARY_DIR}/SteelyardConfig.cmake
                              INSTALL_DESTINATION ${steelyard_package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/SteelyardConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/SteelyardConfig.cmake
              ${PROJECT_BINARY_DIR}/SteelyardConfigVersion.cmake
              ${PROJECT_SOURCE_DIR}/cmake/FindCUDNN.cmake
              ${PROJECT_SOURCE_DIR}/cmake/FindRE2.cmake
        DESTINATION ${steelyard_package_dir})
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

install(TARGETS steelyard RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
