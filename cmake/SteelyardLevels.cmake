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
option(STEELYARD_LEVELS "Compile the CPU's kernels for several levels of x86-64, of which a program chooses one"
       ${levels_are_possible})
if(STEELYARD_LEVELS AND NOT levels_are_possible)
  message(FATAL_ERROR "STEELYARD_LEVELS needs x86-64, GNU ld and objcopy, and a build without STEELYARD_NATIVE, "
                      "sanitizers and fuzzers")
endif()

# steelyard_level(LEVEL OBJECT SOURCES... DEPENDS targets...): compiles the sources for x86-64-LEVEL and links them
# into one object, whose name becomes the variable OBJECT. Its only global symbol is the function of
# kernels/cpu/levels.h.
function(steelyard_level level object)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPENDS" ${ARGN})
  set(name steelyard_kernels_${level})
  add_library(${name} OBJECT ${arg_SOURCES})
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_include_directories(${name} PRIVATE ${STEELYARD_INCLUDE_DIR})
  target_link_libraries(${name} PRIVATE steelyard_flags ${arg_DEPENDS} steelyard_warnings)
  # objcopy does not make gcc's "unique" symbols local.
  target_compile_options(${name} PRIVATE -march=x86-64-${level} $<$<CXX_COMPILER_ID:GNU>:-fno-gnu-unique>)
  target_compile_definitions(${name} PRIVATE STEELYARD_LEVEL_KERNELS=${name})
  set(file ${CMAKE_CURRENT_BINARY_DIR}/${name}.o)
  # Without section groups: a linker would keep the first level's of each group alone.
  add_custom_command(OUTPUT ${file}
    COMMAND ${CMAKE_LINKER} -r --force-group-allocation -o ${file}.all $<TARGET_OBJECTS:${name}>
    COMMAND ${CMAKE_OBJCOPY} --keep-global-symbol=${name} ${file}.all ${file}
    DEPENDS $<TARGET_OBJECTS:${name}> COMMAND_EXPAND_LISTS VERBATIM)
  set_source_files_properties(${file} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
  set(${object} ${file} PARENT_SCOPE)
endfunction()
