# Installs the project, moves what was installed elsewhere, and there builds and runs a program against it: with CMake,
# static and shared, and with pkg-config; the installed program loads a plugin that is built there. check_programs reads
# what is installed and what is built. What programs are compiled with is checked for each, and for one that has the
# project in its own tree.
# Arguments: -DBUILD_DIR= -DSOURCE_DIR= -DWORK_DIR= -DGENERATOR= -DCXX= -DBUILD_TYPE=
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${ARGN}: exit status ${status}\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

function(expect program)
  if(NOT output STREQUAL expected)
    message(FATAL_ERROR "${program}: expected '${expected}', got '${output}'")
  endif()
endfunction()

# How programs round is the library's matter; what else its own loops are compiled with is not theirs.
function(expect_options whose options)
  if(NOT options MATCHES "-ffp-contract=off")
    message(FATAL_ERROR "${whose}: expected -ffp-contract=off, got ${options}")
  endif()
  if(options MATCHES "-fno-(math-errno|trapping-math|tree-slp-vectorize)")
    message(FATAL_ERROR "${whose}: ${CMAKE_MATCH_0} is for the library alone, got ${options}")
  endif()
endfunction()

function(expect_options_in build)
  file(READ ${build}/compile_commands.json commands)
  foreach(library steelyard shared)
    string(REGEX MATCH "\"command\": \"([^\n]*with_${library}.dir/main.cpp[^\n]*)\"" found "${commands}")
    expect_options("${build}: with_${library}" "${CMAKE_MATCH_1}")
  endforeach()
endfunction()

file(REMOVE_RECURSE ${WORK_DIR})
run(${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${WORK_DIR}/installed)
file(RENAME ${WORK_DIR}/installed ${WORK_DIR}/moved)
set(expected "4 parameters, 4 rows, [1, 3]\n")

# C's headers include each other from where they lie.
file(GLOB_RECURSE headers ${WORK_DIR}/moved/include/steelyard/*.h)
foreach(header IN LISTS headers)
  cmake_path(GET header PARENT_PATH beside)
  file(STRINGS ${header} includes REGEX "^#include \"")
  foreach(include IN LISTS includes)
    string(REGEX REPLACE "^#include \"(.*)\".*" "\\1" path ${include})
    if(NOT EXISTS ${WORK_DIR}/moved/include/${path} AND NOT EXISTS ${beside}/${path})
      message(FATAL_ERROR "${header}: ${path} is not installed")
    endif()
  endforeach()
endforeach()

run(${CMAKE_COMMAND} -G ${GENERATOR} -S ${SOURCE_DIR}/consumer -B ${WORK_DIR}/build
    -DCMAKE_PREFIX_PATH=${WORK_DIR}/moved -DCMAKE_CXX_COMPILER=${CXX}
    -DCMAKE_BUILD_TYPE=${BUILD_TYPE} -DCMAKE_EXPORT_COMPILE_COMMANDS=ON)
expect_options_in(${WORK_DIR}/build)
run(${CMAKE_COMMAND} -G ${GENERATOR} -S ${SOURCE_DIR}/consumer -B ${WORK_DIR}/in_tree
    -DSTEELYARD_TREE=${SOURCE_DIR}/../.. -DCMAKE_CXX_COMPILER=${CXX} -DSTEELYARD_CUDA=OFF
    -DCMAKE_BUILD_TYPE=${BUILD_TYPE} -DCMAKE_EXPORT_COMPILE_COMMANDS=ON)
expect_options_in(${WORK_DIR}/in_tree)
run(${CMAKE_COMMAND} --build ${WORK_DIR}/build)
foreach(library steelyard shared)
  run(${WORK_DIR}/build/with_${library})
  expect(with_${library})
endforeach()

# A program that asks for the runtime alone.
run(${CMAKE_COMMAND} -G ${GENERATOR} -S ${SOURCE_DIR}/../../examples/13_ship_a_model -B ${WORK_DIR}/ship
    -DCMAKE_PREFIX_PATH=${WORK_DIR}/moved -DCMAKE_CXX_COMPILER=${CXX})
run(${CMAKE_COMMAND} --build ${WORK_DIR}/ship)
function(expect_to_open_nothing program)
  execute_process(COMMAND ${program} absent absent RESULT_VARIABLE status ERROR_VARIABLE output)
  set(expected "error: absent: cannot open: No such file or directory\n")
  if(NOT status EQUAL 1)
    message(FATAL_ERROR "${program}: expected exit status 1, got ${status}")
  endif()
  expect(${program})
endfunction()
expect_to_open_nothing(${WORK_DIR}/ship/classify)
expect_to_open_nothing(${WORK_DIR}/ship/classify_shared)

run(${SOURCE_DIR}/check_programs --run ${WORK_DIR}/moved/bin/steelyard ${WORK_DIR}/moved ${WORK_DIR}/build)
run(${WORK_DIR}/moved/bin/steelyard schema --plugin ${WORK_DIR}/build/libconsumer_plugin.so)
if(NOT output MATCHES "\"enum\": \\[[ \n]*\"of_the_consumer\"")
  message(FATAL_ERROR "the installed program does not know the plugin's loss")
endif()

find_program(PKG_CONFIG pkg-config REQUIRED)
file(GLOB_RECURSE description ${WORK_DIR}/moved/steelyard.pc)
get_filename_component(folder ${description} DIRECTORY)
set(ENV{PKG_CONFIG_PATH} ${folder})
run(${PKG_CONFIG} --cflags --libs steelyard)
expect_options(pkg-config "${output}")
separate_arguments(options UNIX_COMMAND "${output}")
run(${CXX} -I${SOURCE_DIR}/consumer/headers ${SOURCE_DIR}/consumer/main.cpp ${options} -o ${WORK_DIR}/by_pkg_config)
get_filename_component(libraries ${folder} DIRECTORY)
set(ENV{LD_LIBRARY_PATH} ${libraries})
# AddressSanitizer, where the library has it, comes after the libraries of a program that was linked without it.
set(ENV{ASAN_OPTIONS} verify_asan_link_order=0)
run(${WORK_DIR}/by_pkg_config)
expect(by_pkg_config)

# The C face, where it was built: with what pkg-config says and no more.
find_program(CC NAMES cc gcc clang)
foreach(library steelyard_c steelyard_c_plans)
  if(NOT CC OR NOT EXISTS ${folder}/${library}.pc)
    continue()
  endif()
  run(${PKG_CONFIG} --cflags --libs ${library})
  separate_arguments(options UNIX_COMMAND "${output}")
  run(${CC} -std=c99 -pedantic -Werror ${SOURCE_DIR}/consumer/plans.c ${options} -o ${WORK_DIR}/with_${library})
  run(${WORK_DIR}/with_${library})
  set(expected "0.3\n")
  expect(with_${library})
endforeach()

# The runtime likewise, as where it was built alone.
if(CC)
  run(${PKG_CONFIG} --cflags --libs steelyard_runtime)
  separate_arguments(options UNIX_COMMAND "${output}")
  run(${CC} -std=c99 -pedantic -Werror ${SOURCE_DIR}/../../examples/13_ship_a_model/classify.c ${options}
      -o ${WORK_DIR}/with_steelyard_runtime)
  expect_to_open_nothing(${WORK_DIR}/with_steelyard_runtime)
endif()
file(REMOVE_RECURSE ${WORK_DIR})
