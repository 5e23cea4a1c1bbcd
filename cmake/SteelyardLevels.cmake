# The CPU's kernels once for each level of x86-64 instructions; the program chooses one when it runs
# (kernels/instructions.h).
if(CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64" AND CMAKE_LINKER AND CMAKE_OBJCOPY)
  execute_process(COMMAND ${CMAKE_LINKER} --help OUTPUT_VARIABLE linker_help ERROR_QUIET)
endif()
if(linker_help MATCHES "--force-group-allocation"
   AND NOT STEELYARD_NATIVE AND NOT STEELYARD_SANITIZE AND NOT STEELYARD_SANITIZE_THREADS AND NOT STEELYARD_FUZZ)
  set(levels_are_possible ON)
else()
  set(levels_are_possible OFF)  # tools that read or instrument objects want each function once
endif()
set(STEELYARD_LEVELS ${levels_are_possible} CACHE STRING
    "Levels of x86-64 that the CPU's kernels are compiled for, of which a program chooses one: ON (v2;v3;v4), some of \
these, PROCESSOR (the highest one of this machine), or OFF (compile them once, for the compiler's own target)")
if(STEELYARD_LEVELS AND NOT levels_are_possible)
  message(FATAL_ERROR "STEELYARD_LEVELS needs x86-64, GNU ld and objcopy, and a build without STEELYARD_NATIVE, "
                      "sanitizers and fuzzers")
endif()

# The level of this machine's processor, as the compiler's -march=native tells it: v2, v3 or v4.
function(steelyard_level_of_processor variable)
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -march=native -dM -E -x c++ /dev/null
                  OUTPUT_VARIABLE macros COMMAND_ERROR_IS_FATAL ANY)
  set(v2 SSE4_2 POPCNT SSSE3)
  set(v3 AVX2 FMA BMI BMI2 F16C LZCNT MOVBE)
  set(v4 AVX512F AVX512BW AVX512CD AVX512DQ AVX512VL)
  set(highest)
  foreach(level v2 v3 v4)
    foreach(feature IN LISTS ${level})
      if(NOT macros MATCHES "#define __${feature}__ 1")
        set(${variable} ${highest} PARENT_SCOPE)
        return()
      endif()
    endforeach()
    set(highest ${level})
  endforeach()
  set(${variable} ${highest} PARENT_SCOPE)
endfunction()

# STEELYARD_BUILT_LEVELS: those that are compiled, the lowest first.
set(STEELYARD_BUILT_LEVELS)
if(STEELYARD_LEVELS STREQUAL "PROCESSOR")
  steelyard_level_of_processor(STEELYARD_BUILT_LEVELS)
  if(NOT STEELYARD_BUILT_LEVELS)
    message(FATAL_ERROR "STEELYARD_LEVELS=PROCESSOR: expected a processor with the instructions of x86-64-v2")
  endif()
elseif(STEELYARD_LEVELS MATCHES "v[0-9]")
  foreach(level IN LISTS STEELYARD_LEVELS)
    if(NOT level MATCHES "^v[234]$")
      message(FATAL_ERROR "STEELYARD_LEVELS: expected ON, OFF, PROCESSOR or some of v2;v3;v4, got '${STEELYARD_LEVELS}'")
    endif()
  endforeach()
  set(STEELYARD_BUILT_LEVELS ${STEELYARD_LEVELS})
  list(REMOVE_DUPLICATES STEELYARD_BUILT_LEVELS)
  list(SORT STEELYARD_BUILT_LEVELS)
elseif(STEELYARD_LEVELS)
  set(STEELYARD_BUILT_LEVELS v2 v3 v4)
endif()

# steelyard_level(LEVEL OBJECT SOURCES... DEPENDS targets...): compiles the sources for x86-64-LEVEL and links them
# into one object, whose name becomes the variable OBJECT. Its only global symbol is a function,
# steelyard_kernels_LEVEL (kernels/cpu/levels.h). With STEELYARD_RUNTIME_ONLY what that does not lead to is left out.
function(steelyard_level level object)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPENDS" ${ARGN})
  set(name steelyard_kernels_${level})
  add_library(${name} OBJECT ${arg_SOURCES})
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_include_directories(${name} PRIVATE ${STEELYARD_INCLUDE_DIR})
  target_link_libraries(${name} PRIVATE steelyard_flags steelyard_own_flags ${arg_DEPENDS} steelyard_warnings)
  # objcopy does not make gcc's "unique" symbols local.
  target_compile_options(${name} PRIVATE -march=x86-64-${level} $<$<CXX_COMPILER_ID:GNU>:-fno-gnu-unique>)
  target_compile_definitions(${name} PRIVATE STEELYARD_LEVEL_KERNELS=${name})
  set(file ${CMAKE_CURRENT_BINARY_DIR}/${name}.o)
  set(pruning $<$<BOOL:${STEELYARD_RUNTIME_ONLY}>:--gc-sections> $<$<BOOL:${STEELYARD_RUNTIME_ONLY}>:--undefined=${name}>)
  # Without section groups: a linker would keep the first level's of each group alone.
  add_custom_command(OUTPUT ${file}
    COMMAND ${CMAKE_LINKER} -r --force-group-allocation ${pruning} -o ${file}.all $<TARGET_OBJECTS:${name}>
    COMMAND ${CMAKE_OBJCOPY} --keep-global-symbol=${name} ${file}.all ${file}
    DEPENDS $<TARGET_OBJECTS:${name}> COMMAND_EXPAND_LISTS VERBATIM)
  set_source_files_properties(${file} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
  set(${object} ${file} PARENT_SCOPE)
endfunction()
