# steelyard_add_plugin(NAME SOURCES...) makes libNAME.so, which `steelyard --plugin` loads (docs/own_parts.md). It is
# compiled with Steelyard's headers and flags and links none of its libraries: the program that loads it has them.
function(steelyard_add_plugin name)
  add_library(${name} MODULE ${ARGN})
  target_include_directories(${name} PRIVATE
    $<TARGET_PROPERTY:steelyard::kernels,INTERFACE_INCLUDE_DIRECTORIES>)
  if(TARGET steelyard_flags)
    target_link_libraries(${name} PRIVATE steelyard_flags)
    add_dependencies(${name} steelyard_recipes)  # which makes build_id.h
  else()
    target_link_libraries(${name} PRIVATE steelyard::steelyard_flags)
  endif()
endfunction()
