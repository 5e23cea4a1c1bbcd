# Builds the runtime alone, for this machine's processor, installs it elsewhere, and builds examples/13_ship_a_model there:
# the program tells the class that the interpreter gives, is small, and needs the compiler's libraries alone. The shared
# library does for C. Where there are image libraries, another program tells the same of the photograph in its file. Later
# runs build what has changed.
# Arguments: -DSOURCE_DIR= -DWORK_DIR= -DGENERATOR= -DCXX= -DLAUNCHER= -DPROCESSOR= -DWRITE_MODEL= -DIMAGES=ON|OFF

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE errors)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${ARGN}: exit status ${status}\n${output}${errors}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

function(expect_class program sample)
  run(${program} ${WORK_DIR}/model/model.safetensors ${WORK_DIR}/model/${sample})
  if(NOT output STREQUAL expected)
    message(FATAL_ERROR "${program}: expected '${expected}', got '${output}'")
  endif()
endfunction()

function(expect_lean file most_bytes)
  file(SIZE ${file} bytes)
  if(bytes GREATER most_bytes)
    message(FATAL_ERROR "${file}: expected at most ${most_bytes} bytes, got ${bytes}")
  endif()
  run(readelf --wide --dynamic ${file})
  string(REGEX MATCHALL "NEEDED[^\n]*" needed "${output}")
  list(FILTER needed EXCLUDE REGEX "\\[(libc|libm|libstdc\\+\\+|libgcc_s|libgomp|libomp|libpthread|ld-linux[^.]*)\\.so")
  if(needed)
    message(FATAL_ERROR "${file}: expected the compiler's libraries alone, got ${needed}")
  endif()
  message(STATUS "${file}: ${bytes} bytes")
endfunction()

run(${WRITE_MODEL} ${WORK_DIR}/model)
set(expected "${output}")

set(levels)
if(PROCESSOR STREQUAL "x86_64")
  set(levels -DSTEELYARD_LEVELS=PROCESSOR)
endif()
run(${CMAKE_COMMAND} -G ${GENERATOR} -S ${SOURCE_DIR} -B ${WORK_DIR}/build -DSTEELYARD_RUNTIME_ONLY=ON
    -DSTEELYARD_IMAGES=${IMAGES} -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER} ${levels})
run(${CMAKE_COMMAND} --build ${WORK_DIR}/build)
file(REMOVE_RECURSE ${WORK_DIR}/installed ${WORK_DIR}/moved ${WORK_DIR}/program)
run(${CMAKE_COMMAND} --install ${WORK_DIR}/build --prefix ${WORK_DIR}/installed --strip)
file(RENAME ${WORK_DIR}/installed ${WORK_DIR}/moved)

# Nothing is installed that includes what is not.
file(GLOB_RECURSE headers ${WORK_DIR}/moved/include/steelyard/*.h)
foreach(header IN LISTS headers)
  file(STRINGS ${header} includes REGEX "^#include \"steelyard/")
  foreach(include IN LISTS includes)
    string(REGEX REPLACE "^#include \"([^\"]*)\".*" "\\1" path ${include})
    if(NOT EXISTS ${WORK_DIR}/moved/include/${path})
      message(FATAL_ERROR "${header}: ${path} is not installed")
    endif()
  endforeach()
endforeach()

run(${CMAKE_COMMAND} -G ${GENERATOR} -S ${SOURCE_DIR}/examples/13_ship_a_model -B ${WORK_DIR}/program
    -DCMAKE_PREFIX_PATH=${WORK_DIR}/moved -DCMAKE_CXX_COMPILER=${CXX})
run(${CMAKE_COMMAND} --build ${WORK_DIR}/program)
expect_class(${WORK_DIR}/program/classify image.raw)
expect_class(${WORK_DIR}/program/classify_shared image.raw)
expect_lean(${WORK_DIR}/program/classify 1500000)
if(IMAGES)
  expect_class(${WORK_DIR}/program/photo photo.png)
endif()

# What includes the headers may be compiled without exceptions, by clang too.
set(without_exceptions ${WORK_DIR}/program/without_exceptions.cpp)
file(WRITE ${without_exceptions} "#include <steelyard/runtime/graph_file.h>\n#include <steelyard/runtime/interpreter.h>\n"
     "#include <steelyard/runtime/preprocessing.h>\n")
find_program(CLANG NAMES clang++ clang++-19 clang++-14)
foreach(compiler ${CXX} ${CLANG})
  if(compiler)
    run(${compiler} -std=c++20 -fno-exceptions -fsyntax-only -I${WORK_DIR}/moved/include ${without_exceptions})
  endif()
endforeach()

# With pkg-config, in C.
find_program(PKG_CONFIG pkg-config REQUIRED)
find_program(CC NAMES cc gcc clang REQUIRED)
file(GLOB_RECURSE description ${WORK_DIR}/moved/steelyard_runtime.pc)
cmake_path(GET description PARENT_PATH folder)
set(ENV{PKG_CONFIG_PATH} ${folder})
run(${PKG_CONFIG} --cflags --libs steelyard_runtime)
separate_arguments(options UNIX_COMMAND "${output}")
run(${CC} -std=c99 -pedantic -Wall -Wextra -Werror ${SOURCE_DIR}/examples/13_ship_a_model/classify.c ${options}
    -o ${WORK_DIR}/program/with_shared)
cmake_path(GET folder PARENT_PATH libraries)
set(ENV{LD_LIBRARY_PATH} ${libraries})
expect_class(${WORK_DIR}/program/with_shared image.raw)
file(GLOB shared ${libraries}/libsteelyard_runtime.so.*.*.*)
expect_lean(${shared} 1550000)  # with all functions of the C face
file(REMOVE_RECURSE ${WORK_DIR}/moved ${WORK_DIR}/program)
