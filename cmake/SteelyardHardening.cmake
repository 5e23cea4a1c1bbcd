# Guards against exploits of memory errors (SECURITY.md): for everything built here, not for those who use the libraries.
# Programs lie at random addresses (PIE) by the default of gcc and clang. tests/structure/check_programs reads what the
# compiler and the linker made of all this. It does not go with the sanitizers, which find the errors themselves.
if(NOT STEELYARD_HARDENING OR STEELYARD_SANITIZE OR STEELYARD_SANITIZE_THREADS OR STEELYARD_FUZZ)
  return()
endif()

# C++ alone: the host code of CUDA files only launches kernels.
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fstack-protector-strong>)
# glibc checks sizes where the compiler optimizes; a distribution's compiler may define a lower level of its own.
add_compile_options(
  "$<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release,RelWithDebInfo,MinSizeRel>>:-U_FORTIFY_SOURCE;-D_FORTIFY_SOURCE=3>")
# The tables through which libraries are called are filled at the start, and read-only from then on.
add_link_options(LINKER:-z,relro,-z,now)
