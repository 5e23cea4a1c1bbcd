# Installs the libraries, headers, the CMake package and a pkg-config file. find_package(Steelyard) gives
# steelyard::steelyard (static, everything), steelyard::shared (libsteelyard.so), steelyard::c and steelyard::c_plans (the
# C face), steelyard::runtime_shared (exported models from C) and each folder's own library, such as steelyard::kernels;
# pkg-config gives the shared libraries.
include(CMakePackageConfigHelpers)

# Where the loader looks for what a target links: the same absolute folders in the build tree and installed. CMake
# would otherwise lengthen the build tree's list by empty entries, to have room for another one, and the loader takes
# an empty entry for the current folder.
function(steelyard_keep_runpath target)
  set_target_properties(${target} PROPERTIES BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH_USE_LINK_PATH ON)
endfunction()

get_property(steelyard_libraries GLOBAL PROPERTY STEELYARD_LIBRARIES)
set(steelyard_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Steelyard)

add_library(steelyard_everything INTERFACE)
add_library(steelyard::steelyard ALIAS steelyard_everything)
set_target_properties(steelyard_everything PROPERTIES EXPORT_NAME steelyard)
target_link_libraries(steelyard_everything INTERFACE steelyard_recipes)
set(steelyard_exported steelyard_flags steelyard_everything ${steelyard_libraries})

file(RELATIVE_PATH steelyard_headers_from_libraries
     ${CMAKE_INSTALL_FULL_LIBDIR} ${CMAKE_INSTALL_FULL_INCLUDEDIR})

if(STEELYARD_SHARED AND NOT STEELYARD_FUZZ)
  # The same objects in one file; the archives behind them only tell which other libraries are needed.
  foreach(library ${steelyard_libraries})
    list(APPEND steelyard_objects $<TARGET_OBJECTS:${library}>)
  endforeach()
  add_library(steelyard_shared SHARED ${steelyard_objects})
  add_library(steelyard::shared ALIAS steelyard_shared)
  target_link_libraries(steelyard_shared PUBLIC steelyard_flags PRIVATE $<BUILD_INTERFACE:steelyard_recipes>)
  target_include_directories(steelyard_shared PUBLIC
    $<BUILD_INTERFACE:${STEELYARD_INCLUDE_DIR}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  set_target_properties(steelyard_shared PROPERTIES EXPORT_NAME shared OUTPUT_NAME steelyard
    VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  steelyard_keep_runpath(steelyard_shared)
  list(APPEND steelyard_exported steelyard_shared)

  configure_file(${PROJECT_SOURCE_DIR}/cmake/steelyard.pc.in ${PROJECT_BINARY_DIR}/steelyard.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/steelyard.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endif()

if(TARGET steelyard_runtime_shared)
  steelyard_keep_runpath(steelyard_runtime_shared)
  list(APPEND steelyard_exported steelyard_runtime_shared)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/steelyard_runtime.pc.in ${PROJECT_BINARY_DIR}/steelyard_runtime.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/steelyard_runtime.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endif()

if(TARGET steelyard_c)
  foreach(steelyard_c_library steelyard_c steelyard_c_plans)
    steelyard_keep_runpath(${steelyard_c_library})
    list(APPEND steelyard_exported ${steelyard_c_library})
    set(steelyard_c_pc ${PROJECT_BINARY_DIR}/${steelyard_c_library}.pc)
    configure_file(${PROJECT_SOURCE_DIR}/cmake/steelyard_c.pc.in ${steelyard_c_pc} @ONLY)
    install(FILES ${steelyard_c_pc} DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
  endforeach()
  install(FILES ${PROJECT_SOURCE_DIR}/c/steelyard_c.h ${PROJECT_SOURCE_DIR}/c/steelyard_c_plans.h
                ${PROJECT_SOURCE_DIR}/c/steelyard_dlpack.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/steelyard/c)
endif()

install(TARGETS ${steelyard_exported} EXPORT SteelyardTargets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT SteelyardTargets NAMESPACE steelyard:: DESTINATION ${steelyard_package_dir})

# Not those that include what is not installed: kernels/cpu and onnx.pb.h.
string(CONCAT steelyard_private_headers
       "/(export/(onnx_graph|onnx_nodes|ops/(arithmetic|first_state|linear_map|real_sum))|import/onnx/attribute_types|"
       "kernels/(conv/(float_source|outer_sums)|quant_plan/cpu_forward|requantize/(requantizer|sixteen_codes)|"
       "integer_product/(depthwise_(pairs|products|quads|taps)|packed_memory|packed_weights|pixel_blocks|tile_(sums|windows)|"
       "tiled_products)))[.]h$")
foreach(folder ${STEELYARD_FOLDERS})
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/${folder}
          DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/steelyard
          FILES_MATCHING PATTERN "*.h" PATTERN "cpu" EXCLUDE
          REGEX "${steelyard_private_headers}" EXCLUDE)
endforeach()
install(FILES ${PROJECT_SOURCE_DIR}/steelyard.h ${STEELYARD_BUILD_ID_HEADER} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/steelyard)

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/SteelyardConfig.cmake.in
                              ${PROJECT_BINARY_DIR}/SteelyardConfig.cmake
                              INSTALL_DESTINATION ${steelyard_package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/SteelyardConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/SteelyardConfig.cmake
              ${PROJECT_BINARY_DIR}/SteelyardConfigVersion.cmake
              ${PROJECT_SOURCE_DIR}/cmake/FindCUDAToolkit.cmake
              ${PROJECT_SOURCE_DIR}/cmake/FindCUDNN.cmake
              ${PROJECT_SOURCE_DIR}/cmake/FindNCCL.cmake
              ${PROJECT_SOURCE_DIR}/cmake/FindRE2.cmake
              ${PROJECT_SOURCE_DIR}/cmake/FindWebP.cmake
              ${PROJECT_SOURCE_DIR}/cmake/SteelyardPlugin.cmake
        DESTINATION ${steelyard_package_dir})
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

# What a wheel has of the build (pyproject.toml), and no other installation.
if(TARGET steelyard_c)
  install(FILES $<TARGET_FILE:steelyard_c> DESTINATION steelyard/lib RENAME libsteelyard_c.so
          PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE
          COMPONENT python EXCLUDE_FROM_ALL)
  install(PROGRAMS $<TARGET_FILE:steelyard> DESTINATION steelyard/bin COMPONENT python EXCLUDE_FROM_ALL)
endif()

steelyard_keep_runpath(steelyard)
install(TARGETS steelyard RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
