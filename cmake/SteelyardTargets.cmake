# One static library per folder. What a program that links one is compiled with too: C++20, and no contraction of
# a*b+c. Some 50 headers of kernels/ define the arithmetic of quantization as inline functions (affine.h first of all;
# docs/numerics.md). A program's copy of one must round as the library's does, and a linker keeps only one of both: that
# of the program, which comes first.
add_library(steelyard_flags INTERFACE)
target_compile_features(steelyard_flags INTERFACE cxx_std_20)
target_compile_options(steelyard_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>
  $<$<COMPILE_LANGUAGE:CUDA>:--fmad=false -std=c++20>)  # CMake 3.25 does not know nvcc 13's C++20
if(STEELYARD_NATIVE)
  target_compile_options(steelyard_flags INTERFACE
    $<BUILD_INTERFACE:$<$<COMPILE_LANGUAGE:CXX>:-march=native>>)
endif()
# Of the libraries alone: loops with roots and comparisons vectorize. No result depends on it.
add_library(steelyard_own_flags INTERFACE)
target_compile_options(steelyard_own_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-fno-math-errno -fno-trapping-math>)
# gcc 12 with AVX-512 turns constant initializers such as {a, a, a, 0} of 64-bit elements into
# {a, a, a, a} in its SLP vectorizer (seen with 12.2 at -O2 and -O3; loops are not affected).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(steelyard_own_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fno-tree-slp-vectorize>)
  if(STEELYARD_NATIVE)  # then programs may have AVX-512, too
    target_compile_options(steelyard_flags INTERFACE
      $<BUILD_INTERFACE:$<$<COMPILE_LANGUAGE:CXX>:-fno-tree-slp-vectorize>>)
  endif()
endif()
if(STEELYARD_SANITIZE)
  target_compile_options(steelyard_flags INTERFACE
    -fsanitize=address,undefined,float-cast-overflow -fno-sanitize-recover=undefined,float-cast-overflow
    -fno-omit-frame-pointer)
  target_link_options(steelyard_flags INTERFACE -fsanitize=address,undefined,float-cast-overflow)
endif()
if(STEELYARD_SANITIZE_THREADS)
  target_compile_options(steelyard_flags INTERFACE -fsanitize=thread -fno-omit-frame-pointer)
  target_link_options(steelyard_flags INTERFACE -fsanitize=thread)
endif()
# The libraries of the fuzzers: libFuzzer's coverage, and every sanitizer's finding ends the program.
if(STEELYARD_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "STEELYARD_FUZZ needs clang, got ${CMAKE_CXX_COMPILER_ID}")
  endif()
  target_compile_options(steelyard_flags INTERFACE
    -fsanitize=fuzzer-no-link,address,undefined,float-cast-overflow -fno-sanitize-recover=all
    -fno-omit-frame-pointer -gline-tables-only)
  target_link_options(steelyard_flags INTERFACE -fsanitize=address,undefined)
endif()

add_library(steelyard_warnings INTERFACE)
target_compile_options(steelyard_warnings INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual>
  # In a group of sources gcc takes a class of one of them for one of a header.
  $<$<AND:$<BOOL:${STEELYARD_GROUPS}>,$<COMPILE_LANG_AND_ID:CXX,GNU>>:-Wno-subobject-linkage>
  # clang tells of each loop that it does not vectorize, and of libstdc++ 12's own std::stable_sort.
  $<$<COMPILE_LANG_AND_ID:CXX,Clang>:-Wno-pass-failed -Wno-deprecated-declarations>
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${STEELYARD_WERROR}>>:-Werror>
  $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra>
  $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${STEELYARD_WERROR}>>:-Werror=all-warnings>)

# Headers are included as "steelyard/FOLDER/NAME.h", in this tree and where they are installed: links to the folders
# make the first true.
set(STEELYARD_INCLUDE_DIR ${PROJECT_BINARY_DIR}/include)
set(STEELYARD_FOLDERS kernels framework runtime layers import observers qat export recipes)
file(MAKE_DIRECTORY ${STEELYARD_INCLUDE_DIR}/steelyard)
foreach(folder ${STEELYARD_FOLDERS})
  file(CREATE_LINK ${PROJECT_SOURCE_DIR}/${folder} ${STEELYARD_INCLUDE_DIR}/steelyard/${folder} SYMBOLIC)
endforeach()
file(CREATE_LINK ${PROJECT_SOURCE_DIR}/steelyard.h ${STEELYARD_INCLUDE_DIR}/steelyard/steelyard.h SYMBOLIC)

# What plugins are built for; recipes/CMakeLists.txt makes it.
set(STEELYARD_BUILD_ID_HEADER ${STEELYARD_INCLUDE_DIR}/steelyard/build_id.h)

# What most sources include, compiled once for each library, which saves a third of a source's time. CUDA reads none.
foreach(header algorithm cmath cstdint filesystem fstream functional map memory optional set span sstream string
               variant vector)
  list(APPEND STEELYARD_STANDARD_HEADERS $<$<COMPILE_LANGUAGE:CXX>:<${header}$<ANGLE-R>>)
endforeach()

# steelyard_add_library(NAME SOURCES... [DEPENDS targets...] [PRIVATE_DEPENDS targets...])
function(steelyard_add_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPENDS;PRIVATE_DEPENDS" ${ARGN})
  add_library(steelyard_${name} STATIC ${arg_SOURCES})
  add_library(steelyard::${name} ALIAS steelyard_${name})
  set_target_properties(steelyard_${name} PROPERTIES EXPORT_NAME ${name}
                        POSITION_INDEPENDENT_CODE ON UNITY_BUILD ${STEELYARD_GROUPS} UNITY_BUILD_BATCH_SIZE 16)
  target_include_directories(steelyard_${name} PUBLIC
    $<BUILD_INTERFACE:${STEELYARD_INCLUDE_DIR}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(steelyard_${name} PUBLIC steelyard_flags PRIVATE $<BUILD_INTERFACE:steelyard_own_flags>
                        PUBLIC ${arg_DEPENDS}
                        PRIVATE ${arg_PRIVATE_DEPENDS} $<BUILD_INTERFACE:steelyard_warnings>)
  target_precompile_headers(steelyard_${name} PRIVATE ${STEELYARD_STANDARD_HEADERS})
  set_property(GLOBAL APPEND PROPERTY STEELYARD_LIBRARIES steelyard_${name})
endfunction()

include(GNUInstallDirs)
